//! Standard output and standard error: no other file of the program writes to them.
//!
//! When the reader of a pipe has closed it, a command ends as by SIGPIPE, without a message ([`crate::exit::end_with`]); any other failed write to
//! standard output does not take is an error. SIGPIPE itself stays ignored, because a server and a measurement must outlive
//! sockets and children that close: what cannot be written is an error like any other, which passes through `main`, so that settings
//! of the machine are restored first. Errors of standard error are ignored: they change neither what a command
//! does nor how it ends.

use std::fmt::Display;
use std::io::{self, ErrorKind, IsTerminal as _, Write as _};

/// Standard output was closed by its reader.
#[derive(Debug, thiserror::Error)]
#[error("the reader of standard output has gone")]
pub struct Closed;

/// Prints to standard output, at once.
///
/// # Errors
/// [`Closed`], or that it cannot be written.
pub fn print(text: impl Display) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    write!(out, "{text}").and_then(|()| out.flush()).map_err(write_error)
}

/// Prints a line to standard output, at once.
///
/// # Errors
/// As of [`print`].
pub fn println(text: impl Display) -> anyhow::Result<()> {
    print(format_args!("{text}\n"))
}

/// The error for a failed write to standard output.
pub fn write_error(error: io::Error) -> anyhow::Error {
    if error.kind() == ErrorKind::BrokenPipe {
        return Closed.into();
    }
    anyhow::Error::new(error).context("cannot write to standard output: make room, or redirect it elsewhere")
}

/// Writes to standard error, as it is.
pub fn eprint(text: impl Display) {
    let mut out = io::stderr().lock();
    let _ = write!(out, "{text}").and_then(|()| out.flush());
}

/// Writes a line to standard error.
pub fn eprintln(text: impl Display) {
    eprint(format_args!("{text}\n"));
}

/// Whether standard output is a terminal, and `NO_COLOR` is not set (no-color.org).
pub fn colour() -> bool {
    io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}
