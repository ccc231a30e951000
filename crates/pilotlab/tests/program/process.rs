//! Runs the program as a process.

use std::process::{Child, Command, Output, Stdio};

/// The program with these arguments, not yet started.
pub(crate) fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pilotlab"));
    command.args(args).stdin(Stdio::null()).env_remove("PILOTLIGHT_LOG");
    command
}

/// Starts the program; both pipes are read at its end.
pub(crate) fn spawn(args: &[&str]) -> Child {
    command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Runs the program to its end.
pub(crate) fn run(args: &[&str]) -> Output {
    command(args).output().unwrap()
}

/// Text that the program printed.
pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}
