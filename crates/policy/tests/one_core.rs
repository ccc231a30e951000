//! `pacer` on a server of one core (support/one_core.rs): the wait of the core follows from the tolerance.

#[path = "support/one_core.rs"]
mod one_core;
#[path = "support/random.rs"]
mod random;

use one_core::{Costs, Machine, OneCore, Sums};
use pilotlight_plant::CompletionMode;
use proptest::prelude::*;

/// Costs on the machine of results/load-curve.
const COSTS: Costs = Costs { wake: 33_000.0, sleep_cpu: 14_000.0, late: 20_000.0, rest_cpu: 25_000.0 };

fn machine() -> Machine {
    Machine {
        service_ns: 2_000.0,
        elsewhere_ns: 8_000.0,
        costs: COSTS,
        reported: COSTS,
        sleeps: true,
        is_random: true,
        seed: 1,
    }
}

fn costs() -> impl Strategy<Value = Costs> {
    (5_000.0..150_000.0_f64, 2_000.0..20_000.0_f64, 1_000.0..30_000.0_f64, 1_000.0..30_000.0_f64)
        .prop_map(|(wake, sleep_cpu, late, rest_cpu)| Costs { wake, sleep_cpu, late, rest_cpu })
}

fn machines() -> impl Strategy<Value = Machine> {
    (costs(), costs(), 1_000.0..20_000.0_f64, 1_000.0..100_000.0_f64, any::<(bool, bool, u64)>()).prop_map(
        |(costs, reported, service_ns, elsewhere_ns, (sleeps, is_random, seed))| Machine {
            service_ns,
            elsewhere_ns,
            costs,
            reported,
            sleeps,
            is_random,
            seed,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    /// For any real and reported costs: once settled the mean loss is within the tolerance.
    #[test]
    fn it_settles_within_the_tolerance(machine in machines(), log_rate in 1.7..4.2_f64, plf in 50_000..5_000_000_u32) {
        let rate = 10_f64.powf(log_rate);
        let (wake_ns, is_realistic) = (machine.costs.wake.max(machine.reported.wake), machine.is_random && machine.sleeps && machine.reported.rest_cpu >= machine.costs.rest_cpu);
        let room_ns = f64::from(plf) / 1e6 * (machine.service_ns + machine.elsewhere_ns);
        let mut server = OneCore::new(machine, plf);
        // Windows last until they have enough requests, and a baseline takes five. With fixed gaps either all requests find the core asleep or none,
        // so the idle timeout is searched repeatedly.
        let window_s = (400.0 * (200_000.0 / f64::from(plf)).powi(2).max(1.0) / rate).clamp(1.0, 30.0);
        server.run(60.max((20.0 * window_s) as u64), rate);
        let sums = server.run(120.max((40.0 * window_s) as u64), rate);
        let can_save = is_realistic && room_ns > 0.3 * wake_ns && rate < 1_000.0;
        prop_assert!(!can_save || sums.cpu() < 0.99, "it takes {} of the CPU time: {}", sums.cpu(), server.view("wait"));
        prop_assert!(sums.loss() <= f64::from(plf) / 1e6, "loss {} of {}: {}", sums.loss(), f64::from(plf) / 1e6, server.view("wait"));
    }
}

#[test]
fn with_tolerance_0_it_polls_and_with_a_large_one_it_takes_interrupts() {
    let mut server = OneCore::new(machine(), 0);
    assert_eq!((server.run(60, 1_000.0).loss(), server.view("wait").as_str()), (0.0, "polls"));
    assert!(server.commanded.iter().all(|how| *how == CompletionMode::Poll));
    let mut server = OneCore::new(machine(), 1_000_000_000);
    for rate in [30.0, 1_000.0, 10_000.0] {
        server.run(100, rate);
        assert_eq!(server.commanded.last(), Some(&CompletionMode::Interrupt), "at {rate}");
    }
}

#[test]
fn cpu_time_falls_with_the_tolerance() {
    for rate in [100.0, 1_000.0, 10_000.0] {
        let mut last = 1.0;
        for plf in [200_000, 800_000, 1_600_000, 5_000_000] {
            let mut server = OneCore::new(machine(), plf);
            server.run(100, rate);
            let cpu = server.run(60, rate).cpu();
            assert!(cpu < last - 0.02, "{cpu} after {last} at {rate} with {plf}");
            last = cpu;
        }
    }
}

/// CPU time of a mix of polling and interrupts with the mean latency of `between`.
fn mix(polls: &Sums, interrupts: &Sums, between: &Sums) -> f64 {
    let share = between.loss() / interrupts.loss();
    polls.cpu() * (1.0 - share) + interrupts.cpu() * share
}

/// On the machine of results/load-curve, where a rest costs more CPU time than a sleep.
#[test]
fn its_cost_is_at_most_the_mix_of_polling_and_interrupts() {
    for rate in [30.0, 300.0, 3_000.0, 10_000.0] {
        let run = |plf| {
            let mut server = OneCore::new(machine(), plf);
            server.run(60, rate);
            server.run(30, rate)
        };
        let (polls, interrupts) = (run(0), run(1_000_000_000));
        for plf in [500_000, 1_000_000, 2_000_000] {
            let between = run(plf);
            let mix = mix(&polls, &interrupts, &between);
            assert!(between.cpu() < mix + 0.02, "at {rate} with {plf}: {} of {mix}", between.cpu());
        }
    }
}

/// With cheap rests and slow wake-ups, rests take less CPU time than a mix of polling and sleeping.
#[test]
fn cheap_rests_beat_the_mix_of_polling_and_interrupts() {
    let costs = Costs { wake: 60_000.0, late: 5_000.0, rest_cpu: 4_000.0, ..COSTS };
    let machine = Machine { costs, reported: costs, ..machine() };
    for rate in [100.0, 1_000.0, 10_000.0] {
        let run = |plf| {
            let mut server = OneCore::new(machine.clone(), plf);
            server.run(100, rate);
            (server.run(60, rate), server.view("wait"))
        };
        let ((polls, _), (interrupts, _), (between, wait)) = (run(0), run(1_000_000_000), run(2_000_000));
        let mix = mix(&polls, &interrupts, &between);
        assert!(wait.starts_with("rests"), "at {rate}: {wait}");
        assert!(between.cpu() < 0.8 * mix, "at {rate}: {} of {mix}", between.cpu());
    }
}

/// A wake-up takes ten times the reported time.
#[test]
fn an_underestimated_wake_up_time_is_corrected() {
    let costs = Costs { wake: 300_000.0, ..COSTS };
    let mut server = OneCore::new(Machine { costs, ..machine() }, 5_000_000);
    server.run(60, 1_000.0);
    let sums = server.run(60, 1_000.0);
    assert!(sums.loss() <= 5.0 && sums.cpu() < 0.93, "{} {}", sums.loss(), sums.cpu());
    assert!(server.view("bursts").parse::<u32>().unwrap() <= 2);
}

#[test]
fn a_busy_core_polls_and_another_load_ends_savings() {
    let mut server = OneCore::new(machine(), 5_000_000);
    server.run(60, 1_000.0);
    assert_ne!(server.view("wait"), "polls");
    server.step(425_000.0);
    assert_eq!(server.view("wait"), "polls", "at the first interval");
    server.run(30, 425_000.0);
    assert_eq!(server.view("wait"), "polls", "85 % busy");
    server.run(60, 1_000.0);
    assert_ne!(server.view("wait"), "polls");
}

#[test]
fn an_idle_server_sleeps_even_if_only_interrupts_allow_it() {
    for sleeps in [true, false] {
        let mut server = OneCore::new(Machine { sleeps, ..machine() }, 200_000);
        server.run(60, 1_000.0);
        server.run(40, 0.0);
        assert!(server.run(10, 0.0).cpu() < 0.01, "{}", server.view("wait"));
        server.step(1_000.0);
        assert_eq!(server.view("wait"), "polls");
    }
}

#[test]
fn an_idle_server_polls_once_the_tolerance_is_0() {
    for sleeps in [true, false] {
        let mut server = OneCore::new(Machine { sleeps, ..machine() }, 200_000);
        server.run(60, 1_000.0);
        server.run(80, 0.0);
        assert!(server.run(10, 0.0).cpu() < 0.01, "{}", server.view("wait"));
        server.set_tolerance(0);
        server.run(10, 0.0);
        assert_eq!(server.view("wait"), "polls", "before a request arrives");
    }
}

#[test]
fn a_refused_wait_is_commanded_again() {
    let mut server = OneCore::new(machine(), 1_000_000_000);
    server.run(60, 1_000.0);
    let how = *server.commanded.last().unwrap();
    assert_ne!(how, CompletionMode::Poll);
    server.refuse(how);
    let before = server.commanded.len();
    server.run(2, 1_000.0);
    assert_eq!(server.commanded[before..], [how]);
}
