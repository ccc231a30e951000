//! The log: to standard error, off the request path, coloured only on a terminal.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

/// Environment variable that sets the log by module, as in `pilotlight_target=debug`.
const VARIABLE: &str = "PILOTLIGHT_LOG";

/// Starts logging; `verbose` counts the `-v`s.
pub(crate) fn start(verbose: u8) {
    let level = match verbose {
        0 => LevelFilter::INFO,
        1 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    let filter = EnvFilter::builder().with_default_directive(level.into()).with_env_var(VARIABLE).from_env_lossy();
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(colour()).with_env_filter(filter).init();
}

/// Whether standard error takes colours: it is a terminal, and the user has not asked for none (no-color.org).
pub(crate) fn colour() -> bool {
    std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}
