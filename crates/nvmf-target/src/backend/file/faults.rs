//! Fault injection for tests: errors in place of the results of a medium's system calls.
//!
//! It reports errors as Linux does: a failed write affects only itself; a failed writeback is reported by the next sync,
//! once.

use std::sync::Mutex;

use super::super::Op;

#[derive(Debug, Default)]
struct State {
    /// The error number of every write.
    write: Option<i32>,
    /// The error number of the next sync.
    writeback: Option<i32>,
    /// The error number of every `fallocate`.
    fallocate: Option<i32>,
}

/// The injected faults.
#[derive(Debug, Default)]
pub(super) struct Faults {
    state: Mutex<State>,
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
