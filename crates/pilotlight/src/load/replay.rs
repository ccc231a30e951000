//! `pilotlight load --trace`: a trace's requests against a target, each at its time.
//!
//! A request's offset is taken modulo the namespace (or the part of it that --offset and --size name) and made whole blocks; one
//! that is larger than --bs is sent as several commands, due at the same time. All volumes share the namespace.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use clap::Args;
use pilotlight_cli::trace::ReadingArgs;
use pilotlight_host::load::{Commands, Space, TraceCommand};
use pilotlight_host::units;
use pilotlight_trace::read::{Faults, OpenError, Tolerant};
use pilotlight_trace::transform::{Scaled, Spread, wrapped};
use pilotlight_trace::{Op, Reader, Request};
use serde::Serialize;

/// Options of a replay.
#[derive(Args, Clone, Debug)]
pub(crate) struct ReplayArgs {
    /// Replay a block trace: requests at its times, offsets (modulo the namespace), sizes and types; - for standard input
    #[arg(long, value_name = "FILE", help_heading = "Replay")]
    #[arg(conflicts_with_all = ["rw", "rwmixread", "rate_iops", "schedule", "verify", "trim_mix"])]
    pub(crate) trace: Option<PathBuf>,

    /// Speed-up over the trace's own time: 10 replays an hour in six minutes
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, help_heading = "Replay")]
    pub(crate) speed: f64,

    /// Spread requests over ticks of the trace's clock, such as 1s for tencent, instead of sending each tick's at once
    #[arg(long, value_name = "TIME", value_parser = units::duration_ns, help_heading = "Replay")]
    pub(crate) spread: Option<u64>,

    #[command(flatten)]
    reading: ReadingArgs,
}

/// Statistics of the trace after its replay.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct TraceStats {
    file: PathBuf,
    format: &'static str,
    speed: f64,
    /// Requests that were read; one may be several commands.
    requests: u64,
    malformed_lines: u64,
    malformed_first: Vec<String>,
    /// Requests that arrived too late to be sorted by time.
    late_requests: u64,
    /// Why reading ended before the end of the trace.
    ended: Option<String>,
}

/// An open trace, and the destination of its statistics.
pub(super) struct Replay {
    /// Read at the opening, so that a trace without requests is refused.
    first: Option<Request>,
    requests: Tolerant,
    stats: Arc<Mutex<TraceStats>>,
    args: ReplayArgs,
    seed: u64,
}

impl ReplayArgs {
    /// Opens the trace.
    pub(super) fn open(&self, file: &Path, seed: u64) -> Result<Replay, OpenError> {
        let reader = Reader::open(file, &self.reading.options())?;
        let stats = TraceStats {
            file: file.into(),
            format: reader.format().name(),
            speed: self.speed,
            ..TraceStats::default()
        };
        let mut requests = reader.tolerant(self.reading.strict);
        let first = requests.next();
        if let Some(error) = requests.reader().no_request().filter(|_| requests.faults().ended.is_none()) {
            return Err(error);
        }
        Ok(Replay { first, requests, stats: Arc::new(Mutex::new(stats)), args: self.clone(), seed })
    }

    /// An error in the options.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        anyhow::ensure!(self.speed.is_finite() && self.speed > 0.0, "--speed {} is no number above 0", self.speed);
        anyhow::ensure!(self.spread != Some(0), "--spread 0 spreads nothing; give the trace's tick, such as 1s");
        Ok(())
    }
}

impl Replay {
    /// The statistics of the trace, complete after the replay.
    pub(super) fn stats(&self) -> Arc<Mutex<TraceStats>> {
        Arc::clone(&self.stats)
    }

    /// The commands for a space.
    pub(super) fn commands(self, space: Space) -> Commands<'static> {
        let Self { first, requests, stats, args, seed } = self;
        let counted = Counted { first, requests, count: 0, stats };
        let requests: Box<dyn Iterator<Item = Request> + Send> = match args.spread {
            Some(tick_ns) => Box::new(Spread::new(counted, tick_ns, seed)),
            None => Box::new(counted),
        };
        Box::new(Scaled::new(requests, args.speed).flat_map(move |request| pieces(&request, space)))
    }
}

/// Iterates over requests; sends the statistics when it is dropped.
struct Counted {
    first: Option<Request>,
    requests: Tolerant,
    count: u64,
    stats: Arc<Mutex<TraceStats>>,
}

impl Iterator for Counted {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        let request = self.first.take().or_else(|| self.requests.next())?;
        self.count += 1;
        Some(request)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut stats = self.stats.lock().unwrap_or_else(PoisonError::into_inner);
        let Faults { count, first, ended } = self.requests.faults();
        stats.requests = self.count;
        stats.malformed_lines = *count;
        stats.malformed_first = first.iter().map(ToString::to_string).collect();
        stats.late_requests = self.requests.reader().late();
        stats.ended = ended.as_ref().map(ToString::to_string);
    }
}

/// Splits a request into commands of at most the maximum size.
fn pieces(request: &Request, space: Space) -> impl Iterator<Item = TraceCommand> + use<> {
    let (offset, bytes) = wrapped(request.offset, request.bytes, space.bytes, space.block_bytes);
    let (at_ns, reads) = (request.at_ns, request.op == Op::Read);
    (0..bytes).step_by(space.max_bytes as usize).map(move |from| TraceCommand {
        at_ns,
        reads,
        offset: offset + u64::from(from),
        bytes: (bytes - from).min(space.max_bytes),
    })
}

impl TraceStats {
    /// Whether reading did not end before the end of the trace.
    pub(super) fn is_whole(&self) -> bool {
        self.ended.is_none()
    }

    pub(super) fn text(&self) -> String {
        let file = self.file.display();
        let mut text = format!(
            "trace: {} requests of {file} ({}) at {} times its speed\n",
            self.requests, self.format, self.speed
        );
        if self.late_requests > 0 {
            text += &format!("trace: {} requests were too far out of order to be sorted\n", self.late_requests);
        }
        if self.malformed_lines > 0 {
            text += &format!("trace: {} malformed lines were skipped:\n", self.malformed_lines);
            self.malformed_first.iter().for_each(|line| text += &format!("  {line}\n"));
        }
        if let Some(why) = &self.ended {
            text += &format!("trace: reading ended before its end: {why}\n");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_requests_are_cut_and_all_fit() {
        let space = Space { bytes: 1 << 20, block_bytes: 4096, max_bytes: 8192 };
        let request = |offset, bytes| Request { at_ns: 7, volume: 0, op: Op::Write, offset, bytes };
        let cut = |offset, bytes| -> Vec<(u64, u32)> {
            pieces(&request(offset, bytes), space).map(|piece| (piece.offset, piece.bytes)).collect()
        };
        assert_eq!(cut((5 << 20) + 4096, 20_000), [(4096, 8192), (12_288, 4096 * 2), (20_480, 4096)]);
        assert_eq!(cut((1 << 20) - 512, 512), [((1 << 20) - 4096, 4096)]);
        assert_eq!(cut(1, 1), [(0, 4096)]);
        assert_eq!(cut(0, 2 << 20).len(), 128, "no more than the space");
    }
}
