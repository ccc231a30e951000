//! Windows of latency: a thread that reads the histograms every 500 ms while a policy uses latency readings.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;

use pilotlight_reactor::{Histogram, HistogramSnapshot, clock};

use crate::caps::Limit;
use crate::latency::reading::WINDOW;
use crate::shared::Shared;

/// The thread. Ends when dropped.
pub(crate) struct LatencyMeter {
    shared: Arc<Shared>,
    is_ended: Arc<AtomicBool>,
    join: Option<JoinHandle<()>>,
}

impl LatencyMeter {
    /// Starts the thread.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub(crate) fn start(shared: &Arc<Shared>) -> io::Result<Self> {
        let is_ended = Arc::new(AtomicBool::new(false));
        let (ended, measured) = (Arc::clone(&is_ended), Arc::clone(shared));
        let body = move || measure_until(&ended, &measured);
        let join = std::thread::Builder::new().name("latency".into()).spawn(body)?;
        let _ = shared.latencies.meter.set(join.thread().clone());
        Ok(Self { shared: Arc::clone(shared), is_ended, join: Some(join) })
    }
}

impl Drop for LatencyMeter {
    fn drop(&mut self) {
        self.is_ended.store(true, Relaxed);
        self.shared.latencies.is_on.store(false, Relaxed);
        if let Some(join) = self.join.take() {
            join.thread().unpark();
            let _ = join.join();
        }
    }
}

/// The histograms at the end of the previous window.
#[derive(Default)]
struct Before {
    server: Option<HistogramSnapshot>,
    /// By number of the namespace.
    namespaces: Vec<(u32, HistogramSnapshot)>,
}

fn measure_until(is_ended: &AtomicBool, shared: &Shared) {
    let mut before = Before::default();
    while !is_ended.load(Relaxed) {
        let latencies = &shared.latencies;
        let (is_wanted, now_ns) = (latencies.is_wanted.load(Relaxed), clock::now_ns());
        let is_watched = now_ns < latencies.watched_until_ns.load(Relaxed);
        latencies.is_on.store(is_wanted || is_watched, Relaxed);
        if is_wanted {
            before = measure(shared, &before, now_ns);
        } else {
            before = Before::default();
        }
        if is_wanted || is_watched {
            std::thread::park_timeout(WINDOW);
        } else {
            std::thread::park();
        }
    }
}

/// Ends a window at `now_ns`. Returns the start of the next one.
fn measure(shared: &Shared, before: &Before, now_ns: u64) -> Before {
    let server = shared.latencies.server();
    let total = server.is_wanted().then(|| shared.socket_latency().latency);
    if let (Some(total), Some(earlier)) = (&total, &before.server) {
        server.note(&total.since(earlier), now_ns);
    }
    let wanted: Vec<(u32, Arc<Limit>)> =
        shared.caps.namespaces().filter(|(_, limit)| limit.latency().is_wanted()).collect();
    let mut namespaces = Vec::with_capacity(wanted.len());
    for (number, limit) in wanted {
        let reading = limit.latency();
        let total = reading.histogram.get_or_init(Histogram::default).snapshot();
        let earlier = before.namespaces.iter().find(|(known, _)| *known == number);
        if let Some((_, earlier)) = earlier.filter(|_| !limit.is_retired()) {
            reading.note(&total.since(earlier), now_ns);
        }
        namespaces.push((number, total));
    }
    Before { server: total, namespaces }
}
