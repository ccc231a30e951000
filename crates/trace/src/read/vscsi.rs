//! CloudPhysics traces of virtual SCSI disks (vscsi): two binary and two text forms.
//!
//! Source: the readers that CloudPhysics contributed to the cache simulators mimircache and libCacheSim
//! (<https://github.com/1a1a11a/libCacheSim>, `vscsi.h`, and its FAQ for the CSV form). Little-endian, a record of
//!
//! | form | bytes | fields |
//! |---|---|---|
//! | binary 1 | 32 | sn 32, len 32, nSG 32, cmd 16, ver 16, lbn 64, ts 64 |
//! | binary 2 | 40 | cmd 16, ver 16, sn 32, len 32, nSG 32, lbn 64, ts 64, rt 64 |
//! | text | a line | `ver ts cmd len lbn` and, in version 2, `rt`; cmd in hexadecimal |
//! | CSV | a line | heading `version,time,op,size,lbn`; time in seconds, op in hexadecimal |
//!
//! The high byte of `ver` is the version, `ts` counts microseconds, `len` bytes, `lbn` sectors of 512 bytes, and `cmd` is
//! the SCSI operation code. Other commands are skipped. A trace has one disk: volume 0.

use std::io::{ErrorKind, Read};

use super::fields::{LineParser, NS_PER_S, Raw, SECTOR, clock, commas, decimal, hexadecimal, is_heading, is_remark};
use super::fields::{split_blanks, times, whole, whole_u32};
use crate::request::{Malformed, Op, Reason};

/// Nanoseconds of a microsecond.
const US: u64 = 1000;

/// Operation of a SCSI operation code (SBC-3): READ and WRITE of 6, 10, 12 and 16 bytes, and WRITE AND VERIFY.
fn operation(code: u64) -> Option<Op> {
    match code {
        0x08 | 0x28 | 0xa8 | 0x88 => Some(Op::Read),
        0x0a | 0x2a | 0xaa | 0x8a | 0x2e | 0xae | 0x8e => Some(Op::Write),
        _ => None,
    }
}

/// The text forms.
#[derive(Default)]
pub(super) struct Text {
    /// Unit of the times instead of the format's, in nanoseconds.
    unit_ns: Option<u64>,
    /// Whether a CSV heading was read.
    commas: bool,
}

impl Text {
    pub(super) fn new(unit_ns: Option<u64>) -> Self {
        Self { unit_ns, ..Self::default() }
    }
}

impl LineParser for Text {
    fn parse(&mut self, line: &[u8]) -> Result<Option<Raw>, Reason> {
        if is_remark(line) {
            return Ok(None);
        }
        if is_heading(line, &["version", "time", "op", "size", "lbn"]) {
            self.commas = true;
            return Ok(None);
        }
        let (version, at, code, bytes, lbn) = if self.commas {
            let [version, at, code, bytes, lbn] = commas(line, "5")?;
            (version, decimal(at, self.unit_ns.unwrap_or(NS_PER_S), "time")?, code, bytes, lbn)
        } else {
            let mut all = [&line[..0]; 5];
            let found = split_blanks(line).zip(&mut all).map(|(word, place)| *place = word).count();
            if found < 5 || !(5..=6).contains(&split_blanks(line).take(7).count()) {
                return Err(Reason::Fields { expected: "5 or 6", found: split_blanks(line).count() });
            }
            let [version, at, code, bytes, lbn] = all;
            (version, clock(at, self.unit_ns, US, "ts")?, code, bytes, lbn)
        };
        if !matches!(whole(version, "ver")?, 1 | 2) {
            return Err(Reason::Number { field: "ver", expected: "1 or 2" });
        }
        let Some(op) = operation(hexadecimal(code, "cmd")?) else { return Ok(None) };
        let raw =
            Raw { clock_ns: at, volume: 0, op, offset: times(lbn, SECTOR, "lbn")?, bytes: whole_u32(bytes, "len")? };
        raw.checked().map(Some)
    }
}

/// A binary form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    One,
    Two,
}

impl Layout {
    /// The form of the first two records; `None` if neither fits.
    pub(super) fn detect(beginning: &[u8]) -> Option<Self> {
        let version = |layout: Self, record: usize| beginning.get(record * layout.bytes() + layout.version_at());
        let fits = |layout: Self, value: u8| {
            version(layout, 0) == Some(&value)
                && version(layout, 1).map_or(beginning.len() == layout.bytes(), |&v| v == value)
        };
        if fits(Self::Two, 2) {
            return Some(Self::Two);
        }
        fits(Self::One, 1).then_some(Self::One)
    }

    fn bytes(self) -> usize {
        if self == Self::One { 32 } else { 40 }
    }

    /// Offset of the high byte of `ver`.
    fn version_at(self) -> usize {
        if self == Self::One { 15 } else { 3 }
    }

    fn parse(self, record: &[u8; 40], unit_ns: u64) -> Result<Option<Raw>, Reason> {
        let u32_at = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| record[at + i]));
        let u64_at = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| record[at + i]));
        let (code, bytes, lbn, ts, version) = match self {
            Self::One => (record[12], u32_at(4), u64_at(16), u64_at(24), 1),
            Self::Two => (record[0], u32_at(8), u64_at(16), u64_at(24), 2),
        };
        if record[self.version_at()] != version {
            return Err(Reason::Number { field: "ver", expected: "the version of the first record" });
        }
        let Some(op) = operation(u64::from(code)) else { return Ok(None) };
        let raw = Raw {
            clock_ns: ts.checked_mul(unit_ns).ok_or(Reason::TooLarge { field: "ts" })?,
            volume: 0,
            op,
            offset: lbn.checked_mul(SECTOR).ok_or(Reason::TooLarge { field: "lbn" })?,
            bytes,
        };
        raw.checked().map(Some)
    }
}

/// The records of a binary trace.
pub(super) struct Binary<R> {
    input: R,
    layout: Layout,
    unit_ns: u64,
    record: u64,
}

impl<R: Read> Binary<R> {
    /// Times are in `unit_ns`, or microseconds.
    pub(super) fn new(input: R, layout: Layout, unit_ns: Option<u64>) -> Self {
        Self { input, layout, unit_ns: unit_ns.unwrap_or(US), record: 0 }
    }

    /// The next read or write.
    pub(super) fn next(&mut self) -> Option<Result<Raw, Malformed>> {
        loop {
            let mut record = [0; 40];
            let expected = self.layout.bytes();
            self.record += 1;
            let parsed = match fill(&mut self.input, &mut record[..expected]) {
                Ok(0) => return None,
                Ok(found) if found < expected => Err(Reason::CutOff { found, expected }),
                Ok(_) => self.layout.parse(&record, self.unit_ns),
                Err(error) => Err(Reason::Unreadable(error.to_string())),
            };
            match parsed {
                Ok(None) => {}
                Ok(Some(raw)) => return Some(Ok(raw)),
                Err(reason) => return Some(Err(Malformed { line: self.record, reason, text: String::new() })),
            }
        }
    }
}

/// Reads until the buffer is full or the input ends; returns the number of bytes.
pub(super) fn fill(input: &mut impl Read, buffer: &mut [u8]) -> std::io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match input.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record in either form.
    fn record(layout: Layout, cmd: u16, bytes: u32, lbn: u64, ts: u64) -> Vec<u8> {
        let (sn, sg) = (7_u32.to_le_bytes(), 1_u32.to_le_bytes());
        let parts: Vec<Vec<u8>> = match layout {
            Layout::One => vec![sn.into(), bytes.to_le_bytes().into(), sg.into(), cmd.to_le_bytes().into(), vec![0, 1]],
            Layout::Two => vec![cmd.to_le_bytes().into(), vec![0, 2], sn.into(), bytes.to_le_bytes().into(), sg.into()],
        };
        let rt = if layout == Layout::Two { vec![9; 8] } else { vec![] };
        [parts.concat(), lbn.to_le_bytes().into(), ts.to_le_bytes().into(), rt].concat()
    }

    fn all(bytes: &[u8], layout: Layout) -> Vec<Result<Raw, Malformed>> {
        let mut binary = Binary::new(bytes, layout, None);
        std::iter::from_fn(|| binary.next()).collect()
    }

    #[test]
    fn both_binary_forms_are_parsed() {
        for layout in [Layout::One, Layout::Two] {
            let other = record(layout, 0x12, 36, 0, 33_898_000);
            let trace = [record(layout, 0x2a, 512, 42_932_745, 33_898_001), other, record(layout, 0x28, 4096, 8, 7)];
            let trace = trace.concat();
            assert_eq!(Layout::detect(&trace), Some(layout));
            let [write, read] = &all(&trace, layout)[..] else { panic!("two") };
            let offset = 42_932_745 * 512;
            let expected = Raw { clock_ns: 33_898_001_000, volume: 0, op: Op::Write, offset, bytes: 512 };
            assert_eq!(write, &Ok(expected));
            assert_eq!(read.as_ref().map(|raw| (raw.op, raw.clock_ns)), Ok((Op::Read, 7000)));
        }
    }

    #[test]
    fn a_truncated_or_invalid_record_is_an_error() {
        let mut trace = record(Layout::Two, 0x28, 4096, 8, 7);
        trace.extend(record(Layout::One, 0x28, 4096, 8, 7));
        let reasons: Vec<_> = all(&trace, Layout::Two).into_iter().map(|r| r.map_err(|m| (m.line, m.reason))).collect();
        assert!(reasons[0].is_ok());
        assert_eq!(reasons[1], Err((2, Reason::CutOff { found: 32, expected: 40 })));
        assert_eq!(reasons.len(), 2);
    }

    #[test]
    fn text_and_csv() {
        let mut text = Text::default();
        let raw = text.parse(b"2 33898001 2a 512 42932745 1200").unwrap().unwrap();
        assert_eq!((raw.clock_ns, raw.op, raw.offset), (33_898_001_000, Op::Write, 42_932_745 * 512));
        assert_eq!(text.parse(b"1 33898001 28 512 42932745").unwrap().unwrap().op, Op::Read);
        assert_eq!(text.parse(b"1 33898001 12 36 0"), Ok(None));
        assert!(text.parse(b"3 33898001 28 512 1").is_err() && text.parse(b"1 2 28 512").is_err());
        assert!(text.parse(b"1 2 28 512 1 2 3").is_err());
        assert_eq!(text.parse(b"version,time,op,size,lbn"), Ok(None));
        assert_eq!(text.parse(b"1,33898,2a,6656,40409911").unwrap().unwrap().clock_ns, 33_898_000_000_000);
    }
}
