//! Brackets of small scenarios, compared with policies.

mod support;

use pilotlight_plant::Topology;
use pilotlight_sim::oracle::{
    Bracket, BracketOptions, Fill, Level, Limits, OracleError, Replay, Schedule, Span, States, WorkBounds, bracket_of,
    lower_bound,
};
use pilotlight_sim::run;
use pilotlight_sim::scenario::{Kind, Phase, Rate, Scenario};

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

fn check(scenario: &Scenario, aim: BracketOptions) -> Bracket {
    let begun = std::time::Instant::now();
    let bracket = bracket_of(scenario, aim).unwrap();
    println!("{} slots, {:.1} s", bracket.slots.len(), begun.elapsed().as_secs_f64());
    println!("{bracket} utilisation {:?}", bracket.utilisation_permille);
    assert!(bracket.floor_deep_uj <= bracket.floor_shallow_uj);
    assert!(bracket.lower_uj <= bracket.upper_uj, "{bracket}");
    assert!(bracket.upper_uj <= bracket.static_uj, "{bracket}");
    bracket
}

/// A policy, its settings, and whether its main core sleeps too.
type Entry = (&'static str, &'static [(&'static str, &'static str)], bool);

const POLICIES: [Entry; 5] = [
    ("static", &[], false),
    ("sandman", &[("guards", "printed"), ("coarse_interval", "5ms"), ("server_sleep", "false")], false),
    ("sandman", &[("guards", "recommended"), ("coarse_interval", "5ms"), ("server_sleep", "false")], false),
    ("hybrid-poll", &[], true),
    ("interrupt", &[], true),
];

#[test]
fn the_bracket_of_bursts_is_below_every_policy() {
    for (deep, main_rests) in [(false, false), (true, false), (false, true), (true, true)] {
        let scenario = bursts(deep);
        let bracket = check(&scenario, BracketOptions::new(States { deep, main_rests }));
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

#[test]
fn bounds_do_not_depend_on_family_and_topology() {
    let mut scenario = bursts(true);
    for (exponent, saves_ppm, paired, depth) in
        [(2.0, 0, true, u32::MAX), (0.5, 600_000, true, 8), (1.5, 300_000, false, 8)]
    {
        scenario.machine.power.family.others_exponent = exponent;
        scenario.machine.power.family.sibling_saves_ppm = saves_ppm;
        scenario.topology = if paired { Topology::paired(4) } else { Topology::flat(4) }.unwrap();
        scenario.workload.connections.iter_mut().for_each(|connection| connection.depth = depth);
        for deep in [false, true] {
            let bracket = check(&scenario, BracketOptions::new(States { deep, main_rests: true }));
            for (name, settings, _) in POLICIES {
                let policy = pilotlight_policy::registry::build(name, settings).unwrap();
                let energy = run(&scenario, policy).unwrap().energy.system_uj();
                // With `kernel_idles_deep`, interrupts use the deep state.
                assert!(
                    bracket.lower_uj <= energy || (name == "interrupt" && !deep),
                    "{name} burns {energy} uJ, {bracket}"
                );
            }
        }
    }
}

#[test]
fn the_bracket_contains_static_polling() {
    let scenario = bursts(false);
    let bracket = bracket_of(&scenario, BracketOptions::new(States::SHALLOW)).unwrap();
    let polling = run(&scenario, support::policy("static", &[])).unwrap();
    assert_eq!(bracket.static_uj, polling.energy.system_uj());
    assert_eq!(bracket, bracket_of(&scenario, BracketOptions::new(States::SHALLOW)).unwrap());
}

#[test]
fn a_replay_is_the_same_with_and_without_quiet_ticks() {
    let mut scenario = bursts(true);
    let level = |awake, not_deep| Level { awake, not_deep };
    let levels = [(0, level(1, 1)), (20 * MS, level(4, 4)), (40 * MS, level(2, 3)), (50 * MS, level(1, 1))];
    let mut outcome = |eager| {
        scenario.eager = eager;
        let order = Fill::Pairs.order(&scenario.topology);
        let schedule = Schedule::new(&levels, 3 * MS, MS, order, vec![1; 4]);
        run(&scenario, Box::new(Replay::new(schedule))).unwrap()
    };
    let (lazy, eager) = (outcome(false), outcome(true));
    assert!(lazy.decisions.policy_calls <= eager.decisions.policy_calls);
    assert_eq!((lazy.energy, lazy.latency, lazy.series), (eager.energy, eager.latency, eager.series));
    // After the warm-up; a deeper sleep counts as a sleep too.
    assert_eq!((lazy.decisions.sleeps, lazy.decisions.wakes, lazy.decisions.refused), (4, 3, 0));
}

#[test]
fn each_request_can_be_held_to_the_terms() {
    let scenario = bursts(false);
    let aim =
        BracketOptions { epsilon_ns: 50_000, each_request: true, late_ppm: 0, ..BracketOptions::new(States::SHALLOW) };
    let bracket = check(&scenario, aim);
    assert_eq!(bracket.lateness.by_request.map(|delays| delays.late), Some(0));
    let looser = bracket_of(&scenario, BracketOptions { epsilon_ns: 500_000, ..aim }).unwrap();
    assert!(looser.lower_uj <= bracket.lower_uj && looser.upper_uj <= bracket.upper_uj, "{bracket}\n{looser}");
}

#[test]
fn requests_of_a_trace_are_refused_by_name() {
    let mut scenario = bursts(false);
    scenario.workload.connections[1].request = Kind::Traced { service_ns: None };
    let error = bracket_of(&scenario, BracketOptions::new(States::SHALLOW)).unwrap_err();
    assert!(error.to_string().contains("give its connections rates instead"), "{error}");
}

#[test]
fn closed_loops_are_refused() {
    let refused = |change: fn(&mut Scenario)| {
        let mut scenario = bursts(false);
        change(&mut scenario);
        matches!(bracket_of(&scenario, BracketOptions::new(States::SHALLOW)), Err(OracleError::Closed))
    };
    assert!(refused(|scenario| scenario.workload.connections[1].think_ns = 1));
    assert!(refused(|scenario| scenario.workload.connections[1].phases[1].rate = Rate::Unlimited));
}

/// SANDMAN's machine under a stable load and under bursts (Figs 3 and 4, shortened): the figures of PROMISES.md.
/// `cargo test --release -p pilotlight-sim --test oracle -- --ignored --nocapture`
/// Drives' power ceilings are removed: one of them is reached under bursts, which excludes a bracket.
#[test]
#[ignore = "seconds in the release profile, minutes in the dev profile"]
fn the_paper_s_machine() {
    for (label, scenario) in [
        ("stable, 320 k", stable(320e3)),
        ("stable, 2,560 k", stable(2_560e3)),
        ("bursts, 125 k for 500 ms, then 2,400 k for 50 ms", paper_bursts()),
    ] {
        for states in [States::SHALLOW, States::ALL] {
            let mut scenario = scenario.clone();
            scenario.machine.power.family.kernel_idles_deep = states.deep;
            scenario.drives.iter_mut().for_each(|drive| drive.power = None);
            println!("{label}");
            let bracket = check(&scenario, BracketOptions::new(states));
            if states.deep {
                continue;
            }
            for (name, settings, rests) in POLICIES {
                let Ok(policy) = pilotlight_policy::registry::build(name, settings) else { continue };
                let outcome = run(&scenario, policy).unwrap();
                let energy = outcome.energy.system_uj();
                let p99 = outcome.latency[0].1.quantile(0.99);
                let above = bracket.above_shallow_uj(energy) as f64 / 1e6;
                println!("  {name} {settings:?}: {above:.3} J above C-1, p99 {:.1} us", p99 as f64 / 1e3);
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
        let phase = |length_ns, rate| Phase { label: 0, length_ns, rate };
        connection.phases =
            vec![phase(500 * MS, Rate::PerSecond(125e3 / 48.0)), phase(50 * MS, Rate::PerSecond(2_400e3 / 48.0))];
    }
    scenario
}

/// Run time of the lower bound: 48 cores, 1,000 slots of 10 ms, 20 cores' work in every tenth slot.
#[test]
#[ignore = "a measurement"]
fn what_the_program_costs() {
    let scenario = stable(320e3);
    for states in [States::SHALLOW, States::ALL] {
        let limits = Limits::of(&scenario.machine, &scenario.topology, states).unwrap();
        let (mut plan, mut done) = (WorkBounds::default(), 0);
        for slot in 0..1_000_u64 {
            done += if slot % 50 < 5 { 200 * MS } else { MS / 2 };
            plan.spans.push(Span { length_ns: 10 * MS, least_ns: done - MS / 4, most_ns: done });
        }
        let begun = std::time::Instant::now();
        lower_bound(&limits, &plan).unwrap();
        println!("{states:?}: 1,000 slots in {:.2} s", begun.elapsed().as_secs_f64());
    }
}
