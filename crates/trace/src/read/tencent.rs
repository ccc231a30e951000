//! Tencent CBS traces: `Timestamp,Offset,Size,IOType,VolumeID`.
//!
//! Source: README of SNIA IOTTA trace 27917 (parallel/28064), section 3: seconds since 1970, offset and size in sectors of
//! 512 bytes, 0 for a read and 1 for a write, number of the volume. The clock has a resolution of a
//! second, so all requests of a second have its start as time.

use super::fields::{
    LineParser, NS_PER_S, Raw, SECTOR, clock, commas, is_heading, is_remark, sectors_u32, times, whole_u32,
};
use crate::request::{Op, Reason};

#[derive(Default)]
pub(super) struct Tencent {
    /// Unit of the times instead of the format's, in nanoseconds.
    pub(super) unit_ns: Option<u64>,
}

impl LineParser for Tencent {
    fn parse(&mut self, line: &[u8]) -> Result<Option<Raw>, Reason> {
        if is_remark(line) || is_heading(line, &["timestamp", "offset"]) {
            return Ok(None);
        }
        let [at, offset, sectors, op, volume] = commas(line, "5")?;
        let op = match op {
            b"0" => Op::Read,
            b"1" => Op::Write,
            _ => return Err(Reason::Operation { field: "IOType", expected: "0 or 1" }),
        };
        let raw = Raw {
            clock_ns: clock(at, self.unit_ns, NS_PER_S, "Timestamp")?,
            volume: whole_u32(volume, "VolumeID")?,
            op,
            offset: times(offset, SECTOR, "Offset")?,
            bytes: sectors_u32(sectors, "Size")?,
        };
        raw.checked().map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sectors_seconds_and_types() {
        let raw = Tencent::default().parse(b"1538323200,12910952,128,0,1063").unwrap().unwrap();
        let clock_ns = 1_538_323_200_000_000_000;
        assert_eq!(raw, Raw { clock_ns, volume: 1063, op: Op::Read, offset: 12_910_952 * 512, bytes: 65536 });
        assert_eq!(Tencent::default().parse(b"1538323200,0,8,1,1").unwrap().unwrap().op, Op::Write);
        assert!(Tencent::default().parse(b"1538323200,0,8,2,1").is_err());
        assert_eq!(Tencent::default().parse(b"Timestamp,Offset,Size,IOType,VolumeID"), Ok(None));
    }
}
