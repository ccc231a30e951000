//! Properties of the dispatcher, and equality with the nanosecond-by-nanosecond model.

use proptest::prelude::*;

use super::super::naive::{self, Quota, Script};
use super::*;

const UNTIL_NS: u64 = 3_000;

fn scripts() -> impl Strategy<Value = (usize, Vec<Script>, Vec<Quota>)> {
    let class = prop_oneof![1 => Just(Class::Interrupt), 1 => Just(Class::Worker), 3 => Just(Class::Client), 2 => Just(Class::Background)];
    let work = prop::collection::vec((0..1_500_u64, 1..120_u64), 0..8);
    let task = (class, 0..3_usize, 1..4_usize, prop::option::of(0..2_usize), work);
    let quota = (1..250_u64, 50..400_u64, 1..80_u64).prop_map(|(quota_ns, period_ns, slice_ns)| Quota {
        quota_ns: quota_ns.min(2 * period_ns),
        period_ns,
        slice_ns,
    });
    (1..4_usize, prop::collection::vec(task, 1..8), prop::collection::vec(quota, 2)).prop_map(
        |(cpus, tasks, quotas)| {
            let script =
                |(class, first, count, group, mut work): (Class, usize, usize, Option<usize>, Vec<(u64, u64)>)| {
                    work.sort_unstable();
                    let first = first % cpus;
                    Script { class, cpus: (first, count.min(cpus - first)), group, work }
                };
            (cpus, tasks.into_iter().map(script).collect(), quotas)
        },
    )
}

/// Runs scripts; returns ended pieces and the dispatcher with its used time.
fn run(cpus: usize, scripts: &[Script], quotas: &[Quota]) -> (Vec<(u64, usize, usize)>, Dispatch<()>) {
    let mut dispatch = Dispatch::new(vec![None; cpus], Hardware::default());
    for quota in quotas {
        dispatch.add_group(Group::new(quota.quota_ns, quota.period_ns, quota.slice_ns));
    }
    for script in scripts {
        dispatch.add_task(script.class, script.cpus, script.group, false);
    }
    let mut given: Vec<(u64, usize, u64)> = scripts
        .iter()
        .enumerate()
        .flat_map(|(task, script)| script.work.iter().map(move |&(at_ns, ns)| (at_ns, task, ns)))
        .collect();
    given.sort_by_key(|&(at_ns, task, _)| (at_ns, task));
    let (mut given, mut ended) = (given.into_iter().peekable(), Vec::new());
    loop {
        let given_ns = given.peek().map_or(u64::MAX, |&(at_ns, ..)| at_ns);
        let next_ns = dispatch.next_ns();
        if next_ns.min(given_ns) >= UNTIL_NS {
            break;
        }
        if next_ns > given_ns {
            let Some((at_ns, task, ns)) = given.next() else { break };
            dispatch.push(task, Piece::Work(ns), ());
            dispatch.wake(at_ns, task, true);
        } else if let Some(Ended { at_ns, cpu, task, .. }) = dispatch.step() {
            ended.push((at_ns, cpu, task));
            dispatch.release(at_ns, cpu, false);
        }
    }
    dispatch.count(UNTIL_NS);
    (ended, dispatch)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn events_match_a_simulation_by_nanosecond((cpus, scripts, quotas) in scripts()) {
        let mut plain = naive::run(cpus, &scripts, &quotas, UNTIL_NS);
        let (mut ended, _) = run(cpus, &scripts, &quotas);
        plain.sort_unstable();
        ended.sort_unstable();
        prop_assert_eq!(ended, plain);
    }

    #[test]
    fn a_group_has_no_more_than_its_quota_in_any_period((cpus, scripts, quotas) in scripts()) {
        let (_, dispatch) = run(cpus, &scripts, &quotas);
        for (group, quota) in quotas.iter().enumerate() {
            for begin_ns in (0..UNTIL_NS).step_by(quota.period_ns as usize) {
                let end_ns = begin_ns + quota.period_ns;
                let of_group = dispatch.used.iter().filter(|used| scripts[used.task].group == Some(group));
                let used_ns: u64 =
                    of_group.map(|used| used.to_ns.min(end_ns).saturating_sub(used.from_ns.max(begin_ns))).sum();
                prop_assert!(used_ns <= quota.quota_ns, "group {group} from {begin_ns}: {used_ns} of {}", quota.quota_ns);
            }
        }
    }

    /// Without quotas: no CPU is idle while a task that may run on it waits, and all work completes.
    #[test]
    fn work_is_conserved((cpus, mut scripts, _) in scripts()) {
        scripts.iter_mut().for_each(|script| script.group = None);
        let (ended, dispatch) = run(cpus, &scripts, &[]);
        let used: u64 = dispatch.used.iter().map(|used| used.to_ns - used.from_ns).sum();
        let asked: u64 = scripts.iter().flat_map(|script| &script.work).map(|(_, ns)| ns).sum();
        let pieces: usize = scripts.iter().map(|script| script.work.len()).sum();
        prop_assert_eq!(ended.len() == pieces, used == asked, "{} of {} ns", used, asked);
        // If a task with work left does not run, every CPU where it may run is busy.
        for at_ns in (0..UNTIL_NS).step_by(7) {
            let runs = |used: &&Used| used.from_ns <= at_ns && at_ns < used.to_ns;
            let running: Vec<&Used> = dispatch.used.iter().filter(runs).collect();
            for (task, script) in scripts.iter().enumerate() {
                let given: u64 = script.work.iter().filter(|(given_ns, _)| *given_ns <= at_ns).map(|(_, ns)| ns).sum();
                let done: u64 = dispatch.used.iter().filter(|used| used.task == task)
                    .map(|used| used.to_ns.min(at_ns).saturating_sub(used.from_ns)).sum();
                if given > done && !running.iter().any(|used| used.task == task) {
                    prop_assert!(running.len() >= script.cpus.1, "task {task} waits at {at_ns}: {running:?}");
                }
            }
        }
    }
}

#[test]
fn an_interrupt_waits_for_the_piece_and_comes_before_the_next() {
    let script = |class, work: &[(u64, u64)]| Script { class, cpus: (0, 1), group: None, work: work.to_vec() };
    let scripts = [
        script(Class::Client, &[(0, 100), (0, 100)]),
        script(Class::Interrupt, &[(30, 10)]),
        script(Class::Background, &[(0, 1_000)]),
        script(Class::Client, &[(10, 5)]),
    ];
    let (ended, _) = run(1, &scripts, &[]);
    // Then the first continues; background work runs last, without preemption.
    assert_eq!(ended, [(100, 0, 0), (110, 0, 1), (210, 0, 0), (215, 0, 3), (1_215, 0, 2)]);
}

#[test]
fn interrupts_preempt_computation() {
    let mut dispatch: Dispatch<u8> = Dispatch::new(vec![None], Hardware::default());
    let program = dispatch.add_task(Class::Client, (0, 1), None, false);
    let handler = dispatch.add_task(Class::Interrupt, (0, 1), None, false);
    dispatch.push(program, Piece::Compute(100), 1);
    dispatch.push(program, Piece::Work(100), 2);
    dispatch.wake(0, program, true);
    let mut ends = |interrupts_ns: Option<u64>| {
        if let Some(at_ns) = interrupts_ns {
            dispatch.push(handler, Piece::Work(10), 3);
            dispatch.wake(at_ns, handler, true);
        }
        let ended = dispatch.step().unwrap();
        dispatch.release(ended.at_ns, 0, false);
        (ended.at_ns, ended.then)
    };
    assert_eq!((ends(Some(30)), ends(None)), ((40, 3), (110, 1)));
    assert_eq!((ends(Some(150)), ends(None)), ((210, 2), (220, 3)));
}

#[test]
fn polling_ends_when_work_arrives() {
    let mut dispatch: Dispatch<u8> =
        Dispatch::new(vec![None], Hardware { light_exit_ns: 30, deep_exit_ns: 300, ..Hardware::default() });
    let task = dispatch.add_task(Class::Client, (0, 1), None, false);
    dispatch.decide(0, true);
    dispatch.push(task, Piece::Look { found_ns: u64::MAX, more_ns: 5 }, 7);
    dispatch.wake(1_000, task, false);
    assert_eq!(dispatch.next_ns(), u64::MAX);
    dispatch.found(task, 1_500);
    let ended = dispatch.step().unwrap();
    assert_eq!((ended.at_ns, ended.then), (1_505, 7));
    dispatch.release(1_505, 0, false);
    assert_eq!(dispatch.undecided().collect::<Vec<_>>(), [(0, 1_505)]);
    let activity: Vec<_> = dispatch.turns.iter().map(|turn| (turn.at_ns, turn.activity)).collect();
    assert_eq!(
        activity,
        [(0, CpuActivity::IdlesDeep), (1_000, CpuActivity::IdlesShallow), (1_300, CpuActivity::Spins)]
    );
}

#[test]
fn a_slower_cpu_takes_longer_for_what_is_left() {
    let mut dispatch: Dispatch<()> = Dispatch::new(vec![None], Hardware::default());
    let task = dispatch.add_task(Class::Background, (0, 1), None, false);
    dispatch.push(task, Piece::Work(1_000), ());
    dispatch.wake(0, task, true);
    dispatch.set_factor(400, 0, 2 << 16);
    assert_eq!(dispatch.next_ns(), 400 + 1_200);
    // After preemption, the remaining work is unchanged.
    let other = dispatch.add_task(Class::Client, (0, 1), None, false);
    dispatch.push(other, Piece::Work(50), ());
    dispatch.wake(600, other, true);
    assert_eq!(dispatch.step().map(|ended| (ended.at_ns, ended.task)), Some((700, other)));
    dispatch.release(700, 0, false);
    assert_eq!(dispatch.next_ns(), 700 + 1_000);
}

#[test]
fn spinning_ends_with_work_and_is_preempted() {
    let mut dispatch: Dispatch<u8> = Dispatch::new(vec![None], Hardware::default());
    let spins = dispatch.add_task(Class::Worker, (0, 1), None, true);
    let other = dispatch.add_task(Class::Background, (0, 1), None, false);
    dispatch.push(other, Piece::Work(100), 1);
    dispatch.wake(50, other, true);
    dispatch.push(spins, Piece::Work(10), 2);
    dispatch.wake(80, spins, true);
    let ends = |dispatch: &mut Dispatch<u8>| {
        let ended = dispatch.step().unwrap();
        dispatch.release(ended.at_ns, 0, false);
        (ended.at_ns, ended.then)
    };
    assert_eq!(ends(&mut dispatch), (90, 2));
    assert_eq!(ends(&mut dispatch), (160, 1));
    dispatch.count(200);
    let looked: u64 = dispatch.used.iter().filter(|used| used.looks).map(|used| used.to_ns - used.from_ns).sum();
    assert_eq!(looked, 50 + 40);
}
