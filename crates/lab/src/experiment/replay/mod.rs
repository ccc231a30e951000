//! Replays: a trace's volumes on the drives, its clients' threads as connections (SANDMAN, section 5.6).
//!
//! A surrogate is another member of its family for each seed, so that replications range over what is not published. Who gets how
//! much is dealt by a first pass: of a file over all of it, of a surrogate over its first ten seconds.

use std::path::Path;

use pilotlight_sim::Source;
use pilotlight_sim::scenario::{Arrival, Connection, Kind, Phase, Rate, Spacing, Traced};
use pilotlight_trace::placement::{Candidate, Placement, Plan, assign};
use pilotlight_trace::read::Options;
use pilotlight_trace::stats::BurstRule;
use pilotlight_trace::transform::{Cut, Placed, Placing, Scaled};
use pilotlight_trace::{Family, Generator, Member, Op, Reader, Request, Stats};

use super::schema::Trace;

/// How a surrogate is called.
const SURROGATE: &str = "surrogate:";
/// Requests of a surrogate are counted for so long to deal its volumes.
const LOOK_NS: u64 = 10_000_000_000;

type Requests = Box<dyn Iterator<Item = Request>>;

/// The connections of a replay: a thread of a client each, dealt to I/O threads one after the other.
#[must_use]
pub fn connections(trace: &Trace, threads: u16, drives: u16) -> Vec<Connection> {
    let one = |at: u32| Connection {
        thread: (at % u32::from(threads.max(1))) as u16,
        drives: (0, drives),
        request: Kind::Traced,
        depth: trace.depth,
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
    let end = trace.begin.0 + (duration_ns as f64 * trace.speed) as u64;
    let plan = Plan {
        volumes: usize::from(trace.volumes),
        ssds: usize::from(drives),
        sets: usize::from(trace.client_sets),
        threads: usize::from(trace.threads_per_client),
        ..Plan::default()
    };
    let (volumes, requests) = match trace.source.strip_prefix(SURROGATE) {
        Some(name) => surrogate(trace, &member(trace, name, seed)?, seed, end)?,
        None => file(&trace.source)?,
    };
    let placement = assign(&volumes, &plan);
    Ok(arrivals(requests, placement, trace, end))
}

fn member(trace: &Trace, name: &str, seed: u64) -> Result<Member, String> {
    let family = match name {
        "alibaba" => Family::alibaba(),
        "tencent" => Family::tencent(),
        _ => return Err(format!("trace: there is no surrogate {name:?}; there are: alibaba, tencent")),
    };
    let member = family.member(seed);
    let mean_iops = trace.mean_iops.unwrap_or(member.mean_iops);
    Ok(Member { mean_iops, volumes: u32::from(trace.volumes), ..member })
}

fn surrogate(trace: &Trace, member: &Member, seed: u64, end_ns: u64) -> Result<(Vec<Candidate>, Requests), String> {
    if trace.volumes == 0 {
        return Err("trace: volumes: a surrogate needs at least one".into());
    }
    let mut traffic = vec![0_u64; usize::from(trace.volumes)];
    Generator::new(member, seed, LOOK_NS).for_each(|request| traffic[request.volume as usize] += 1);
    let candidate = |(volume, traffic): (u32, u64)| Candidate { volume, size_bytes: member.volume_bytes, traffic };
    let volumes = (0..).zip(traffic).map(candidate).collect();
    Ok((volumes, Box::new(Generator::new(member, seed, end_ns))))
}

fn file(path: &str) -> Result<(Vec<Candidate>, Requests), String> {
    let open = || Reader::open(Path::new(path), &Options::default()).map_err(|error| format!("trace {path}: {error}"));
    let mut stats = Stats::new(BurstRule::default());
    open()?.filter_map(Result::ok).for_each(|request| stats.add(&request));
    let volumes = stats.volumes().into_iter().map(Candidate::from).collect();
    Ok((volumes, Box::new(open()?.filter_map(Result::ok))))
}

fn arrivals(requests: Requests, placement: Placement, trace: &Trace, end_ns: u64) -> Source<'static> {
    let threads = u32::from(trace.threads_per_client);
    let partitions = placement.partition_bytes;
    let arrival = move |Placed { request, place }: Placed| Arrival {
        at_ns: request.at_ns,
        connection: place.set * threads + place.thread,
        what: Traced {
            drive: place.ssd as u16,
            write: request.op == Op::Write,
            offset: u64::from(place.partition) % 64 * partitions % DRIVE + request.offset % DRIVE,
            bytes: request.bytes,
        },
    };
    let within = Scaled::new(Cut::new(requests, trace.begin.0, end_ns), trace.speed);
    let mut within = within;
    // One request at a time: `Placing` borrows the placement, which has to travel with the iterator.
    let placed = std::iter::from_fn(move || Placing::new(&mut within, &placement).next());
    Box::new(placed.map(arrival))
}

/// Offsets matter to drives only by the die that they lie on; they are kept within this.
const DRIVE: u64 = 3_840_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quantity::Time;

    fn trace(source: &str) -> Trace {
        Trace {
            source: source.into(),
            volumes: 16,
            client_sets: 4,
            threads_per_client: 2,
            depth: 8,
            mean_iops: Some(20_000.0),
            begin: Time(0),
            speed: 1.0,
        }
    }

    #[test]
    fn a_surrogate_is_replayed_in_order_on_all_that_there_is() {
        let trace = trace("surrogate:alibaba");
        let arrivals: Vec<Arrival> = source(&trace, 4, 1_000_000_000, 1).unwrap().collect();
        assert!(arrivals.len() > 5_000 && arrivals.is_sorted_by_key(|arrival| arrival.at_ns));
        assert!(arrivals.iter().all(|arrival| arrival.connection < 8 && arrival.what.drive < 4));
        let drives: std::collections::BTreeSet<u16> = arrivals.iter().map(|arrival| arrival.what.drive).collect();
        assert_eq!(drives.len(), 4);
        let again: Vec<Arrival> = source(&trace, 4, 1_000_000_000, 1).unwrap().collect();
        assert_eq!(arrivals, again);
        assert_eq!(connections(&trace, 3, 4).len(), 8);
    }

    #[test]
    fn what_is_not_there_is_named() {
        assert!(source(&trace("surrogate:azure"), 4, 1, 1).err().unwrap().contains("azure"));
        assert!(source(&trace("/no/such/file"), 4, 1, 1).err().unwrap().contains("/no/such/file"));
    }
}
