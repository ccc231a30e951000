//! CPU hotplug: offline cores draw no power and have no I/O threads; both engines agree.

mod support;

use pilotlight_conformance::script::{Script, Seen};
use pilotlight_plant::{Command, CoreId, CoreState, Depth, Kind, Refusal, Scope, SleepGoal, ThreadId, Topology};
use pilotlight_sim::audit::TraceAuditor;
use pilotlight_sim::engine::{capabilities, run_naive, run_traced};
use pilotlight_sim::machine::Hotplug;
use pilotlight_sim::outcome::Outcome;
use pilotlight_sim::scenario::Scenario;

const MS: u64 = 1_000_000;
const HOTPLUG: Hotplug = Hotplug { offline_ns: 700_000, online_ns: 1_300_000 };

fn scenario() -> Scenario {
    let mut scenario = support::scenario(4, 2, 40_000.0, 20 * MS, 1);
    scenario.topology = Topology::flat(4).unwrap();
    scenario.machine.hotplug = Some(HOTPLUG);
    scenario.series_ns = MS;
    scenario
}

fn switch(scenario: &Scenario, core: u16, value: u64) -> Command {
    let all = capabilities(scenario);
    let (knob, _) = all.find_knob(Scope::Core(CoreId(core)), Kind::Online).unwrap();
    Command::Set { knob, value }
}

fn go(thread: u16, to: u16) -> Command {
    Command::Move { thread: ThreadId(thread), to: CoreId(to) }
}

fn is_off(seen: &Seen, core: usize) -> bool {
    seen.cores[core].state == CoreState::Asleep(Depth::Offline)
}

/// Runs a script in both engines and checks it with the auditor; returns refusals and outcome.
fn run(scenario: &Scenario, script: impl Fn() -> Script) -> (Vec<(Command, Refusal)>, Outcome) {
    let (policy, board) = script().policy();
    let mut trace = Vec::new();
    let outcome = run_traced(scenario, policy, &mut trace).unwrap();
    let log = board.log();
    assert!(board.is_done(), "step {}: {:#?}", log.steps, log.samples.last());
    let mut plain = Vec::new();
    assert_eq!(outcome, run_naive(scenario, script().policy().0, &mut plain).unwrap());
    assert!(trace == plain, "the engines' traces differ");
    let mut audit = TraceAuditor::new(scenario);
    std::io::Write::write_all(&mut audit, &trace).unwrap();
    assert_eq!(audit.finish(&outcome).err(), None);
    (log.refused.clone(), outcome)
}

fn every() -> Script {
    Script::every(100_000)
}

#[test]
fn only_workers_of_capable_machines_have_a_hotplug_switch() {
    let mut scenario = scenario();
    let cores = |scenario: &Scenario| -> Vec<Scope> {
        capabilities(scenario).knobs_of(Kind::Online).map(|(_, knob)| knob.scope).collect()
    };
    assert_eq!(cores(&scenario), [1, 2, 3].map(|core| Scope::Core(CoreId(core))));
    scenario.machine.hotplug = None;
    assert_eq!(cores(&scenario), []);
}

#[test]
fn a_core_that_is_off_draws_nothing() {
    let scenario = scenario();
    let leave =
        [go(1, 0), go(2, 0), go(3, 0), switch(&scenario, 1, 0), switch(&scenario, 2, 0), switch(&scenario, 3, 0)];
    let all_off = |seen: &Seen| (1..4).all(|core| is_off(seen, core));
    let (refused, outcome) = run(&scenario, || every().command(&leave).until("cores off", all_off));
    assert!(refused.is_empty(), "{refused:?}");
    // Table 2: polling power above deep sleep is one of 24 physical cores', plus the package's half of shallow minus deep.
    let power = scenario.machine.power;
    let core_uw = (power.cpu_uw.poll - power.cpu_uw.shallow) * 900_000 / 1_000_000 / 24;
    let shallow_uw = (power.cpu_uw.shallow - power.cpu_uw.deep) / 2;
    let expected_uj = (power.cpu_uw.deep + core_uw + shallow_uw + shallow_uw / 24) / 1_000;
    let last = outcome.series.last().unwrap();
    assert!(last.energy.cpu_uj.abs_diff(expected_uj) <= 3, "{} and {expected_uj}", last.energy.cpu_uj);
    assert_eq!(last.awake_ns, MS, "one core is awake");
    assert!(last.answered > 0, "which serves all of them");
}

#[test]
fn offline_and_online_transitions_take_their_time() {
    let scenario = scenario();
    let (off, on) = (switch(&scenario, 3, 0), switch(&scenario, 3, 1));
    let script = || {
        let served = |seen: &Seen| seen.threads[3].home == CoreId(3) && seen.serves(3);
        every()
            .command(&[go(3, 0), off])
            .until("core 3 off", |seen| is_off(seen, 3))
            .command(&[on, go(3, 3)])
            .until("core 3 serves", served)
    };
    let (policy, board) = script().policy();
    run_traced(&scenario, policy, &mut std::io::sink()).unwrap();
    let log = board.log();
    let at = |from: usize, holds: &dyn Fn(&Seen) -> bool| {
        let place = log.samples[from..].iter().position(holds).unwrap() + from;
        (place, log.samples[place].now_ns)
    };
    let (gone, gone_ns) = at(0, &|seen| is_off(seen, 3));
    assert!((800_000..1_100_000).contains(&gone_ns), "ordered at 0.1 ms, gone at {gone_ns} ns");
    let (_, back_ns) = at(gone + 2, &|seen| seen.serves(3));
    let took_ns = back_ns - log.samples[gone + 1].now_ns;
    assert!((HOTPLUG.online_ns..HOTPLUG.online_ns + 300_000).contains(&took_ns), "back after {took_ns} ns");
    assert!(run(&scenario, script).0.is_empty());
}

#[test]
fn an_offline_core_refuses_threads_and_commands() {
    let scenario = scenario();
    let sleep = Command::Sleep { core: CoreId(2), goal: SleepGoal::SHALLOWEST };
    let orders = [go(1, 2), Command::Wake { core: CoreId(2) }, sleep];
    let (refused, _) = run(&scenario, || {
        let script = every().command(&[go(2, 0), switch(&scenario, 2, 0)]).command(&orders);
        script.until("core 2 off", |seen| is_off(seen, 2)).command(&orders).holds("off", 20, |seen| is_off(seen, 2))
    });
    assert_eq!(refused, orders.iter().chain(&orders).map(|&order| (order, Refusal::Unknown)).collect::<Vec<_>>());
}

#[test]
fn a_core_with_an_arriving_thread_stays_online() {
    let scenario = scenario();
    let off = switch(&scenario, 2, 0);
    let (refused, _) = run(&scenario, || {
        every().command(&[go(1, 2), off]).holds("core 2 serves", 5, |seen| seen.serves(2) && !is_off(seen, 2))
    });
    assert_eq!(refused, [(off, Refusal::NotEmpty)]);
}

#[test]
fn overlapping_commands_end_with_the_last() {
    let scenario = scenario();
    let (off, on) = (switch(&scenario, 2, 0), switch(&scenario, 2, 1));
    let sleep = Command::Sleep { core: CoreId(2), goal: SleepGoal::SHALLOWEST };
    let (refused, _) = run(&scenario, || {
        let back = every().command(&[go(2, 0), off, on, off, on]).holds("awake", 60, |seen| !is_off(seen, 2));
        // A sleeping core can go offline too, and is awake when back online.
        let asleep = back.command(&[sleep]).until("asleep", |seen| seen.sleeps(2)).command(&[off]);
        let off_again = asleep.until("off", |seen| is_off(seen, 2)).command(&[on, go(2, 2)]);
        off_again.until("core 2 serves", |seen| seen.serves(2))
    });
    assert!(refused.is_empty(), "{refused:?}");
}

#[test]
fn a_policy_that_ends_leaves_all_cores_on() {
    let scenario = scenario();
    let first =
        every().command(&[go(1, 0), switch(&scenario, 1, 0)]).until("core 1 off", |seen| is_off(seen, 1)).policy();
    let second = every().command(&[go(1, 1)]).until("core 1 serves", |seen| seen.serves(1)).policy();
    let board = second.1.clone();
    let policies = vec![(0, first.0), (10 * MS, second.0)];
    pilotlight_sim::engine::run_in_turn(&scenario, policies, &mut std::io::sink()).unwrap();
    assert!(board.is_done(), "{:#?}", board.log().samples.last());
}
