//! Error of the server's energy shares against the Shapley share: two hosts on the test machine of `tests/support`, both, each alone, none.
//! `cargo run --release -p pilotlight-sim --example energy-shares`.
//!
//! *Reference.* Of two hosts A and B, the Shapley share of A is half the sum of (energy of A alone minus that of none) and (energy of both minus that of B alone). Power is
//! not linear in CPU time here: cores share a package budget, siblings a core, and frequency has an exponent; both hosts share polling cores.
//! *Rule.* Energy of the run with both minus that of none, divided as in `pilotlight_power::shares`: CPU time in proportion to requests, each like 4 KiB, and
//! bytes. Connections of both are distributed evenly over all I/O threads, so that the time of each thread is divided equally.
//! *Error.* Share of A by the rule minus its Shapley share, in percent of the divided energy.

#[path = "../tests/support/mod.rs"]
mod support;

use pilotlight_power::shares::{Rule, Use, divide};
use pilotlight_sim::outcome::Outcome;
use pilotlight_sim::scenario::{Connection, Kind, Spacing, Workload};

const CORES: u16 = 16;
const DRIVES: u16 = 4;
/// One on each I/O thread.
const CONNECTIONS: u16 = CORES;
const DURATION_NS: u64 = 1_000_000_000;
const REQUEST_BYTES: u64 = 4 * 1024;
const BURSTS: Spacing = Spacing::Mmpp { ratio: 20.0, high_share: 0.1, high_ns: 20_000_000.0 };

struct Host {
    rate: f64,
    bytes: u32,
    spacing: Spacing,
}

impl Host {
    fn connections(&self) -> Vec<Connection> {
        let mut connections = support::connections(CONNECTIONS, CORES, DRIVES, self.rate);
        for connection in &mut connections {
            connection.request = Kind::Plain { writes_ppm: 0, bytes: self.bytes, sequential: false };
            connection.spacing = self.spacing;
        }
        connections
    }

    /// Its CPU use, as accounted by the server.
    fn used(&self) -> Use {
        let bytes = (self.rate * f64::from(self.bytes)) as u64;
        Use { cpu_ns: self.rate as u64 * REQUEST_BYTES + bytes, device_ns: 0, bytes }
    }
}

/// A policy and its settings.
type Chosen = (&'static str, &'static [(&'static str, &'static str)]);

/// Short intervals, for short runs.
const POLICIES: [Chosen; 4] = [
    ("static", &[]),
    ("sandman", &[("coarse_interval", "20ms"), ("guards", "recommended")]),
    ("governor", &[("interval", "10us")]),
    ("ondemand", &[]),
];

fn run((name, settings): Chosen, hosts: &[&Host]) -> Outcome {
    let mut scenario = support::scenario(CORES, DRIVES, 0.0, DURATION_NS, 1);
    scenario.warm_up_ns = DURATION_NS / 10;
    scenario.series_ns = DURATION_NS / 10;
    let connections = hosts.iter().flat_map(|host| host.connections()).collect();
    scenario.workload = Workload { connections, ..Workload::default() };
    pilotlight_sim::run(&scenario, support::policy(name, settings)).expect("the scenario can be run")
}

/// Energy of a zone of the machine.
type Zone = (&'static str, fn(&Outcome) -> u64, Rule);

fn main() {
    let steady = |rate: f64, bytes: u32| Host { rate, bytes, spacing: Spacing::Poisson };
    let cases = [
        ("200 k and 200 k IOPS of 4 KiB", steady(2e5, 4096), steady(2e5, 4096)),
        ("500 k and 50 k IOPS of 4 KiB", steady(5e5, 4096), steady(5e4, 4096)),
        ("200 k steady and 200 k in bursts", steady(2e5, 4096), Host { spacing: BURSTS, ..steady(2e5, 4096) }),
        ("200 k of 4 KiB and 20 k of 64 KiB", steady(2e5, 4096), steady(2e4, 65_536)),
    ];
    let cpu: Zone = ("CPU", |outcome| outcome.energy.cpu_uj, Rule::CPU);
    let system: Zone = ("system", |outcome| outcome.energy.system_uj(), Rule::CPU);
    let both: Zone = ("system, CPU time and bytes", system.1, Rule::SYSTEM);
    println!(
        "| policy | hosts A and B | zone | above idle | Shapley share of A | by the rule | error |\n|---|---|---|---|---|---|---|"
    );
    for policy in POLICIES {
        for (name, a, b) in &cases {
            let runs = [run(policy, &[a, b]), run(policy, &[a]), run(policy, &[b]), run(policy, &[])];
            for (zone, energy, rule) in [cpu, system, both] {
                let [ab_uj, a_uj, b_uj, none_uj] = runs.each_ref().map(|outcome| energy(outcome) as f64);
                let (above_uj, shapley_uj) = (ab_uj - none_uj, (a_uj - none_uj + ab_uj - b_uj) / 2.0);
                let division = divide(ab_uj as u64, none_uj as u64, &[a.used(), b.used()], Use::default(), rule);
                if above_uj <= 0.0 {
                    println!("| {} | {name} | {zone} | 0 J | | | |", policy.0);
                    continue;
                }
                let percent = |uj: f64| 100.0 * uj / above_uj;
                let by_rule = division.parts_uj[0] as f64;
                println!(
                    "| {} | {name} | {zone} | {:.1} J | {:.1} % | {:.1} % | {:+.1} % |",
                    policy.0,
                    above_uj / 1e6,
                    percent(shapley_uj),
                    percent(by_rule),
                    percent(by_rule - shapley_uj)
                );
            }
        }
    }
}
