//! How the program ends: exit codes with a meaning, and the last words on an error.

use std::io::Write as _;
use std::process::ExitCode;

/// Why the program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// As asked; for a server: everything finished and flushed.
    Clean,
    /// It could not start, or failed.
    Failed,
    /// The command line or the configuration was refused; nothing was started. `clap` uses the same code.
    Refused,
    /// Stopped with requests unfinished when the time to drain was over.
    Undrained,
    /// Stopped, and data that had not been flushed before may be lost.
    Unflushed,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Clean => 0,
            Exit::Failed => 1,
            Exit::Refused => 2,
            Exit::Undrained => 3,
            Exit::Unflushed => 4,
        })
    }
}

/// Tells an error with its causes.
pub(crate) fn failed(error: &anyhow::Error) -> Exit {
    crate::log::flush(); // what was logged comes first
    let label = if crate::log::colour() { "\x1b[1;31merror\x1b[0m" } else { "error" };
    // Who reads it may have gone: that changes neither what failed nor how the program ends.
    let _ = writeln!(std::io::stderr(), "{label}: {error:#}");
    Exit::Failed
}
