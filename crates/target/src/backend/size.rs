//! Sizes in bytes as people write them: `1GiB`, `512MiB`, `10GB`, `4096`.

/// Why a size cannot be read, and what can.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SizeError {
    /// Not a number and a unit.
    #[error(
        "'{0}' is no size: write a whole number and a unit, as in 512MiB, 1GiB or 10GB (units: B, KiB, MiB, GiB, TiB, KB, MB, GB, TB)"
    )]
    Form(String),
    /// `1G`: half of the world means one thing, half the other.
    #[error("'{text}' is ambiguous: write {text}iB for multiples of 1024, or {text}B for multiples of 1000")]
    Ambiguous {
        /// What was written.
        text: String,
    },
    /// Nothing.
    #[error("'{0}' is no size: it must be at least one byte")]
    Zero(String),
    /// More than 64 bits.
    #[error("'{0}' is too large: the largest size is 16777215TiB")]
    TooLarge(String),
}

/// Units and their bytes, the largest binary one first.
const UNITS: [(&str, u64); 11] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("KB", 1_000),
    ("kB", 1_000),
    ("B", 1),
    ("", 1),
];

/// Bytes.
///
/// # Errors
/// Says what is wrong, and what could have been meant.
pub fn parse_size(text: &str) -> Result<u64, SizeError> {
    let digits = text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    if !number.is_empty() && ["K", "M", "G", "T"].contains(&unit) {
        return Err(SizeError::Ambiguous { text: text.to_owned() });
    }
    let scale = UNITS.iter().find(|(name, _)| *name == unit).map(|&(_, scale)| scale);
    let scale = scale.filter(|_| !number.is_empty()).ok_or_else(|| SizeError::Form(text.to_owned()))?;
    let bytes = number.parse::<u64>().ok().and_then(|number| number.checked_mul(scale));
    match bytes {
        None => Err(SizeError::TooLarge(text.to_owned())),
        Some(0) => Err(SizeError::Zero(text.to_owned())),
        Some(bytes) => Ok(bytes),
    }
}

/// The same, written with the largest binary unit that leaves no rest.
pub fn format_size(bytes: u64) -> String {
    let exact = UNITS[..4].iter().find(|(_, scale)| bytes != 0 && bytes.is_multiple_of(*scale));
    let (unit, scale) = exact.copied().unwrap_or(("B", 1));
    format!("{}{unit}", bytes / scale)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sizes_as_written() {
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
            ("16777215TiB", 16_777_215 << 40),
            ("18446744073709551615", u64::MAX),
        ];
        for (text, bytes) in sizes {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn sizes_that_are_none() {
        for text in ["", "GiB", "1.5GiB", "-1", "1 GiB", "1gib", "0x10", "1GiBs", "one", "١"] {
            assert_eq!(parse_size(text), Err(SizeError::Form(text.into())), "{text}");
        }
        assert_eq!(parse_size("0GiB"), Err(SizeError::Zero("0GiB".into())));
        for text in ["16777216TiB", "18446744073709551616", "99999999999999999999999TiB"] {
            assert_eq!(parse_size(text), Err(SizeError::TooLarge(text.into())), "{text}");
        }
        let message = "'10G' is ambiguous: write 10GiB for multiples of 1024, or 10GB for multiples of 1000";
        assert_eq!(parse_size("10G").unwrap_err().to_string(), message);
    }

    #[test]
    fn sizes_are_written_exactly() {
        let sizes = [(1 << 30, "1GiB"), (1536 << 20, "1536MiB"), (1000, "1000B"), (4 << 40, "4TiB"), (0, "0B")];
        for (bytes, text) in sizes {
            assert_eq!(format_size(bytes), text);
        }
    }

    proptest! {
        #[test]
        fn what_is_written_can_be_read(bytes in 1_u64.., shift in 0..64_u32) {
            let bytes = (bytes >> shift).max(1);
            prop_assert_eq!(parse_size(&format_size(bytes)), Ok(bytes));
        }
    }
}
