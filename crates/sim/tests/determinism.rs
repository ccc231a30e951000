//! One scenario and one seed yield one trace, byte for byte: in two runs, in two processes, and in both engines.

mod support;

use pilotlight_sim::engine::{policy_checks, run_naive, run_traced};
use pilotlight_sim::machine::{Family, Governor};
use pilotlight_sim::outcome::{Decisions, Outcome};
use pilotlight_sim::scenario::{Phase, Rate, Scenario};
use pilotlight_sim::ssd::DrivePower;
use pilotlight_sim::trace::{Record, RecordKind};
use support::{policy, scenario};

type Engine = fn(
    &Scenario,
    Box<dyn pilotlight_plant::Policy>,
    &mut dyn std::io::Write,
) -> Result<Outcome, pilotlight_sim::RunError>;

fn traced(engine: Engine, scenario: &Scenario, name: &str, settings: &[(&str, &str)]) -> (Outcome, Vec<u8>) {
    let mut trace = Vec::new();
    let outcome = engine(scenario, policy(name, settings), &mut trace).unwrap();
    (outcome, trace)
}

fn first_difference(one: &[u8], other: &[u8]) -> String {
    let records = |bytes: &[u8]| -> Vec<_> {
        bytes.as_chunks::<{ Record::BYTES }>().0.iter().map(|bytes| Record::decode(bytes).unwrap()).collect()
    };
    let (one, other) = (records(one), records(other));
    let at = one.iter().zip(&other).position(|(one, other)| one != other).unwrap_or(one.len().min(other.len()));
    let from = at.saturating_sub(3);
    format!(
        "record {at} of {} and {}:\n{:#?}\n{:#?}",
        one.len(),
        other.len(),
        one.get(from..at + 2),
        other.get(from..at + 2)
    )
}

/// Calls of the policy at other times than intervals of this length.
fn calls_between(trace: &[u8], interval_ns: u64) -> usize {
    let records = trace.as_chunks::<{ Record::BYTES }>().0.iter().map(|bytes| Record::decode(bytes).unwrap());
    let is_between = |record: &Record| (100_000..interval_ns - 100_000).contains(&(record.at_ns % interval_ns));
    records.filter(|record| record.kind == RecordKind::PolicyCalled && is_between(record)).count()
}

fn engines_agree(scenario: &Scenario, name: &str, settings: &[(&str, &str)]) -> Outcome {
    let (outcome, trace) = traced(run_traced, scenario, name, settings);
    let (expected, naive) = traced(run_naive, scenario, name, settings);
    assert!(trace == naive, "{name} {settings:?}: {}", first_difference(&trace, &naive));
    assert_eq!(outcome, expected, "{name} {settings:?}");
    assert!(outcome.requests.answered > 0);
    outcome
}

/// A bursty load.
fn bursts(cores: u16, seed: u64) -> Scenario {
    let mut scenario = scenario(cores, 2, 0.0, 20_000_000, seed);
    for connection in &mut scenario.workload.connections {
        connection.phases = vec![
            Phase { label: 0, length_ns: 3_000_000, rate: Rate::PerSecond(5_000.0) },
            Phase { label: 1, length_ns: 1_000_000, rate: Rate::PerSecond(150_000.0) },
        ];
    }
    scenario
}

#[test]
fn the_same_seed_gives_the_same_bytes_and_another_seed_others() {
    let run =
        |seed| traced(run_traced, &scenario(4, 2, 400_000.0, 5_000_000, seed), "sandman", &[("guards", "printed")]);
    assert_eq!(run(1), run(1));
    assert_ne!(run(1).1, run(2).1);
}

/// Path of the trace of the process that [`two_processes_write_the_same_trace`] starts.
const TRACE: &str = "PILOTLIGHT_TRACE_OF_ANOTHER_PROCESS";

#[test]
fn two_processes_write_the_same_trace() {
    let settings = [("guards", "printed"), ("fine_interval", "40us"), ("coarse_interval", "2ms")];
    let here = || traced(run_traced, &bursts(6, 1), "sandman", &settings).1;
    if let Some(path) = std::env::var_os(TRACE) {
        return std::fs::write(path, here()).unwrap();
    }
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("trace-{}", std::process::id()));
    let mut process = std::process::Command::new(std::env::current_exe().unwrap());
    let output = process.args(["--exact", "two_processes_write_the_same_trace"]).env(TRACE, &path).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let stored = std::fs::read(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let here = here();
    assert!(here == stored, "{}", first_difference(&here, &stored));
    assert!(here.len() > 10_000 * Record::BYTES);
}

#[test]
fn both_engines_write_the_same_trace() {
    for seed in 0..3 {
        for rate in [2_000.0, 200_000.0, 2_000_000.0] {
            let scenario = scenario(4, 2, rate, 4_000_000, seed);
            engines_agree(&scenario, "static", &[]);
            engines_agree(&scenario, "interrupt", &[]);
        }
    }
}

#[test]
fn both_engines_move_threads_and_sleep_alike() {
    for seed in 0..3 {
        let scenario = bursts(6, seed);
        for fine in ["10us", "40us"] {
            let settings = [("guards", "printed"), ("fine_interval", fine), ("coarse_interval", "2ms")];
            engines_agree(&scenario, "sandman", &settings);
        }
    }
}

/// Cores report long rounds, and wait in the kernel or poll.
#[test]
fn both_engines_report_long_rounds_alike() {
    for seed in 0..3 {
        for (waits, round) in [("true", "5us"), ("false", "2us"), ("false", "3us"), ("false", "6us")] {
            let settings = [("check_interval", "2ms"), ("hold", "1ms"), ("round", round), ("waits", waits)];
            engines_agree(&bursts(6, seed), "adaptive", &settings);
            let mut loops = bursts(6, seed);
            for connection in &mut loops.workload.connections {
                connection.depth = 8;
                connection.phases[1].rate = Rate::Unlimited;
            }
            engines_agree(&loops, "adaptive", &settings);
            let (_, trace) = traced(run_traced, &loops, "adaptive", &settings);
            assert!(calls_between(&trace, 2_000_000) > 0, "no reports: {waits} {round}");
        }
    }
}

/// Every policy, with short intervals for short runs.
const POLICIES: [(&str, &[(&str, &str)]); 10] = [
    ("static", &[]),
    ("interrupt", &[]),
    ("governor", &[]),
    ("governor", &[("interval", "1ms")]),
    ("dynamic", &[]),
    ("dynamic", &[("interval", "1ms")]),
    ("hybrid-poll", &[]),
    ("sandman", &[("guards", "printed"), ("coarse_interval", "2ms")]),
    ("sandman", &[("coarse_interval", "2ms"), ("guards", "recommended")]),
    ("sandman", &[("guards", "printed"), ("coarse_interval", "2ms"), ("sleep", "software"), ("detect", "load")]),
];

#[test]
fn commands_are_equal_if_every_tick_is_delivered() {
    for (name, settings) in POLICIES {
        let mut failing = bursts(6, 4);
        failing.machine.director.fails_ppm = 300_000;
        let quiet = [scenario(4, 2, 3_000.0, 20_000_000, 2), scenario(6, 2, 300.0, 60_000_000, 3)];
        for mut scenario in [bursts(6, 1), failing].into_iter().chain(quiet) {
            let (outcome, lazy) = traced(run_traced, &scenario, name, settings);
            scenario.eager = true;
            let (mut expected, eager) = traced(run_traced, &scenario, name, settings);
            assert!(lazy == eager, "{name} {settings:?}: {}", first_difference(&lazy, &eager));
            assert!(outcome.decisions.policy_calls <= expected.decisions.policy_calls);
            // these two depend on the ticks with a policy call
            let Decisions { policy_calls, late_ns, .. } = outcome.decisions;
            expected.decisions = Decisions { policy_calls, late_ns, ..expected.decisions };
            let (decisions, view) = ((outcome.decisions, expected.decisions), (&outcome.view, &expected.view));
            assert!(outcome == expected, "{name} {settings:?}: {decisions:?} {view:?}");
        }
    }
}

#[test]
fn both_engines_agree_under_every_policy() {
    for (name, settings) in POLICIES {
        engines_agree(&bursts(6, 5), name, settings);
        let mut failing = bursts(4, 8);
        failing.machine.director.fails_ppm = 300_000;
        engines_agree(&failing, name, settings);
        engines_agree(&scenario(4, 1, 1_500_000.0, 3_000_000, 6), name, settings);
        engines_agree(&scenario(4, 2, 300.0, 60_000_000, 7), name, settings); // long stretches without events
    }
}

/// The engines' meters share no code: energy of all family members, with frequencies and drives at their ceilings, is equal to the microjoule.
#[test]
fn both_meters_agree() {
    for (restarts, transition_ns, step_khz) in [(false, 450_000, 50_000), (true, 35_000, 70_000), (false, 0, 300_000)] {
        for (name, settings) in POLICIES {
            let mut scenario = bursts(6, 9);
            let speed = &mut scenario.machine.speed;
            (speed.transition_restarts, speed.transition_ns, speed.step_khz) = (restarts, transition_ns, step_khz);
            scenario.machine.kernel.deep_residency_ns = 20_000;
            let power = scenario.machine.power;
            for (exit_at_rest, package_ppm, frequency_exponent) in
                [(true, 500_000, 1.0), (true, 0, 3.0), (false, 1_000_000, 2.5)]
            {
                let mut member = power;
                member.family = Family { exit_at_rest, package_ppm, frequency_exponent, ..power.family };
                scenario.family.push(member);
            }
            for drive in &mut scenario.drives {
                drive.power = Some(DrivePower { most_load_uw: 1_000_000 });
            }
            let outcome = engines_agree(&scenario, name, settings);
            assert!(outcome.capped_uj > 0, "{name}: no drive has reached its ceiling");
            scenario.machine.power.family.kernel_idles_deep = true;
            engines_agree(&scenario, name, settings);
            if name != "governor" {
                scenario.machine.governor = Governor::Schedutil;
                engines_agree(&scenario, name, settings);
            }
        }
    }
}

/// Idle ticks are skipped; the equality of results is tested above.
#[test]
fn quiet_moments_are_passed_over() {
    let quiet = scenario(6, 2, 300.0, 60_000_000, 3); // 18 requests and 6,000 ticks of 10 us
    for (name, settings) in [("sandman", &[("guards", "printed"), ("coarse_interval", "2ms")][..]), ("dynamic", &[])] {
        let lazy = policy_checks(&quiet, policy(name, settings)).unwrap();
        assert!(lazy < 1_500, "{name} looked {lazy} times");
        let eager = policy_checks(&Scenario { eager: true, ..quiet.clone() }, policy(name, settings)).unwrap();
        assert!(eager > 5_500, "{name}: {eager}; an eager plant invokes the policy at every time");
    }
}
