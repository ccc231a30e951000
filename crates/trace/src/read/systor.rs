//! Traces of SYSTOR '17 (virtual desktops): `Timestamp,Response,IOType,LUN,Offset,Size`.
//!
//! Source: README of the SYSTOR '17 traces of SNIA IOTTA: seconds since 1970 with decimals, response time in seconds (ignored), `R` or `W` (empty for
//! other commands, which are skipped), number of the LUN, offset and size in bytes.

use super::fields::{LineParser, NS_PER_S, Raw, commas, decimal, is_heading, is_remark, whole, whole_u32};
use crate::request::{Op, Reason};

#[derive(Default)]
pub(super) struct Systor {
    /// Unit of the times instead of seconds, in nanoseconds.
    pub(super) unit_ns: Option<u64>,
}

impl LineParser for Systor {
    fn parse(&mut self, line: &[u8]) -> Result<Option<Raw>, Reason> {
        if is_remark(line) || is_heading(line, &["timestamp", "response", "iotype"]) {
            return Ok(None);
        }
        let [at, _response, op, lun, offset, bytes] = commas(line, "6")?;
        let clock_ns = decimal(at, self.unit_ns.unwrap_or(NS_PER_S), "Timestamp")?;
        let volume = whole_u32(lun, "LUN")?;
        let op = match op {
            b"R" => Op::Read,
            b"W" => Op::Write,
            b"" => return Ok(None),
            _ => return Err(Reason::Operation { field: "IOType", expected: "R or W" }),
        };
        let raw = Raw { clock_ns, volume, op, offset: whole(offset, "Offset")?, bytes: whole_u32(bytes, "Size")? };
        raw.checked().map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_without_data_are_skipped() {
        let parse = |line: &str| Systor::default().parse(line.as_bytes());
        let clock_ns = 1_455_592_022_019_385_000;
        let expected = Raw { clock_ns, volume: 2, op: Op::Read, offset: 8192, bytes: 4096 };
        assert_eq!(parse("1455592022.019385000,0.001083,R,2,8192,4096"), Ok(Some(expected)));
        assert_eq!(parse("1455592022.019385000,,R,2,8192,4096"), Ok(Some(expected)));
        assert_eq!(parse("1455592022.019385000,0.001083,,2,0,0"), Ok(None));
        assert_eq!(parse("Timestamp,Response,IOType,LUN,Offset,Size"), Ok(None));
        assert!(parse("1455592022,0.001,X,2,8192,4096").is_err() && parse("1,2,R,3,4").is_err());
    }
}
