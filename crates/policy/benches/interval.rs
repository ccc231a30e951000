//! Cost of an interval of `pacer`, alone and under `pass` (promise: under 50 us): median, p99 and maximum over an hour of loads that change every
//! minute, on 16, 48 and 96 cores.
//!
//! `cargo bench -p pilotlight-policy --bench interval`

#[path = "../tests/support/random.rs"]
mod random;
#[path = "../tests/support/server.rs"]
mod server;

use pilotlight_plant::{Goals, Tolerance};
use random::Random;
use server::{Load, Machine, Server};

/// Steps of half a second in a load, and number of loads.
const STEPS: u64 = 120;
const LOADS: u64 = 60;

fn main() {
    println!("| policy | cores | median us | p99 us | longest us |");
    println!("|---|---|---|---|---|");
    for (name, settings, budget_uw) in [
        ("pacer", vec![], None),
        ("pass", vec![("inner", "pacer")], None),
        ("pass", vec![("inner", "pacer")], Some(110_000_000)),
    ] {
        for cores in [16, 48, 96] {
            let goals = Goals { budget_uw, tolerances: vec![Tolerance::mean_loss(200_000)], ..Goals::default() };
            let machine = Machine { cores, ..Machine::default() };
            let full = f64::from(cores) * 1e9 / machine.service_ns;
            let (mut server, mut random) = (Server::new(name, &settings, machine, goals), Random::new(1));
            let mut times = Vec::new();
            for _ in 0..LOADS {
                let load = Load::of(full * (1 + random.below(600)) as f64 / 1e3);
                for _ in 0..STEPS {
                    server.step(load);
                    times.push(server.decision_ns);
                }
            }
            times.sort_unstable();
            let us = |ns: u64| ns as f64 / 1e3;
            let (median, p99) = (times[times.len() / 2], times[times.len() * 99 / 100]);
            let under = budget_uw.map_or("", |_| ", 110 W");
            println!(
                "| {name}{under} | {cores} | {:.1} | {:.1} | {:.1} |",
                us(median),
                us(p99),
                us(times[times.len() - 1])
            );
        }
    }
}
