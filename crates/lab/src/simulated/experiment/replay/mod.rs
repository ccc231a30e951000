//! Replays: a trace's volumes on the drives, its clients' threads as connections (SANDMAN, section 5.6).
//!
//! Each seed draws another surrogate of the family, so that replications cover unpublished parameters. A first pass distributes volumes by
//! load: over all of a file, over the first second of a surrogate.
//!
//! | file | content |
//! |---|---|
//! | this | connections; a whole replay |
//! | [`origin`] | surrogates and files: volumes, requests, loads |
//! | [`sampled`] | a sampled replay |
//! | [`total`] | sums of the outcomes of windows |

mod origin;
pub mod sampled;
mod total;

use pilotlight_sim::Source;
use pilotlight_sim::scenario::{Arrival, Connection, Kind, Phase, Rate, Spacing, Traced};
use pilotlight_trace::placement::Placement;
use pilotlight_trace::read::{OpenError, UnknownFormat};
use pilotlight_trace::sampling::PlanError;
use pilotlight_trace::transform::{Cut, Placed, Placing};
use pilotlight_trace::{Op, Request};

use super::schema::{Cores, ThreadPlacement, Trace};
use origin::Origin;

pub use sampled::{Replays, SampledReplay};

/// A trace cannot be replayed.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages document the variants")]
pub enum TraceError {
    #[error("trace: speed: {0} is not above 0")]
    Speed(f64),
    #[error("trace: there is no surrogate {0:?}; there are: alibaba, tencent")]
    NoSurrogate(String),
    #[error("trace: volumes: a surrogate needs at least one")]
    NoVolume,
    #[error("trace: mean_iops: {0:?} is no range above 0")]
    MeanRate([f64; 2]),
    #[error("trace {0}: {1}")]
    Format(String, UnknownFormat),
    #[error("trace {0}: {1}")]
    Open(String, OpenError),
    #[error("{0}; `pilotlab trace -o`, which has more options, writes a trace for a replay")]
    NoRequest(OpenError),
    #[error("sizes {0}: {1}")]
    Sizes(String, csv::Error),
    #[error("sizes {path}: line {line}: {fields:?} is not device_id,capacity in bytes")]
    Size { path: String, line: u64, fields: String },
    #[error("trace: sample.window ({window_ns} ns) must be above 0, and `series` ({series_ns} ns) a multiple of it")]
    Window { window_ns: u64, series_ns: u64 },
    #[error("trace: sample.window: more than {0} windows; take wider ones")]
    Windows(u64),
    #[error("trace: sample: {0}")]
    Sample(PlanError),
    #[error(
        "trace {0}: the windows hold more than {1} requests; take fewer or narrower ones (sample.windows, sample.window)"
    )]
    Requests(String, usize),
}

/// The connections of a replay: one for each client thread. They, or the client sets, are assigned to I/O threads round robin.
#[must_use]
pub fn connections(trace: &Trace, cores: Cores, drives: u16) -> Vec<Connection> {
    let together =
        if cores.placement == ThreadPlacement::Host { u32::from(trace.threads_per_client.max(1)) } else { 1 };
    let one = |at: u32| Connection {
        thread: (at / together % u32::from(cores.threads.max(1))) as u16,
        drives: (0, drives),
        request: Kind::Traced { service_ns: trace.dependent.map(|service| service.0) },
        depth: if trace.dependent.is_some() { 1 } else { trace.depth },
        spacing: Spacing::Poisson,
        phases: vec![Phase { label: 0, length_ns: 1_000_000_000, rate: Rate::Off }],
        think_ns: 0,
    };
    (0..u32::from(trace.client_sets) * u32::from(trace.threads_per_client)).map(one).collect()
}

/// The requests of a replay, by time.
///
/// # Errors
/// If there is no such surrogate or file.
pub fn source(trace: &Trace, drives: u16, duration_ns: u64, seed: u64) -> Result<Source<'static>, TraceError> {
    let origin = Origin::new(trace, drives, duration_ns, seed)?;
    let placement = origin.placement.clone();
    let requests = origin.requests()?;
    let threads = trace.threads_per_client;
    let within = Cut::new(requests, 0, duration_ns);
    Ok(Box::new(assign_connections(within, placement, threads)))
}

/// Requests of replayed volumes, with their connection and address.
fn assign_connections(
    mut requests: impl Iterator<Item = Request> + 'static,
    placement: Placement,
    threads: u16,
) -> impl Iterator<Item = Arrival> {
    // One request at a time, because `Placing` borrows the placement, which the iterator owns.
    let one = move || Placing::new(&mut requests, &placement).next().map(|one| arrival(one, &placement, threads));
    std::iter::from_fn(one)
}

fn arrival(Placed { request, place }: Placed, placement: &Placement, threads: u16) -> Arrival {
    Arrival {
        at_ns: request.at_ns,
        connection: place.set * u32::from(threads) + place.thread,
        what: Traced {
            drive: place.ssd as u16,
            write: request.op == Op::Write,
            offset: u64::from(place.partition) % 64 * placement.partition_bytes % DRIVE + request.offset % DRIVE,
            bytes: request.bytes,
        },
    }
}

/// Limit of offsets: drives use them only to select a die.
const DRIVE: u64 = 3_840_000_000_000;

#[cfg(test)]
mod tests;
