//! Every interleaving (and every stale read that the memory model allows) of the ring, of arm, re-check, wait, and of rests.
//!
//! The files of the ring and the bell are compiled here again, unchanged, with a `sync` and a `wait` based on `loom`. An owner that never
//! wakes is a deadlock, which `loom` reports. The same models with one step omitted must fail: this proves that the models detect a lost
//! wake-up.
//!
//! `LOOM_MAX_PREEMPTIONS=3 cargo test -p pilotlight-reactor --test loom` explores more orders, for minutes instead of seconds.

#![expect(unreachable_pub, reason = "what is public in the library is not in a test")]

#[path = "../../src/bell.rs"]
mod bell;
#[path = "../../src/doorbell.rs"]
mod doorbell;
#[path = "../../src/inbox.rs"]
mod inbox;
#[path = "../../src/resting.rs"]
mod resting;
#[path = "../../src/ring.rs"]
mod ring;
#[path = "../../src/setpoints.rs"]
mod setpoints;
mod sync;
mod wait;

mod bells;
mod drops;
mod follow;
mod order;
mod rests;
mod wake_up;

/// Runs `model` in every order with at most two preempted threads, or `LOOM_MAX_PREEMPTIONS`.
fn check(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(2));
    builder.check(model);
}
