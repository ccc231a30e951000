//! Evaluation of a read: matching checksums, new checksums, bad blocks.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::super::control::{Background, Finding};
use super::super::sums::ranges::Mark;
use super::super::sums::tracker::Work;
use super::super::sums::{BLOCKS, RANGE, Sums, sums_of};
use super::{Job, Purpose, Scrubber, State};
use crate::IoError;

/// The differing blocks among `compared`, a bit each.
fn differing(old: &Sums, new: &Sums, compared: u16) -> u16 {
    let differs = |at: &usize| compared >> at & 1 == 1 && old[*at] != new[*at];
    (0..BLOCKS).filter(differs).fold(0, |blocks, at| blocks | 1 << at)
}

impl Scrubber {
    pub(super) fn on_read(&mut self, job: Job, result: Result<(), IoError>, shared: &Background) {
        let progress = &self.upkeep.progress;
        let bytes = self.bytes_of(job.range);
        progress.read_bytes.fetch_add(bytes, Relaxed);
        if let Err(error) = result {
            progress.read_errors.fetch_add(1, Relaxed);
            let lba = job.range * (RANGE / self.block_size);
            shared.report(&self.upkeep, Finding::ReadError { lba, error });
            return self.done(job);
        }
        let Some(new) = self.buffer.as_deref().map(|data| sums_of(&data[..bytes as usize])) else {
            return self.done(job);
        };
        match job.purpose {
            Purpose::Read => self.done(job),
            Purpose::Verify => self.verify(job, &new, shared),
            Purpose::Sum(written) => self.sum(job, written, new, shared),
        }
    }

    /// The known bad blocks of a range, a bit each.
    fn bad(&self, range: u64) -> u16 {
        let Some(tracker) = self.upkeep.tracker().filter(|tracker| !tracker.bad.is_empty()) else { return 0 };
        let first = range * BLOCKS as u64;
        (0..BLOCKS).filter(|at| tracker.bad.overlaps(first + *at as u64, 1)).fold(0, |blocks, at| blocks | 1 << at)
    }

    fn verify(&mut self, job: Job, new: &Sums, shared: &Background) {
        let (bad, differs) = (self.bad(job.range), job.old.map_or(0, |old| differing(&old, new, u16::MAX)));
        let (found, healed) = (differs & !bad, bad & !differs);
        let is_clean = self.upkeep.tracker().is_some_and(|tracker| tracker.ranges.mark(job.range) == Mark::Clean);
        if found | healed == 0 || !is_clean {
            return self.done(job); // writes in between explain differences
        }
        if found != 0 && !job.is_retry {
            return self.read_again(job);
        }
        // with `Marking`, a write waits for the mark and has not begun
        self.note_bad(job.range, (found, healed), [Mark::Clean, Mark::Marking], shared);
        self.done(job);
    }

    fn read_again(&mut self, job: Job) {
        let job = Job { is_retry: true, ..job };
        if !self.look_up(job) {
            self.done(job);
        }
    }

    /// Records newly bad blocks and bad ones that match again (a bit each), unless a write has changed the range's mark.
    fn note_bad(&self, range: u64, (found, healed): (u16, u16), marks: [Mark; 2], shared: &Background) {
        let Some(tracker) = self.upkeep.tracker().filter(|tracker| found | healed != 0 && tracker.ranges.hold(range))
        else {
            return;
        };
        let lbas = |blocks: u16| {
            let set = move |at: &u64| blocks >> at & 1 == 1;
            (0..BLOCKS as u64).filter(set).map(move |at| range * BLOCKS as u64 + at)
        };
        if marks.contains(&tracker.ranges.mark(range)) {
            lbas(healed).for_each(|lba| tracker.bad.clear(lba, 1));
            for lba in lbas(found) {
                tracker.bad.add(lba);
                self.upkeep.progress.mismatches.fetch_add(1, Relaxed);
                shared.report(&self.upkeep, Finding::Mismatch { lba });
            }
            let _ = tracker.submit(Work::KeepBad); // if the queue is full, the next commit stores them
        }
        tracker.ranges.release(range);
    }

    fn sum(&mut self, job: Job, written: u16, new: Sums, shared: &Background) {
        let bad = self.bad(job.range);
        let differs = job.old.map_or(0, |old| differing(&old, &new, !written & !bad));
        if differs != 0 && !job.is_retry {
            return self.read_again(job);
        }
        let is_quiet = self.upkeep.tracker().is_some_and(|tracker| tracker.ranges.begin_commit(job.range));
        if !is_quiet {
            return self.done(job); // written meanwhile: summed later
        }
        self.note_bad(job.range, (differs, 0), [Mark::Committing; 2], shared);
        let mut sums = new;
        for at in (0..BLOCKS).filter(|at| (bad | differs) >> at & 1 == 1) {
            // a bad block keeps the checksum that it does not match
            sums[at] = job.old.map_or(!new[at], |old| old[at]);
        }
        if self.batch.is_empty() {
            self.batch_ns = self.now_ns;
        }
        self.batch.push((job.range, sums));
        self.done(job);
    }

    /// Writes checksums after the flush. If the flush failed or the queue is full, the ranges are summed again.
    pub(super) fn commit(&mut self, flushed: Result<(), IoError>) {
        let Some(tracker) = self.upkeep.tracker().map(Arc::clone) else { return };
        let batch = std::mem::take(&mut self.batch);
        let refused = match flushed {
            Ok(()) => tracker.submit(Work::Commit(batch)).err(),
            Err(_) => Some(Work::Commit(batch)),
        };
        let Some(Work::Commit(mut batch)) = refused else {
            self.state = State::Committing;
            return;
        };
        for (range, _) in batch.drain(..) {
            let _ = tracker.ranges.end_commit(range, false);
        }
        self.batch = batch;
        self.end(self.now_ns.saturating_sub(self.work_ns));
    }
}
