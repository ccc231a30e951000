//! An error in a row of a map.

/// A key and what is wrong with it.
pub(super) type Problem = (&'static str, String);
