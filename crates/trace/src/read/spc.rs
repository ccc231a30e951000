//! SPC traces, such as those of UMass: `ASU,LBA,Size,Opcode,Timestamp`.
//!
//! Source: SPC Trace File Format Specification 1.0.1: number of the application specific unit (the volume), first sector (of 512 bytes in
//! the traces of UMass), size in bytes, `R` or `W`, seconds with decimals since the start. Further fields are optional and ignored.

use super::fields::{LineParser, NS_PER_S, Raw, SECTOR, decimal, is_remark, times, whole_u32};
use crate::request::{Op, Reason};

#[derive(Default)]
pub(super) struct Spc {
    /// Unit of the times instead of seconds, in nanoseconds.
    pub(super) unit_ns: Option<u64>,
}

impl LineParser for Spc {
    fn parse(&mut self, line: &[u8]) -> Result<Option<Raw>, Reason> {
        if is_remark(line) {
            return Ok(None);
        }
        let mut all = [&line[..0]; 5];
        let fields = line.split(|&b| b == b',').map(<[u8]>::trim_ascii);
        let found = fields.zip(&mut all).map(|(field, place)| *place = field).count();
        if found < all.len() {
            return Err(Reason::Fields { expected: "5 or more", found });
        }
        let [asu, lba, bytes, op, at] = all;
        let op = match op {
            b"R" | b"r" => Op::Read,
            b"W" | b"w" => Op::Write,
            _ => return Err(Reason::Operation { field: "Opcode", expected: "R or W" }),
        };
        let raw = Raw {
            clock_ns: decimal(at, self.unit_ns.unwrap_or(NS_PER_S), "Timestamp")?,
            volume: whole_u32(asu, "ASU")?,
            op,
            offset: times(lba, SECTOR, "LBA")?,
            bytes: whole_u32(bytes, "Size")?,
        };
        raw.checked().map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sectors_bytes_and_seconds() {
        let parse = |line: &str| Spc::default().parse(line.as_bytes());
        let expected = Raw { clock_ns: 551_706_000, volume: 3, op: Op::Write, offset: 1000 * 512, bytes: 8192 };
        assert_eq!(parse("3,1000,8192,W,0.551706"), Ok(Some(expected)));
        assert_eq!(parse("3, 1000, 8192, w, 0.551706, more"), Ok(Some(expected)));
        assert!(parse("3,1000,8192,X,0.5").is_err() && parse("3,1000,8192,W").is_err());
    }
}
