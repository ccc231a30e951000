//! `src/wait`, made of `loom`: arming is a snapshot of the word, waiting is blocking until it differs.

use crate::sync::{AtomicU64, Ordering, Step, leaves_out};

#[derive(Clone, Copy, Debug)]
pub enum Monitor {
    Model,
}

pub(crate) struct Armed<'a> {
    word: &'a AtomicU64,
    snapshot: Option<u64>,
}

impl Monitor {
    pub(crate) fn arm(self, word: &AtomicU64) -> Armed<'_> {
        Armed { word, snapshot: (!leaves_out(Step::Arm)).then(|| word.load(Ordering::Relaxed)) }
    }
}

impl Armed<'_> {
    /// Waits for a store after the arming; if there was none, for a store after now.
    pub(crate) fn wait(self, _unchanged: u64, _until_ns: u64) {
        let snapshot = self.snapshot.unwrap_or_else(|| self.word.load(Ordering::Relaxed));
        self.word.wait_until_changed_from(snapshot);
    }
}
