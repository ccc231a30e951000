//! Output files of commands, with errors that name the file.

use std::io::{self, ErrorKind};
use std::path::Path;

use pilotlight_report::output;

use crate::console::Closed;

/// Writes a file, as [`output`] does.
///
/// # Errors
/// As of [`failed`].
pub(crate) fn write(path: &Path, bytes: impl AsRef<[u8]>) -> anyhow::Result<()> {
    output::write(path, bytes).map_err(|error| failed(path, error))
}

/// The error of an output file. A closed pipe (`-o /dev/stdout | head`) ends a command as standard output does.
pub(crate) fn failed(path: &Path, error: io::Error) -> anyhow::Error {
    if error.kind() == ErrorKind::BrokenPipe {
        return Closed.into();
    }
    anyhow::Error::new(error).context(format!("cannot write {}", path.display()))
}
