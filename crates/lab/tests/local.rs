//! Machines that do their own I/O, as their profiles have them: closed forms, laws that any run obeys, and the same bytes twice.

use std::path::PathBuf;

use pilotlight_lab::local;
use pilotlight_sim::local::{self as sim, Load, Local, Scheduler, Tally, Way};
use proptest::prelude::*;

fn machine(name: &str) -> Local {
    let root = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    local::load(&root.join(format!("profiles/{name}.toml"))).unwrap().machine
}

fn thesis() -> Local {
    machine("thesis-980pro")
}

fn polling() -> Local {
    machine("poll-optane-900p")
}

fn load(way: Way, jobs: u32, depth: u32, bytes: u64) -> Load {
    Load {
        way,
        jobs,
        depth,
        bytes,
        sequential: false,
        writes_ppm: 0,
        scheduler: Scheduler::None,
        state: 0,
        autonomous: false,
        think_after: 0,
        think_ns: 0,
        think_spin_ns: 0,
        ramp_ns: 2_000_000,
        duration_ns: 20_000_000,
        after_ns: 0,
        seed: 1,
    }
}

fn iops(load: &Load, tally: &Tally) -> f64 {
    (tally.reads.count() + tally.writes.count()) as f64 / (load.duration_ns as f64 / 1e9)
}

#[test]
fn one_job_that_looks_takes_the_sum_of_its_parts() {
    let mut machine = polling();
    machine.drive.random_ppm = 0;
    let load = load(Way::Classic, 1, 1, 4096);
    let tally = sim::run(&machine, &load);
    let costs = &machine.costs;
    let command_ns = (4096 * 1_000_000_000 / machine.drive.link_bytes_per_s).max(machine.drive.command_ns);
    let submit_ns = costs.submit_ns + costs.page_ns_per_kib * 4;
    let latency = submit_ns + command_ns + machine.drive.front_ns + costs.look_ns / 2 + costs.complete_ns;
    assert!((tally.reads.mean() - latency as f64).abs() < 1.0, "{} {latency}", tally.reads.mean());
    let each = latency + costs.job_ns;
    assert!((iops(&load, &tally) - 1e9 / each as f64).abs() < 100.0);
}

#[test]
fn the_paper_s_order_of_mechanisms_at_one_thread() {
    let machine = polling();
    let mean = |way| sim::run(&machine, &load(way, 1, 1, 4096)).reads.mean();
    let (classic, hybrid, interrupt) = (mean(Way::Classic), mean(Way::Hybrid), mean(Way::Interrupt));
    assert!(classic < hybrid && hybrid < interrupt, "{classic} {hybrid} {interrupt}");
}

#[test]
fn switches_are_one_for_each_request_that_waits_and_none_for_who_looks() {
    let machine = polling();
    let per_io = |way| {
        let load = load(way, 4, 1, 4096);
        let counted = sim::run(&machine, &load).sum(load.ramp_ns, load.ramp_ns + load.duration_ns);
        counted.switches / counted.requests
    };
    assert_eq!(per_io(Way::Classic), 0.0);
    assert!((per_io(Way::Interrupt) - 1.0).abs() < 0.01 && (per_io(Way::Hybrid) - 1.0).abs() < 0.01);
}

#[test]
fn hybrid_polling_sleeps_half_of_the_mean_and_classic_polling_never() {
    let mut machine = polling();
    machine.drive.random_ppm = 0;
    // Nothing but sleep and looking: no exit latency, no switch, no timer.
    (machine.host.light_exit_ns, machine.costs.switch_ns, machine.costs.timer_ns) = (0, 0, 0);
    machine.drive.front_ns = 8_000 - machine.drive.command_ns;
    let shares = |way| {
        let load = load(way, 1, 1, 512);
        let counted = sim::run(&machine, &load).sum(load.ramp_ns, load.ramp_ns + load.duration_ns);
        (counted.spin_ns / counted.requests, counted.light_ns / counted.requests)
    };
    let (looks_ns, sleeps_ns) = shares(Way::Hybrid);
    assert!((sleeps_ns - 4_000.0).abs() < 20.0, "4 us of 8 us: {sleeps_ns}");
    assert!((looks_ns - 4_050.0).abs() < 20.0, "the rest, and half a look: {looks_ns}");
    assert_eq!(shares(Way::Classic).1, 0.0);
}

#[test]
fn the_buffer_takes_a_gibibyte_and_flash_the_rest() {
    let machine = thesis();
    for state in 0..3 {
        let load = Load {
            sequential: true,
            writes_ppm: 1_000_000,
            state,
            ramp_ns: 0,
            duration_ns: 15_000_000_000,
            ..load(Way::Uring, 1, 32, 1 << 20)
        };
        let tally = sim::run(&machine, &load);
        let written = tally.writes.count() << 20;
        let allowed = machine.drive.state[state].write_bytes_per_s * 15 + machine.drive.buffer_bytes;
        assert!(written.abs_diff(allowed) < 200 << 20, "state {state}: {written} {allowed}");
        let owed_ns = u128::from(written) * 1_000_000_000 / u128::from(machine.drive.state[state].gc_bytes_per_s);
        assert!((tally.gc_after_ns as f64 / owed_ns as f64 - 1.0).abs() < 0.02, "state {state}");
    }
}

#[test]
fn left_alone_a_drive_moves_what_it_owes_and_then_rests() {
    let machine = thesis();
    let load = Load {
        sequential: true,
        writes_ppm: 1_000_000,
        ramp_ns: 0,
        duration_ns: 1_000_000_000,
        after_ns: 3_000_000_000,
        ..load(Way::Uring, 1, 32, 1 << 20)
    };
    let tally = sim::run(&machine, &load);
    let after = tally.sum(load.duration_ns, load.duration_ns + load.after_ns);
    // What is in the buffer still goes to flash, in less than half a second.
    let expected = tally.gc_after_ns as f64;
    assert!((after.gc_ns - expected).abs() < 0.02 * expected + 2e7, "{} {expected}", after.gc_ns);
    assert!(after.rest_ns > 1.5e9, "{}", after.rest_ns);
    let power = |at: usize| {
        let energy = tally.slots[at].energy(&machine, 0, tally.slot_ns as f64);
        energy.drive_uj / (tally.slot_ns as f64 / 1e9)
    };
    // The last slot may reach beyond the end.
    assert_eq!(power(tally.slots.len() - 2).round(), machine.power.drive_rest_uw as f64);
}

#[test]
fn a_drive_at_rest_answers_later_by_its_start_up() {
    let machine = thesis();
    let greatest = |think_ns| {
        let load = Load { think_after: 1, think_ns, duration_ns: 2_000_000_000, ..load(Way::Uring, 1, 1, 16_384) };
        sim::run(&machine, &load).reads.max()
    };
    assert_eq!(greatest(100_000_000) - greatest(30_000_000), machine.drive.wake_ns);
}

#[test]
fn a_lock_lets_through_one_at_a_time() {
    let machine = thesis();
    let load = Load { scheduler: Scheduler::Deadline, ..load(Way::Uring, 64, 1, 4096) };
    let tally = sim::run(&machine, &load);
    assert!(iops(&load, &tally) <= 1.01e9 / machine.costs.deadline_ns as f64);
}

const WAYS: [Way; 8] =
    [Way::Interrupt, Way::Classic, Way::Hybrid, Way::Libaio, Way::Uring, Way::UringPolled, Way::PosixAio, Way::Bypass];

fn any_load() -> impl Strategy<Value = Load> {
    let what = (0..WAYS.len(), 1_u32..24, 1_u32..40, 9_u32..20, any::<bool>(), 0_u64..3, 0_usize..3, any::<u64>());
    what.prop_map(|(way, jobs, depth, shift, sequential, writes, state, seed)| Load {
        sequential,
        writes_ppm: writes * 500_000,
        state,
        seed,
        duration_ns: 10_000_000,
        ..load(WAYS[way], jobs, depth, 1 << shift)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn any_run_obeys_the_laws(load in any_load()) {
        let machine = thesis();
        let tally = sim::run(&machine, &load);
        prop_assert_eq!(&tally, &sim::run(&machine, &load), "the same twice");
        let counted = tally.sum(0, u64::MAX / 2);
        let total_ns = tally.slot_ns as f64 * tally.slots.len() as f64;
        // Processor time is time of processors.
        let processors = f64::from(machine.host.cores);
        prop_assert!(counted.run_ns + counted.spin_ns + counted.light_ns <= processors * total_ns * 1.001);
        prop_assert!(counted.awake_ns <= total_ns * 1.001);
        // Little's law: what is in progress is never more than what jobs may have.
        let depth = if load.way.is_synchronous() { 1 } else { load.depth };
        let sum_ns = (tally.reads.sum() + tally.writes.sum()) as f64;
        let slack = f64::from(load.jobs * depth) * tally.reads.max().max(tally.writes.max()) as f64;
        prop_assert!(sum_ns <= f64::from(load.jobs * depth) * load.duration_ns as f64 + slack);
        // Nothing is faster than the link.
        let bytes = counted.read_bytes + counted.written_bytes;
        let most = machine.drive.link_bytes_per_s as f64 * total_ns / 1e9;
        prop_assert!(bytes <= most + f64::from(load.jobs * depth) * load.bytes as f64, "{bytes} {most}");
    }
}
