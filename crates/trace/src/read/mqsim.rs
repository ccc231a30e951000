//! Traces of MQSim: `time device lba sectors type`.
//!
//! Source: README of <https://github.com/CMU-SAFARI/MQSim>, trace-based workloads (the ASCII form of DiskSim): time of
//! arrival in nanoseconds, number of the device, first sector and number of sectors of 512 bytes, 0 for a write and 1 for a
//! read.

use super::fields::{LineParser, Raw, SECTOR, blanks, clock, is_remark, sectors_u32, times, whole_u32};
use crate::request::{Op, Reason};

#[derive(Default)]
pub(super) struct Mqsim {
    /// Unit of the times instead of nanoseconds, such as that of DiskSim.
    pub(super) unit_ns: Option<u64>,
}

impl LineParser for Mqsim {
    fn parse(&mut self, line: &[u8]) -> Result<Option<Raw>, Reason> {
        if is_remark(line) {
            return Ok(None);
        }
        let [at, volume, lba, sectors, op] = blanks(line, "5")?;
        let op = match op {
            b"0" => Op::Write,
            b"1" => Op::Read,
            _ => return Err(Reason::Operation { field: "type", expected: "1 or 0" }),
        };
        let raw = Raw {
            clock_ns: clock(at, self.unit_ns, 1, "time")?,
            volume: whole_u32(volume, "device")?,
            op,
            offset: times(lba, SECTOR, "lba")?,
            bytes: sectors_u32(sectors, "sectors")?,
        };
        raw.checked().map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_a_read() {
        let raw = Mqsim::default().parse(b"938513000 4 264719034 16 0").unwrap().unwrap();
        let offset = 264_719_034 * 512;
        assert_eq!(raw, Raw { clock_ns: 938_513_000, volume: 4, op: Op::Write, offset, bytes: 8192 });
        assert_eq!(Mqsim::default().parse(b"1 4 2 16 1").unwrap().unwrap().op, Op::Read);
        assert!(Mqsim::default().parse(b"1 4 2 16").is_err() && Mqsim::default().parse(b"1 4 2 16 2").is_err());
    }
}
