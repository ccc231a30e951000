//! Decimal numbers as integers: `12.345` watts are 12,345,000 microwatts, with no floating point in between.

/// The number in `text` times 10 to the power of `digits`, rounded to the nearest (half away from zero). `None` if it is not a number or
/// does not fit. Accepts a sign, a decimal point and an exponent (`-1.5e3`).
pub fn scaled(text: &str, digits: i32) -> Option<i64> {
    let (mantissa, exponent) = match text.trim().split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (text.trim(), 0),
    };
    let (negative, unsigned) = match mantissa.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, mantissa.strip_prefix('+').unwrap_or(mantissa)),
    };
    let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
    let all = || whole.bytes().chain(fraction.bytes());
    if all().next().is_none() || !all().all(|b| b.is_ascii_digit()) {
        return None;
    }
    // Number of integer digits of the scaled number.
    let places = i64::try_from(whole.len()).ok()? + i64::from(exponent) + i64::from(digits);
    let mut value: i128 = 0;
    for place in 0..places.max(0) {
        let digit = usize::try_from(place).ok().and_then(|place| all().nth(place)).map_or(0, |b| b - b'0');
        value = value * 10 + i128::from(digit);
        if value > i128::from(i64::MAX) {
            return None;
        }
    }
    let next = usize::try_from(places).ok().and_then(|place| all().nth(place));
    let rounded = value + i128::from(next.is_some_and(|b| b >= b'5'));
    i64::try_from(if negative { -rounded } else { rounded }).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn watts_are_microwatts() {
        assert_eq!(scaled("12.345", 6), Some(12_345_000));
        assert_eq!(scaled(" 214 ", 6), Some(214_000_000));
        assert_eq!(scaled("-0.0000005", 6), Some(-1));
        assert_eq!(scaled("0.0000004", 6), Some(0));
        assert_eq!(scaled("1.5e3", 0), Some(1_500));
        assert_eq!(scaled("15E-1", 0), Some(2));
        assert_eq!(scaled(".5", 1), Some(5));
        assert_eq!(scaled("7.", 0), Some(7));
        assert_eq!(scaled("1e-30", 6), Some(0));
    }

    #[test]
    fn invalid_numbers_are_none() {
        for text in ["", ".", "-", "1,5", "12 W", "nan", "1e", "--1", "99999999999999999999", "1e40"] {
            assert_eq!(scaled(text, 6), None, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn matches_integer_arithmetic(n in -1_000_000_000_000_i64..1_000_000_000_000, places in 0..9_usize) {
            let whole = n.unsigned_abs() / 10_u64.pow(places as u32);
            let fraction = n.unsigned_abs() % 10_u64.pow(places as u32);
            let sign = if n < 0 { "-" } else { "" };
            let text = if places == 0 { format!("{n}") } else { format!("{sign}{whole}.{fraction:0places$}") };
            prop_assert_eq!(scaled(&text, places as i32), Some(n));
        }
    }
}
