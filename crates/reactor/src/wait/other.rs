//! Machines without a supported instruction that waits for a store.

use super::{Monitor, not_of_this_machine};
use crate::sync::AtomicU64;

pub(super) fn available() -> Option<Monitor> {
    None
}

pub(super) fn arm(how: Monitor, _word: &AtomicU64) {
    not_of_this_machine(how);
}

pub(super) fn wait(how: Monitor, _word: &AtomicU64, _unchanged: u64, _until_ns: u64) {
    not_of_this_machine(how);
}
