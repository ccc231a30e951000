//! The log: to standard error, off the request path, at a bounded rate, coloured only on a terminal.
//!
//! A call site writes at most [`rate::LINES`] warnings or errors in [`WINDOW_MS`]; the number of suppressed lines is logged
//! after that time. So code may warn with `tracing::warn!` at any rate; a suppressed line costs two atomic operations.
//!
//! Lines are text, or JSON from [`set_format`] on; the journal of systemd gets their priority.

mod format;
mod rate;
mod writer;

use std::io::{self, IsTerminal as _, Write};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::{Context, Filter, SubscriberExt as _};
use tracing_subscriber::{Layer as _, registry};

pub use format::{Format, UnknownFormat};
use format::{Layout, Lines};
use rate::Sites;
use writer::Queue;

/// Environment variable that sets the log by module, as in `pilotlight_nvmf_proto=debug`.
const VARIABLE: &str = "PILOTLIGHT_LOG";
/// Time in which a call site that warns writes [`rate::LINES`] lines at most.
const WINDOW_MS: u64 = 10_000;

/// The program's log.
static LOG: OnceLock<Log> = OnceLock::new();

/// Starts logging; `verbose` counts the `-v`s.
///
/// # Errors
/// If the system has no thread left.
pub fn start(verbose: u8) -> io::Result<()> {
    let level = match verbose {
        0 => LevelFilter::INFO,
        1 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    let variable = std::env::var_os(VARIABLE).unwrap_or_default();
    let variable = variable.to_string_lossy();
    let (filter, wrong) = levels(level, &variable);
    let log = Log::start(io::stderr(), WINDOW_MS, Layout::of(io::stderr()))?;
    let _ = LOG.set(log.clone());
    let _ = tracing::subscriber::set_global_default(subscriber(log, colour()).with(filter));
    for part in wrong {
        tracing::warn!("{VARIABLE}: `{part}` is ignored: write levels by module, as in warn,pilotlight_reactor=debug");
    }
    Ok(())
}

/// The level of each module: that of the variable, else `level`. Also the parts of the variable that are invalid.
fn levels(level: LevelFilter, variable: &str) -> (Targets, Vec<&str>) {
    let (mut levels, mut wrong) = (Targets::new().with_default(level), Vec::new());
    for part in variable.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        levels = match directive(part) {
            Some((Some(module), level)) => levels.with_target(module, level),
            Some((None, level)) => levels.with_default(level),
            None => {
                wrong.push(part);
                levels
            }
        };
    }
    (levels, wrong)
}

/// Parses `LEVEL` or `MODULE=LEVEL`.
fn directive(part: &str) -> Option<(Option<&str>, LevelFilter)> {
    let is_in_names = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b':');
    let (module, level) = match part.split_once('=') {
        None => (None, part),
        Some((module, level)) if !module.is_empty() && module.bytes().all(is_in_names) => (Some(module), level),
        Some(_) => return None,
    };
    let level = Some(level).filter(|level| !level.is_empty())?; // which would be read as `error`
    Some((module, level.parse().ok()?))
}

/// Waits until the queued lines are written.
pub fn flush() {
    if let Some(log) = LOG.get() {
        log.queue.flush();
    }
}

/// Writes what is logged from now on like this.
pub fn set_format(format: Format) {
    if let Some(log) = LOG.get() {
        log.layout.set(format);
    }
}

/// Whether the log is text on a terminal or in a file: then output of several lines may be mixed with it.
pub fn is_for_people() -> bool {
    LOG.get().is_none_or(|log| log.layout.is_for_people())
}

/// Whether standard error is a terminal, and `NO_COLOR` is not set (no-color.org).
pub fn colour() -> bool {
    io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

fn subscriber(log: Log, colour: bool) -> impl Subscriber + for<'a> registry::LookupSpan<'a> + Send + Sync {
    let bounded = log.clone();
    let lines = Lines::new(log.layout.clone());
    let lines = tracing_subscriber::fmt::layer().event_format(lines).with_ansi(colour).with_writer(log);
    registry().with(lines.with_filter(bounded))
}

/// Both ends of a call site's way into the log: whether it may write, and where to.
#[derive(Clone)]
struct Log {
    queue: Queue,
    layout: Layout,
    sites: Arc<Sites>,
    begin: Instant,
    window_ms: u64,
}

impl Log {
    fn start(out: impl Write + Send + 'static, window_ms: u64, layout: Layout) -> io::Result<Self> {
        let sites = Arc::<Sites>::default();
        let queue = Queue::start(out, Arc::clone(&sites), window_ms, layout.clone())?;
        Ok(Self { queue, layout, sites, begin: Instant::now(), window_ms })
    }

    /// The rate that an event counts for; only warnings and errors have one.
    fn site(&self, metadata: &Metadata) -> Option<usize> {
        // the metadata of a call site are a static, so their address names it
        (*metadata.level() <= Level::WARN).then(|| self.sites.index(std::ptr::from_ref(metadata).addr()))
    }
}

impl<S> Filter<S> for Log {
    fn enabled(&self, _: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        true
    }

    fn event_enabled(&self, event: &Event<'_>, _: &Context<'_, S>) -> bool {
        let Some(site) = self.site(event.metadata()) else { return true };
        self.sites.rate(site).admit(self.begin.elapsed().as_millis() as u64, self.window_ms)
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Line<'a>;

    fn make_writer(&'a self) -> Line<'a> {
        Line { queue: &self.queue, level: Level::INFO, site: None }
    }

    fn make_writer_for(&'a self, metadata: &Metadata<'_>) -> Line<'a> {
        Line { queue: &self.queue, level: *metadata.level(), site: self.site(metadata) }
    }
}

/// Takes one line in one write.
struct Line<'a> {
    queue: &'a Queue,
    level: Level,
    site: Option<usize>,
}

impl Write for Line<'_> {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        self.queue.line(text, self.level, self.site);
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::time::Duration;

    use super::*;

    /// Hands each line to a test.
    struct Receive(Sender<String>);

    impl Write for Receive {
        fn write(&mut self, text: &[u8]) -> io::Result<usize> {
            let _ = self.0.send(String::from_utf8(text.to_vec()).unwrap());
            Ok(text.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn log(window_ms: u64) -> (impl Subscriber + Send + Sync, Receiver<String>) {
        log_as(window_ms, Format::Text)
    }

    fn log_as(window_ms: u64, format: Format) -> (impl Subscriber + Send + Sync, Receiver<String>) {
        let (sender, lines) = channel();
        let log = Log::start(Receive(sender), window_ms, Layout::new(false)).unwrap();
        log.layout.set(format);
        (subscriber(log, false), lines)
    }

    fn next(lines: &Receiver<String>) -> String {
        lines.recv_timeout(Duration::from_secs(60)).expect("another line")
    }

    /// The number of suppressed lines that a line reports.
    fn left_out(line: &str) -> Option<u64> {
        line.split_once(" more line")?.0.rsplit_once('(')?.1.parse().ok()
    }

    #[test]
    fn modules_that_the_variable_does_not_name_keep_the_level_of_the_options() {
        let shows = |variable: &str, module: &str, level: Level| {
            levels(LevelFilter::INFO, variable).0.would_enable(module, &level)
        };
        for variable in ["", " ", ",", "target=debug", "target=debug,", ", target=debug"] {
            assert!(shows(variable, "other", Level::INFO) && !shows(variable, "other", Level::DEBUG), "{variable:?}");
            assert_eq!(shows(variable, "target::tcp", Level::DEBUG), variable.contains("debug"), "{variable:?}");
            assert_eq!(levels(LevelFilter::INFO, variable).1, [""; 0], "{variable:?}");
        }
        assert!(!shows("warn, target=debug", "other", Level::INFO));
        assert!(shows("warn, target=debug", "target", Level::DEBUG));
    }

    #[test]
    fn invalid_parts_of_the_variable_change_nothing_and_are_named() {
        for part in ["target=loud", "target=", "=debug", "target", "[span]=debug", "target[span]=debug"] {
            let variable = format!("{part},good=debug");
            let (filter, wrong) = levels(LevelFilter::INFO, &variable);
            assert_eq!(wrong, [part]);
            assert!(
                filter.would_enable("target", &Level::INFO) && !filter.would_enable("target", &Level::DEBUG),
                "{part}"
            );
            assert!(filter.would_enable("good", &Level::DEBUG), "{part}");
        }
    }

    #[test]
    fn many_warnings_give_ten_lines_and_a_count() {
        const FLOOD: u64 = 5_000;
        let (subscriber, lines) = log(300);
        tracing::subscriber::with_default(subscriber, || {
            for number in 0..FLOOD {
                tracing::warn!(number, "it repeats");
            }
            tracing::error!("something else");
        });
        let (mut written, mut told, mut other) = (0, 0, 0);
        while written + told < FLOOD || other == 0 {
            let line = next(&lines);
            match left_out(&line) {
                Some(count) => told += count,
                None if line.contains("ERROR") => other += 1,
                None => written += 1,
            }
        }
        assert_eq!((written + told, other), (FLOOD, 1));
        // so starved a machine that the loop took more than a hundred windows would be another finding
        assert!(written <= 100 * rate::LINES, "{written} lines");
    }

    #[test]
    fn a_line_has_its_time_first_and_the_count_repeats_the_line() {
        let (subscriber, lines) = log(60_000);
        tracing::subscriber::with_default(subscriber, || (0..15).for_each(|_| tracing::warn!(peer = "p", "too many")));
        let (counted, written): (Vec<_>, Vec<_>) = lines.iter().partition(|line| left_out(line).is_some());
        let counts: Vec<u64> = counted.iter().filter_map(|line| left_out(line)).collect();
        assert_eq!((written.len(), counts.iter().sum()), (10, 5), "{counted:?}");
        let line = &counted[0];
        let (time, rest) = line.split_once(' ').unwrap();
        assert!(time.starts_with("20") && time.ends_with('Z'), "{line}");
        assert!(rest.starts_with(" WARN pilotlight_cli::log::tests: too many peer=\"p\" ("), "{line}");
        let lines = if counts[0] == 1 { "line" } else { "lines" };
        assert!(rest.ends_with(&format!("({} more {lines} like this suppressed)\n", counts[0])), "{line}");
    }

    #[test]
    fn json_has_all_fields_and_the_count_of_suppressed_lines() {
        let (subscriber, lines) = log_as(60_000, Format::Json);
        tracing::subscriber::with_default(subscriber, || {
            (0..12).for_each(|_| {
                let peer = std::net::SocketAddr::from(([192, 0, 2, 7], 4));
                tracing::warn!(host = "h\"\n", nsid = 7_u32, %peer, share = 0.5, is_last = true, "refused: {}", "why");
            });
        });
        let read = |line: &String| serde_json::from_str::<serde_json::Value>(line).unwrap();
        let all: Vec<_> = lines.iter().map(|line| (read(&line), line)).collect();
        // The writing thread may count between two suppressed lines.
        let counts: Vec<u64> = all.iter().filter_map(|(value, _)| value.get("left_out")?.as_u64()).collect();
        assert_eq!((all.len() - counts.len(), counts.iter().sum()), (10, 2), "{counts:?}");
        let (first, line) = &all[0];
        assert!(line.starts_with("{\"time\":\"20") && line.matches('\n').count() == 1, "{line}");
        let mut expected = serde_json::json!({
            "time": first["time"], "level": "WARN", "target": "pilotlight_cli::log::tests", "message": "refused: why",
            "host": "h\"\n", "nsid": 7, "peer": "192.0.2.7:4", "share": 0.5, "is_last": true,
        });
        assert_eq!(*first, expected);
        let (told, _) = all.iter().find(|(value, _)| value.get("left_out").is_some()).unwrap();
        (expected["time"], expected["left_out"]) = (told["time"].clone(), told["left_out"].clone());
        assert_eq!(*told, expected);
    }

    #[test]
    fn info_lines_are_not_rate_limited() {
        let (subscriber, lines) = log(60_000);
        tracing::subscriber::with_default(subscriber, || (0..50).for_each(|_| tracing::info!("an order")));
        assert_eq!((0..50).map(|_| next(&lines)).filter(|line| line.contains("INFO")).count(), 50);
    }

    /// The reader of the log may close it.
    #[test]
    fn a_reader_that_stops_holds_nobody_up() {
        struct Stuck(Receiver<()>, Sender<String>);
        impl Write for Stuck {
            fn write(&mut self, text: &[u8]) -> io::Result<usize> {
                let _ = self.0.recv();
                let _ = self.1.send(String::from_utf8(text.to_vec()).unwrap());
                Ok(text.len())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        const LINES: usize = 10_000;
        let (release, held) = channel();
        let (sender, lines) = channel();
        let log = Log::start(Stuck(held, sender), WINDOW_MS, Layout::default()).unwrap();
        let queue = log.queue.clone();
        let subscriber = subscriber(log, false);
        tracing::subscriber::with_default(subscriber, || (0..LINES).for_each(|_| tracing::info!("a line")));
        queue.flush();
        drop(release);
        let lost: usize = lines
            .iter()
            .find_map(|line| {
                let (_, count) = line.split_once("log: ")?;
                count.split_once(" lines are lost")?.0.parse().ok()
            })
            .unwrap();
        assert!(lost > 0 && lost < LINES, "{lost}");
    }
}
