//! Windows of latency: a task of housekeeping that reads the histograms every 500 ms while a policy uses latency readings.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use pilotlight_reactor::housekeeping::{Next, Task};
use pilotlight_reactor::{Histogram, HistogramSnapshot, Housekeeping};

use crate::caps::Limit;
use crate::latency::reading::WINDOW;
use crate::shared::Shared;

/// Adds the task.
pub(crate) fn start(shared: &Arc<Shared>, housekeeping: &Housekeeping) -> Task {
    let (theirs, mut before) = (Arc::clone(shared), Before::default());
    housekeeping.add("latency", &shared.latencies.meter, move |now_ns| {
        let latencies = &theirs.latencies;
        let is_wanted = latencies.is_wanted.load(Relaxed);
        let is_on = is_wanted || now_ns < latencies.watched_until_ns.load(Relaxed);
        latencies.is_on.store(is_on, Relaxed);
        before = if is_wanted { measure(&theirs, &before, now_ns) } else { Before::default() };
        if is_on { Next::At(now_ns + WINDOW.as_nanos() as u64) } else { Next::Woken }
    })
}

/// The histograms at the end of the previous window.
#[derive(Default)]
struct Before {
    server: Option<HistogramSnapshot>,
    /// By number of the namespace.
    namespaces: Vec<(u32, HistogramSnapshot)>,
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
