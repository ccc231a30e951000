//! Simulated requests per second and core, at a stable load of 4 KiB random reads on the paper's machine (SANDMAN, Fig 3):
//! `cargo run --release -p pilotlight-sim --example speed -- [POLICY] [KIOPS] [SIMULATED MS] [KEY=VALUE]...`.

#[path = "../tests/support/mod.rs"]
mod support;

use std::time::Instant;

fn main() {
    let mut args = std::env::args().skip(1);
    let name = args.next().unwrap_or_else(|| "static".to_owned());
    let kiops: f64 = args.next().map_or(10_240.0, |text| text.parse().expect("KIOPS is a number"));
    let ms: u64 = args.next().map_or(500, |text| text.parse().expect("milliseconds are a number"));
    let settings: Vec<String> = args.collect();
    let settings: Vec<_> = settings.iter().filter_map(|text| text.split_once('=')).collect();
    let mut scenario = support::scenario(48, 16, kiops * 1e3, ms * 1_000_000, 1);
    scenario.series_ns = ms * 1_000_000 / 10;
    scenario.warm_up_ns = scenario.series_ns;
    let begun = Instant::now();
    let outcome = pilotlight_sim::run(&scenario, support::policy(&name, &settings)).expect("the scenario can be run");
    let took = begun.elapsed().as_secs_f64();
    let latency = &outcome.latency[0].1;
    let watts = |uj: u64| uj as f64 * 1e3 / outcome.measured_ns as f64;
    println!(
        "{name} at {kiops} k: {:.2} M requests/s of wall time; {} answered, p50 {:.1} us, p99 {:.1} us, CPU {:.1} W, system {:.1} W (modelled)",
        outcome.requests.answered as f64 / took / 1e6,
        outcome.requests.answered,
        latency.quantile(0.5) as f64 / 1e3,
        latency.quantile(0.99) as f64 / 1e3,
        watts(outcome.energy.cpu_uj),
        watts(outcome.energy.system_uj()),
    );
    let cores = |stretch: &pilotlight_sim::outcome::Stretch| stretch.awake_ns as f64 / scenario.series_ns as f64;
    let awake: Vec<_> = outcome.series.iter().map(|stretch| format!("{:.1}", cores(stretch))).collect();
    println!("cores awake in each tenth: {}", awake.join(" "));
    println!("{:?} saturated {}", outcome.decisions, outcome.saturated);
}
