//! `pass` on random machines: CPU and drive power within 20 % of the artifact's profile; gains of 0.4 to 2.35 from CPU power to the server's
//! power; sensors with moving averages of 1 to 5 s, a lag of 1.3 s, steps of 1 W and failures.

#[path = "support/random.rs"]
mod random;
#[path = "support/storage.rs"]
mod storage;

use pilotlight_plant::{Command, Component, Kind, Scope};
use proptest::prelude::*;
use storage::{FLOOR, Machine, NAMESPACES, Phase, Plant, STEPS_PER_S};

fn machine() -> impl Strategy<Value = Machine> {
    let errors = (0.4..2.35_f64, 0.8..1.2_f64, 0.8..1.2_f64);
    let load = (90.0..200.0_f64, 0.1..1.0_f64, any::<bool>(), any::<bool>(), any::<bool>());
    let sensors = (10..=50_u64, 0..10_u64, prop_oneof![Just(0.0), Just(0.3)], any::<bool>());
    let minimum = prop_oneof![Just(0), 10 << 20..2_000_u64 << 20];
    let classes = (prop::collection::vec(0..3_u8, NAMESPACES), prop::collection::vec((0..3_u8, minimum), 0..3));
    (errors, load, sensors, classes, any::<u64>()).prop_map(
        |(
            (gain, cpu_error, ssd_error),
            (cpu_w, drives, is_cpu_bound, writes, polls),
            (window_steps, phase_steps, noise_w, has_package),
            (classes, minimums),
            seed,
        )| Machine {
            gain,
            cpu_error,
            ssd_error,
            others_w: 100.0,
            cpu_w,
            drives,
            is_cpu_bound,
            polls,
            writes,
            window_steps,
            phase_steps,
            noise_w,
            has_package,
            classes,
            is_artifact: false,
            minimums,
            bytes_lag_steps: 0,
            seed,
        },
    )
}

fn phase() -> impl Strategy<Value = Phase> {
    let budget = prop::option::weighted(0.8, 150..700_u64);
    (1..40_u64, budget, 0.0..1.0_f64, prop::bool::weighted(0.25), prop::bool::weighted(0.1))
        .prop_map(|(seconds, budget_w, demand, is_dead, refuses)| Phase { seconds, budget_w, demand, is_dead, refuses })
}

fn constant(seconds: u64, budget_w: f64) -> Phase {
    Phase { seconds, budget_w: Some(budget_w as u64), demand: 1.0, is_dead: false, refuses: false }
}

fn free(seconds: u64) -> Phase {
    Phase { budget_w: None, is_dead: true, ..constant(seconds, 0.0) }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    /// After any history: by a refused or stale reading no cap is raised, without a budget none remains, and namespaces of the highest priority
    /// are throttled last.
    #[test]
    fn limits_hold_under_faults(
        machine in machine(),
        inner in prop_oneof![Just("static"), Just("dynamic"), Just("sandman")],
        refused_permille in prop_oneof![Just(0), 1..900_u64],
        bytes_lag_steps in prop_oneof![Just(0), 1..14_usize],
        phases in prop::collection::vec(phase(), 1..10),
    ) {
        let mut plant = Plant::new(&Machine { bytes_lag_steps, ..machine }, &[("inner", inner)]);
        plant.refused_permille = refused_permille;
        for phase in &phases {
            plant.run(phase);
        }
        prop_assert_eq!(plant.raised_without_reading, None);
        let has_refused = phases.iter().any(|phase| phase.refuses);
        prop_assert!(has_refused || plant.priority_violation.is_none(), "{:?}", plant.priority_violation);
        prop_assert_eq!(plant.below_minimum, None);
        prop_assert!(plant.longest_shared <= 1, "{} samples", plant.longest_shared);
        plant.run(&free(if has_refused { 641 } else { 1 }));
        let lets_cores_sleep = inner != "static";
        prop_assert!(plant.is_lifted() || lets_cores_sleep && plant.has_no_caps(), "{:?}", plant.values);
        let commands = plant.commands.len();
        plant.run(&free(60));
        prop_assert_eq!(plant.commands.len(), commands);
    }
}

proptest! {
    // A case is more than an hour of samples.
    #![proptest_config(ProptestConfig { cases: 30, failure_persistence: None, ..ProptestConfig::default() })]

    /// At constant load the budget is kept and used, with at most a change a minute.
    #[test]
    fn at_constant_load_it_settles(machine in machine(), share in 0.1..1.1_f64) {
        let mut plant = Plant::new(&machine, &[]);
        let budget_w = machine.floor_w() + (machine.full_w() - machine.floor_w()) * share;
        plant.run(&constant(600, budget_w));
        let changes = plant.changes();
        plant.run(&constant(3_600, budget_w));
        let changes = plant.changes() - changes;
        prop_assert!(changes <= 60, "{} changes in an hour", changes);
        let over = plant.mean_w(60) / budget_w.floor() - 1.0;
        // Readings have steps of 1 W: half of one is undetectable.
        let unseen = 0.5 / budget_w.floor();
        prop_assert!(over < 0.01 + unseen, "{} of the budget over", over);
        prop_assert!(over > -0.03 || plant.is_lifted() || share > 1.0, "{} of the budget unused", -over);
    }
}

/// Figure 14: true power after each step.
#[derive(Debug, Default)]
struct Steps {
    over_s: f64,
    error_after_10_s: f64,
    begin_over_s: f64,
}

/// Budgets of 400, 350, 300, 350 and 400 W, a minute each.
fn figure_14(machine: &Machine, settings: &[(&str, &str)]) -> Steps {
    let mut plant = Plant::new(machine, settings);
    let mut worst = Steps::default();
    for (at, budget_w) in [400.0, 350.0, 300.0, 350.0, 400.0].into_iter().enumerate() {
        let begin = plant.power_w.len();
        plant.run(&constant(60, budget_w));
        let after = &plant.power_w[begin..];
        let runs = after.split(|&w| w <= budget_w * 1.02);
        let over = runs.map(<[f64]>::len).max().unwrap_or(0) as f64 / STEPS_PER_S as f64;
        let settled = &after[10 * STEPS_PER_S..];
        let error = settled.iter().map(|w| (w / budget_w - 1.0).abs()).fold(0.0, f64::max);
        if at == 0 {
            worst.begin_over_s = over;
            continue;
        }
        worst.over_s = worst.over_s.max(over);
        worst.error_after_10_s = worst.error_after_10_s.max(error);
    }
    worst
}

/// Machines whose power range includes 300 and 400 W.
fn machines() -> Vec<Machine> {
    let mut all = Vec::new();
    for gain in [0.4, 0.7, 1.0, 1.4, 1.7, 2.0, 2.35] {
        for window_steps in [10, 20, 30, 50] {
            for (is_cpu_bound, has_package) in [(false, true), (false, false), (true, true), (true, false)] {
                for error in [0.8, 1.0, 1.2] {
                    let machine = Machine {
                        gain,
                        cpu_error: error,
                        ssd_error: 2.0 - error,
                        others_w: 100.0,
                        cpu_w: 190.0,
                        drives: 0.9,
                        is_cpu_bound,
                        polls: false,
                        writes: true,
                        window_steps,
                        phase_steps: (window_steps + (gain * 10.0) as u64) % 10,
                        noise_w: 0.3,
                        has_package,
                        classes: vec![0; NAMESPACES],
                        is_artifact: false,
                        minimums: Vec::new(),
                        bytes_lag_steps: 0,
                        seed: window_steps,
                    };
                    let others_w = 100.0 + 420.0 - machine.full_w();
                    let machine = Machine { others_w, ..machine };
                    if machine.floor_w() < 294.0 {
                        all.push(machine);
                    }
                }
            }
        }
    }
    all
}

/// After each step above +2 % for at most 5 s. The other target, within 2 % after 10 s, is missed by 5 of 336 machines (worst 3.3 %, all but
/// one with a window of 5 s), because the first correction after a step uses a part of a window.
#[test]
fn steps_of_the_budget_are_followed_in_time() {
    let machines = machines();
    let all: Vec<_> = machines.iter().map(|machine| figure_14(machine, &[])).collect();
    let worst = |of: fn(&Steps) -> f64| all.iter().map(of).fold(0.0, f64::max);
    let over_s = worst(|steps| steps.over_s);
    let late: Vec<_> = all.iter().zip(&machines).filter(|(steps, _)| steps.error_after_10_s > 0.02).collect();
    println!(
        "{} machines: above +2 % for at most {over_s} s, {} s at the start; after 10 s at most {:.3} away, {} by more than 2 %",
        machines.len(),
        worst(|steps| steps.begin_over_s),
        worst(|steps| steps.error_after_10_s),
        late.len()
    );
    for (steps, machine) in &late {
        println!("{steps:?} {machine:?}");
    }
    assert!(over_s <= 5.0, "{over_s} s");
    assert!(late.len() * 40 <= machines.len(), "{late:?}");
}

/// The same steps with a gain that depends on the level: 0.4 to 2.5 W of the server for each watt of the CPU.
#[test]
fn steps_are_followed_with_a_variable_gain() {
    let mut worst = (0.0_f64, 0.0_f64);
    for machine in machines().into_iter().filter(|machine| machine.gain == 1.0) {
        let machine = Machine { is_artifact: true, cpu_w: 200.0, drives: 0.5, writes: false, ..machine };
        let steps = figure_14(&machine, &[]);
        println!("{steps:?} {machine:?}");
        worst = (worst.0.max(steps.over_s), worst.1.max(steps.error_after_10_s));
    }
    println!("above +2 % for at most {} s, after 10 s at most {:.3} away", worst.0, worst.1);
    assert!(worst.0 <= 5.0, "{worst:?}");
}

/// The first commands of a server that starts with a budget keep it, before any reading.
#[test]
fn it_starts_within_the_budget() {
    for machine in machines() {
        let mut plant = Plant::new(&machine, &[]);
        plant.run(&constant(1, 300.0));
        let most_w = plant.power_w.iter().copied().fold(0.0, f64::max);
        assert!(most_w < 306.0 || machine.others_w > 160.0, "{most_w} {machine:?}");
        let mut plant = Plant::new(&machine, &[("start", "full")]);
        plant.run(&constant(1, 300.0));
        assert!(plant.is_lifted(), "as in the paper, without limits");
    }
}

/// A budget below the lowest power is reported as unreachable.
#[test]
fn an_unreachable_budget_is_reported() {
    let machine = machines()[0].clone();
    let mut plant = Plant::new(&machine, &[]);
    plant.run(&constant(120, machine.floor_w() - 20.0));
    assert!(plant.state().starts_with("unreachable"), "{}", plant.state());
    let reached_w = plant.unreachable_uw().map_or(0.0, |uw| uw as f64 / 1e6);
    assert!((reached_w - machine.floor_w()).abs() < 2.0, "{reached_w} W of {}", machine.floor_w());
    plant.run(&constant(60, machine.full_w()));
    assert_eq!(plant.unreachable_uw(), None);
    assert!(!plant.state().starts_with("unreachable"), "{}", plant.state());
}

/// Figure 11: the namespace with priority is not throttled, the others end at 10 MiB/s.
#[test]
fn lower_priorities_end_at_the_floor_first() {
    let mut classes = vec![0; NAMESPACES];
    classes[3] = 1;
    let machine = Machine { classes, is_cpu_bound: false, ..machines()[0].clone() };
    let mut plant = Plant::new(&machine, &[]);
    plant.run(&constant(120, machine.floor_w() + 8.0));
    let cap = |namespace: usize| {
        let found = plant.capabilities.find_knob(Scope::Namespace(namespace as u32), Kind::BytesPerS);
        plant.values[found.unwrap().0.index()]
    };
    let others: Vec<_> = (0..NAMESPACES).filter(|&at| at != 3).map(cap).collect();
    assert!(others.iter().all(|&cap| cap <= FLOOR), "{others:?}");
    assert!(cap(3) > FLOOR, "{}", cap(3));
    let only_caps = |command: &(u64, Command)| matches!(command.1, Command::Set { .. });
    assert!(plant.commands.iter().any(only_caps));
}

/// Above +2 % CPU and bandwidth are cut together at once, without a trial.
#[test]
fn far_above_the_budget_cpu_and_drives_are_cut_together() {
    let machine = Machine { gain: 1.0, cpu_error: 1.0, ssd_error: 1.0, ..machines()[0].clone() };
    let mut plant = Plant::new(&machine, &[("start", "full")]);
    plant.run(&constant(30, machine.full_w() + 20.0));
    assert!(plant.is_lifted());
    plant.run(&Phase { seconds: 0, ..constant(0, machine.full_w() * 0.95) });
    let is_set = |kind: Kind| {
        let of_kind = |command: &Command| matches!(command, Command::Set { knob, .. } if plant.capabilities.knobs[knob.index()].kind == kind);
        plant.commands.iter().any(|(_, command)| of_kind(command))
    };
    assert_eq!([Kind::LimitUw, Kind::BytesPerS].map(is_set), [true; 2], "{:?}", plant.commands);
    assert_eq!(plant.state(), "limited", "there is no trial");
    let (wanted_w, full_w) = (machine.full_w() * 0.95, machine.full_w());
    plant.run(&constant(1, wanted_w));
    let excess = (plant.power_w.last().unwrap() - wanted_w) / (full_w - wanted_w);
    assert!(excess.abs() < 0.2, "the models cut the whole excess: {excess} of it is left");
}

/// Between the budget and +2 % the CPU is cut as a trial: the cut stays if drives are the bottleneck, else drives are cut (Algorithm 1).
#[test]
fn a_trial_finds_the_bottleneck() {
    for is_cpu_bound in [false, true] {
        let exact = Machine { gain: 1.0, cpu_error: 1.0, ssd_error: 1.0, noise_w: 0.0, ..machines()[0].clone() };
        let machine = Machine { is_cpu_bound, cpu_w: 70.0, others_w: 100.0, ..exact };
        let mut plant = Plant::new(&machine, &[("start", "full")]);
        plant.run(&constant(30, 500.0));
        assert!(plant.commands.is_empty(), "nothing is limited below the budget");
        plant.run(&constant(1, machine.full_w() * 0.99));
        let (before, during) = (plant.first_bytes[299], plant.first_bytes[301]);
        let is_cut = |at: usize| plant.values[at] < plant.capabilities.knobs[at].initial;
        let was_cut = |at: u16| {
            plant.commands.iter().any(|(_, command)| matches!(command, Command::Set { knob, .. } if knob.0 == at))
        };
        assert!(was_cut(1), "the CPU is tried first");
        assert_eq!([is_cut(0) || is_cut(1), is_cut(2)], [!is_cpu_bound, is_cpu_bound], "{:?}", plant.commands);
        let cap = plant.values[2] as f64;
        assert!(!is_cpu_bound || during < cap && cap < before, "{cap} is between {during} and {before}");
        plant.run(&constant(5, machine.full_w() * 0.99));
        assert_eq!(plant.bottleneck(), Some(Component::Drives), "caps limit drives after the CPU was the bottleneck");
        plant.run(&free(1));
        assert_eq!(plant.bottleneck(), None);
    }
}

/// Late readings of bandwidth delay the trial: a sample from before the cut would show no loss.
#[test]
fn a_trial_finds_the_bottleneck_with_late_readings() {
    let exact = Machine { gain: 1.0, cpu_error: 1.0, ssd_error: 1.0, noise_w: 0.0, ..machines()[0].clone() };
    for bytes_lag_steps in [0, 1, 13] {
        let machine = Machine { is_cpu_bound: true, cpu_w: 70.0, others_w: 100.0, bytes_lag_steps, ..exact.clone() };
        let mut plant = Plant::new(&machine, &[("start", "full")]);
        plant.run(&constant(30, 500.0));
        plant.run(&constant(4, machine.full_w() * 0.99));
        let is_cut = |at: usize| plant.values[at] < plant.capabilities.knobs[at].initial;
        assert_eq!([is_cut(0) || is_cut(1), is_cut(2)], [false, true], "{bytes_lag_steps}: {:?}", plant.commands);
    }
}

/// A refused reading before the end of a trial that would restore the CPU: the CPU stays cut until the next good reading.
#[test]
fn a_trial_does_not_restore_the_cpu_by_a_refused_reading() {
    let exact = Machine { gain: 1.0, cpu_error: 1.0, ssd_error: 1.0, noise_w: 0.0, ..machines()[0].clone() };
    let machine = Machine { is_cpu_bound: true, cpu_w: 70.0, others_w: 100.0, bytes_lag_steps: 13, ..exact };
    let mut plant = Plant::new(&machine, &[("start", "full")]);
    plant.run(&constant(30, 500.0));
    plant.run(&constant(1, machine.full_w() * 0.99));
    let is_cut = |plant: &Plant| plant.values[0] + plant.values[1] < 278_000_000;
    assert!(is_cut(&plant), "the trial: {:?}", plant.commands);
    plant.refused_permille = 1_000;
    plant.run(&constant(1, machine.full_w() * 0.99));
    assert!(is_cut(&plant), "{:?}", plant.commands);
    assert_eq!(plant.raised_without_reading, None);
    plant.refused_permille = 0;
    plant.run(&constant(2, machine.full_w() * 0.99));
    assert!(!is_cut(&plant), "the end of the trial: {:?}", plant.commands);
}

/// The distance of samples is a parameter: 100 ms by default, 0.5 s in the artifact.
#[test]
fn five_samples_decide_at_any_sample_interval() {
    let both = [("100ms", 0.5..=0.8), ("500ms", 2.5..=3.5)];
    for ((sample, expected_s), window_steps) in both.iter().flat_map(|one| [10, 50].map(|steps| (one, steps))) {
        let exact = Machine { gain: 1.0, cpu_error: 1.0, ssd_error: 1.0, noise_w: 0.0, ..machines()[0].clone() };
        let machine = Machine { is_cpu_bound: true, cpu_w: 70.0, others_w: 100.0, window_steps, ..exact };
        let mut plant = Plant::new(&machine, &[("start", "full"), ("sample_interval", sample)]);
        plant.run(&constant(30, 500.0));
        plant.run(&constant(5, machine.full_w() * 0.99));
        let first = |knobs: std::ops::Range<u16>| {
            let is_one = |command: &Command| matches!(command, Command::Set { knob, .. } if knobs.contains(&knob.0));
            let found = plant.commands.iter().find(|(_, command)| is_one(command)).unwrap();
            found.0 as f64 / 1e9
        };
        let trial_s = first(2..12) - first(0..2);
        assert!(expected_s.contains(&trial_s), "{sample}: caps {trial_s} s after the CPU was cut");
    }
}

/// In PASS's model the slower of CPU and drives limits performance: if drives do not use their bandwidth, it is the CPU.
#[test]
fn the_bottleneck_is_the_cpu_if_drives_do_not_use_their_caps() {
    let machine = Machine { is_cpu_bound: true, drives: 0.3, ..machines()[0].clone() };
    let mut plant = Plant::new(&machine, &[]);
    plant.run(&constant(60, machine.full_w() * 0.7));
    assert_eq!(plant.bottleneck(), Some(Component::Drives), "{:?}", plant.values);
    plant.run(&constant(2, machine.full_w() * 0.9));
    assert_eq!(plant.bottleneck(), Some(Component::Cpu), "{:?}", plant.values);
    plant.run(&constant(60, machine.full_w() * 1.1));
    assert_eq!(plant.bottleneck(), None, "nothing is limited");
}

/// A server that polls without load uses its budget for the CPU. Load that then comes gets most of what it gets under load from the start, and
/// the budget is kept. Load from the start gets power of the CPU too.
#[test]
fn load_that_comes_to_an_idle_server_gets_the_power_of_its_polling() {
    let served = |machine: &Machine, settings: &[(&str, &str)], idle_s: u64, budget_w: f64| {
        let mut plant = Plant::new(machine, settings);
        plant.run(&Phase { demand: 0.0, ..constant(idle_s, budget_w) });
        let begin = plant.power_w.len();
        plant.run(&constant(120, budget_w));
        let runs = plant.power_w[begin..].split(|&w| w <= budget_w * 1.02);
        let over = runs.map(<[f64]>::len).max().unwrap_or(0) as f64 / STEPS_PER_S as f64;
        let last = &plant.first_bytes[plant.first_bytes.len() - 10 * STEPS_PER_S..];
        (last.iter().sum::<f64>() / last.len() as f64, over)
    };
    let (mut printed, mut all, mut gains) = (Vec::new(), Vec::new(), Vec::new());
    for machine in machines() {
        let machine = Machine { polls: true, ..machine };
        let budget_w = machine.floor_w() + (machine.full_w() - machine.floor_w()) * 0.6;
        let (from_start, _) = served(&machine, &[], 0, budget_w);
        let (at_once, _) = served(&machine, &[("rebalance", "false")], 0, budget_w);
        let (stays, stays_over_s) = served(&machine, &[("rebalance", "false")], 120, budget_w);
        let (comes, over_s) = served(&machine, &[], 120, budget_w);
        assert!(over_s <= stays_over_s, "{over_s} s over 102 %, {stays_over_s} s as printed: {machine:?}");
        if machine.is_cpu_bound {
            assert!(comes > 0.95 * stays, "{comes} B/s, {stays} as printed: {machine:?}");
            assert!(from_start > 0.98 * at_once, "{from_start} B/s, {at_once} as printed: {machine:?}");
            continue;
        }
        printed.push(stays / at_once);
        all.push(comes / at_once);
        gains.push(from_start / at_once);
    }
    printed.sort_by(f64::total_cmp);
    all.sort_by(f64::total_cmp);
    let low = |parts: &[f64]| parts.iter().filter(|&&part| part < 0.9).count();
    println!(
        "of {}, under 90 %: {}, lowest {:.2}; as printed {}, lowest {:.2}",
        all.len(),
        low(&all),
        all[0],
        low(&printed),
        printed[0]
    );
    assert!(all[0] > 0.8 && low(&all) < 10 && low(&printed) > 40, "{all:?}, as printed {printed:?}");
    gains.sort_by(f64::total_cmp);
    let mean = gains.iter().sum::<f64>() / gains.len() as f64;
    println!(
        "load from the start: {:.2} to {:.2} times as printed, in the mean {mean:.3}",
        gains[0],
        gains[gains.len() - 1]
    );
    assert!(gains[0] > 0.98 && mean > 1.01, "{gains:?}");
}

/// Without readings the configuration of the start is a ceiling.
#[test]
fn a_failed_sensor_leads_to_the_configuration_of_the_models() {
    let machine = machines()[0].clone();
    let mut begins = Plant::new(&machine, &[]);
    begins.run(&constant(1, 350.0));
    let mut plant = Plant::new(&machine, &[]);
    plant.run(&constant(60, 350.0));
    assert_ne!(plant.values, begins.values);
    plant.run(&Phase { is_dead: true, ..constant(13, 350.0) });
    let stale = plant.values.clone();
    assert!(plant.state().starts_with("no reading"), "{}", plant.state());
    assert!(stale.iter().zip(&begins.values).all(|(now, first)| now <= first), "{stale:?} {:?}", begins.values);
    plant.run(&Phase { is_dead: true, ..constant(60, 350.0) });
    assert_eq!(plant.values, stale);
    plant.run(&constant(60, 350.0));
    assert!((plant.mean_w(10) / 350.0 - 1.0).abs() < 0.02, "{}", plant.mean_w(10));
}
