//! The thread that writes the log, so that a reactor never waits for the reader of the log.
//!
//! Lines come through a bounded queue; lines that do not fit are counted. One window after a line the thread checks whether
//! more lines of its call site were suppressed, and logs their number. Otherwise it sleeps without a timeout.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime as _, SystemTime};

use tracing::Level;

use super::format::Layout;
use super::rate::Sites;

/// Lines that may wait to be written.
const QUEUE: usize = 4096;
/// Timeout of a flush at the end of the program: the reader of standard error may have stopped.
const FLUSH_WITHIN: Duration = Duration::from_secs(1);

/// An entry of the queue.
enum Entry {
    /// A line, when it was made, and the call site whose rate it counts for.
    Line { time: String, level: Level, text: String, site: Option<usize> },
    /// Everything before is to be written, and then this be dropped.
    Flush(#[expect(dead_code, reason = "its end is the signal")] SyncSender<()>),
}

/// Where lines are handed over; never waits.
#[derive(Clone, Debug)]
pub(super) struct Queue {
    entries: SyncSender<Entry>,
    lost: Arc<AtomicU64>,
}

impl Queue {
    /// Starts the thread that writes to `out`. Suppressed lines of a call site are reported after `length_ms`.
    pub(super) fn start(
        out: impl Write + Send + 'static,
        sites: Arc<Sites>,
        length_ms: u64,
        layout: Layout,
    ) -> io::Result<Self> {
        let (entries, receiver) = sync_channel(QUEUE);
        let lost = Arc::new(AtomicU64::new(0));
        let mut thread = LogThread {
            out,
            layout,
            sites,
            length: Duration::from_millis(length_ms),
            last: BTreeMap::new(),
            lost: Arc::clone(&lost),
        };
        std::thread::Builder::new().name("log".to_owned()).spawn(move || thread.run(&receiver))?;
        Ok(Self { entries, lost })
    }

    /// Hands a line over.
    pub(super) fn line(&self, text: &[u8], level: Level, site: Option<usize>) {
        let text = String::from_utf8_lossy(text.trim_ascii_end()).into_owned();
        let line = Entry::Line { time: time(), level, text, site };
        if self.entries.try_send(line).is_err() {
            self.lost.fetch_add(1, Relaxed);
        }
    }

    /// Waits until what was handed over is written, for a second at most.
    pub(super) fn flush(&self) {
        let (sender, written) = sync_channel(0);
        if self.entries.try_send(Entry::Flush(sender)).is_ok() {
            let _ = written.recv_timeout(FLUSH_WITHIN);
        }
    }
}

/// The moment, as the log has it.
fn time() -> String {
    let mut text = String::new();
    // formatting into a string cannot fail
    let _ = SystemTime.format_time(&mut Writer::new(&mut text));
    text
}

/// The last line of a call site.
struct Last {
    level: Level,
    text: String,
    /// When to check for suppressed lines; the window of the line has ended by then.
    due: Instant,
}

struct LogThread<W> {
    out: W,
    layout: Layout,
    sites: Arc<Sites>,
    length: Duration,
    /// Call sites that may have suppressed lines.
    last: BTreeMap<usize, Last>,
    lost: Arc<AtomicU64>,
}

impl<W: Write> LogThread<W> {
    fn run(&mut self, entries: &Receiver<Entry>) {
        loop {
            let entry = match self.last.values().map(|last| last.due).min() {
                None => entries.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(due) => entries.recv_timeout(due.saturating_duration_since(Instant::now())),
            };
            match entry {
                Ok(Entry::Line { time, level, text, site }) => self.line(&time, level, text, site),
                Ok(Entry::Flush(_)) => self.tell_all(),
                Err(RecvTimeoutError::Timeout) => self.tell_due(),
                Err(RecvTimeoutError::Disconnected) => return self.tell_all(),
            }
            let lost = self.lost.swap(0, Relaxed);
            if lost > 0 {
                let message = format!("{lost} lines are lost: standard error took them too slowly");
                self.write(&time(), Level::WARN, &self.layout.own_warning(&message), 0);
            }
        }
    }

    fn line(&mut self, time: &str, level: Level, text: String, site: Option<usize>) {
        if let Some(site) = site {
            self.tell(site);
        }
        self.write(time, level, &text, 0);
        if let Some(site) = site {
            self.last.insert(site, Last { level, text, due: Instant::now() + self.length });
        }
    }

    fn tell_all(&mut self) {
        let sites: Vec<usize> = self.last.keys().copied().collect();
        sites.into_iter().for_each(|site| _ = self.tell(site));
    }

    /// Reports suppressed lines of call sites whose window has ended, and schedules another check of those that had any.
    fn tell_due(&mut self) {
        let now = Instant::now();
        let due: Vec<usize> = self.last.iter().filter(|(_, last)| last.due <= now).map(|(&site, _)| site).collect();
        for site in due {
            if !self.tell(site) {
                self.last.remove(&site);
            } else if let Some(last) = self.last.get_mut(&site) {
                last.due = now + self.length;
            }
        }
    }

    /// Reports the suppressed lines of a call site; returns whether there were any.
    fn tell(&mut self, site: usize) -> bool {
        let Some(last) = self.last.get(&site) else { return false };
        let left_out = self.sites.rate(site).take_left_out();
        if left_out == 0 {
            return false;
        }
        let (level, text) = (last.level, last.text.clone());
        self.write(&time(), level, &text, left_out);
        true
    }

    /// Writes a line; errors are ignored, as the log has no other place for them.
    fn write(&mut self, time: &str, level: Level, text: &str, left_out: u64) {
        let line = self.layout.line(time, level, text, left_out);
        let _ = self.out.write_all(line.as_bytes()).and_then(|()| self.out.flush());
    }
}
