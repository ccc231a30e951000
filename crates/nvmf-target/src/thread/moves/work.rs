//! For tests: the work in progress at moves.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use pilotlight_nvmf_proto::tcp::InProgress;
use pilotlight_reactor::cells::add;

use super::MoveCounters;

/// Moves with work of each kind in progress.
#[derive(Debug, Default)]
pub(super) struct WorkCounters {
    in_backends: AtomicU64,
    partial_pdus: AtomicU64,
    open_r2ts: AtomicU64,
    unfinished_sends: AtomicU64,
}

impl WorkCounters {
    pub(super) fn snapshot(&self) -> InProgress {
        InProgress {
            in_backends: self.in_backends.load(Relaxed),
            partial_pdus: self.partial_pdus.load(Relaxed),
            open_r2ts: self.open_r2ts.load(Relaxed),
            unfinished_sends: self.unfinished_sends.load(Relaxed),
        }
    }
}

impl MoveCounters {
    /// Counts the work in progress at the last move.
    pub(crate) fn note_work(&self, in_progress: InProgress) {
        add(&self.work.in_backends, in_progress.in_backends.min(1));
        add(&self.work.partial_pdus, in_progress.partial_pdus.min(1));
        add(&self.work.open_r2ts, in_progress.open_r2ts.min(1));
        add(&self.work.unfinished_sends, in_progress.unfinished_sends.min(1));
    }
}
