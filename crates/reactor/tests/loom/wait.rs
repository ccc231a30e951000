//! `src/wait`, based on `loom`: arming takes a snapshot of the word, waiting blocks until it differs.

use crate::sync::{AtomicU64, Ordering, Step, leaves_out};

#[derive(Clone, Copy, Debug)]
pub enum Monitor {
    /// x86: armed, then checked by the caller, then waited for.
    Model,
    /// Arm: armed by the load that is checked, within the wait (`ldaxr`, `cmp`, `wfe`).
    Exclusive,
}

pub(crate) struct Armed<'a> {
    how: Monitor,
    word: &'a AtomicU64,
    snapshot: Option<u64>,
}

impl Monitor {
    pub(crate) fn arm(self, word: &AtomicU64) -> Armed<'_> {
        let arms = matches!(self, Self::Model) && !leaves_out(Step::Arm);
        Armed { how: self, word, snapshot: arms.then(|| word.load(Ordering::Relaxed)) }
    }
}

impl Armed<'_> {
    /// Waits for a store after the arming; if not armed, for a store after now.
    pub(crate) fn wait(self, unchanged: u64, _until_ns: u64) {
        let snapshot = match self.how {
            Monitor::Model => self.snapshot,
            Monitor::Exclusive => {
                let now = self.word.load(Ordering::Acquire);
                if now != unchanged && !leaves_out(Step::Recheck) {
                    return;
                }
                (!leaves_out(Step::Arm)).then_some(now)
            }
        };
        let snapshot = snapshot.unwrap_or_else(|| self.word.load(Ordering::Relaxed));
        self.word.wait_until_changed_from(snapshot);
    }
}
