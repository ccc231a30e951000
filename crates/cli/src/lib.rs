//! Shared parts of the command lines of `pilotlight` and `pilotlab`.
//!
//! | module | content |
//! |---|---|
//! | [`program`] | from the command line to the exit code |
//! | [`console`] | standard output and standard error |
//! | [`exit`] | exit codes |
//! | [`hint`] | hints added to errors of the command line |
//! | [`log`] | the log on standard error |
//! | [`table`] | tables on a terminal |
//! | [`pages`] | the commands `completions` and `man` |
//! | [`restore`] | the command `restore`, which both programs have |
//! | [`trace`] | options for reading a block trace |

// These macros panic when the reader has closed the pipe or the disk is full; `console` returns an error.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]
#![forbid(unsafe_code)]

pub mod console;
pub mod exit;
pub mod hint;
pub mod log;
pub mod pages;
pub mod program;
pub mod restore;
pub mod table;
pub mod trace;
