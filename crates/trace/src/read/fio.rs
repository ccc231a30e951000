//! I/O logs of fio, versions 2 and 3: `fio version 3 iolog`, then `timestamp filename action offset length`.
//!
//! Source: fio's HOWTO, "Trace file format": version 3 begins each line with microseconds since the start; version 2 has no times, but an
//! action `wait` whose offset is a number of microseconds, counted from the previous one. Offset and length are in bytes. Other actions
//! than `read` and `write` have no data and are skipped. A volume is a file name.

use super::fields::{LineParser, Raw, clock, is_remark, split_blanks, whole, whole_u32};
use super::names::Names;
use crate::request::{Op, Reason};

/// Nanoseconds of a microsecond.
const US: u64 = 1000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    Two,
    Three,
}

#[derive(Default)]
pub(super) struct Fio {
    /// Unit of the times instead of microseconds, in nanoseconds.
    unit_ns: Option<u64>,
    /// `None` before the first line.
    version: Option<Version>,
    /// Sum of the waits of version 2.
    waited_ns: u64,
    names: Names,
}

impl Fio {
    pub(super) fn new(unit_ns: Option<u64>) -> Self {
        Self { unit_ns, ..Self::default() }
    }
}

impl LineParser for Fio {
    fn parse(&mut self, line: &[u8]) -> Result<Option<Raw>, Reason> {
        if is_remark(line) {
            return Ok(None);
        }
        let Some(version) = self.version else {
            self.version = Some(match line.trim_ascii() {
                b"fio version 2 iolog" => Version::Two,
                b"fio version 3 iolog" => Version::Three,
                _ => return Err(Reason::NoVersion),
            });
            return Ok(None);
        };
        let mut words = split_blanks(line);
        let at = if version == Version::Three { words.next() } else { None };
        let mut all = [&line[..0]; 4];
        let found = words.zip(&mut all).map(|(word, place)| *place = word).count();
        let [name, action, offset, bytes] = all;
        let op = match action {
            b"read" => Op::Read,
            b"write" => Op::Write,
            b"wait" if version == Version::Two => {
                let waited_ns = self.waited_ns.checked_add(clock(offset, self.unit_ns, US, "offset")?);
                self.waited_ns = waited_ns.ok_or(Reason::TooLarge { field: "offset" })?;
                return Ok(None);
            }
            b"add" | b"open" | b"close" | b"wait" | b"sync" | b"datasync" | b"sync_file_range" | b"trim" => {
                return Ok(None);
            }
            _ => {
                let expected = "read, write, or another action of fio's iolog";
                return Err(Reason::Operation { field: "action", expected });
            }
        };
        if found < all.len() {
            return Err(Reason::Fields { expected: "offset and length", found });
        }
        let raw = Raw {
            clock_ns: at.map_or(Ok(self.waited_ns), |at| clock(at, self.unit_ns, US, "timestamp"))?,
            volume: 0,
            op,
            offset: whole(offset, "offset")?,
            bytes: whole_u32(bytes, "length")?,
        };
        let raw = raw.checked()?;
        Ok(Some(Raw { volume: self.names.number(name, None)?, ..raw }))
    }

    fn volume_name(&self, volume: u32) -> Option<&str> {
        self.names.name(volume)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_have_the_same_requests() {
        let two = "fio version 2 iolog\n/dev/a add\n/dev/a open\n/dev/a read 0 4096\n/dev/a wait 150 0\n\
                   /dev/b write 8192 512\n/dev/a trim 0 4096\n/dev/a wait 50 0\n/dev/a write 4096 4096\n/dev/a close";
        let three = "fio version 3 iolog\n0 /dev/a add\n0 /dev/a open\n0 /dev/a read 0 4096\n\
                     150 /dev/b write 8192 512\n160 /dev/a datasync 0 0\n200 /dev/a write 4096 4096\n210 /dev/a close";
        let request = |clock_ns, volume, op, offset, bytes| Raw { clock_ns, volume, op, offset, bytes };
        let expected = [
            request(0, 0, Op::Read, 0, 4096),
            request(150_000, 1, Op::Write, 8192, 512),
            request(200_000, 0, Op::Write, 4096, 4096),
        ];
        for text in [two, three] {
            let mut fio = Fio::default();
            let all: Vec<Raw> = text.lines().filter_map(|line| fio.parse(line.as_bytes()).unwrap()).collect();
            assert_eq!((&all[..], fio.volume_name(1)), (&expected[..], Some("/dev/b")), "{text}");
        }
    }

    #[test]
    fn other_lines_are_malformed() {
        let mut fio = Fio::default();
        assert_eq!(fio.parse(b"fio version 1 iolog"), Err(Reason::NoVersion));
        assert_eq!(fio.parse(b"fio version 3 iolog"), Ok(None));
        assert!(fio.parse(b"0 /dev/a erase 0 1").is_err() && fio.parse(b"0 /dev/a read 0").is_err());
        assert!(fio.parse(b"/dev/a read 0 4096").is_err());
    }
}
