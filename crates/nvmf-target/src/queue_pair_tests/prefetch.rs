//! Prefetch hints.

use std::sync::{Mutex, PoisonError};

use pilotlight_storage::{Completion, Request, Submitted};

use super::*;

/// A call of a channel, with the first block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    Prefetch(u64),
    Read(u64),
}

/// A channel that records its calls.
#[derive(Clone, Default)]
struct Recording(Arc<Mutex<Vec<Event>>>);

impl Recording {
    fn push(&self, event: Event) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(event);
    }

    fn take(&self) -> Vec<Event> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Channel for Recording {
    fn prefetch_read(&self, lba: u64, _blocks: u32) {
        self.push(Event::Prefetch(lba));
    }

    fn submit(&mut self, request: Request, _now_ns: u64) -> Submitted {
        self.push(Event::Read(request.lba));
        Submitted::Done(request.complete(Ok(())))
    }

    fn poll(&mut self, _now_ns: u64, _done: &mut Vec<Completion>) {}

    fn in_flight(&self) -> usize {
        0
    }
}

#[test]
fn hints_for_reads_of_a_poll_precede_the_reads() {
    let recording = Recording::default();
    let mut queues = Queues::with(Arc::new(ClonedChannel(recording.clone())), 8);
    queues.io.refill();
    for cid in 0..8 {
        let sqe = Sqe {
            sgl: Sgl::transport(BLOCK as u32),
            cid: U16::new(cid),
            ..Sqe::block_io(opcode::io::READ, 1, u64::from(cid), 1)
        };
        queues.io.on_command(&sqe, NO_DATA, &mut queues.thread.cx(IO)).expect("room");
    }
    assert_eq!(recording.take(), []);
    let pool = &mut queues.thread.memory.pool;
    let all: Vec<_> = std::iter::from_fn(|| pool.alloc(BLOCK)).collect();
    queues.io.set_budget(3);
    queues.io.run_waiting(&mut queues.thread.cx(IO));
    assert_eq!(recording.take(), [0, 1, 2].map(Event::Prefetch), "no buffer is left");
    all.into_iter().for_each(|buffer| queues.thread.memory.pool.free(buffer));
    queues.io.set_budget(4);
    queues.io.run_waiting(&mut queues.thread.cx(IO));
    let (mut events, mut reads) = (vec![Event::Prefetch(3)], [0, 1, 2, 3].map(Event::Read).to_vec());
    events.append(&mut reads);
    assert_eq!(recording.take(), events);
    queues.io.refill();
    queues.io.run_waiting(&mut queues.thread.cx(IO));
    assert_eq!(recording.take().len(), 8);
    while let Some(data) = queues.io.transport.sent.pop() {
        queues.mark_sent(data);
    }
}
