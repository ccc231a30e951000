//! A main core that sleeps beside a resting worker gets every request of it; without a fence it misses one.

use loom::sync::Arc;
use loom::thread;

use crate::check;
use crate::inbox::Inbox;
use crate::resting::Resting;
use crate::sync::{self, AtomicU64, Ordering, Step, leave_out};
use crate::wake_up::Kept;

/// State shared by the main core and the worker.
struct Shared {
    main: Resting,
    worker: Resting,
    requests: AtomicU64,
}

impl Shared {
    /// Whether the worker rests and has no request beyond those seen.
    fn is_quiet(&self, seen: u64) -> bool {
        self.worker.is_set() && self.requests.load(Ordering::Relaxed) == seen
    }
}

/// A worker that rests before and after each request, and a main core that sleeps whenever it may, until it has seen all.
fn model(requests: u64) {
    check(move || {
        let shared = Shared { main: Resting::default(), worker: Resting::default(), requests: AtomicU64::new(0) };
        shared.worker.begin();
        let shared = Kept::new(Arc::new(shared));
        let mut inbox = Kept::new(Inbox::new(2));
        inbox.0.doorbell().expect("made");
        let (of_worker, sender) = (Kept::new(Arc::clone(&shared.0)), Kept::new(inbox.0.sender()));
        let worker = thread::spawn(move || {
            let shared = &of_worker.0;
            for request in 1..=requests {
                shared.worker.end();
                shared.requests.store(request, Ordering::Relaxed);
                if shared.main.is_set_after_request() {
                    let _ = sender.0.send(());
                }
                shared.worker.begin();
            }
        });
        let mut seen = 0;
        while seen < requests {
            while inbox.0.take().is_some() {}
            if shared.0.is_quiet(seen) {
                wait(&mut inbox.0, &shared.0, seen);
            } else {
                thread::yield_now();
            }
            seen = shared.0.requests.load(Ordering::Relaxed);
        }
        worker.join().expect("serves");
        inbox.0.disarm();
    });
}

fn wait(inbox: &mut Inbox<()>, shared: &Shared, seen: u64) {
    if inbox.arm() {
        shared.main.begin();
        if shared.is_quiet(seen) {
            sync::poll();
        }
        shared.main.end();
        inbox.disarm();
    }
}

#[test]
fn a_request_wakes_the_main_core() {
    model(1);
}

#[test]
fn so_does_each_of_two() {
    model(2);
}

#[test]
#[should_panic(expected = "deadlock")]
fn without_the_fence_of_the_main_core_a_request_is_missed() {
    leave_out(Step::RestFence);
    model(1);
}

#[test]
#[should_panic(expected = "deadlock")]
fn without_the_fence_of_the_worker_a_request_is_missed() {
    leave_out(Step::RequestFence);
    model(1);
}
