//! Reads a trace once: statistics, an optional copy, and progress.

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use pilotlight_trace::read::{Faults, OpenError, Position};
use pilotlight_trace::stats::Summary;
use pilotlight_trace::stats::segments::{SEGMENT_NS, Segment, Segments};
use pilotlight_trace::{Reader, Request, Stats, Writer};

use super::packed::Packed;
use super::render::{Report, VERSION, print};
use super::segments::SegmentsReport;
use super::{TraceArgs, refuse};
use crate::console;
use crate::exit::Exit;
use crate::files;

/// Requests between two reads of the clock.
const REQUESTS_PER_UPDATE: u64 = 1 << 16;
/// Time until a progress bar is displayed.
const PROGRESS_AFTER: Duration = Duration::from_secs(2);

/// Maximum number of names.
const NAMES: u32 = 16;

pub(super) fn run(args: &TraceArgs, file: &Path) -> anyhow::Result<ExitCode> {
    let reader = match Reader::open(file, &args.reading.options()) {
        Ok(reader) => reader,
        Err(error @ OpenError::Io { .. }) => return Err(error.into()),
        Err(error) => return Ok(refuse(&error.to_string())),
    };
    let mut pass = Pass::new(args, Bar::of_file(reader.position()))?;
    let mut requests = reader.tolerant(args.reading.strict);
    for request in requests.by_ref() {
        pass.take(&request)?;
    }
    if let Some(error) = requests.reader().no_request().filter(|_| requests.faults().ended.is_none()) {
        pass.bar.bar.finish_and_clear();
        return Err(error.into());
    }
    let (statistics, segments) = pass.finish()?;
    let (faults, reader) = (requests.faults(), requests.reader());
    let report = Report {
        version: VERSION,
        file,
        format: reader.format().name(),
        malformed_lines: faults.count,
        malformed_first: faults.first.iter().map(ToString::to_string).collect(),
        late_requests: reader.late(),
        volume_names: (0..NAMES).map_while(|volume| reader.volume_name(volume)).collect(),
        statistics,
        segments: segments.map(|segments| SegmentsReport::new(args, segments)).transpose()?,
    };
    print(&report, args.json)?;
    Ok(exit_code(faults))
}

/// The exit code: failure if the trace was not read to its end.
fn exit_code(faults: &Faults) -> ExitCode {
    let Some(malformed) = &faults.ended else { return Exit::Clean.into() };
    let why = if malformed.is_fatal() { "" } else { " (--strict)" };
    console::eprintln(format_args!("error: reading ended before the end of the trace{why}: {malformed}"));
    Exit::Failed.into()
}

/// Processes requests, read or generated.
pub(super) struct Pass {
    stats: Stats,
    segments: Option<Segments>,
    output: Option<(Writer<Packed>, PathBuf)>,
    bar: Bar,
}

impl Pass {
    pub(super) fn new(args: &TraceArgs, bar: Bar) -> anyhow::Result<Self> {
        let output = args.output.as_ref().map(|path| create(path)).transpose()?;
        let length_ns = args.segments.or(args.pressure.as_ref().map(|_| SEGMENT_NS));
        Ok(Self { stats: Stats::new(args.bursts.rule()), segments: length_ns.map(Segments::new), output, bar })
    }

    pub(super) fn take(&mut self, request: &Request) -> anyhow::Result<()> {
        self.stats.add(request);
        if let Some(segments) = &mut self.segments {
            segments.add(request);
        }
        if let Some((writer, path)) = &mut self.output {
            writer.write(request).map_err(|error| files::failed(path, error))?;
        }
        if self.stats.requests().is_multiple_of(REQUESTS_PER_UPDATE) {
            self.bar.update(self.stats.requests(), request.at_ns);
        }
        Ok(())
    }

    /// Completes the copy, which gets its name only now, so that no partial copy exists.
    pub(super) fn finish(self) -> anyhow::Result<(Summary, Option<Vec<Segment>>)> {
        self.bar.bar.finish_and_clear();
        if let Some((writer, path)) = self.output {
            writer.finish().and_then(Packed::finish).map_err(|error| files::failed(&path, error))?;
        }
        Ok((self.stats.summary(), self.segments.map(Segments::finish)))
    }
}

fn create(path: &Path) -> anyhow::Result<(Writer<Packed>, PathBuf)> {
    let writer = Packed::create(path).and_then(|output| Writer::new(output, path));
    Ok((writer.map_err(|error| files::failed(path, error))?, path.to_owned()))
}

/// Progress, displayed on a terminal after [`PROGRESS_AFTER`].
pub(super) struct Bar {
    bar: ProgressBar,
    started: Instant,
    of: Length,
}

/// The unit of the bar's length.
enum Length {
    /// Bytes of a file.
    File(Position),
    /// Nanoseconds of a span.
    Span,
}

impl Bar {
    fn of_file(position: Position) -> Self {
        Self::new(position.total_bytes(), Length::File(position))
    }

    pub(super) fn of_span(span_ns: u64) -> Self {
        Self::new(Some(span_ns), Length::Span)
    }

    fn new(length: Option<u64>, of: Length) -> Self {
        let bar = ProgressBar::with_draw_target(length, ProgressDrawTarget::hidden());
        let template = if length.is_some() { "{wide_bar} {percent} %, {msg}" } else { "{spinner} {msg}" };
        let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        Self { bar: bar.with_style(style), started: Instant::now(), of }
    }

    fn update(&mut self, requests: u64, at_ns: u64) {
        let elapsed = self.started.elapsed();
        if elapsed < PROGRESS_AFTER || !std::io::stderr().is_terminal() {
            return;
        }
        if self.bar.is_hidden() {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        self.bar.set_position(match &self.of {
            Length::File(position) => position.read_bytes(),
            Length::Span => at_ns,
        });
        let per_s = requests as f64 / elapsed.as_secs_f64();
        self.bar.set_message(format!("{requests} requests, {:.2} M/s", per_s / 1e6));
    }
}
