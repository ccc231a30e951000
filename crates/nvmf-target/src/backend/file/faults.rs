//! The fault layer of the tests: errors in the place of what the system calls of a medium return.
//!
//! It reports errors as Linux does: a write that fails has failed alone; what the kernel could not write back is lost,
//! and the next sync reports it, once.

use std::sync::Mutex;

use super::super::Op;

#[derive(Debug, Default)]
struct State {
    /// The error number of every write.
    write: Option<i32>,
    /// The error number of the next sync.
    writeback: Option<i32>,
}

/// What is to fail.
#[derive(Debug, Default)]
pub(super) struct Faults {
    state: Mutex<State>,
}

impl Faults {
    /// Every write fails with this error number from now on; `None`: none does.
    pub(super) fn fail_writes(&self, number: Option<i32>) {
        self.state.lock().expect("no panic holds it").write = number;
    }

    /// Writes that were completed are lost; the next sync says so.
    pub(super) fn lose_writes(&self, number: i32) {
        self.state.lock().expect("no panic holds it").writeback = Some(number);
    }

    /// What a write meets.
    pub(super) fn of_write(&self) -> Result<(), i32> {
        self.state.lock().expect("no panic holds it").write.map_or(Ok(()), Err)
    }

    /// What a sync meets.
    pub(super) fn of_sync(&self) -> Result<(), i32> {
        self.state.lock().expect("no panic holds it").writeback.take().map_or(Ok(()), Err)
    }

    /// What AIO says of a transfer: its result, and the error number in it.
    pub(super) fn of_completion(&self, op: Op, result: i64, number: i32) -> (i64, i32) {
        match self.of_write() {
            Err(number) if matches!(op, Op::Write { .. }) && result >= 0 => (-i64::from(number), number),
            _ => (result, number),
        }
    }
}
