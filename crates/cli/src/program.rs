//! From the command line to the exit code.

use std::process::ExitCode;

use clap::Parser;
use clap::builder::Styles;
use clap::builder::styling::AnsiColor;

use crate::hint::Hints;
use crate::{exit, log};

/// Colours of help texts.
pub const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Yellow.on_default().bold())
    .usage(AnsiColor::Yellow.on_default().bold())
    .literal(AnsiColor::Cyan.on_default().bold())
    .placeholder(AnsiColor::Cyan.on_default());

/// Reads the command line, starts the log (`verbose` counts the `-v`s), runs the command, and reports its error.
pub fn main<C: Parser>(
    hints: Hints,
    verbose: impl FnOnce(&C) -> u8,
    command: impl FnOnce(&C) -> anyhow::Result<ExitCode>,
) -> ExitCode {
    let cli = match C::try_parse() {
        Ok(cli) => cli,
        Err(answer) => return exit::print_clap(&hints.add_to(answer)),
    };
    if let Err(error) = log::start(verbose(&cli)) {
        return exit::report_error(&anyhow::Error::new(error).context("cannot start the log")).into();
    }
    let code = command(&cli).unwrap_or_else(|error| exit::end_with(&error));
    log::flush();
    code
}
