//! Fingerprints of the input values of runs.

use std::fmt;
use std::str::FromStr;

/// Hexadecimal digits of a fingerprint.
pub const DIGITS: usize = 10;

/// A hash of values, truncated to [`DIGITS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fingerprint(u64);

impl Fingerprint {
    /// From the first eight bytes of a hash, as a number.
    #[must_use]
    pub const fn new(hash: u64) -> Self {
        Self(hash >> (64 - 4 * DIGITS))
    }

    /// As a number.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:0DIGITS$x}", self.0)
    }
}

impl FromStr for Fingerprint {
    type Err = ();
    fn from_str(text: &str) -> Result<Self, ()> {
        if text.len() != DIGITS {
            return Err(());
        }
        u64::from_str_radix(text, 16).map(Self).map_err(|_| ())
    }
}
