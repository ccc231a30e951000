//! Traces of MSR Cambridge: `Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime`.
//!
//! Source: README of SNIA IOTTA trace 388 (block-io/387), section 3: time of issue as Windows filetime (units of 100 ns
//! since 1601), host, number of the disk, `Read` or `Write`, offset and size in bytes, response time in units of 100 ns
//! (ignored). A volume is a host and a disk, such as `usr.0`.

use super::fields::{LineParser, Raw, clock, commas, is_heading, is_remark, whole, whole_u32};
use super::names::Names;
use crate::request::{Op, Reason};

#[derive(Default)]
pub(super) struct Msr {
    /// Unit of the times instead of 100 ns, in nanoseconds.
    unit_ns: Option<u64>,
    names: Names,
}

impl Msr {
    pub(super) fn new(unit_ns: Option<u64>) -> Self {
        Self { unit_ns, ..Self::default() }
    }
}

impl LineParser for Msr {
    fn parse(&mut self, line: &[u8]) -> Result<Option<Raw>, Reason> {
        if is_remark(line) || is_heading(line, &["timestamp", "hostname"]) {
            return Ok(None);
        }
        let [at, host, disk, op, offset, bytes, _response] = commas(line, "7")?;
        let op = match op {
            _ if op.eq_ignore_ascii_case(b"read") => Op::Read,
            _ if op.eq_ignore_ascii_case(b"write") => Op::Write,
            _ => return Err(Reason::Operation { field: "Type", expected: "Read or Write" }),
        };
        let disk = whole_u32(disk, "DiskNumber")?;
        let raw = Raw {
            clock_ns: clock(at, self.unit_ns, 100, "Timestamp")?,
            volume: 0,
            op,
            offset: whole(offset, "Offset")?,
            bytes: whole_u32(bytes, "Size")?,
        };
        let raw = raw.checked()?;
        let volume = self.names.number(host, Some(disk))?;
        Ok(Some(Raw { volume, ..raw }))
    }

    fn volume_name(&self, volume: u32) -> Option<&str> {
        self.names.name(volume)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_are_numbered_in_order_of_appearance() {
        let mut msr = Msr::default();
        let mut volume = |line: &str| msr.parse(line.as_bytes()).unwrap().unwrap();
        let first = volume("128166372003061629,usr,0,Read,7014609920,24576,41286");
        assert_eq!((first.volume, first.op, first.offset, first.bytes), (0, Op::Read, 7_014_609_920, 24576));
        assert_eq!(first.clock_ns, 12_816_637_200_306_162_900);
        assert_eq!(volume("128166372003061630,usr,1,Write,0,512,1").volume, 1);
        assert_eq!(volume("128166372003061631,src1,0,Write,0,512,1").volume, 2);
        assert_eq!(volume("128166372003061632,usr,0,Write,0,512,1").volume, 0);
        assert_eq!(msr.volume_name(1), Some("usr.1"));
        assert_eq!(msr.volume_name(3), None);
    }

    #[test]
    fn a_malformed_line_adds_no_volume() {
        let mut msr = Msr::default();
        assert!(msr.parse(b"1,usr,0,Read,0,0,1").is_err());
        assert_eq!(msr.volume_name(0), None);
    }
}
