//! One sampler for all readers: samples go to connected readers; points are kept for later ones.
//!
//! *Properties.* A sample is computed and written once, however many readers there are. Without readers only points are computed. A reader that is too slow
//! loses samples, and gets the stored points again when it continues: nothing is stored for it. The memory is bounded.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::body::{Body, Bytes};
use futures_util::stream;
use pilotlight_policy::NAMES;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::broadcast::{self, Receiver};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::MissedTickBehavior;

use super::StatusSource;
use super::sample;
use crate::http::Progress;
use crate::status::measure::Snapshot;

/// Readers at once.
pub(super) const READERS: usize = 32;
/// Samples that a reader may be behind.
const BEHIND: usize = 8;
/// Samples to a point.
const TICKS_A_POINT: u64 = 5;
/// Points that are kept: six minutes of five seconds each.
const POINTS: usize = 72;
/// After how long a browser connects again, in milliseconds.
const AGAIN_MS: u32 = 1000;

/// Connects the sampler with its readers.
pub(super) struct Feed {
    /// Also the lock under which a reader joins, so that it misses no point and gets none twice.
    points: Mutex<VecDeque<Arc<str>>>,
    events: broadcast::Sender<Bytes>,
    places: Arc<Semaphore>,
}

impl Default for Feed {
    fn default() -> Self {
        Self {
            points: Mutex::default(),
            events: broadcast::channel(BEHIND).0,
            places: Arc::new(Semaphore::new(READERS)),
        }
    }
}

impl Feed {
    /// Free places for readers.
    pub(super) fn places(&self) -> usize {
        self.places.available_permits()
    }

    /// The stream of a new reader: the points so far, then each sample and point, as long as it `may_read`. `None`: there are too many readers.
    pub(super) fn read(
        self: &Arc<Self>,
        progress: Progress,
        may_read: impl FnMut() -> bool + Send + 'static,
    ) -> Option<Body> {
        let place = Arc::clone(&self.places).try_acquire_owned().ok()?;
        let (history, events) = self.join();
        let reader = Reader { feed: Arc::clone(self), events, first: Some(history), progress, may_read, _place: place };
        Some(Body::from_stream(stream::unfold(reader, |mut reader| async {
            let event = reader.next().await?;
            Some((Ok::<_, std::convert::Infallible>(event), reader))
        })))
    }

    /// The points so far as an event, and the stream of later events.
    fn join(&self) -> (Bytes, Receiver<Bytes>) {
        let points = self.points.lock().unwrap_or_else(PoisonError::into_inner);
        let events = self.events.subscribe();
        let all: Vec<&str> = points.iter().map(AsRef::as_ref).collect();
        let names = serde_json::json!({ "host": host(), "states": sample::states(), "policies": NAMES }).to_string();
        // the points are JSON already
        let text = format!(
            "retry: {AGAIN_MS}
event: history
data: {},\"points\":[{}]}}

",
            names.trim_end_matches('}'),
            all.join(",")
        );
        (text.into(), events)
    }

    fn publish(&self, sample: Option<String>, point: Option<String>) {
        let mut points = self.points.lock().unwrap_or_else(PoisonError::into_inner);
        // no reader is connected
        if let Some(point) = point {
            let _ = self.events.send(format!("event: point\ndata: {point}\n\n").into());
            points.push_back(point.into());
            if points.len() > POINTS {
                points.pop_front();
            }
        }
        if let Some(sample) = sample {
            let _ = self.events.send(format!("event: sample\ndata: {sample}\n\n").into());
        }
    }
}

/// One that reads.
struct Reader<F> {
    feed: Arc<Feed>,
    events: Receiver<Bytes>,
    /// The first message.
    first: Option<Bytes>,
    progress: Progress,
    may_read: F,
    _place: OwnedSemaphorePermit,
}

impl<F: FnMut() -> bool> Reader<F> {
    async fn next(&mut self) -> Option<Bytes> {
        let event = match self.first.take() {
            Some(first) => first,
            None => match self.events.recv().await {
                Ok(event) => event,
                Err(RecvError::Lagged(_)) => {
                    let (history, events) = self.feed.join();
                    self.events = events;
                    history
                }
                Err(RecvError::Closed) => return None,
            },
        };
        self.progress.note();
        (self.may_read)().then_some(event)
    }
}

/// State of the sampler.
struct Sampler {
    source: Arc<dyn StatusSource>,
    /// The counters at the last sample, and at the last point.
    sampled: Snapshot,
    kept: Snapshot,
}

impl Sampler {
    /// A sample and a point, if requested, from one snapshot.
    fn take(&mut self, wants_sample: bool, wants_point: bool) -> (Option<String>, Option<String>) {
        let (now, unix_ms) = (self.source.snapshot(), unix_ms());
        let sample = wants_sample.then(|| sample::sample(&self.source.report(&self.sampled, &now), unix_ms));
        let point = wants_point.then(|| sample::point(&self.source.report(&self.kept, &now), unix_ms));
        if wants_point {
            self.kept = now.clone();
        }
        self.sampled = now;
        (sample, point)
    }
}

/// The machine's name.
fn host() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned()
}

fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_millis() as u64
}

/// Samples every `tick` for as long as this is polled; with a tick of zero without a pause.
pub(super) async fn run(feed: Arc<Feed>, source: Arc<dyn StatusSource>, tick: Duration) {
    let now = source.snapshot();
    let mut sampler = Sampler { source, sampled: now.clone(), kept: now };
    let mut ticks = (!tick.is_zero()).then(|| tokio::time::interval(tick));
    if let Some(ticks) = &mut ticks {
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks.tick().await; // the first one comes at once
    }
    for number in 1_u64.. {
        if let Some(ticks) = &mut ticks {
            ticks.tick().await;
        }
        let (wants_sample, wants_point) = (feed.events.receiver_count() > 0, number % TICKS_A_POINT == 0);
        if !wants_sample && !wants_point {
            tokio::task::yield_now().await;
            continue;
        }
        // the server's state can be locked for as long as a device takes to open
        let taken = tokio::task::spawn_blocking(move || {
            let taken = sampler.take(wants_sample, wants_point);
            (sampler, taken)
        });
        let Ok((back, (sample, point))) = taken.await else { return };
        sampler = back;
        feed.publish(sample, point);
    }
}
