//! Fault injection for tests: errors in place of the results of a medium's system calls.
//!
//! It reports errors as Linux does: a failed write affects only itself; a failed writeback is reported by the next sync,
//! once.

use std::sync::{Condvar, Mutex};

use super::super::Op;

#[derive(Debug, Default)]
struct State {
    /// The error number of every write.
    write: Option<i32>,
    /// The error number of the next sync.
    writeback: Option<i32>,
    /// The error number of every `fallocate`.
    fallocate: Option<i32>,
    /// Whether jobs that zero or deallocate get stuck.
    stuck: bool,
}

/// The injected faults.
#[derive(Debug, Default)]
pub(super) struct Faults {
    state: Mutex<State>,
    released: Condvar,
}

impl Faults {
    /// Fails every write from now on with this error number; `None` stops that.
    pub(super) fn fail_writes(&self, number: Option<i32>) {
        self.state.lock().expect("no panic holds it").write = number;
    }

    /// Loses completed writes; the next sync reports it.
    pub(super) fn lose_writes(&self, number: i32) {
        self.state.lock().expect("no panic holds it").writeback = Some(number);
    }

    /// Fails every `fallocate` from now on with this error number.
    pub(super) fn fail_fallocate(&self, number: i32) {
        self.state.lock().expect("no panic holds it").fallocate = Some(number);
    }

    /// The fault of a `fallocate`.
    pub(super) fn of_fallocate(&self) -> Result<(), i32> {
        self.state.lock().expect("no panic holds it").fallocate.map_or(Ok(()), Err)
    }

    /// Lets zeroing and deallocation get stuck until the result is dropped.
    pub(super) fn stick_long_jobs(&self) -> Stuck<'_> {
        self.state.lock().expect("no panic holds it").stuck = true;
        Stuck(self)
    }

    /// The fault of zeroing and deallocation: returns when they are not stuck.
    pub(super) fn of_long_job(&self) {
        let state = self.state.lock().expect("no panic holds it");
        drop(self.released.wait_while(state, |state| state.stuck).expect("no panic holds it"));
    }

    /// The fault of a write.
    pub(super) fn of_write(&self) -> Result<(), i32> {
        self.state.lock().expect("no panic holds it").write.map_or(Ok(()), Err)
    }

    /// The fault of a sync.
    pub(super) fn of_sync(&self) -> Result<(), i32> {
        self.state.lock().expect("no panic holds it").writeback.take().map_or(Ok(()), Err)
    }

    /// The AIO result of a transfer and its error number, with faults applied.
    pub(super) fn of_completion(&self, op: Op, result: i64, number: i32) -> (i64, i32) {
        match self.of_write() {
            Err(number) if matches!(op, Op::Write { .. }) && result >= 0 => (-i64::from(number), number),
            _ => (result, number),
        }
    }
}

/// While it exists, zeroing and deallocation are stuck.
pub(super) struct Stuck<'a>(&'a Faults);

impl Drop for Stuck<'_> {
    fn drop(&mut self) {
        self.0.state.lock().expect("no panic holds it").stuck = false;
        self.0.released.notify_all();
    }
}
