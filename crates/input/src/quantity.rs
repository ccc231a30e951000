//! Numbers with a unit: `450us`, `4KiB`, `2.1GHz`.
//!
//! Prefixes follow ISO/IEC 80000-13: `kB` is 1,000 bytes, `KiB` is 1,024. A number that is not a multiple of the smallest unit is refused,
//! not rounded.

/// Names of units, each with its value in the smallest unit.
pub type Units = [(&'static str, u64)];

/// Bytes. `KB` is accepted as `kB`.
pub const BYTES: &Units = &[
    ("B", 1),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("KB", 1_000),
];

/// Times, in nanoseconds.
pub const TIMES: &Units = &[
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("min", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Powers, in microwatts.
pub const POWERS: &Units = &[("uW", 1), ("mW", 1_000), ("W", 1_000_000), ("kW", 1_000_000_000)];

/// Units for formatting sizes.
const WRITTEN_BYTES: &Units = &[("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];
/// Units for formatting times; minutes are formatted as seconds.
const WRITTEN_TIMES: &Units =
    &[("h", 3_600_000_000_000), ("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000), ("ns", 1)];

/// An invalid quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// Not a number followed by a unit of this kind.
    #[error("not a number and a unit")]
    Form,
    /// Not a whole number of the smallest unit.
    #[error("not a whole number of the smallest unit")]
    Fraction,
    /// More than 64 bits.
    #[error("too large")]
    TooLarge,
}

/// Splits `2.5 GHz` into number and unit. The number has only digits, `.` and `_`.
#[must_use]
pub fn split(text: &str) -> (&str, &str) {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_').unwrap_or(text.len());
    (&text[..end], text[end..].trim_start())
}

/// Parses a number with a unit.
///
/// # Errors
/// The text is not a decimal number with one of these units, or not a multiple of the smallest one.
pub fn parse(text: &str, units: &Units) -> Result<u64, QuantityError> {
    scaled(text, |unit| units.iter().find(|(name, _)| *name == unit).map(|(_, scale)| *scale))
}

/// Parses a size in the notation of storage tools: without a unit in bytes, ignoring case. `k`, `m`, `g` and `t` alone are powers of
/// 1,024, as in fio.
///
/// # Errors
/// As [`parse`].
pub fn storage_bytes(text: &str) -> Result<u64, QuantityError> {
    scaled(text, |unit| match unit.to_ascii_lowercase().as_str() {
        "" => Some(1),
        "k" => Some(1 << 10),
        "m" => Some(1 << 20),
        "g" => Some(1 << 30),
        "t" => Some(1 << 40),
        _ => BYTES.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)).map(|(_, scale)| *scale),
    })
}

fn scaled(text: &str, scale: impl Fn(&str) -> Option<u64>) -> Result<u64, QuantityError> {
    let (number, unit) = split(text);
    let scale = scale(unit).ok_or(QuantityError::Form)?;
    let number = number.replace('_', "");
    let (whole, fraction) = number.split_once('.').unwrap_or((&number, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
        return Err(QuantityError::Form);
    }
    let whole = if whole.is_empty() { Ok(0) } else { whole.parse::<u64>() };
    let whole = whole.ok().and_then(|whole| whole.checked_mul(scale)).ok_or(QuantityError::TooLarge)?;
    whole.checked_add(part(fraction, scale)?).ok_or(QuantityError::TooLarge)
}

/// The digits after the point times `scale`, computed from the last digit: a remainder there cannot vanish later.
fn part(fraction: &str, scale: u64) -> Result<u64, QuantityError> {
    fraction.bytes().rev().try_fold(0, |sum, digit| {
        let sum = u128::from(digit - b'0') * u128::from(scale) + u128::from(sum);
        // Less than `scale`, as the sum is less than ten times that.
        if sum.is_multiple_of(10) { Ok((sum / 10) as u64) } else { Err(QuantityError::Fraction) }
    })
}

/// Formats a size in the largest IEC unit of which it is a multiple: `64KiB`, `1000B`.
#[must_use]
pub fn format_bytes(bytes: u64) -> String {
    format(bytes, WRITTEN_BYTES)
}

/// Formats a time in the largest unit of which it is a multiple: `1500ms`, `120s`.
#[must_use]
pub fn format_time(ns: u64) -> String {
    format(ns, WRITTEN_TIMES)
}

/// Formats in the largest of `units` of which the value is a multiple; 0 in the smallest.
#[must_use]
pub fn format(value: u64, units: &Units) -> String {
    let fits = units.iter().filter(|(_, unit)| value >= *unit && value.is_multiple_of(*unit));
    let unit = fits.max_by_key(|(_, unit)| *unit).or_else(|| units.iter().min_by_key(|(_, unit)| *unit));
    unit.map_or_else(|| value.to_string(), |(name, unit)| format!("{}{name}", value / unit))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn prefixes_are_those_of_the_standard() {
        let bytes = ["1kB", "1KB", "1KiB", "1MB", "1MiB", "1GB", "1TiB"].map(|text| parse(text, BYTES));
        let expected = [1_000, 1_000, 1_024, 1_000_000, 1 << 20, 1_000_000_000, 1 << 40].map(Ok);
        assert_eq!(bytes, expected);
        let storage = ["4k", "4K", "4kB", "4kb", "4KiB", "128kib", "1m", "4096"].map(storage_bytes);
        assert_eq!(storage, [4_096, 4_096, 4_000, 4_000, 4_096, 131_072, 1 << 20, 4_096].map(Ok));
    }

    #[test]
    fn values_are_exact() {
        assert_eq!(parse("1.5h", TIMES), Ok(5_400_000_000_000));
        assert_eq!(parse(" 2.50 us ", TIMES), Ok(2_500));
        assert_eq!(parse("1_000s", TIMES), Ok(1_000_000_000_000));
        assert_eq!(parse("0.1us", TIMES), Ok(100));
        assert_eq!(parse("0.5ns", TIMES), Err(QuantityError::Fraction));
        assert_eq!(parse("0.00000000000000000000000000000000000000001s", TIMES), Err(QuantityError::Fraction));
        assert_eq!(parse(".0s", TIMES), Ok(0));
        assert_eq!(parse(".0KiB", BYTES), Ok(0));
        assert_eq!(parse(&format!("1.{}s", "3".repeat(39)), TIMES), Err(QuantityError::Fraction));
        assert_eq!(parse("0.123456789012345678901234567891TiB", BYTES), Err(QuantityError::Fraction));
        assert_eq!(parse("0.0000000000009094947017729282379150390625TiB", BYTES), Ok(1), "2^-40 TiB");
        assert_eq!(parse("16777215TiB", BYTES), Ok(16_777_215 << 40));
        assert_eq!(parse("16777216TiB", BYTES), Err(QuantityError::TooLarge));
    }

    #[test]
    fn invalid_quantities_are_refused() {
        for text in ["", "10", "s", "-1s", "+1s", "1e3s", "1.2.3s", ".s", "1 parsec", "1S", "1gib"] {
            assert_eq!(parse(text, TIMES), Err(QuantityError::Form), "{text}");
        }
        for text in ["", "k", "4q", "-1", "0x10", "4k,8k"] {
            assert_eq!(storage_bytes(text), Err(QuantityError::Form), "{text}");
        }
    }

    #[test]
    fn the_largest_unit_is_used() {
        assert_eq!([format_bytes(1 << 30), format_bytes(1536 << 20), format_bytes(1000)], ["1GiB", "1536MiB", "1000B"]);
        assert_eq!([format_bytes(0), format_time(0), format_time(1_500_000)], ["0B", "0ns", "1500us"]);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(value: u64, shift in 0..64_u32) {
            let value = value >> shift;
            prop_assert_eq!(parse(&format_bytes(value), BYTES), Ok(value));
            prop_assert_eq!(parse(&format_time(value), TIMES), Ok(value));
        }
    }
}
