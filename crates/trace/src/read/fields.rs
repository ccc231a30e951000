//! Parsers of fields and numbers of a line, without allocation.

use crate::request::{Op, Reason, Request};

/// A request with the time of the trace's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Raw {
    /// Nanoseconds on the clock of the trace.
    pub(super) clock_ns: u64,
    pub(super) volume: u32,
    pub(super) op: Op,
    pub(super) offset: u64,
    pub(super) bytes: u32,
}

impl Raw {
    /// Refuses empty requests and those beyond 2^64 bytes.
    pub(super) fn checked(self) -> Result<Self, Reason> {
        if self.bytes == 0 {
            return Err(Reason::Empty);
        }
        self.offset.checked_add(u64::from(self.bytes)).map(|_| self).ok_or(Reason::BeyondEnd)
    }

    pub(super) fn into_request(self, first_ns: u64) -> Request {
        let Self { clock_ns, volume, op, offset, bytes } = self;
        Request { at_ns: clock_ns.saturating_sub(first_ns), volume, op, offset, bytes }
    }
}

/// Parser of a format. `None` for a line without a request, such as a heading, a remark or another event.
pub(super) trait LineParser: Send {
    fn parse(&mut self, line: &[u8]) -> Result<Option<Raw>, Reason>;

    /// Name of a volume, if the trace has names.
    fn volume_name(&self, _volume: u32) -> Option<&str> {
        None
    }

    /// What a trace without requests has instead, with a remedy.
    fn empty_reason(&self) -> Option<&'static str> {
        None
    }
}

/// Splits a line at commas into exactly `N` trimmed fields.
pub(super) fn commas<'a, const N: usize>(line: &'a [u8], expected: &'static str) -> Result<[&'a [u8]; N], Reason> {
    exactly(line.split(|&b| b == b',').map(<[u8]>::trim_ascii), expected)
}

/// Splits a line at blanks into exactly `N` fields.
pub(super) fn blanks<'a, const N: usize>(line: &'a [u8], expected: &'static str) -> Result<[&'a [u8]; N], Reason> {
    exactly(split_blanks(line), expected)
}

/// The parts of a line between blanks.
pub(super) fn split_blanks(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty())
}

fn exactly<'a, const N: usize>(
    fields: impl Iterator<Item = &'a [u8]>,
    expected: &'static str,
) -> Result<[&'a [u8]; N], Reason> {
    let mut all: [&[u8]; N] = [&[]; N];
    let mut found = 0;
    for field in fields {
        if let Some(place) = all.get_mut(found) {
            *place = field;
        }
        found += 1;
    }
    if found == N { Ok(all) } else { Err(Reason::Fields { expected, found }) }
}

/// A whole number in a base of at most 36.
fn whole_in(base: u64, text: &[u8], field: &'static str, expected: &'static str) -> Result<u64, Reason> {
    if text.is_empty() {
        return Err(Reason::Number { field, expected });
    }
    text.iter().try_fold(0_u64, |number, &byte| {
        let digit = (byte as char).to_digit(base as u32).ok_or(Reason::Number { field, expected })?;
        let number = number.checked_mul(base).and_then(|n| n.checked_add(u64::from(digit)));
        number.ok_or(Reason::TooLarge { field })
    })
}

/// A whole number.
pub(super) fn whole(text: &[u8], field: &'static str) -> Result<u64, Reason> {
    whole_in(10, text, field, "a whole number")
}

/// A whole number in hexadecimal digits.
pub(super) fn hexadecimal(text: &[u8], field: &'static str) -> Result<u64, Reason> {
    whole_in(16, text, field, "a hexadecimal number")
}

/// A whole number that fits into 32 bits.
pub(super) fn whole_u32(text: &[u8], field: &'static str) -> Result<u32, Reason> {
    u32::try_from(whole(text, field)?).map_err(|_| Reason::TooLarge { field })
}

/// A whole number multiplied by `unit`.
pub(super) fn times(text: &[u8], unit: u64, field: &'static str) -> Result<u64, Reason> {
    whole(text, field)?.checked_mul(unit).ok_or(Reason::TooLarge { field })
}

/// A time: a whole number of `own_ns`, or in a unit that was set a number with optional decimals.
pub(super) fn clock(text: &[u8], unit_ns: Option<u64>, own_ns: u64, field: &'static str) -> Result<u64, Reason> {
    unit_ns.map_or_else(|| times(text, own_ns, field), |unit_ns| decimal(text, unit_ns, field))
}

/// Units of time and their nanoseconds.
pub(super) const UNITS: [(&str, u64); 4] = [("ns", 1), ("us", 1000), ("ms", 1_000_000), ("s", NS_PER_S)];
pub(super) const NS_PER_S: u64 = 1_000_000_000;

/// A number of sectors in bytes, below 2^32.
pub(super) fn sectors_u32(text: &[u8], field: &'static str) -> Result<u32, Reason> {
    u32::try_from(times(text, SECTOR, field)?).map_err(|_| Reason::TooLarge { field })
}

/// Bytes of a sector.
pub(super) const SECTOR: u64 = 512;

/// A number with optional decimals after a point or comma, multiplied by `unit` (a power of ten, at most 10^9) and rounded down.
pub(super) fn decimal(text: &[u8], unit: u64, field: &'static str) -> Result<u64, Reason> {
    let Some(point) = text.iter().position(|&b| b == b'.' || b == b',') else { return times(text, unit, field) };
    let (before, after) = (&text[..point], &text[point + 1..]);
    let upper = if before.is_empty() && !after.is_empty() { 0 } else { times(before, unit, field)? };
    let mut place = unit;
    let mut lower = 0;
    for &byte in after {
        let digit = (byte as char).to_digit(10).ok_or(Reason::Number { field, expected: "a number" })?;
        place /= 10;
        lower += u64::from(digit) * place;
    }
    upper.checked_add(lower).ok_or(Reason::TooLarge { field })
}

/// Whether a line is blank or a remark.
pub(super) fn is_remark(line: &[u8]) -> bool {
    line.iter().find(|b| !b.is_ascii_whitespace()).is_none_or(|&b| b == b'#')
}

/// Whether a line is this heading, ignoring case and blanks.
pub(super) fn is_heading(line: &[u8], names: &[&str]) -> bool {
    let mut fields = line.split(|&b| b == b',').map(<[u8]>::trim_ascii);
    names.iter().all(|name| fields.next().is_some_and(|f| f.eq_ignore_ascii_case(name.as_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};

    #[test]
    fn decimals_are_exact() {
        let seconds = |text: &str| decimal(text.as_bytes(), 1_000_000_000, "time_s");
        assert_eq!(seconds("12.000000001"), Ok(12_000_000_001));
        assert_eq!(seconds("0.5"), Ok(500_000_000));
        assert_eq!(seconds(".5"), Ok(500_000_000));
        assert_eq!(seconds("0,25"), Ok(250_000_000));
        assert_eq!(seconds("7"), Ok(7_000_000_000));
        assert_eq!(seconds("1.0000000019"), Ok(1_000_000_001));
        assert_eq!(decimal(b"1.0009", 1000, "time_us"), Ok(1000));
        for text in ["", ".", "1.x", "x.1", "-1", "1e9", "99999999999.5", "1.2.3"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }

    #[test]
    fn numbers_beyond_64_bits_are_refused() {
        assert_eq!(whole(b"18446744073709551615", "x"), Ok(u64::MAX));
        assert_eq!(whole(b"18446744073709551616", "x"), Err(Reason::TooLarge { field: "x" }));
        assert_eq!(whole_u32(b"4294967296", "x"), Err(Reason::TooLarge { field: "x" }));
        assert_eq!(sectors_u32(b"8388608", "x"), Err(Reason::TooLarge { field: "x" }));
        assert_eq!(hexadecimal(b"2A", "x"), Ok(42));
    }

    proptest! {
        #[test]
        fn whole_numbers_match_the_standard_library(text in "[0-9+x]{0,22}", number: u64) {
            let ours = whole(text.as_bytes(), "x").ok();
            let theirs = if text.starts_with('+') { None } else { text.parse().ok() };
            prop_assert_eq!(ours, theirs);
            prop_assert_eq!(whole(number.to_string().as_bytes(), "x"), Ok(number));
        }

        #[test]
        fn seconds_of_the_kernel_are_exact(s in 0_u64..18_000_000_000, ns in 0_u64..1_000_000_000) {
            let text = format!("{s}.{ns:09}");
            prop_assert_eq!(decimal(text.as_bytes(), 1_000_000_000, "x"), Ok(s * 1_000_000_000 + ns));
        }

        #[test]
        fn arbitrary_bytes_do_not_panic(line in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = (decimal(&line, 1_000_000_000, "x"), hexadecimal(&line, "x"), is_remark(&line));
            prop_assert!(commas::<5>(&line, "5").is_ok() == (line.iter().filter(|&&b| b == b',').count() == 4));
        }
    }
}
