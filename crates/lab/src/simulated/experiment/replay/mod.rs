//! Replays: a trace's volumes on the drives, its clients' threads as connections (SANDMAN, section 5.6).
//!
//! A surrogate is another member of its family for each seed, so that replications range over what is not published. Who gets how
//! much is dealt by a first pass: of a file over all of it, of a surrogate over its first second.
//!
//! | file | what it holds |
//! |---|---|
//! | this | connections; a replay of everything in one go |
//! | [`origin`] | surrogates and files: volumes, requests, loads |
//! | [`day`] | a replay by windows, and what they say of the whole |
//! | [`total`] | outcomes of windows added up |

pub mod day;
mod origin;
mod total;

use pilotlight_sim::Source;
use pilotlight_sim::scenario::{Arrival, Connection, Kind, Phase, Rate, Spacing, Traced};
use pilotlight_trace::placement::Placement;
use pilotlight_trace::transform::{Cut, Placed, Placing};
use pilotlight_trace::{Op, Request};

use super::schema::Trace;
use origin::Origin;

pub use day::{Day, Replays};

/// The connections of a replay: a thread of a client each, dealt to I/O threads one after the other.
#[must_use]
pub fn connections(trace: &Trace, threads: u16, drives: u16) -> Vec<Connection> {
    let one = |at: u32| Connection {
        thread: (at % u32::from(threads.max(1))) as u16,
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
/// In words, if there is no such surrogate or file.
pub fn source(trace: &Trace, drives: u16, duration_ns: u64, seed: u64) -> Result<Source<'static>, String> {
    let origin = Origin::new(trace, drives, duration_ns, seed)?;
    let placement = origin.placement.clone();
    let requests = origin.requests()?;
    let threads = trace.threads_per_client;
    let within = Cut::new(requests, 0, duration_ns);
    Ok(Box::new(placed(within, placement, threads)))
}

/// Requests of volumes that are replayed, each with who sends it and where to.
fn placed(
    mut requests: impl Iterator<Item = Request> + 'static,
    placement: Placement,
    threads: u16,
) -> impl Iterator<Item = Arrival> {
    // One request at a time: `Placing` borrows the placement, which has to travel with the iterator.
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

/// Offsets matter to drives only by the die that they lie on; they are kept within this.
const DRIVE: u64 = 3_840_000_000_000;

#[cfg(test)]
mod tests;
