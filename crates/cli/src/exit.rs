//! Exit codes, and the report of an error at the end of the program.

use std::io::Write as _;
use std::process::ExitCode;

use signal_hook::consts::SIGPIPE;
use signal_hook::low_level::emulate_default_handler;

use crate::console::{self, Closed};

/// The exit status that a shell reports for a command ended by SIGPIPE.
const ENDED_BY_SIGPIPE: u8 = 128 + SIGPIPE as u8;

/// Why the program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Success; for a server: everything finished and flushed.
    Clean,
    /// It could not start, or failed.
    Failed,
    /// The command line or the configuration was refused; nothing was started. `clap` uses the same code.
    Refused,
    /// Stopped with requests or a flush unfinished when the time to drain was over.
    Undrained,
    /// A power budget is set, and power is not within it.
    NotHeld,
    /// Stopped, and data that had not been flushed before may be lost.
    Unflushed,
}

impl Exit {
    /// The exit code.
    pub const fn code(self) -> u8 {
        match self {
            Self::Clean => 0,
            Self::Failed => 1,
            Self::Refused => 2,
            Self::Undrained | Self::NotHeld => 3,
            Self::Unflushed => 4,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// The exit code for an error. If the reader of standard output has closed it, SIGPIPE ends the program without a message.
pub fn end_with(error: &anyhow::Error) -> ExitCode {
    if !error.is::<Closed>() {
        return report_error(error).into();
    }
    crate::log::flush();
    let _ = emulate_default_handler(SIGPIPE);
    ENDED_BY_SIGPIPE.into()
}

/// Prints what `clap` answers: a help text or the version to standard output, what is wrong to standard error.
pub fn print_clap(answer: &clap::Error) -> ExitCode {
    let printed = answer.print().and_then(|()| std::io::stdout().flush());
    match printed {
        Err(error) if !answer.use_stderr() => end_with(&console::write_error(error)),
        _ => ExitCode::from(u8::try_from(answer.exit_code()).unwrap_or(1)),
    }
}

/// Prints an error with its causes.
pub fn report_error(error: &anyhow::Error) -> Exit {
    crate::log::flush(); // what was logged comes first
    let label = if crate::log::colour() { "\x1b[1;31merror\x1b[0m" } else { "error" };
    console::eprintln(format_args!("{label}: {error:#}"));
    Exit::Failed
}
