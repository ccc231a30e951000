//! Alibaba block traces: `device_id,opcode,offset,length,timestamp`.
//!
//! Source: README of <https://github.com/alibaba/block-traces>, schema of `io_traces.csv`: number of the virtual disk
//! (32 bits), `R` or `W`, offset in bytes, length in bytes, microseconds since 1970. A heading is skipped.

use super::fields::{LineParser, Raw, clock, commas, is_heading, is_remark, whole, whole_u32};
use crate::request::{Op, Reason};

#[derive(Default)]
pub(super) struct Alibaba {
    /// Unit of the times instead of the format's, in nanoseconds.
    pub(super) unit_ns: Option<u64>,
}

impl LineParser for Alibaba {
    fn parse(&mut self, line: &[u8]) -> Result<Option<Raw>, Reason> {
        if is_remark(line) || is_heading(line, &["device_id", "opcode"]) {
            return Ok(None);
        }
        let [volume, op, offset, bytes, at] = commas(line, "5")?;
        let op = match op {
            b"R" | b"r" => Op::Read,
            b"W" | b"w" => Op::Write,
            _ => return Err(Reason::Operation { field: "opcode", expected: "R or W" }),
        };
        let raw = Raw {
            clock_ns: clock(at, self.unit_ns, 1000, "timestamp")?,
            volume: whole_u32(volume, "device_id")?,
            op,
            offset: whole(offset, "offset")?,
            bytes: whole_u32(bytes, "length")?,
        };
        raw.checked().map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_example() {
        let raw = Alibaba::default().parse(b"0,R,126703644672,4096,1577808000000626").unwrap().unwrap();
        let clock_ns = 1_577_808_000_000_626_000;
        assert_eq!(raw, Raw { clock_ns, volume: 0, op: Op::Read, offset: 126_703_644_672, bytes: 4096 });
        assert_eq!(Alibaba::default().parse(b"device_id,opcode,offset,length,timestamp"), Ok(None));
    }

    #[test]
    fn errors_name_the_field() {
        let wrong = |line: &str| Alibaba::default().parse(line.as_bytes()).unwrap_err().to_string();
        assert_eq!(wrong("0,R,1,4096"), "has 4 fields instead of 5");
        assert_eq!(wrong("0,T,1,4096,5"), "`opcode` is neither a read nor a write (R or W)");
        assert_eq!(wrong("x,R,1,4096,5"), "`device_id` is not a whole number");
        assert_eq!(wrong("0,R,1,0,5"), "has a size of 0 bytes");
        assert_eq!(wrong("0,R,18446744073709551615,1,5"), "ends beyond 2^64 bytes");
    }
}
