//! Sizes in bytes: `1GiB`, `512MiB`, `10GB`, `4096`.

use pilotlight_input::quantity::{self, BYTES, QuantityError};

pub use pilotlight_input::quantity::format_bytes as format_size;

/// Error of a size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SizeError {
    /// Not a number and a unit.
    #[error(
        "'{0}' is not a size: write a number and a unit that make whole bytes, as in 512MiB, 1.5GiB or 10GB (units: B, KiB, MiB, GiB, TiB, KB, MB, GB, TB)"
    )]
    Form(String),
    /// `1G` may mean 2^30 or 10^9.
    #[error("'{text}' is ambiguous: write {text}iB for multiples of 1024, or {text}B for multiples of 1000")]
    Ambiguous {
        /// The input.
        text: String,
    },
    /// Zero.
    #[error("'{0}' is not a size: it must be at least one byte")]
    Zero(String),
    /// More than 64 bits.
    #[error("'{0}' is too large: the largest size is 16777215TiB")]
    TooLarge(String),
}

/// Bytes: a number without a unit, or with one of [`pilotlight_input::quantity::BYTES`].
///
/// # Errors
/// The problem, with the valid forms.
pub fn parse_size(text: &str) -> Result<u64, SizeError> {
    let (number, unit) = quantity::split(text);
    if !number.is_empty() && ["K", "M", "G", "T"].contains(&unit) {
        return Err(SizeError::Ambiguous { text: text.to_owned() });
    }
    let bytes =
        if unit.is_empty() { quantity::parse(&format!("{number}B"), BYTES) } else { quantity::parse(text, BYTES) };
    match bytes {
        Ok(0) => Err(SizeError::Zero(text.to_owned())),
        Ok(bytes) => Ok(bytes),
        Err(QuantityError::TooLarge) => Err(SizeError::TooLarge(text.to_owned())),
        Err(QuantityError::Form | QuantityError::Fraction) => Err(SizeError::Form(text.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sizes_are_parsed() {
        let sizes = [
            ("1", 1),
            ("4096", 4096),
            ("1B", 1),
            ("1KiB", 1024),
            ("3MiB", 3 << 20),
            ("1GiB", 1 << 30),
            ("2TiB", 2 << 40),
            ("1KB", 1000),
            ("10GB", 10_000_000_000),
            ("1TB", 1_000_000_000_000),
            ("1.5 GiB", 1536 << 20),
            ("16777215TiB", 16_777_215 << 40),
            ("18446744073709551615", u64::MAX),
        ];
        for (text, bytes) in sizes {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn invalid_sizes_are_refused() {
        for text in ["", "GiB", "0.3KiB", "-1", "1gib", "0x10", "1GiBs", "one", "١"] {
            assert_eq!(parse_size(text), Err(SizeError::Form(text.into())), "{text}");
        }
        assert_eq!(parse_size("0GiB"), Err(SizeError::Zero("0GiB".into())));
        for text in ["16777216TiB", "18446744073709551616", "99999999999999999999999TiB"] {
            assert_eq!(parse_size(text), Err(SizeError::TooLarge(text.into())), "{text}");
        }
        let message = "'10G' is ambiguous: write 10GiB for multiples of 1024, or 10GB for multiples of 1000";
        assert_eq!(parse_size("10G").unwrap_err().to_string(), message);
    }

    proptest! {
        #[test]
        fn formatted_sizes_are_parsed(bytes in 1_u64.., shift in 0..64_u32) {
            let bytes = (bytes >> shift).max(1);
            prop_assert_eq!(parse_size(&format_size(bytes)), Ok(bytes));
        }
    }
}
