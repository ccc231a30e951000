//! Open-loop Poisson load on a simulated drive, and the quantiles of its latency.

use crate::curves::QUANTILES;
use pilotlight_sim::rng::{Purpose, Stream, below};
use pilotlight_sim::ssd::{Op, Request, Ssd, SsdModel};

/// 4 KiB requests at `rate` per second, `writes` of 1000 being writes; latency at `QUANTILES` in us, without the first tenth.
pub(crate) fn latency_us(model: &SsdModel, writes: u32, rate: f64, requests: usize) -> [f64; 4] {
    let mut ssd = Ssd::new(model);
    let mut arrivals = Stream::new(1, Purpose::Arrivals, 0);
    let draws = Stream::new(1, Purpose::Devices, 0);
    let kinds = Stream::new(1, Purpose::Arrivals, 1);
    let mut at = 0.0;
    let mut taken: Vec<u32> = Vec::with_capacity(requests);
    for index in 0..requests as u64 {
        at += arrivals.exponential(1e9 / rate);
        let op = if below(kinds.at(index), 1000) < u64::from(writes) { Op::Write } else { Op::Read };
        let request =
            Request { at_ns: at as u64, op, offset: 0, bytes: 4096, draw: draws.at(index), sequential: false };
        let latency = ssd.submit(&request) - request.at_ns;
        taken.push(u32::try_from(latency).unwrap_or(u32::MAX));
    }
    quantiles(&mut taken[requests / 10..])
}

/// Selects from the highest to the lowest, each among the values below the previous one.
fn quantiles(taken: &mut [u32]) -> [f64; 4] {
    let mut found = [0.0; 4];
    let count = taken.len();
    let mut left = taken;
    for (at, quantile) in QUANTILES.iter().enumerate().rev() {
        let rank = ((count as f64 * quantile / 100.0) as usize).min(left.len() - 1);
        let (below, value, _) = left.select_nth_unstable(rank);
        found[at] = f64::from(*value) / 1000.0;
        left = below;
    }
    found
}
