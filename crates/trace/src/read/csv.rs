//! Plain CSV with a heading: `time_ns,volume,op,offset,bytes`, in any order.
//!
//! Columns: `time_ns`, `time_us` or `time_s` (the latter two with optional decimals), `op` (`R`, `W`, `read` or `write`), `offset` and
//! `bytes`; `volume` is optional (default 0). Duplicate columns and two time columns are refused, other columns ignored. Volumes are
//! all numbers below 2^32 or all names, according to the first line. Parsed by hand because lines are scanned without allocation.

use super::fields::{LineParser, Raw, decimal, is_remark, whole, whole_u32};
use super::names::Names;
use crate::request::{Op, Reason};

/// Positions of the columns.
#[derive(Clone, Copy, Debug)]
struct Columns {
    time: usize,
    /// Unit of the time in nanoseconds.
    unit_ns: u64,
    volume: Option<usize>,
    op: usize,
    offset: usize,
    bytes: usize,
    /// Number of columns.
    count: usize,
}

impl Columns {
    fn of(heading: &[u8]) -> Result<Self, Reason> {
        let names: Vec<String> = heading
            .split(|&b| b == b',')
            .map(|name| String::from_utf8_lossy(name.trim_ascii()).to_ascii_lowercase())
            .collect();
        let find = |wanted: &str| names.iter().position(|name| name == wanted);
        let units = UNITS.iter().find_map(|&(name, unit_ns)| Some((find(name)?, unit_ns)));
        let (time, unit_ns) = units.ok_or(Reason::Heading)?;
        let needed = |wanted: &str| find(wanted).ok_or(Reason::Heading);
        let (op, offset, bytes) = (needed("op")?, needed("offset")?, needed("bytes")?);
        if let Some((one, other)) = duplicate(&names) {
            return Err(Reason::DuplicateColumn { one, other });
        }
        Ok(Self { time, unit_ns, volume: find("volume"), op, offset, bytes, count: names.len() })
    }
}

/// Time columns and their units in nanoseconds.
const UNITS: [(&str, u64); 3] = [("time_ns", 1), ("time_us", 1000), ("time_s", 1_000_000_000)];

/// The first two columns of the same meaning.
fn duplicate(names: &[String]) -> Option<(String, String)> {
    let is_time = |name: &str| UNITS.iter().any(|(unit, _)| *unit == name);
    let is_known = |name: &str| ["volume", "op", "offset", "bytes"].contains(&name) || is_time(name);
    let same = |one: &str, other: &str| one == other || (is_time(one) && is_time(other));
    let known = names.iter().enumerate().filter(|(_, name)| is_known(name));
    known.into_iter().find_map(|(at, one)| {
        let other = names[at + 1..].iter().find(|other| same(one, other))?;
        Some((one.clone(), other.clone()))
    })
}

/// The error of an ambiguous heading, if the text starts with a heading.
pub(super) fn ambiguous(beginning: &[u8]) -> Option<Reason> {
    let lines = beginning.split(|&b| b == b'\n').map(<[u8]>::trim_ascii);
    let heading = lines.into_iter().find(|line| !line.is_empty() && !is_remark(line))?;
    Columns::of(heading).err().filter(|reason| matches!(reason, Reason::DuplicateColumn { .. }))
}

#[derive(Default)]
pub(super) struct Csv {
    columns: Option<Columns>,
    /// Whether volumes are names, from the first request on.
    named: Option<bool>,
    names: Names,
}

impl Csv {
    fn volume(&mut self, field: &[u8]) -> Result<u32, Reason> {
        let named = *self.named.get_or_insert_with(|| whole_u32(field, "volume").is_err());
        if named { self.names.number(field, None) } else { whole_u32(field, "volume") }
    }
}

impl LineParser for Csv {
    fn parse(&mut self, line: &[u8]) -> Result<Option<Raw>, Reason> {
        if is_remark(line) {
            return Ok(None);
        }
        let Some(columns) = self.columns else {
            self.columns = Some(Columns::of(line)?);
            return Ok(None);
        };
        let nothing = &line[..0];
        let (mut time, mut volume, mut op, mut offset, mut bytes) = (nothing, None, nothing, nothing, nothing);
        let mut found = 0;
        for (at, field) in line.split(|&b| b == b',').map(<[u8]>::trim_ascii).enumerate() {
            found += 1;
            match at {
                _ if at == columns.time => time = field,
                _ if at == columns.op => op = field,
                _ if at == columns.offset => offset = field,
                _ if at == columns.bytes => bytes = field,
                _ if Some(at) == columns.volume => volume = Some(field),
                _ => {}
            }
        }
        if found != columns.count {
            return Err(Reason::Fields { expected: "the heading's number", found });
        }
        let raw = Raw {
            clock_ns: decimal(time, columns.unit_ns, "time")?,
            volume: 0,
            op: operation(op)?,
            offset: whole(offset, "offset")?,
            bytes: whole_u32(bytes, "bytes")?,
        };
        let raw = raw.checked()?;
        let volume = volume.map_or(Ok(0), |field| self.volume(field))?;
        Ok(Some(Raw { volume, ..raw }))
    }

    fn volume_name(&self, volume: u32) -> Option<&str> {
        self.names.name(volume)
    }
}

fn operation(field: &[u8]) -> Result<Op, Reason> {
    let is = |name: &str| field.eq_ignore_ascii_case(name.as_bytes());
    match field {
        _ if is("r") || is("read") => Ok(Op::Read),
        _ if is("w") || is("write") => Ok(Op::Write),
        _ => Err(Reason::Operation { field: "op", expected: "R, W, read or write" }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Vec<Result<Option<Raw>, Reason>> {
        let mut csv = Csv::default();
        text.lines().map(|line| csv.parse(line.as_bytes())).collect()
    }

    #[test]
    fn columns_are_found_by_name() {
        let all = parse("bytes, op,latency,time_us,offset\n4096,R,7,1.5,8192\n512,write,,2,0");
        let first = Raw { clock_ns: 1500, volume: 0, op: Op::Read, offset: 8192, bytes: 4096 };
        let second = Raw { clock_ns: 2000, volume: 0, op: Op::Write, offset: 0, bytes: 512 };
        assert_eq!(all, [Ok(None), Ok(Some(first)), Ok(Some(second))]);
    }

    #[test]
    fn volumes_are_numbers_or_names() {
        let volumes = |rows: &str| {
            let all = parse(&format!("time_ns,volume,op,offset,bytes\n{rows}"));
            all.into_iter().skip(1).map(|r| r.ok().flatten().map(|raw| raw.volume)).collect::<Vec<_>>()
        };
        assert_eq!(volumes("1,70,R,0,1\n1,3,R,0,1\n1,a,R,0,1"), [Some(70), Some(3), None]);
        assert_eq!(volumes("1,a,R,0,1\n1,3,R,0,1\n1,a,R,0,1"), [Some(0), Some(1), Some(0)]);
    }

    #[test]
    fn duplicate_columns_are_refused() {
        for (heading, one, other) in [
            ("time_ns,time_s,op,offset,bytes", "time_ns", "time_s"),
            ("time_s,op,offset,time_s,bytes", "time_s", "time_s"),
            ("time_s,op,offset,bytes,Offset", "offset", "offset"),
        ] {
            let reason = Reason::DuplicateColumn { one: one.into(), other: other.into() };
            assert_eq!(parse(heading), [Err(reason.clone())]);
            assert_eq!(ambiguous(format!("# a remark\n\n{heading}\n1,R,0,1\n").as_bytes()), Some(reason));
        }
        assert_eq!(ambiguous(b"time_s,op,offset,bytes,note,note\n"), None, "ignored columns may be duplicates");
        assert_eq!(ambiguous(b"time_s,time_s\n"), None, "not a heading");
    }

    #[test]
    fn a_byte_order_mark_is_skipped() {
        use crate::{Format, Options, Reader};
        let text = "\u{feff}time_s,op,offset,bytes\n1,R,0,512\n2,W,512,512\n";
        let reader = Reader::new(text.as_bytes(), &Options::default()).unwrap();
        assert_eq!(reader.format(), Format::Csv);
        assert_eq!(reader.collect::<Result<Vec<_>, _>>().unwrap().len(), 2);
        let refused = Reader::new("\u{feff}time_s,time_ns,op,offset,bytes\n".as_bytes(), &Options::default());
        let message = refused.err().unwrap().to_string();
        assert!(message.contains("`time_s` and `time_ns`"), "{message}");
    }

    #[test]
    fn a_heading_is_required() {
        assert_eq!(parse("1,2,R,0,1"), [Err(Reason::Heading)]);
        let all = parse("time_s,op,offset,bytes\n1,R,0\n1,X,0,1");
        assert_eq!(all[1], Err(Reason::Fields { expected: "the heading's number", found: 3 }));
        assert!(matches!(all[2], Err(Reason::Operation { .. })));
    }
}
