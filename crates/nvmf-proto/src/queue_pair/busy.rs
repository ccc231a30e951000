//! Commands that wait behind those of a busy namespace.
//!
//! Waiting commands are retried in order, so the first one whose backend is busy would delay commands of other namespaces. If there is one,
//! a second pass leaves the commands of up to four busy namespaces where they are and retries the others. Commands of one
//! namespace keep their order: otherwise small overlapping writes would delay a large one for as long as they arrive.
//!
//! Apart from the first pass, because that one is on the path of every command: in one loop a lone 4 KiB read took 73 instructions more (3,176, not 3,103).

use std::collections::VecDeque;

use super::io::{Step, needs_memory};
use super::slots::State;
use super::{Cx, Queue, QueuePair, Transport};
use crate::services::Services;

/// Maximum commands of busy namespaces that are left in a list, so that the work is bounded. 128 is Linux's default queue size.
const MAX_LEFT: usize = 128;

/// Progress in a list of waiting commands.
struct Scan<S: Services> {
    list: fn(&mut Queue<S>) -> &mut VecDeque<u16>,
    /// Commands not retried yet.
    left: usize,
    /// The place of the next one: behind those left in the list.
    at: usize,
    /// Namespaces that are busy.
    busy: [Option<u32>; 4],
}

impl<S: Services> Scan<S> {
    fn new(queue: &mut Queue<S>, list: fn(&mut Queue<S>) -> &mut VecDeque<u16>) -> Self {
        Self { list, left: list(queue).len(), at: 0, busy: [None; 4] }
    }

    /// Records a busy namespace. Returns `false` if there are too many.
    fn note_busy(&mut self, nsid: u32) -> bool {
        let free = self.busy.iter_mut().find(|busy| busy.is_none());
        free.map(|free| *free = Some(nsid)).is_some()
    }

    /// Leaves the next command in the list; ends after [`MAX_LEFT`].
    fn pass_over(&mut self) {
        self.at += 1;
        self.left = if self.at > MAX_LEFT { 0 } else { self.left - 1 };
    }

    /// Takes the next command that is not of a busy namespace.
    fn take(&mut self, queue: &mut Queue<S>) -> Option<u16> {
        while self.left > 0 {
            let index = *(self.list)(queue).get(self.at)?;
            if !self.busy.contains(&Some(queue.slots.get(index).nsid)) {
                return (self.list)(queue).remove(self.at);
            }
            self.pass_over();
        }
        None
    }
}

impl<T: Transport, S: Services> QueuePair<T, S> {
    /// Retries waiting commands of namespaces that are not busy.
    #[cold]
    pub(super) fn retry_behind_busy(&mut self, cx: &mut Cx<S>) {
        let Some(queue) = &mut self.queue else { return };
        let mut scans = [Scan::new(queue, |queue| &mut queue.ready), Scan::new(queue, |queue| &mut queue.waiting)];
        while self.budget > 0 && scans.iter().any(|scan| scan.left > 0) {
            scans.iter_mut().for_each(|scan| self.retry_next(scan, cx));
        }
    }

    fn retry_next(&mut self, scan: &mut Scan<S>, cx: &mut Cx<S>) {
        let queue = self.queue.as_mut().filter(|_| self.budget > 0);
        let Some(index) = queue.and_then(|queue| scan.take(queue)) else {
            scan.left = 0;
            return;
        };
        let step = self.step(index, cx);
        self.budget -= u32::from(matches!(step, Step::Handled | Step::Yield));
        match step {
            Step::Handled => scan.left -= 1,
            Step::Yield => {
                scan.left -= 1;
                self.make_wait(index, false);
            }
            Step::Blocked | Step::Busy => self.put_back(index, step, scan),
        }
    }

    /// Returns a command to its place.
    fn put_back(&mut self, index: u16, step: Step, scan: &mut Scan<S>) {
        let Some(queue) = &mut self.queue else { return };
        let slot = queue.slots.get(index);
        slot.state = State::Waiting;
        let (nsid, needs_memory) = (slot.nsid, needs_memory(slot));
        let list = if needs_memory { &mut queue.waiting } else { &mut queue.ready };
        list.insert(scan.at.min(list.len()), index);
        if step == Step::Busy && scan.note_busy(nsid) {
            scan.pass_over();
        } else {
            scan.left = 0;
        }
    }
}
