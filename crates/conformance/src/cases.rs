//! The cases. Each is called with a plant and panics, with what did not come about, if the plant fails it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use pilotlight_plant::{
    Command, CompletionMode, CoreId, CoreState, Depth, Goals, KnobId, NEVER, ReadingId, Refusal, Scope, SleepGoal,
    ThreadId, Tolerance,
};

use crate::script::{Log, Script, Seen};
use crate::{Plant, Setup, budget};

fn go(thread: u16, to: u16) -> Command {
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

/// Thread `i` lives on core `i`, where there are as many cores.
fn setup(cores: u16, threads: u16, fed: &[u16]) -> Setup {
    Setup { cores, threads, fed: fed.to_vec(), ..Setup::default() }
}

fn script(plant: &dyn Plant) -> Script {
    Script::every(plant.interval_ns())
}

/// Runs a script to its end; what the policy was told, and how many requests each I/O thread has got.
fn play(plant: &mut dyn Plant, setup: &Setup, script: Script) -> (Log, Vec<u64>) {
    let awaited = script.awaited();
    let (policy, board) = script.policy();
    let fed = plant.run(setup, policy, &board);
    let log = board.log().clone();
    let (step, last) = (log.steps, log.samples.last());
    assert!(board.is_done(), "step {step} ({:?}) did not come about; the last sample is {last:#?}", awaited.get(step));
    assert!(log.wrong.is_empty(), "{:?}", log.wrong);
    (log, fed)
}

/// The same, where nothing is to be refused.
fn obey(plant: &mut dyn Plant, setup: &Setup, script: Script) -> (Log, Vec<u64>) {
    let (log, fed) = play(plant, setup, script);
    assert!(log.refused.is_empty(), "refused: {:?}", log.refused);
    (log, fed)
}

fn lives(seen: &Seen, thread: usize, core: u16) -> bool {
    seen.threads[thread].home == CoreId(core)
}

fn is_served(seen: &Seen, thread: usize) -> bool {
    seen.threads[thread].requests > 0
}

/// Awake, in fact and not only in name, and without requests.
fn polls_nothing(seen: &Seen, core: usize) -> bool {
    !seen.sleeps(core) && seen.cores[core].awake_ns > 0 && seen.cores[core].busy_ns == 0
}

/// Moves land: requests are polled on the new home, and no more on the old one.
pub fn a_moved_thread_is_served_by_its_new_home(plant: &mut dyn Plant) {
    let script = script(plant)
        .until("requests on core 1", |seen| seen.serves(1) && !seen.serves(2) && lives(seen, 1, 1))
        .say(&[go(1, 2)])
        .until("its new home in a sample", |seen| lives(seen, 1, 2))
        .holds("requests on core 2 only", 3, |seen| seen.serves(2) && !seen.serves(1) && is_served(seen, 1));
    obey(plant, &setup(3, 2, &[0, 1]), script);
}

/// The last order holds, also where the thread is still on its way by the one before.
pub fn a_thread_that_is_moved_twice_ends_where_it_was_sent_last(plant: &mut dyn Plant) {
    let script = script(plant)
        .say(&[go(1, 2), go(1, 0)])
        .holds("requests on core 0 only", 3, |seen| {
            lives(seen, 1, 0) && is_served(seen, 1) && !seen.serves(1) && !seen.serves(2)
        })
        .say(&[go(1, 1), go(1, 2)])
        .holds("requests on core 2 only", 3, |seen| lives(seen, 1, 2) && seen.serves(2) && !seen.serves(1));
    obey(plant, &setup(3, 2, &[1]), script);
}

/// It is no mistake to say what holds already.
pub fn a_move_to_where_a_thread_lives_changes_nothing(plant: &mut dyn Plant) {
    let script = script(plant)
        .say(&[go(1, 1), wake(1)])
        .holds("requests on core 1", 3, |seen| lives(seen, 1, 1) && seen.serves(1) && is_served(seen, 1));
    obey(plant, &setup(2, 2, &[1]), script);
}

/// A sleep waits until the core has no I/O thread.
pub fn a_core_sleeps_when_its_last_thread_has_left(plant: &mut dyn Plant) {
    let script = script(plant)
        .say(&[sleep(1)])
        .holds("requests on core 1, which is to sleep", 5, |seen| seen.serves(1))
        .say(&[go(1, 0)])
        .holds("sleep, and requests elsewhere", 3, |seen| seen.sleeps(1) && is_served(seen, 1));
    obey(plant, &setup(2, 2, &[1]), script);
}

/// Nobody has to say that the core is to wake.
pub fn a_sleeping_core_wakes_for_a_move(plant: &mut dyn Plant) {
    let script = script(plant).say(&[go(1, 0), sleep(1)]).until("sleep", |seen| seen.sleeps(1)).say(&[go(1, 1)]).holds(
        "requests on core 1",
        5,
        |seen| seen.serves(1) && is_served(seen, 1),
    );
    obey(plant, &setup(2, 2, &[1]), script);
}

/// An order to sleep is forgotten with the first order to be awake, whether the core had come to sleep or not.
pub fn a_wake_up_cancels_a_sleep_that_has_not_begun(plant: &mut dyn Plant) {
    let script =
        script(plant)
            .say(&[sleep(1)])
            .say(&[wake(1)])
            .say(&[go(1, 0)])
            .holds("a core that polls nothing", 5, |seen| polls_nothing(seen, 1) && is_served(seen, 1));
    let (log, _) = obey(plant, &setup(2, 2, &[1]), script);
    assert!(!log.samples.iter().any(|seen| seen.sleeps(1)));
}

/// A move says that the core is to be awake.
pub fn a_move_to_a_core_cancels_its_sleep(plant: &mut dyn Plant) {
    let script = script(plant).say(&[sleep(1)]).say(&[go(0, 1)]).say(&[go(0, 0), go(1, 0)]).holds(
        "a core that polls nothing",
        5,
        |seen| polls_nothing(seen, 1) && is_served(seen, 1),
    );
    let (log, _) = obey(plant, &setup(2, 2, &[0, 1]), script);
    assert!(!log.samples.iter().any(|seen| seen.sleeps(1)));
}

/// A core without I/O threads stays awake, once woken.
pub fn a_core_is_woken_by_command(plant: &mut dyn Plant) {
    let script = script(plant).say(&[sleep(1)]).until("sleep", |seen| seen.sleeps(1)).say(&[wake(1)]).holds(
        "a core that polls nothing",
        5,
        |seen| polls_nothing(seen, 1),
    );
    obey(plant, &setup(2, 1, &[0]), script);
}

/// A goal is answered by the sleep that the capabilities name for it.
pub fn a_core_sleeps_as_deep_as_the_plant_says(plant: &mut dyn Plant) {
    let deepest = Command::Sleep { core: CoreId(1), goal: SleepGoal::DEEPEST };
    let script = script(plant)
        .say(&[sleep(1)])
        .until("sleep", |seen| seen.sleeps(1))
        .say(&[wake(1)])
        .until("its end", |seen| !seen.sleeps(1))
        .say(&[deepest])
        .until("deep sleep", |seen| seen.sleeps(1));
    let (log, _) = obey(plant, &setup(2, 1, &[0]), script);
    let mut states: Vec<_> = log.samples.iter().map(|seen| seen.cores[1].state).collect();
    states.dedup();
    let depth = |goal| log.capabilities.sleep_for(goal).map_or(Depth::MonitorWait, |sleep| sleep.depth);
    let (first, second) = (depth(SleepGoal::SHALLOWEST), depth(SleepGoal::DEEPEST));
    let expected = [CoreState::Awake, CoreState::Asleep(first), CoreState::Awake, CoreState::Asleep(second)];
    assert_eq!(states, expected);
}

/// Someone has to ask the policy.
pub fn the_main_core_does_not_sleep(plant: &mut dyn Plant) {
    let script = script(plant).say(&[sleep(0)]).holds("requests on core 0", 3, |seen| seen.serves(0));
    let (log, _) = play(plant, &setup(2, 1, &[0]), script);
    assert_eq!(log.refused, [(sleep(0), Refusal::MainCore)]);
}

/// Else it would be woken at once, or the thread would wait.
pub fn a_core_that_gets_a_thread_is_not_put_to_sleep(plant: &mut dyn Plant) {
    let script = script(plant).say(&[sleep(1)]).until("sleep", |seen| seen.sleeps(1)).say(&[go(0, 1), sleep(1)]).holds(
        "requests on core 1",
        5,
        |seen| seen.serves(1) && is_served(seen, 0),
    );
    let (log, _) = play(plant, &setup(2, 1, &[0]), script);
    assert_eq!(log.refused, [(sleep(1), Refusal::NotEmpty)]);
}

/// A thread that is ordered to where it lives is not on its way.
pub fn a_thread_that_stays_is_not_on_its_way(plant: &mut dyn Plant) {
    let script =
        script(plant)
            .say(&[go(1, 1), sleep(1)])
            .say(&[go(1, 0)])
            .holds("sleep, and requests elsewhere", 3, |seen| seen.sleeps(1) && is_served(seen, 1));
    obey(plant, &setup(2, 2, &[1]), script);
}

/// Cores, I/O threads and knobs that there are not.
pub fn what_does_not_exist_is_refused(plant: &mut dyn Plant) {
    let set = Command::Set { knob: KnobId(u16::MAX), value: 1 };
    let commands = [go(9, 1), go(0, 9), sleep(9), wake(9), completions(9, CompletionMode::Poll), set];
    let script =
        script(plant).say(&commands).holds("requests on core 0", 3, |seen| seen.serves(0) && lives(seen, 0, 0));
    let (log, _) = play(plant, &setup(2, 1, &[0]), script);
    assert_eq!(log.refused, commands.map(|command| (command, Refusal::Unknown)));
}

/// Capabilities say what is refused, and what is not.
pub fn what_the_plant_cannot_do_is_refused(plant: &mut dyn Plant) {
    let set = Command::Set { knob: KnobId(0), value: u64::MAX };
    let hybrid = completions(0, CompletionMode::Hybrid { idle_ns: 1_000, rest_ns: 1_000 });
    let script = script(plant).say(&[set, hybrid]).holds("requests", 3, |seen| is_served(seen, 0));
    let (log, _) = play(plant, &setup(2, 1, &[0]), script);
    let can = &log.capabilities;
    let expected =
        [(set, !can.knobs.is_empty(), Refusal::Unknown), (hybrid, can.rests.is_some(), Refusal::Unsupported)];
    let refused = expected.iter().filter(|(_, can, _)| !can).map(|&(command, _, refusal)| (command, refusal));
    assert_eq!(log.refused, refused.collect::<Vec<_>>());
}

/// It counts as awake all the same: it has an I/O thread. Polling begins again when a command says so.
pub fn a_thread_that_waits_for_interrupts_lets_its_core_rest(plant: &mut dyn Plant) {
    let script = script(plant)
        .until("a core that polls", |seen| seen.cores[1].awake_ns > 0)
        .say(&[completions(1, CompletionMode::Interrupt)])
        .holds("rest in the kernel", 3, |seen| seen.cores[1].awake_ns == 0 && !seen.sleeps(1))
        .say(&[completions(1, CompletionMode::Poll)])
        .holds("a core that polls again", 3, |seen| seen.cores[1].awake_ns > 0);
    obey(plant, &setup(2, 2, &[0]), script);
}

/// How it waits goes with it.
pub fn a_thread_that_waits_for_interrupts_is_served_and_moves(plant: &mut dyn Plant) {
    let script = script(plant)
        .say(&[completions(1, CompletionMode::Interrupt)])
        .holds("requests on core 1", 3, |seen| seen.serves(1) && is_served(seen, 1))
        .say(&[go(1, 2)])
        .holds("requests on core 2 only", 3, |seen| seen.serves(2) && !seen.serves(1) && is_served(seen, 1))
        .until_all_is_quiet()
        .holds("rest in the kernel", 3, |seen| seen.cores[2].awake_ns == 0 && !seen.sleeps(2));
    obey(plant, &setup(3, 2, &[1]), script);
}

/// Rests between polls, where the plant can.
pub fn hybrid_polling_serves(plant: &mut dyn Plant) {
    let script = script(plant)
        .say(&[completions(1, CompletionMode::Hybrid { idle_ns: 5_000, rest_ns: 5_000 })])
        .holds("requests on core 1", 3, |seen| is_served(seen, 1))
        .say(&[go(1, 0)])
        .holds("requests on core 0", 3, |seen| is_served(seen, 1) && lives(seen, 1, 0) && !seen.serves(1));
    let (log, _) = play(plant, &setup(2, 2, &[1]), script);
    assert_eq!(log.refused.is_empty(), log.capabilities.rests.is_some(), "{:?}", log.refused);
}

/// Whatever moves and sleeps, each request is told of once by ticks, and once by intervals.
pub fn nothing_is_lost_on_the_way(plant: &mut dyn Plant) {
    let script = script(plant)
        .say(&[go(1, 2), go(2, 1)])
        .until("requests", |seen| is_served(seen, 1) && is_served(seen, 2))
        .say(&[go(0, 2), go(1, 2), sleep(1)])
        .say(&[go(2, 0)])
        .until("sleep", |seen| seen.sleeps(1))
        .say(&[go(2, 1), completions(0, CompletionMode::Interrupt)])
        .until("requests on core 1", |seen| seen.serves(1))
        .say(&[completions(0, CompletionMode::Poll), go(0, 1), go(0, 0), go(1, 1), go(2, 2)])
        .holds("requests at home", 3, |seen| (0..3).all(|core| seen.serves(core)))
        .until_all_is_quiet();
    let (log, fed) = obey(plant, &setup(3, 3, &[0, 1, 2]), script);
    let told = |thread: usize| log.samples.iter().map(|seen| seen.threads[thread].requests).sum::<u64>();
    assert_eq!((0..3).map(told).collect::<Vec<_>>(), fed, "by intervals");
    assert_eq!(log.tick_requests, fed, "by ticks");
    assert!(fed.iter().all(|&fed| fed > 0), "{fed:?}");
}

/// Every core and every I/O thread, in intervals that follow each other without a gap.
pub fn samples_are_about_the_whole_plant(plant: &mut dyn Plant) {
    let script = script(plant).holds("samples", 10, |_| true);
    let (log, _) = obey(plant, &setup(3, 5, &[0, 3]), script);
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

/// Whoever needs nothing is not asked while nothing comes, and is asked when it needs to be.
pub fn a_quiet_policy_is_asked_when_it_says_and_not_before(plant: &mut dyn Plant) {
    let needed_ns = 20 * plant.interval_ns() + 7;
    let script = script(plant).needed_after(needed_ns);
    let (log, _) = play(plant, &setup(2, 2, &[]), script);
    let asked = log.ticks.iter().map(|&(at_ns, _)| at_ns).chain(log.samples.iter().map(|seen| seen.now_ns));
    let asked: Vec<_> = asked.map(|at_ns| at_ns - log.started_ns).collect();
    assert!(asked.iter().all(|&at_ns| at_ns >= needed_ns), "asked at {asked:?}, needed from {needed_ns} on");
    assert_eq!(asked.len(), 1, "needed once, asked at {asked:?}");
}

/// Requests are told of, whatever the policy has said that it needs.
pub fn ticks_with_requests_are_not_left_out(plant: &mut dyn Plant) {
    let script = script(plant).needed_after(NEVER).holds("samples with requests", 5, |seen| is_served(seen, 0));
    let (log, _) = obey(plant, &setup(2, 2, &[0]), script);
    assert!(log.ticks.len() >= 5, "{:?}", log.ticks);
    assert!(log.ticks.iter().all(|&(_, requests)| requests > 0), "quiet ticks are left out: {:?}", log.ticks);
}

/// The machine is asked later than the policy commands; what it refuses, the policy is told, and goes on.
pub fn a_knob_is_refused_after_it_was_accepted(plant: &mut dyn Plant) {
    let set = Command::Set { knob: KnobId(0), value: 0 };
    let script =
        script(plant)
            .say(&[set])
            .until("the refusal", |seen| seen.refused == 1)
            .holds("requests", 3, |seen| is_served(seen, 0));
    let (log, _) = play(plant, &Setup { refuses: true, ..setup(2, 1, &[0]) }, script);
    assert!(!log.capabilities.knobs.is_empty(), "a plant of these cases has a knob");
    assert_eq!(log.refused, [(set, Refusal::Failed)]);
}

/// A value is there while it is not older than its source allows; then it is not, and its age goes on.
pub fn readings_have_an_age_and_go_stale(plant: &mut dyn Plant) {
    let script = script(plant)
        .reads()
        .until("values", |seen| seen.readings.iter().any(|reading| reading.value.is_some()))
        .until("none", |seen| seen.readings.iter().all(|reading| reading.value.is_none()))
        .holds("none", 3, |seen| seen.readings.iter().all(|reading| reading.value.is_none()));
    let (log, _) = obey(plant, &Setup { sensors_fail: true, ..setup(2, 1, &[0]) }, script);
    let sources = &log.capabilities.sources;
    for seen in &log.samples {
        let ids: Vec<_> = seen.readings.iter().map(|reading| reading.id).collect();
        assert_eq!(ids, (0..sources.len() as u16).map(ReadingId).collect::<Vec<_>>(), "as they are wanted");
        for (reading, source) in seen.readings.iter().zip(sources) {
            assert!(reading.value.is_none() || !source.is_stale(reading.age_ns), "{reading:?} of {source:?}");
        }
    }
    let ages: Vec<_> = log.samples.iter().rev().take(3).map(|seen| seen.readings[0].age_ns).collect();
    assert!(ages.is_sorted_by(|later, sooner| later > sooner), "{ages:?}");
}

/// Each is told, in their order; what the policy commands then is carried out.
pub fn goals_that_change_within_an_interval_all_come(plant: &mut dyn Plant) {
    let budget = |uw| Goals { budget_uw: Some(uw), ..Goals::default() };
    let goals =
        vec![budget(300), budget(200), Goals { tolerances: vec![Tolerance::mean_loss(200_000)], ..Goals::default() }];
    let script = script(plant)
        .at_goals(&[go(1, 0)])
        .holds("requests at home, where it was sent", 3, |seen| lives(seen, 1, 0) && is_served(seen, 1));
    let (log, _) = obey(plant, &Setup { goals: goals.clone(), ..setup(2, 2, &[1]) }, script);
    assert_eq!(log.goals[0], Goals::default(), "nothing is asked for at the start");
    assert_eq!(log.goals[1..], goals);
}

/// It may have to act on them although nothing comes.
pub fn a_quiet_policy_is_asked_after_its_goals_have_changed(plant: &mut dyn Plant) {
    let script = script(plant).needed_after(NEVER);
    let (log, _) = play(plant, &Setup { goals: vec![Goals::default()], ..setup(2, 2, &[]) }, script);
    assert_eq!(log.goals.len(), 2);
    assert_eq!(log.ticks.len() + log.samples.len(), 1, "once, as nothing is needed after it");
}

/// What a policy wants may change with its goals: intervals and readings begin, and the first interval begins then too.
pub fn what_is_wanted_may_change_with_the_goals(plant: &mut dyn Plant) {
    let interval_ns = plant.interval_ns();
    let goals = vec![Goals { budget_uw: Some(7), ..Goals::default() }];
    let script = script(plant)
        .reads()
        .waits_for_budget()
        .until("readings", |seen| seen.readings.iter().any(|reading| reading.value.is_some()))
        .holds("requests", 3, |seen| is_served(seen, 0));
    let (log, _) = obey(plant, &Setup { goals, ..setup(2, 1, &[0]) }, script);
    let first = &log.samples[0];
    assert!(first.elapsed_ns >= interval_ns && first.now_ns - first.elapsed_ns > log.started_ns, "{first:?}");
}

/// An I/O thread's class is that of whom it serves.
pub fn an_io_thread_carries_the_class_of_its_hosts(plant: &mut dyn Plant) {
    let goals = vec![Goals { priorities: vec![(Scope::Host(0), 5), (Scope::Host(2), 3)], ..Goals::default() }];
    let classes = [Some(5), Some(3), None];
    let has_classes = move |seen: &Seen| seen.threads.iter().map(|thread| thread.class).eq(classes);
    let script = script(plant).until("classes", has_classes).holds("classes", 3, has_classes);
    obey(plant, &Setup { goals, ..setup(2, 3, &[0, 1, 1]) }, script);
}

/// The next policy finds the machine as it was found, whatever the last one has set.
pub fn what_a_policy_has_set_is_put_back_before_the_next_one(plant: &mut dyn Plant) {
    let free = Arc::new(AtomicU64::new(0));
    let (note, less, again) = (Arc::clone(&free), Arc::clone(&free), Arc::clone(&free));
    let power = |seen: &Seen| seen.readings.first().and_then(|reading| reading.value);
    let set = Command::Set { knob: KnobId(0), value: 0 };
    let first = script(plant)
        .reads()
        .until("a reading", move |seen| power(seen).inspect(|&uw| note.store(uw, SeqCst)).is_some())
        .say(&[set])
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
        assert!(log.refused.is_empty() && log.wrong.is_empty(), "{:?} {:?}", log.refused, log.wrong);
    }
}

/// `rapl-only` sees that the budget is exceeded, lowers the limit, and then it is kept.
pub fn a_budget_is_kept_with_a_power_limit(plant: &mut dyn Plant) {
    keeps_budget(plant, "rapl-only");
}

/// The same of `cpu-bandwidth` and its quota.
pub fn a_budget_is_kept_with_a_quota(plant: &mut dyn Plant) {
    keeps_budget(plant, "cpu-bandwidth");
}

/// The same of `cpu-jailing` and the number of cores.
pub fn a_budget_is_kept_with_fewer_cores(plant: &mut dyn Plant) {
    keeps_budget(plant, "cpu-jailing");
}

/// The same of `thunderbolt`, by random steps of the quota.
pub fn a_budget_is_kept_by_thunderbolt(plant: &mut dyn Plant) {
    keeps_budget(plant, "thunderbolt");
}

/// The same of `pass`, with all of these.
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
