//! Operations of I/O commands, by which they are counted.

/// Operation of an I/O command (NVM 3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Read.
    Read,
    /// Write.
    Write,
    /// Flush.
    Flush,
    /// Compare.
    Compare,
    /// Verify.
    Verify,
    /// Write Zeroes.
    WriteZeroes,
    /// Dataset Management with the attribute Deallocate.
    Deallocate,
}

impl Operation {
    /// All values in order.
    pub const ALL: [Self; 7] =
        [Self::Read, Self::Write, Self::Flush, Self::Compare, Self::Verify, Self::WriteZeroes, Self::Deallocate];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Flush => "flush",
            Self::Compare => "compare",
            Self::Verify => "verify",
            Self::WriteZeroes => "write-zeroes",
            Self::Deallocate => "deallocate",
        }
    }
}
