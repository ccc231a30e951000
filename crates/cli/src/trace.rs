//! Options for reading a block trace.

use clap::{Args, ValueEnum};
use pilotlight_trace::Format;
use pilotlight_trace::read::{BlkparseAction, Options};

/// How a trace is read.
#[derive(Args, Clone, Debug)]
pub struct ReadingArgs {
    /// The format, if it cannot be detected: alibaba, tencent, msr, mqsim, vscsi, blkparse, spc, systor, fio or csv
    #[arg(long, value_name = "FORMAT", help_heading = "Reading a trace")]
    pub format: Option<Format>,

    /// End at the first malformed line
    #[arg(long, help_heading = "Reading a trace")]
    pub strict: bool,

    /// Requests that are held back to be sorted by time
    #[arg(long, value_name = "COUNT", default_value_t = 1024, help_heading = "Reading a trace")]
    pub reorder_window: usize,

    /// The event of blkparse that counts as a request: queued (Q) or issued (D)
    #[arg(long, value_enum, default_value = "queued", help_heading = "Reading a trace")]
    pub blkparse_action: Action,

    /// Unit of the timestamps, which may have decimals [default: that of the format]
    #[arg(long, value_enum, value_name = "UNIT", help_heading = "Reading a trace")]
    pub time_unit: Option<TimeUnit>,
}

/// Units of timestamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TimeUnit {
    /// Nanoseconds
    Ns,
    /// Microseconds
    Us,
    /// Milliseconds
    Ms,
    /// Seconds
    S,
}

/// See [`BlkparseAction`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Action {
    /// When it was queued
    Queued,
    /// When it was issued to the driver
    Issued,
}

impl ReadingArgs {
    /// Options of the reader.
    pub fn options(&self) -> Options {
        let blkparse_action = match self.blkparse_action {
            Action::Queued => BlkparseAction::Queued,
            Action::Issued => BlkparseAction::Issued,
        };
        let time_unit_ns = self.time_unit.map(|unit| match unit {
            TimeUnit::Ns => 1,
            TimeUnit::Us => 1_000,
            TimeUnit::Ms => 1_000_000,
            TimeUnit::S => 1_000_000_000,
        });
        Options { format: self.format, window: self.reorder_window.min(1 << 20), blkparse_action, time_unit_ns }
    }
}
