//! Shared parts of the command lines of `pilotlight` and `pilotlab`.
//!
//! | module | what it holds |
//! |---|---|
//! | [`program`] | from the command line to the exit code |
//! | [`console`] | standard output and standard error |
//! | [`exit`] | exit codes |
//! | [`hint`] | hints beside a refused command line |
//! | [`log`] | the log on standard error |
//! | [`table`] | tables for people |
//! | [`restore`] | the command `restore`, which both programs have |
//! | [`trace`] | options for reading a block trace |

// A macro that panics where the reader has gone, or the disk is full: `console` prints.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]
#![forbid(unsafe_code)]

pub mod console;
pub mod exit;
pub mod hint;
pub mod log;
pub mod program;
pub mod restore;
pub mod table;
pub mod trace;
