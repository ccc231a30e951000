//! Brackets of small scenarios, with the policies between and above them.

mod support;

use pilotlight_sim::oracle::{Aim, Bracket, States, bracket_of};
use pilotlight_sim::run;
use pilotlight_sim::scenario::{Phase, Rate, Scenario};

const MS: u64 = 1_000_000;

/// Four cores; 5 % load, then a burst, then nothing.
fn bursts(deep: bool) -> Scenario {
    let mut scenario = support::scenario(4, 4, 1.0, 60 * MS, 3);
    scenario.machine.power.physical_cores = 2;
    scenario.machine.power.family.kernel_idles_deep = deep;
    (scenario.series_ns, scenario.warm_up_ns) = (5 * MS, 10 * MS);
    for connection in &mut scenario.workload.connections {
        let phase = |length_ns, rate| Phase { label: 0, length_ns, rate };
        connection.phases = vec![
            phase(25 * MS, Rate::PerSecond(10_000.0)),
            phase(10 * MS, Rate::PerSecond(300_000.0)),
            phase(25 * MS, Rate::PerSecond(100.0)),
        ];
    }
    scenario
}

fn check(scenario: &Scenario, aim: Aim) -> Bracket {
    let bracket = bracket_of(scenario, aim).unwrap();
    println!("{bracket} utilisation {:?}", bracket.utilisation_permille);
    assert!(bracket.floor_deep_uj <= bracket.floor_shallow_uj);
    assert!(bracket.lower_uj <= bracket.upper_uj, "{bracket}");
    assert!(bracket.upper_uj <= bracket.static_uj, "{bracket}");
    bracket
}

/// Policies, their settings, and whether their main core rests too.
#[allow(clippy::type_complexity)] // a table
const POLICIES: [(&str, &[(&str, &str)], bool); 5] = [
    ("static", &[], false),
    ("sandman", &[("coarse_interval", "5ms"), ("server_sleep", "false")], false),
    ("dynamic", &[("frequency", "false")], false),
    ("hybrid-poll", &[], true),
    ("interrupt", &[], true),
];

#[test]
fn the_bracket_of_bursts_is_below_every_policy() {
    for (deep, main_rests) in [(false, false), (true, false), (false, true), (true, true)] {
        let scenario = bursts(deep);
        let bracket = check(&scenario, Aim::new(States { deep, main_rests }));
        for (name, settings, rests) in POLICIES {
            let Ok(policy) = pilotlight_policy::registry::build(name, settings) else {
                println!("{name} {settings:?} is skipped: there is no such policy");
                continue;
            };
            let outcome = run(&scenario, policy).unwrap();
            let energy = outcome.energy.system_uj();
            println!("{name}: {:.3} J above C-1", bracket.above_shallow_uj(energy) as f64 / 1e6);
            assert!(bracket.lower_uj <= energy || (rests && !main_rests), "{name} burns {energy} uJ, {bracket}");
        }
    }
}

/// SANDMAN's machine under a stable load and under bursts (Figs 3 and 4, shortened): what docs/oracle.md shows.
/// `cargo test --release -p pilotlight-sim --test oracle -- --ignored --nocapture`
#[test]
#[ignore = "seconds in the release profile, minutes in the dev profile"]
fn the_paper_s_machine() {
    for (label, scenario) in [
        ("stable, 320 k", stable(320e3)),
        ("stable, 2,560 k", stable(2_560e3)),
        ("bursts, 125 k for 500 ms, then 2,500 k for 50 ms", paper_bursts()),
    ] {
        for states in [States::SHALLOW, States::ALL] {
            let begun = std::time::Instant::now();
            println!("{label}, {} slots of the series", scenario.duration_ns / scenario.series_ns);
            let bracket = check(&scenario, Aim::new(states));
            println!("  {} slots, {:.1} s", bracket.slots.len(), begun.elapsed().as_secs_f64());
            if states.deep {
                continue;
            }
            for (name, settings, rests) in POLICIES {
                let Ok(policy) = pilotlight_policy::registry::build(name, settings) else { continue };
                let outcome = run(&scenario, policy).unwrap();
                let energy = outcome.energy.system_uj();
                let p99 = outcome.latency[0].1.quantile(0.99);
                let above = bracket.above_shallow_uj(energy) as f64 / 1e6;
                println!("  {name}: {above:.3} J above C-1, p99 {:.1} us", p99 as f64 / 1e3);
                assert!(rests || bracket.lower_uj <= energy, "{name}");
            }
        }
    }
}

fn stable(rate: f64) -> Scenario {
    let mut scenario = support::scenario(48, 16, rate, 1_200 * MS, 5);
    (scenario.series_ns, scenario.warm_up_ns) = (10 * MS, 200 * MS);
    scenario
}

fn paper_bursts() -> Scenario {
    let mut scenario = support::scenario(48, 1, 1.0, 1_300 * MS, 5);
    (scenario.series_ns, scenario.warm_up_ns) = (10 * MS, 200 * MS);
    for connection in &mut scenario.workload.connections {
        connection.depth = 32;
        let phase = |length_ns, rate| Phase { label: 0, length_ns, rate };
        connection.phases =
            vec![phase(500 * MS, Rate::PerSecond(125e3 / 48.0)), phase(50 * MS, Rate::PerSecond(2_400e3 / 48.0))];
    }
    scenario
}
