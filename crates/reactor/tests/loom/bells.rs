//! The bell beside an inbox: an owner never sleeps while a result is published elsewhere.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;

use crate::bell::Bell;
use crate::check;
use crate::sync::{self, Step, leave_out, leaves_out};
use crate::wake_up::Kept;

/// State shared by owner and publishers.
struct Shared {
    bell: Bell,
    published: AtomicU32,
}

/// An owner that sleeps whenever it finds no new result, until those of all publishers are there.
fn model(publishers: u32, results: u32) {
    check(move || {
        let shared = Shared { bell: Bell::new().expect("made"), published: AtomicU32::new(0) };
        let shared = Kept::new(Arc::new(shared));
        let publishing: Vec<_> = (0..publishers)
            .map(|_| {
                let shared = Kept::new(Arc::clone(&shared.0));
                thread::spawn(move || (0..results).for_each(|_| publish(&shared.0)))
            })
            .collect();
        let mut seen = 0;
        while seen < publishers * results {
            wait(&shared.0, seen);
            seen = shared.0.published.load(Ordering::Acquire);
        }
        publishing.into_iter().for_each(|publisher| publisher.join().expect("publishes"));
    });
}

fn publish(shared: &Shared) {
    shared.published.fetch_add(1, Ordering::Release);
    shared.bell.ring();
}

fn wait(shared: &Shared, seen: u32) {
    shared.bell.arm();
    if leaves_out(Step::Recheck) || shared.published.load(Ordering::Acquire) == seen {
        sync::poll();
        shared.bell.clear();
    }
    shared.bell.disarm();
}

#[test]
fn one_publisher_wakes_the_owner() {
    model(1, 2);
}

#[test]
fn two_publishers_wake_the_owner() {
    model(2, 1);
}

#[test]
#[should_panic(expected = "deadlock")]
fn without_a_re_check_the_wake_up_is_lost() {
    leave_out(Step::Recheck);
    model(1, 1);
}

#[test]
#[should_panic(expected = "deadlock")]
fn without_arming_the_wake_up_is_lost() {
    leave_out(Step::Arm);
    model(1, 1);
}

#[test]
#[should_panic(expected = "deadlock")]
fn without_the_publishers_fence_the_wake_up_is_lost() {
    leave_out(Step::SenderFence);
    model(1, 1);
}
