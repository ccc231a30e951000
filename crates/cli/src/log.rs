//! The log: to standard error, off the request path, at a bounded rate, coloured only on a terminal.
//!
//! A warning or error that repeats is written [`rate::LINES`] times in [`WINDOW_MS`] at each call site; how many more there were is told
//! when that time is over. So code warns with `tracing::warn!` and need not care how often; lines left out cost it two atomic operations.

mod rate;
mod writer;

use std::io::{self, IsTerminal as _, Write};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::{Context, Filter, SubscriberExt as _};
use tracing_subscriber::{EnvFilter, Layer as _, registry};

use rate::Sites;
use writer::Queue;

/// Environment variable that sets the log by module, as in `pilotlight_target=debug`.
const VARIABLE: &str = "PILOTLIGHT_LOG";
/// Time in which a call site that warns writes [`rate::LINES`] lines at most.
const WINDOW_MS: u64 = 10_000;

/// The queue of the program's log.
static QUEUE: OnceLock<Queue> = OnceLock::new();

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
    let filter = EnvFilter::builder().with_default_directive(level.into()).with_env_var(VARIABLE).from_env_lossy();
    let (log, queue) = Log::start(io::stderr(), WINDOW_MS)?;
    let _ = QUEUE.set(queue);
    let _ = tracing::subscriber::set_global_default(subscriber(log, colour()).with(filter));
    Ok(())
}

/// Waits until what was logged is written, before the program says something else or ends.
pub fn flush() {
    if let Some(queue) = QUEUE.get() {
        queue.flush();
    }
}

/// Whether standard error takes colours: it is a terminal, and the user has not asked for none (no-color.org).
pub fn colour() -> bool {
    io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

fn subscriber(log: Log, colour: bool) -> impl Subscriber + for<'a> registry::LookupSpan<'a> + Send + Sync {
    let bounded = log.clone();
    let lines = tracing_subscriber::fmt::layer().without_time().with_ansi(colour).with_writer(log);
    registry().with(lines.with_filter(bounded))
}

/// Both ends of a call site's way into the log: whether it may write, and where to.
#[derive(Clone)]
struct Log {
    queue: Queue,
    sites: Arc<Sites>,
    begin: Instant,
    window_ms: u64,
}

impl Log {
    fn start(out: impl Write + Send + 'static, window_ms: u64) -> io::Result<(Self, Queue)> {
        let sites = Arc::<Sites>::default();
        let queue = Queue::start(out, Arc::clone(&sites), window_ms)?;
        Ok((Self { queue: queue.clone(), sites, begin: Instant::now(), window_ms }, queue))
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
        Line { queue: &self.queue, site: None }
    }

    fn make_writer_for(&'a self, metadata: &Metadata<'_>) -> Line<'a> {
        Line { queue: &self.queue, site: self.site(metadata) }
    }
}

/// Takes one line in one write.
struct Line<'a> {
    queue: &'a Queue,
    site: Option<usize>,
}

impl Write for Line<'_> {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        self.queue.line(text, self.site);
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
    struct Lines(Sender<String>);

    impl Write for Lines {
        fn write(&mut self, text: &[u8]) -> io::Result<usize> {
            let _ = self.0.send(String::from_utf8(text.to_vec()).unwrap());
            Ok(text.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn log(window_ms: u64) -> (impl Subscriber + Send + Sync, Receiver<String>) {
        let (sender, lines) = channel();
        let (log, _) = Log::start(Lines(sender), window_ms).unwrap();
        (subscriber(log, false), lines)
    }

    fn next(lines: &Receiver<String>) -> String {
        lines.recv_timeout(Duration::from_secs(60)).expect("another line")
    }

    /// What a line says was left out.
    fn left_out(line: &str) -> Option<u64> {
        line.split_once(" more line")?.0.rsplit_once('(')?.1.parse().ok()
    }

    #[test]
    fn a_flood_of_warnings_is_ten_lines_and_their_count_after_it_has_ended() {
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
        let line = lines.iter().find(|line| left_out(line).is_some()).unwrap();
        let (time, rest) = line.split_once(' ').unwrap();
        assert!(time.starts_with("20") && time.ends_with('Z'), "{line}");
        assert!(rest.starts_with(" WARN pilotlight_cli::log::tests: too many peer=\"p\" ("), "{line}");
        assert!(rest.ends_with("(5 more lines like this left out)\n"), "{line}");
    }

    #[test]
    fn what_is_no_warning_is_not_bounded() {
        let (subscriber, lines) = log(60_000);
        tracing::subscriber::with_default(subscriber, || (0..50).for_each(|_| tracing::info!("an order")));
        assert_eq!((0..50).map(|_| next(&lines)).filter(|line| line.contains("INFO")).count(), 50);
    }

    /// Whoever reads the log may stop reading.
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
        let (log, queue) = Log::start(Stuck(held, sender), WINDOW_MS).unwrap();
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
