//! Tests of housekeeping: the times of calls against a naive clock, and the thread.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

const TASKS: usize = 4;
const TIMES: u64 = 60;
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// One call: the task that it wakes, if any, and when it wants to be called next, relative to its time.
type Step = (Option<usize>, Option<u64>, bool);

fn next((_, after, is_rest): Step, now_ns: u64) -> Next {
    match (after, is_rest) {
        (None, _) => Next::Woken,
        (Some(after), true) => Next::NotBefore(now_ns + after),
        (Some(after), false) => Next::At(now_ns + after),
    }
}

/// Calls as the documentation of [`Next`] says, by a look at every task at every time until none is due.
fn oracle(mut steps: Vec<VecDeque<Step>>, wakes: &[(u64, usize)]) -> Vec<(u64, usize)> {
    let (mut woken, mut next_of, mut calls) = ([false; TASKS], [Next::Woken; TASKS], Vec::new());
    for now in 0..TIMES {
        wakes.iter().filter(|(at, _)| *at == now).for_each(|(_, task)| woken[*task] = true);
        let mut is_quiet = false;
        while !is_quiet {
            is_quiet = true;
            for task in 0..TASKS {
                let is_due = match next_of[task] {
                    Next::Woken => woken[task],
                    Next::At(at) => woken[task] || at <= now,
                    Next::NotBefore(at) => woken[task] && at <= now,
                };
                if !is_due {
                    continue;
                }
                (woken[task], is_quiet) = (false, false);
                calls.push((now, task));
                let step = steps[task].pop_front().unwrap_or_default();
                step.0.into_iter().for_each(|other| woken[other] = true);
                next_of[task] = next(step, now);
            }
        }
    }
    calls
}

/// The same by the tasks of the thread, which goes from one due time to the next.
fn real(steps: Vec<VecDeque<Step>>, wakes: &[(u64, usize)]) -> Vec<(u64, usize)> {
    let wakers: [Waker; TASKS] = Default::default();
    let (called, calls) = channel();
    let entry = |(task, mut steps): (usize, VecDeque<Step>)| {
        let (called, wakers) = (called.clone(), wakers.clone());
        let waker = wakers[task].clone();
        let call = move |now_ns| {
            called.send((now_ns, task)).unwrap();
            let step = steps.pop_front().unwrap_or_default();
            step.0.into_iter().for_each(|other| wakers[other].wake());
            next(step, now_ns)
        };
        Entry { name: "test", call: Box::new(call), waker, next: Some(Next::Woken) }
    };
    let mut tasks = Tasks(steps.into_iter().enumerate().map(entry).collect());
    let now = Cell::new(0);
    let mut wakes = wakes.iter().peekable();
    while now.get() < TIMES {
        while let Some((_, task)) = wakes.next_if(|(at, _)| *at <= now.get()) {
            wakers[*task].wake();
        }
        let due = tasks.call_due(|| now.get()).unwrap_or(u64::MAX);
        let wake = wakes.peek().map_or(u64::MAX, |(at, _)| *at);
        now.set(due.min(wake).max(now.get()));
    }
    calls.try_iter().collect()
}

proptest! {
    #[test]
    fn tasks_are_called_at_their_times_and_after_each_wake_up(
        steps in vec(vec((proptest::option::of(0..TASKS), proptest::option::of(1..20_u64), any::<bool>()), 0..20), TASKS),
        mut wakes in vec((0..TIMES, 0..TASKS), 0..30),
    ) {
        wakes.sort_unstable();
        let steps: Vec<VecDeque<Step>> = steps.into_iter().map(VecDeque::from).collect();
        prop_assert_eq!(real(steps.clone(), &wakes), oracle(steps, &wakes));
    }
}

/// A task that reports its calls.
fn reporting(housekeeping: &Housekeeping, waker: &Waker) -> (Task, Receiver<u64>) {
    let (called, calls) = channel();
    let task = housekeeping.add("reporting", waker, move |now_ns| {
        let _ = called.send(now_ns);
        Next::Woken
    });
    (task, calls)
}

#[test]
fn no_wake_up_is_lost_and_each_leads_to_a_later_call() {
    let housekeeping = Housekeeping::start(Vec::new()).unwrap();
    let waker = Waker::default();
    waker.wake(); // before it is added
    let (_task, calls) = reporting(&housekeeping, &waker);
    assert!(calls.recv_timeout(TIME_LIMIT).is_ok());
    for _ in 0..5_000 {
        let before_ns = clock::now_ns();
        waker.wake();
        assert!(calls.recv_timeout(TIME_LIMIT).unwrap() >= before_ns);
    }
}

#[test]
fn a_task_is_called_at_its_time_without_a_wake_up() {
    let housekeeping = Housekeeping::start(Vec::new()).unwrap();
    let (waker, (called, calls)) = (Waker::default(), channel());
    let _task = housekeeping.add("periodic", &waker, move |now_ns| {
        let due_ns = now_ns + 1_000_000;
        let _ = called.send((now_ns, due_ns));
        Next::At(due_ns)
    });
    waker.wake();
    let times: Vec<(u64, u64)> = (0..5).map(|_| calls.recv_timeout(TIME_LIMIT).unwrap()).collect();
    assert!(times.windows(2).all(|pair| pair[1].0 >= pair[0].1), "{times:?}");
}

#[test]
fn a_panic_ends_one_task_and_the_thread_stops_while_it_waits() {
    let housekeeping = Housekeeping::start(Vec::new()).unwrap();
    let [bad, good]: [Waker; 2] = Default::default();
    let held = Arc::new(());
    let theirs = Arc::clone(&held);
    let (called, panics) = channel();
    let failing = housekeeping.add("failing", &bad, move |_| {
        let _ = (&theirs, called.send(()));
        panic!("as the test wants");
    });
    let (_task, calls) = reporting(&housekeeping, &good);
    for _ in 0..2 {
        bad.wake();
        good.wake();
        assert!(calls.recv_timeout(TIME_LIMIT).is_ok());
    }
    drop(failing);
    assert_eq!((panics.iter().count(), Arc::strong_count(&held)), (1, 1), "called once, and released");
    drop(housekeeping);
}

#[test]
fn a_task_that_rests_is_called_at_its_end_if_it_was_woken() {
    for wake_ups in 1..=2 {
        let housekeeping = Housekeeping::start(Vec::new()).unwrap();
        let (waker, (called, calls)) = (Waker::default(), channel());
        let task = housekeeping.add("resting", &waker, move |_| {
            called.send(()).unwrap();
            Next::NotBefore(u64::MAX)
        });
        waker.wake();
        calls.recv_timeout(TIME_LIMIT).unwrap();
        (1..wake_ups).for_each(|_| waker.wake());
        drop(task);
        assert_eq!(calls.iter().count(), wake_ups - 1);
    }
}

#[test]
fn dropping_a_task_waits_for_its_call() {
    let housekeeping = Housekeeping::start(Vec::new()).unwrap();
    let (waker, (entered, entries), (release, released)) = (Waker::default(), channel(), channel::<()>());
    let is_done = Arc::new(AtomicBool::new(false));
    let done = Arc::clone(&is_done);
    let task = housekeeping.add("slow", &waker, move |_| {
        entered.send(()).unwrap();
        let _ = released.recv();
        done.store(true, Relaxed);
        Next::Woken
    });
    waker.wake();
    entries.recv_timeout(TIME_LIMIT).unwrap();
    std::thread::scope(|scope| {
        let dropping = scope.spawn(|| {
            drop(task);
            is_done.load(Relaxed)
        });
        release.send(()).unwrap();
        assert!(dropping.join().unwrap());
    });
}
