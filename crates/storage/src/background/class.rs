//! Classes of background work.

/// A class of background work, numbered as in [`pilotlight_plant::Scope::Background`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Verification of blocks.
    Scrub = 0,
    /// Deallocation of freed ranges.
    Trim = 1,
}

/// Both classes, by number.
pub const CLASSES: [Class; 2] = [Class::Scrub, Class::Trim];

impl Class {
    /// Its name in the configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Scrub => "scrub",
            Self::Trim => "trim",
        }
    }
}
