//! The cases. Each runs on a plant and panics with the step that failed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use pilotlight_plant::{
    Command, CompletionMode, CoreId, CoreState, Depth, Goals, KnobId, NEVER, ReadingId, Refusal, Scope, SleepGoal,
    ThreadId, Tolerance,
};

use crate::script::{Log, Script, Seen};
use crate::{Plant, Setup, budget};

fn move_to(thread: u16, to: u16) -> Command {
    Command::Move { thread: ThreadId(thread), to: CoreId(to) }
}

fn sleep(core: u16) -> Command {
    Command::Sleep { core: CoreId(core), goal: SleepGoal::SHALLOWEST }
}

fn wake(core: u16) -> Command {
    Command::Wake { core: CoreId(core) }
}

fn completions(thread: u16, mode: CompletionMode) -> Command {
    Command::Completions { thread: ThreadId(thread), mode }
}

/// Thread `i` starts on core `i` modulo `cores`.
fn setup(cores: u16, threads: u16, fed: &[u16]) -> Setup {
    Setup { cores, threads, fed: fed.to_vec(), ..Setup::default() }
}

fn script(plant: &dyn Plant) -> Script {
    Script::every(plant.interval_ns())
}

/// Runs a script to its end; returns the policy's log and the requests sent to each I/O thread.
fn run(plant: &mut dyn Plant, setup: &Setup, script: Script) -> (Log, Vec<u64>) {
    let awaited = script.awaited();
    let (policy, board) = script.policy();
    let fed = plant.run(setup, policy, &board);
    let log = board.log().clone();
    let (step, last) = (log.steps, log.samples.last());
    assert!(board.is_done(), "timed out at step {step} ({:?}); the last sample is {last:#?}", awaited.get(step));
    assert!(log.errors.is_empty(), "{:?}", log.errors);
    (log, fed)
}

/// [`run`] without refusals.
fn run_without_refusal(plant: &mut dyn Plant, setup: &Setup, script: Script) -> (Log, Vec<u64>) {
    let (log, fed) = run(plant, setup, script);
    assert!(log.refused.is_empty(), "refused: {:?}", log.refused);
    (log, fed)
}

fn is_on(seen: &Seen, thread: usize, core: u16) -> bool {
    seen.threads[thread].home == CoreId(core)
}

fn is_served(seen: &Seen, thread: usize) -> bool {
    seen.threads[thread].requests > 0
}

/// Awake (also by its awake time) and without requests.
fn polls_nothing(seen: &Seen, core: usize) -> bool {
    !seen.sleeps(core) && seen.cores[core].awake_ns > 0 && seen.cores[core].busy_ns == 0
}

/// Requests are polled on the new core and no longer on the old one.
pub fn a_moved_thread_is_served_by_its_new_core(plant: &mut dyn Plant) {
    let script = script(plant)
        .until("requests on core 1", |seen| seen.serves(1) && !seen.serves(2) && is_on(seen, 1, 1))
        .command(&[move_to(1, 2)])
        .until("the new core in a sample", |seen| is_on(seen, 1, 2))
        .holds("requests on core 2 only", 3, |seen| seen.serves(2) && !seen.serves(1) && is_served(seen, 1));
    run_without_refusal(plant, &setup(3, 2, &[0, 1]), script);
}

/// The last command applies, also while the thread is still moving.
pub fn the_last_of_several_moves_applies(plant: &mut dyn Plant) {
    let script = script(plant)
        .command(&[move_to(1, 2), move_to(1, 0)])
        .holds("requests on core 0 only", 3, |seen| {
            is_on(seen, 1, 0) && is_served(seen, 1) && !seen.serves(1) && !seen.serves(2)
        })
        .command(&[move_to(1, 1), move_to(1, 2)])
        .holds("requests on core 2 only", 3, |seen| is_on(seen, 1, 2) && seen.serves(2) && !seen.serves(1));
    run_without_refusal(plant, &setup(3, 2, &[1]), script);
}

/// A command for the present state is not refused.
pub fn a_move_to_the_present_core_changes_nothing(plant: &mut dyn Plant) {
    let script = script(plant)
        .command(&[move_to(1, 1), wake(1)])
        .holds("requests on core 1", 3, |seen| is_on(seen, 1, 1) && seen.serves(1) && is_served(seen, 1));
    run_without_refusal(plant, &setup(2, 2, &[1]), script);
}

/// Sleep is deferred until the core has no I/O thread.
pub fn a_core_sleeps_when_its_last_thread_has_left(plant: &mut dyn Plant) {
    let script = script(plant)
        .command(&[sleep(1)])
        .holds("requests on core 1 with a pending sleep", 5, |seen| seen.serves(1))
        .command(&[move_to(1, 0)])
        .holds("sleep, and requests on another core", 3, |seen| seen.sleeps(1) && is_served(seen, 1));
    run_without_refusal(plant, &setup(2, 2, &[1]), script);
}

/// A move needs no wake command.
pub fn a_sleeping_core_wakes_for_a_move(plant: &mut dyn Plant) {
    let script = script(plant)
        .command(&[move_to(1, 0), sleep(1)])
        .until("sleep", |seen| seen.sleeps(1))
        .command(&[move_to(1, 1)])
        .holds("requests on core 1", 5, |seen| seen.serves(1) && is_served(seen, 1));
    run_without_refusal(plant, &setup(2, 2, &[1]), script);
}

/// A wake command cancels a pending sleep.
pub fn a_wake_up_cancels_a_pending_sleep(plant: &mut dyn Plant) {
    let script = script(plant).command(&[sleep(1)]).command(&[wake(1)]).command(&[move_to(1, 0)]).holds(
        "a core that polls nothing",
        5,
        |seen| polls_nothing(seen, 1) && is_served(seen, 1),
    );
    let (log, _) = run_without_refusal(plant, &setup(2, 2, &[1]), script);
    assert!(!log.samples.iter().any(|seen| seen.sleeps(1)));
}

/// A move cancels a pending sleep of its destination.
pub fn a_move_cancels_a_pending_sleep_of_its_core(plant: &mut dyn Plant) {
    let script = script(plant)
        .command(&[sleep(1)])
        .command(&[move_to(0, 1)])
        .command(&[move_to(0, 0), move_to(1, 0)])
        .holds("a core that polls nothing", 5, |seen| polls_nothing(seen, 1) && is_served(seen, 1));
    let (log, _) = run_without_refusal(plant, &setup(2, 2, &[0, 1]), script);
    assert!(!log.samples.iter().any(|seen| seen.sleeps(1)));
}

/// A woken core without I/O threads stays awake.
pub fn a_core_is_woken_by_command(plant: &mut dyn Plant) {
    let script = script(plant).command(&[sleep(1)]).until("sleep", |seen| seen.sleeps(1)).command(&[wake(1)]).holds(
        "a core that polls nothing",
        5,
        |seen| polls_nothing(seen, 1),
    );
    run_without_refusal(plant, &setup(2, 1, &[0]), script);
}

/// The sleep depth is that of [`pilotlight_plant::Capabilities::sleep_for`].
pub fn the_sleep_depth_follows_the_capabilities(plant: &mut dyn Plant) {
    let deepest = Command::Sleep { core: CoreId(1), goal: SleepGoal::DEEPEST };
    let script = script(plant)
        .command(&[sleep(1)])
        .until("sleep", |seen| seen.sleeps(1))
        .command(&[wake(1)])
        .until("its end", |seen| !seen.sleeps(1))
        .command(&[deepest])
        .until("deep sleep", |seen| seen.sleeps(1));
    let (log, _) = run_without_refusal(plant, &setup(2, 1, &[0]), script);
    let mut states: Vec<_> = log.samples.iter().map(|seen| seen.cores[1].state).collect();
    states.dedup();
    let depth = |goal| log.capabilities.sleep_for(goal).map_or(Depth::MonitorWait, |sleep| sleep.depth);
    let (first, second) = (depth(SleepGoal::SHALLOWEST), depth(SleepGoal::DEEPEST));
    let expected = [CoreState::Awake, CoreState::Asleep(first), CoreState::Awake, CoreState::Asleep(second)];
    assert_eq!(states, expected);
}

/// The main core runs the policy.
pub fn the_main_core_does_not_sleep(plant: &mut dyn Plant) {
    let script = script(plant).command(&[sleep(0)]).holds("requests on core 0", 3, |seen| seen.serves(0));
    let (log, _) = run(plant, &setup(2, 1, &[0]), script);
    assert_eq!(log.refused, [(sleep(0), Refusal::MainCore)]);
}

/// Otherwise it would be woken at once, or the thread would wait.
pub fn a_core_with_an_incoming_thread_does_not_sleep(plant: &mut dyn Plant) {
    let script = script(plant)
        .command(&[sleep(1)])
        .until("sleep", |seen| seen.sleeps(1))
        .command(&[move_to(0, 1), sleep(1)])
        .holds("requests on core 1", 5, |seen| seen.serves(1) && is_served(seen, 0));
    let (log, _) = run(plant, &setup(2, 1, &[0]), script);
    assert_eq!(log.refused, [(sleep(1), Refusal::NotEmpty)]);
}

/// A move to the present core is not an incoming thread.
pub fn a_move_to_the_present_core_does_not_prevent_sleep(plant: &mut dyn Plant) {
    let script = script(plant).command(&[move_to(1, 1), sleep(1)]).command(&[move_to(1, 0)]).holds(
        "sleep, and requests on another core",
        3,
        |seen| seen.sleeps(1) && is_served(seen, 1),
    );
    run_without_refusal(plant, &setup(2, 2, &[1]), script);
}

/// Unknown cores, I/O threads and knobs.
pub fn unknown_subjects_are_refused(plant: &mut dyn Plant) {
    let set = Command::Set { knob: KnobId(u16::MAX), value: 1 };
    let commands = [move_to(9, 1), move_to(0, 9), sleep(9), wake(9), completions(9, CompletionMode::Poll), set];
    let script =
        script(plant).command(&commands).holds("requests on core 0", 3, |seen| seen.serves(0) && is_on(seen, 0, 0));
    let (log, _) = run(plant, &setup(2, 1, &[0]), script);
    assert_eq!(log.refused, commands.map(|command| (command, Refusal::Unknown)));
}

/// Exactly the commands without a capability are refused.
pub fn unsupported_commands_are_refused(plant: &mut dyn Plant) {
    let set = Command::Set { knob: KnobId(0), value: u64::MAX };
    let hybrid = completions(0, CompletionMode::Hybrid { idle_ns: 1_000, rest_ns: 1_000 });
    let script = script(plant).command(&[set, hybrid]).holds("requests", 3, |seen| is_served(seen, 0));
    let (log, _) = run(plant, &setup(2, 1, &[0]), script);
    let can = &log.capabilities;
    let expected =
        [(set, !can.knobs.is_empty(), Refusal::Unknown), (hybrid, can.rests.is_some(), Refusal::Unsupported)];
    let refused = expected.iter().filter(|(_, can, _)| !can).map(|&(command, _, refusal)| (command, refusal));
    assert_eq!(log.refused, refused.collect::<Vec<_>>());
}

/// The core still counts as awake, as it has an I/O thread. A command resumes polling.
pub fn interrupt_mode_lets_the_core_rest(plant: &mut dyn Plant) {
    let script = script(plant)
        .until("a core that polls", |seen| seen.cores[1].awake_ns > 0)
        .command(&[completions(1, CompletionMode::Interrupt)])
        .holds("rest in the kernel", 3, |seen| seen.cores[1].awake_ns == 0 && !seen.sleeps(1))
        .command(&[completions(1, CompletionMode::Poll)])
        .holds("a core that polls again", 3, |seen| seen.cores[1].awake_ns > 0);
    run_without_refusal(plant, &setup(2, 2, &[0]), script);
}

/// The completion mode moves with the thread.
pub fn a_thread_in_interrupt_mode_is_served_and_moves(plant: &mut dyn Plant) {
    let script = script(plant)
        .command(&[completions(1, CompletionMode::Interrupt)])
        .holds("requests on core 1", 3, |seen| seen.serves(1) && is_served(seen, 1))
        .command(&[move_to(1, 2)])
        .holds("requests on core 2 only", 3, |seen| seen.serves(2) && !seen.serves(1) && is_served(seen, 1))
        .until_all_is_quiet()
        .holds("rest in the kernel", 3, |seen| seen.cores[2].awake_ns == 0 && !seen.sleeps(2));
    run_without_refusal(plant, &setup(3, 2, &[1]), script);
}

/// Rests between polls, if supported.
pub fn hybrid_polling_serves(plant: &mut dyn Plant) {
    let script = script(plant)
        .command(&[completions(1, CompletionMode::Hybrid { idle_ns: 5_000, rest_ns: 5_000 })])
        .holds("requests on core 1", 3, |seen| is_served(seen, 1))
        .command(&[move_to(1, 0)])
        .holds("requests on core 0", 3, |seen| is_served(seen, 1) && is_on(seen, 1, 0) && !seen.serves(1));
    let (log, _) = run(plant, &setup(2, 2, &[1]), script);
    assert_eq!(log.refused.is_empty(), log.capabilities.rests.is_some(), "{:?}", log.refused);
}

/// Ticks and intervals count each request once, despite moves and sleeps.
pub fn requests_are_counted_once(plant: &mut dyn Plant) {
    let script = script(plant)
        .command(&[move_to(1, 2), move_to(2, 1)])
        .until("requests", |seen| is_served(seen, 1) && is_served(seen, 2))
        .command(&[move_to(0, 2), move_to(1, 2), sleep(1)])
        .command(&[move_to(2, 0)])
        .until("sleep", |seen| seen.sleeps(1))
        .command(&[move_to(2, 1), completions(0, CompletionMode::Interrupt)])
        .until("requests on core 1", |seen| seen.serves(1))
        .command(&[completions(0, CompletionMode::Poll), move_to(0, 1), move_to(0, 0), move_to(1, 1), move_to(2, 2)])
        .holds("requests on every core", 3, |seen| (0..3).all(|core| seen.serves(core)))
        .until_all_is_quiet();
    let (log, fed) = run_without_refusal(plant, &setup(3, 3, &[0, 1, 2]), script);
    let counted = |thread: usize| log.samples.iter().map(|seen| seen.threads[thread].requests).sum::<u64>();
    assert_eq!((0..3).map(counted).collect::<Vec<_>>(), fed, "by intervals");
    assert_eq!(log.tick_requests, fed, "by ticks");
    assert!(fed.iter().all(|&fed| fed > 0), "{fed:?}");
}

/// Samples contain every core and I/O thread, and intervals follow each other without a gap.
pub fn samples_cover_the_whole_plant(plant: &mut dyn Plant) {
    let script = script(plant).holds("samples", 10, |_| true);
    let (log, _) = run_without_refusal(plant, &setup(3, 5, &[0, 3]), script);
    assert_eq!(log.homes, [0, 1, 2, 0, 1]);
    let mut before_ns = log.started_ns;
    for seen in &log.samples {
        assert_eq!((seen.cores.len(), seen.threads.len()), (3, 5));
        assert_eq!(seen.elapsed_ns, seen.now_ns - before_ns);
        before_ns = seen.now_ns;
        for core in &seen.cores {
            assert!(core.busy_ns <= core.awake_ns, "{core:?}");
        }
        for thread in &seen.threads {
            assert!(thread.requests > 0 || thread.answered == 0, "{thread:?}");
        }
    }
    assert!(log.ticks.is_sorted(), "{:?}", log.ticks);
}

/// Without requests a policy is called at its deadline and not before.
pub fn a_quiet_policy_is_called_at_its_deadline(plant: &mut dyn Plant) {
    let needed_ns = 20 * plant.interval_ns() + 7;
    let script = script(plant).needed_after(needed_ns);
    let (log, _) = run(plant, &setup(2, 2, &[]), script);
    let called = log.ticks.iter().map(|&(at_ns, _)| at_ns).chain(log.samples.iter().map(|seen| seen.now_ns));
    let called: Vec<_> = called.map(|at_ns| at_ns - log.started_ns).collect();
    assert!(called.iter().all(|&at_ns| at_ns >= needed_ns), "called at {called:?}, deadline {needed_ns}");
    assert_eq!(called.len(), 1, "one deadline, called at {called:?}");
}

/// Ticks with requests are delivered independently of the deadline.
pub fn ticks_with_requests_are_not_skipped(plant: &mut dyn Plant) {
    let script = script(plant).needed_after(NEVER).holds("samples with requests", 5, |seen| is_served(seen, 0));
    let (log, _) = run_without_refusal(plant, &setup(2, 2, &[0]), script);
    assert!(log.ticks.len() >= 5, "{:?}", log.ticks);
    assert!(log.ticks.iter().all(|&(_, requests)| requests > 0), "quiet ticks are skipped: {:?}", log.ticks);
}

/// The machine may refuse a knob later; the policy is notified and continues.
pub fn a_knob_can_be_refused_later(plant: &mut dyn Plant) {
    let set = Command::Set { knob: KnobId(0), value: 0 };
    let script =
        script(plant)
            .command(&[set])
            .until("the refusal", |seen| seen.refused == 1)
            .holds("requests", 3, |seen| is_served(seen, 0));
    let (log, _) = run(plant, &Setup { refuses: true, ..setup(2, 1, &[0]) }, script);
    assert!(!log.capabilities.knobs.is_empty(), "the plant of these cases has a knob");
    assert_eq!(log.refused, [(set, Refusal::Failed)]);
}

/// A value is available until it is stale; its age continues to grow.
pub fn readings_go_stale(plant: &mut dyn Plant) {
    let script = script(plant)
        .reads()
        .until("values", |seen| seen.readings.iter().any(|reading| reading.value.is_some()))
        .until("none", |seen| seen.readings.iter().all(|reading| reading.value.is_none()))
        .holds("none", 3, |seen| seen.readings.iter().all(|reading| reading.value.is_none()));
    let (log, _) = run_without_refusal(plant, &Setup { sensors_fail: true, ..setup(2, 1, &[0]) }, script);
    let sources = &log.capabilities.sources;
    for seen in &log.samples {
        let ids: Vec<_> = seen.readings.iter().map(|reading| reading.id).collect();
        assert_eq!(ids, (0..sources.len() as u16).map(ReadingId).collect::<Vec<_>>(), "in the requested order");
        for (reading, source) in seen.readings.iter().zip(sources) {
            assert!(reading.value.is_none() || !source.is_stale(reading.age_ns), "{reading:?} of {source:?}");
        }
    }
    let ages: Vec<_> = log.samples.iter().rev().take(3).map(|seen| seen.readings[0].age_ns).collect();
    assert!(ages.is_sorted_by(|later, sooner| later > sooner), "{ages:?}");
}

/// All changes are delivered in order, and the policy's commands are executed.
pub fn every_change_of_goals_is_delivered(plant: &mut dyn Plant) {
    let budget = |uw| Goals { budget_uw: Some(uw), ..Goals::default() };
    let goals =
        vec![budget(300), budget(200), Goals { tolerances: vec![Tolerance::mean_loss(200_000)], ..Goals::default() }];
    let script = script(plant)
        .at_goals(&[move_to(1, 0)])
        .holds("requests on core 0 after the move", 3, |seen| is_on(seen, 1, 0) && is_served(seen, 1));
    let (log, _) = run_without_refusal(plant, &Setup { goals: goals.clone(), ..setup(2, 2, &[1]) }, script);
    assert_eq!(log.goals[0], Goals::default(), "no goals at the start");
    assert_eq!(log.goals[1..], goals);
}

/// A policy may act on goals without requests.
pub fn a_quiet_policy_is_called_after_a_change_of_goals(plant: &mut dyn Plant) {
    let script = script(plant).needed_after(NEVER);
    let (log, _) = run(plant, &Setup { goals: vec![Goals::default()], ..setup(2, 2, &[]) }, script);
    assert_eq!(log.goals.len(), 2);
    assert_eq!(log.ticks.len() + log.samples.len(), 1, "one call, as there is no further deadline");
}

/// [`pilotlight_plant::Wants`] may change with the goals: intervals and readings start, and the first interval starts then.
pub fn wants_may_change_with_the_goals(plant: &mut dyn Plant) {
    let interval_ns = plant.interval_ns();
    let goals = vec![Goals { budget_uw: Some(7), ..Goals::default() }];
    let script = script(plant)
        .reads()
        .waits_for_budget()
        .until("readings", |seen| seen.readings.iter().any(|reading| reading.value.is_some()))
        .holds("requests", 3, |seen| is_served(seen, 0));
    let (log, _) = run_without_refusal(plant, &Setup { goals, ..setup(2, 1, &[0]) }, script);
    let first = &log.samples[0];
    assert!(first.elapsed_ns >= interval_ns && first.now_ns - first.elapsed_ns > log.started_ns, "{first:?}");
}

/// An I/O thread has the highest class of its hosts.
pub fn an_io_thread_has_the_class_of_its_hosts(plant: &mut dyn Plant) {
    let goals = vec![Goals { priorities: vec![(Scope::Host(0), 5), (Scope::Host(2), 3)], ..Goals::default() }];
    let classes = [Some(5), Some(3), None];
    let has_classes = move |seen: &Seen| seen.threads.iter().map(|thread| thread.class).eq(classes);
    let script = script(plant).until("classes", has_classes).holds("classes", 3, has_classes);
    run_without_refusal(plant, &Setup { goals, ..setup(2, 3, &[0, 1, 1]) }, script);
}

/// Knobs are restored before the next policy starts.
pub fn knobs_are_restored_between_policies(plant: &mut dyn Plant) {
    let initial_uw = Arc::new(AtomicU64::new(0));
    let (note, less, again) = (Arc::clone(&initial_uw), Arc::clone(&initial_uw), Arc::clone(&initial_uw));
    let power = |seen: &Seen| seen.readings.first().and_then(|reading| reading.value);
    let set = Command::Set { knob: KnobId(0), value: 0 };
    let first = script(plant)
        .reads()
        .until("a reading", move |seen| power(seen).inspect(|&uw| note.store(uw, SeqCst)).is_some())
        .command(&[set])
        .until("less power", move |seen| power(seen).is_some_and(|uw| uw < less.load(SeqCst) / 100 * 98));
    let second = script(plant)
        .reads()
        .until("power as before", move |seen| power(seen).is_some_and(|uw| uw >= again.load(SeqCst) / 100 * 99));
    let (first, second) = (first.policy(), second.policy());
    let boards = [first.1.clone(), second.1.clone()];
    plant.exchange(&setup(2, 2, &[]), first, second);
    for board in boards {
        let log = board.log();
        assert!(board.is_done(), "step {}; the last sample is {:#?}", log.steps, log.samples.last());
        assert!(log.refused.is_empty() && log.errors.is_empty(), "{:?} {:?}", log.refused, log.errors);
    }
}

/// `rapl-only` lowers the power limit until the budget is kept.
pub fn a_budget_is_kept_with_a_power_limit(plant: &mut dyn Plant) {
    keeps_budget(plant, "rapl-only");
}

/// `cpu-bandwidth` lowers the quota.
pub fn a_budget_is_kept_with_a_quota(plant: &mut dyn Plant) {
    keeps_budget(plant, "cpu-bandwidth");
}

/// `cpu-jailing` reduces the number of cores.
pub fn a_budget_is_kept_with_fewer_cores(plant: &mut dyn Plant) {
    keeps_budget(plant, "cpu-jailing");
}

/// `thunderbolt` lowers the quota in random steps.
pub fn a_budget_is_kept_by_thunderbolt(plant: &mut dyn Plant) {
    keeps_budget(plant, "thunderbolt");
}

/// `pass` uses all of these.
pub fn a_budget_is_kept_by_pass(plant: &mut dyn Plant) {
    keeps_budget(plant, "pass");
}

fn keeps_budget(plant: &mut dyn Plant, name: &'static str) {
    let budget_uw = plant.budget_uw();
    let (policy, board) = budget::observed(name, plant.interval_ns(), budget_uw);
    let goals = vec![Goals { budget_uw: Some(budget_uw), ..Goals::default() }];
    plant.run(&Setup { goals, ..setup(3, 3, &[]) }, policy, &board);
    let log = board.log();
    let values: Vec<_> = log.samples.iter().map(|seen| seen.readings.first().and_then(|one| one.value)).collect();
    assert!(board.is_done(), "{name} under {budget_uw} uW: {values:?}");
    assert!(log.refused.is_empty(), "{:?}", log.refused);
}
