//! Plain CSV with a heading: `time_ns,volume,op,offset,bytes`, in any order, separated by `,`, `;` or tabs.
//!
//! Columns: `time_ns`, `time_us`, `time_ms` or `time_s` (with optional decimals), `op` (`R`, `W`, `read` or `write`), `offset` and
//! `bytes`; `volume` is optional (default 0). Other usual names are known too ([`NAMES`], [`TIMES`]) and count where these are absent.
//! Two columns of the same meaning are refused, other columns ignored. Volumes are all numbers below 2^32 or all names, according
//! to the first line. Parsed by hand because lines are scanned without allocation.

use super::fields::{LineParser, Raw, SECTOR, UNITS, decimal, is_remark, times, whole_u32};
use super::names::Names;
use crate::request::{Op, Reason};

/// Meaning of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Time,
    Volume,
    Op,
    Offset,
    Bytes,
}

/// Names of columns with their unit in bytes. The first one of a role is the one that is written.
const NAMES: [(Role, u64, &[&str]); 6] = [
    (Role::Volume, 1, &["volume", "volume_id", "device", "device_id", "dev", "disk", "lun"]),
    (Role::Op, 1, &["op", "operation", "opcode", "type", "rw", "io_type", "iotype"]),
    (Role::Offset, 1, &["offset", "offset_bytes", "byte_offset"]),
    (Role::Bytes, 1, &["bytes", "size", "size_bytes", "length", "length_bytes", "len"]),
    (Role::Offset, SECTOR, &["lba", "lbn", "sector", "offset_sectors"]),
    (Role::Bytes, SECTOR, &["sectors", "size_sectors", "length_sectors", "nr_sectors"]),
];
/// Names of times without their unit.
const TIMES: [&str; 3] = ["time", "timestamp", "ts"];
/// Roles that a heading must have.
const REQUIRED: [(Role, &str); 4] = [
    (Role::Time, "the time (time_ns, time_us, time_ms or time_s)"),
    (Role::Op, "the operation (op)"),
    (Role::Offset, "the offset (offset in bytes, or lba in sectors)"),
    (Role::Bytes, "the size (bytes or sectors)"),
];

/// A column with a known name.
struct Column<'a> {
    at: usize,
    name: &'a str,
    role: Role,
    /// In nanoseconds or bytes; `None` if the name of a time has none.
    unit: Option<u64>,
    /// Whether the name is the one that is written, which has precedence over others.
    own: bool,
}

impl<'a> Column<'a> {
    fn parse((at, name): (usize, &'a String)) -> Option<Self> {
        if TIMES.contains(&name.as_str()) {
            return Some(Self { at, name, role: Role::Time, unit: None, own: false });
        }
        let unit = name.rsplit_once('_').filter(|(time, _)| TIMES.contains(time));
        if let Some((time, unit)) = unit {
            let (_, unit_ns) = UNITS.iter().find(|(known, _)| *known == unit)?;
            return Some(Self { at, name, role: Role::Time, unit: Some(*unit_ns), own: time == TIMES[0] });
        }
        let (role, unit, names) = NAMES.iter().find(|(_, _, names)| names.contains(&name.as_str()))?;
        Some(Self { at, name, role: *role, unit: Some(*unit), own: *unit == 1 && names[0] == name })
    }
}

/// Positions of the columns.
#[derive(Clone, Copy, Debug)]
struct Columns {
    separator: u8,
    time: usize,
    /// Unit of the time in nanoseconds.
    unit_ns: u64,
    volume: Option<usize>,
    op: usize,
    offset: usize,
    /// Unit of the offset in bytes.
    offset_unit: u64,
    bytes: usize,
    /// Unit of the size in bytes.
    bytes_unit: u64,
    /// Number of columns.
    count: usize,
}

impl Columns {
    /// The columns of a heading, with the separator that finds most of them.
    fn parse(heading: &[u8], unit_ns: Option<u64>) -> Result<Self, Reason> {
        let lacks = |columns: &Result<Self, Reason>| columns.as_ref().err().map_or(0, missing_columns);
        let [comma, others @ ..] = [b',', b';', b'\t'].map(|separator| Self::separated(heading, separator, unit_ns));
        others.into_iter().fold(comma, |best, other| if lacks(&other) < lacks(&best) { other } else { best })
    }

    fn separated(heading: &[u8], separator: u8, unit_ns: Option<u64>) -> Result<Self, Reason> {
        let names: Vec<String> = heading
            .split(|&b| b == separator)
            .map(|name| String::from_utf8_lossy(name.trim_ascii()).to_ascii_lowercase())
            .collect();
        let columns: Vec<Column<'_>> = names.iter().enumerate().filter_map(Column::parse).collect();
        let missing = REQUIRED.iter().filter(|(role, _)| !columns.iter().any(|column| column.role == *role));
        let missing: Vec<&'static str> = missing.map(|(_, what)| *what).collect();
        if !missing.is_empty() {
            return Err(Reason::Heading { missing });
        }
        let only = |role| only(&columns, role);
        let (time, op, offset, bytes) = (only(Role::Time)?, only(Role::Op)?, only(Role::Offset)?, only(Role::Bytes)?);
        let unit = unit_ns.or(time.unit).ok_or_else(|| Reason::NoUnit { column: time.name.to_owned() })?;
        let volume =
            columns.iter().any(|column| column.role == Role::Volume).then(|| only(Role::Volume)).transpose()?;
        Ok(Self {
            separator,
            time: time.at,
            unit_ns: unit,
            volume: volume.map(|column| column.at),
            op: op.at,
            offset: offset.at,
            offset_unit: offset.unit.unwrap_or(1),
            bytes: bytes.at,
            bytes_unit: bytes.unit.unwrap_or(1),
            count: names.len(),
        })
    }
}

/// The column of a role.
fn only<'a>(columns: &'a [Column<'a>], role: Role) -> Result<&'a Column<'a>, Reason> {
    let own = columns.iter().any(|column| column.role == role && column.own);
    let mut all = columns.iter().filter(|column| column.role == role && column.own == own);
    match (all.next(), all.next()) {
        (Some(one), None) => Ok(one),
        (Some(one), Some(other)) => {
            Err(Reason::DuplicateColumn { one: one.name.to_owned(), other: other.name.to_owned() })
        }
        (None, _) => Err(Reason::Heading { missing: Vec::new() }),
    }
}

/// Number of columns that a heading lacks.
fn missing_columns(reason: &Reason) -> usize {
    if let Reason::Heading { missing } = reason { missing.len() } else { 0 }
}

/// Why no line is a heading: the error of the line with the most columns.
pub(super) fn heading_error(beginning: &[u8], unit_ns: Option<u64>) -> Option<Reason> {
    let mut best: Option<Reason> = None;
    for line in beginning.split(|&b| b == b'\n').filter(|line| !is_remark(line)) {
        let reason = Columns::parse(line, unit_ns).err()?;
        if best.as_ref().is_none_or(|best| missing_columns(&reason) < missing_columns(best)) {
            best = Some(reason);
        }
    }
    best
}

/// Whether a line of this error is a heading nevertheless: it has at least two of the columns.
pub(super) fn is_almost_heading(reason: &Reason) -> bool {
    missing_columns(reason) + 2 <= REQUIRED.len()
}

#[derive(Default)]
pub(super) struct Csv {
    /// Unit of the times instead of the heading's, in nanoseconds.
    unit_ns: Option<u64>,
    columns: Option<Columns>,
    /// Whether volumes are names, from the first request on.
    named: Option<bool>,
    names: Names,
}

impl Csv {
    pub(super) fn new(unit_ns: Option<u64>) -> Self {
        Self { unit_ns, ..Self::default() }
    }

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
            self.columns = Some(Columns::parse(line, self.unit_ns)?);
            return Ok(None);
        };
        let nothing = &line[..0];
        let (mut time, mut volume, mut op, mut offset, mut bytes) = (nothing, None, nothing, nothing, nothing);
        let mut found = 0;
        for (at, field) in line.split(|&b| b == columns.separator).map(<[u8]>::trim_ascii).enumerate() {
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
            offset: times(without_zeros(offset), columns.offset_unit, "offset")?,
            bytes: u32::try_from(times(without_zeros(bytes), columns.bytes_unit, "bytes")?)
                .map_err(|_| Reason::TooLarge { field: "bytes" })?,
        };
        let raw = raw.checked()?;
        let volume = volume.map_or(Ok(0), |field| self.volume(field))?;
        Ok(Some(Raw { volume, ..raw }))
    }

    fn volume_name(&self, volume: u32) -> Option<&str> {
        self.names.name(volume)
    }
}

/// The digits before decimals that are all zero: pandas writes a column of whole numbers as 4096.0 if one value is missing.
fn without_zeros(field: &[u8]) -> &[u8] {
    let point = field.iter().position(|&b| b == b'.').filter(|&at| at + 1 < field.len());
    let zeros = point.filter(|&at| field[at + 1..].iter().all(|&b| b == b'0'));
    &field[..zeros.unwrap_or(field.len())]
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
    fn usual_names_units_and_separators_are_known() {
        let expected = Raw { clock_ns: 1_500_000, volume: 0, op: Op::Read, offset: 8192, bytes: 4096 };
        for (text, unit_ns) in [
            ("time_ms,op,offset,bytes\n1.5,R,8192,4096", None),
            ("timestamp_us,op,offset_bytes,size_bytes\n1500,R,8192,4096", None),
            ("ts_ms;type;lba;length\n1,5;READ;16;4096", None),
            ("TS\tRW\tLBA\tSectors\tlatency\n1500\tr\t16\t8\t", Some(1000)),
            ("timestamp,operation,sector,sectors\n0.0015,R,16,8", Some(1_000_000_000)),
            ("time_ns,ts,op,type,offset,lba,bytes,size\n1500000,9,R,x,8192,7,4096,9", None),
            ("time_s,op,offset,bytes\n1.5,R,8192,4096", Some(1_000_000)),
        ] {
            let mut csv = Csv::new(unit_ns);
            let all: Vec<_> = text.lines().filter_map(|line| csv.parse(line.as_bytes()).transpose()).collect();
            assert_eq!(all, [Ok(expected)], "{text}");
        }
    }

    #[test]
    fn offsets_and_sizes_may_have_decimals_of_zero_and_volumes_may_not() {
        let request = |offset: &str, bytes: &str| {
            parse(&format!("time_us,op,offset,bytes\n1,R,{offset},{bytes}")).pop().unwrap().map(Option::unwrap)
        };
        let written = request("8192.000", "4096.0").unwrap();
        assert_eq!((written.offset, written.bytes), (8192, 4096));
        for wrong in ["4096.5", "4096.", ".0", "4096.0.0", "4096.0x"] {
            assert!(request("0", wrong).is_err() && request(wrong, "512").is_err(), "{wrong}");
        }
        let mut csv = Csv::default();
        for line in ["time_us,volume,op,offset,bytes", "1,6.0,R,0,512", "2,8.16,R,0,512"] {
            assert!(csv.parse(line.as_bytes()).is_ok(), "{line}");
        }
        assert_eq!((csv.volume_name(0), csv.volume_name(1)), (Some("6.0"), Some("8.16")));
    }

    #[test]
    fn a_heading_that_is_not_complete_names_what_it_lacks() {
        use crate::{Format, Options, Reader};
        for (text, format, expected) in [
            ("when;op;offset;bytes\n1;R;0;512\n", None, "of (stream) lacks a column for the time (time_ns,"),
            ("time_us\toffset\n1\t0\n", None, "the operation (op) and the size"),
            ("nonsense\ntime_us,op\n", None, "lacks a column for the offset"),
            ("a,b\n1,2\n", Some(Format::Csv), "the time (time_ns, time_us, time_ms or time_s), the operation"),
            ("ts,op,offset,bytes\n1,R,0,512\n", None, "`ts`; name it ts_ns, ts_us, ts_ms or ts_s, or set --time-unit"),
            ("a,b\n1,2\n", None, "csv needs a heading"),
        ] {
            let error =
                Reader::new(text.as_bytes(), &Options { format, ..Options::default() }).err().unwrap().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
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
            assert_eq!(heading_error(format!("# a remark\n\n{heading}\n1,R,0,1\n").as_bytes(), None), Some(reason));
        }
        assert_eq!(
            heading_error(b"time_s,op,offset,bytes,note,note\n", None),
            None,
            "ignored columns may be duplicates"
        );
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
        let all = REQUIRED.map(|(_, what)| what).to_vec();
        assert_eq!(parse("1,2,R,0,1"), [Err(Reason::Heading { missing: all })]);
        let all = parse("time_s,op,offset,bytes\n1,R,0\n1,X,0,1");
        assert_eq!(all[1], Err(Reason::Fields { expected: "the heading's number", found: 3 }));
        assert!(matches!(all[2], Err(Reason::Operation { .. })));
    }
}
