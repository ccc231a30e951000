//! CPU time of the simulator per 4 KiB request.

use pilotlight_sim::rng::{Purpose, Stream};
use pilotlight_sim::ssd::{Op, Request, Ssd, SsdModel};
use std::hint::black_box;
use std::time::Instant;

const REQUESTS: usize = 1 << 16;
const ROUNDS: u64 = 100;

/// Prints CPU ns per request, at four fifths of the dies' capacity: reads, and reads with a fifth of writes.
pub(crate) fn print(model: &SsdModel) {
    let gap_ns = model.flash.read_ns as f64 / f64::from(model.flash.dies) / 0.8;
    let reads = load(|_| Op::Read, gap_ns);
    let mixed = load(|index| if index % 5 == 0 { Op::Write } else { Op::Read }, 4.0 * gap_ns);
    println!(
        "{}: a read {:.1} ns, of a mix with 20 % writes {:.1} ns",
        model.name,
        ns(model, &reads),
        ns(model, &mixed)
    );
}

/// Precomputed requests, so that only the drive is measured.
fn load(op: impl Fn(usize) -> Op, gap_ns: f64) -> Vec<Request> {
    let mut stream = Stream::new(1, Purpose::Arrivals, 0);
    let mut at = 0.0;
    let mut next = |index| {
        at += stream.exponential(gap_ns);
        Request {
            at_ns: at as u64,
            op: op(index),
            offset: stream.draw() >> 20 << 12,
            bytes: 4096,
            draw: stream.draw(),
            sequential: false,
        }
    };
    (0..REQUESTS).map(&mut next).collect()
}

/// The fastest of many rounds: other load on the machine only makes rounds longer.
fn ns(model: &SsdModel, load: &[Request]) -> f64 {
    let mut ssd = Ssd::new(model);
    let span = load[load.len() - 1].at_ns;
    let mut fastest = f64::INFINITY;
    for round in 0..ROUNDS {
        let started = Instant::now();
        for request in load {
            black_box(ssd.submit(&Request { at_ns: request.at_ns + round * span, ..*request }));
        }
        fastest = fastest.min(started.elapsed().as_nanos() as f64 / load.len() as f64);
    }
    fastest
}
