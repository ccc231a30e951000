//! Fused Compare and Write.

mod sequences;

use std::sync::{Mutex, PoisonError};

use pilotlight_nvme::command::fuse;
use pilotlight_storage::{Completion, IoError, Op, Request, Submitted};

use super::*;

/// Where the data of a command is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    InCapsule,
    Fetched,
}

const PLACES: [Place; 2] = [Place::InCapsule, Place::Fetched];

impl Queues {
    /// Sends a command with a block of `byte`; returns the slot that fetches its data, if one does at once.
    fn send(&mut self, sqe: Sqe, cid: u16, (place, byte): (Place, u8)) {
        let sgl = if place == Place::InCapsule { Sgl::in_capsule(BLOCK as u32) } else { Sgl::transport(BLOCK as u32) };
        let sqe = Sqe { sgl, cid: U16::new(cid), ..sqe };
        let block = [byte; BLOCK];
        let data = if place == Place::InCapsule { InCapsule { bytes: &block, intact: true } } else { NO_DATA };
        self.io.refill();
        self.io.on_command(&sqe, data, &mut self.thread.cx(IO)).expect("room");
        self.io.run_waiting(&mut self.thread.cx(IO));
    }

    fn compare(&mut self, cid: u16, data: (Place, u8)) {
        self.send(half(opcode::io::COMPARE, fuse::FIRST, 0), cid, data);
    }

    fn write(&mut self, cid: u16, data: (Place, u8)) {
        self.send(half(opcode::io::WRITE, fuse::SECOND, 0), cid, data);
    }

    /// The slot that fetches the data of a command.
    fn fetching(&self, cid: u16) -> u16 {
        let fetches = self.io.transport.fetches.iter();
        fetches.rev().find(|fetch| fetch.1 == cid).expect("its data is being fetched").0
    }

    fn statuses(&mut self) -> Vec<(u16, Status)> {
        self.io.transport.responses.drain(..).map(|cqe| (cqe.cid.get(), cqe.status())).collect()
    }

    /// Delivers the completions of the backend.
    fn complete_requests(&mut self) {
        let mut done = Vec::with_capacity(4);
        self.thread.namespaces.channel(0).expect("a channel").poll(0, &mut done);
        done.into_iter().for_each(|completion| self.io.on_completion(completion, &mut self.thread.cx(IO)));
    }

    fn byte(&mut self) -> u8 {
        let content = self.content(1);
        assert!(content.iter().all(|&byte| byte == content[0]), "a torn block");
        content[0]
    }
}

fn half(opcode: u8, fused: u8, lba: u64) -> Sqe {
    let sqe = Sqe::block_io(opcode, 1, lba, 1);
    Sqe { flags: sqe.flags | fused, ..sqe }
}

const EQUAL: [(u16, Status); 2] = [(1, Status::SUCCESS), (2, Status::SUCCESS)];
const DIFFERENT: [(u16, Status); 2] = [(1, Status::COMPARE_FAILURE.dnr()), (2, Status::FAILED_FUSED)];

/// Wherever the data of each is, and in whichever order it arrives.
#[test]
fn the_write_takes_effect_if_the_blocks_are_equal() {
    for (first, second) in PLACES.iter().flat_map(|&first| PLACES.map(|second| (first, second))) {
        for write_arrives_first in [false, true] {
            let mut queues = Queues::new();
            for (compare, write, expected, content) in [(0, 7, EQUAL, 7), (0, 8, DIFFERENT, 7), (7, 9, EQUAL, 9)] {
                queues.compare(1, (first, compare));
                assert!(queues.io.transport.responses.is_empty() && !queues.io.has_waiting());
                assert!(queues.io.transport.fetches.is_empty(), "nothing is fetched before the second command");
                queues.write(2, (second, write));
                let mut data = [(1, first, compare), (2, second, write)];
                if write_arrives_first {
                    data.reverse();
                }
                for (cid, place, byte) in data {
                    if place == Place::Fetched {
                        assert!(queues.io.transport.responses.is_empty());
                        queues.deliver_data(queues.fetching(cid), byte, true);
                    }
                }
                assert_eq!(queues.statuses(), expected, "{first:?}, {second:?}");
                assert_eq!(queues.byte(), content);
                queues.io.transport.fetches.clear();
            }
        }
    }
}

#[test]
fn a_command_without_the_other_one_fails() {
    let mut queues = Queues::new();
    queues.write(2, (Place::InCapsule, 7));
    assert_eq!(queues.statuses(), [(2, Status::MISSING_FUSED)]);
    for place in PLACES {
        queues.compare(1, (place, 0));
        queues.flush(1, 3);
        assert_eq!(queues.statuses(), [(1, Status::MISSING_FUSED), (3, Status::SUCCESS)]);
        queues.compare(1, (place, 0));
        queues.compare(4, (place, 0));
        assert_eq!(queues.statuses(), [(1, Status::MISSING_FUSED)], "the other one waits");
        queues.write(2, (Place::InCapsule, 0));
        if place == Place::Fetched {
            queues.deliver_data(queues.fetching(4), 0, true);
        }
        assert_eq!(queues.statuses(), [(4, Status::SUCCESS), (2, Status::SUCCESS)]);
    }
    queues.send(half(opcode::io::WRITE, 3, 0), 2, (Place::InCapsule, 7));
    assert_eq!(queues.statuses(), [(2, Status::INVALID_FIELD.dnr())], "a reserved value");
    assert_eq!(queues.byte(), 0);
    queues.compare(1, (Place::InCapsule, 0));
}

/// Before and after the second command has arrived.
#[test]
fn an_abort_of_one_command_ends_the_other() {
    for (first, second) in PLACES.iter().flat_map(|&first| PLACES.map(|second| (first, second))) {
        let mut queues = Queues::new();
        queues.compare(1, (first, 0));
        assert!(queues.io.abort(1, &mut queues.thread.cx(IO)));
        queues.write(2, (second, 7));
        assert_eq!(queues.statuses(), [(1, Status::ABORT_REQUESTED), (2, Status::MISSING_FUSED)]);
        if (first, second) == (Place::InCapsule, Place::InCapsule) {
            continue; // it is executed at once
        }
        for aborted in [1, 2] {
            for one_arrives in [false, true] {
                queues.compare(1, (first, 0));
                queues.write(2, (second, 7));
                if one_arrives && (first, second) == (Place::Fetched, Place::Fetched) {
                    queues.deliver_data(queues.fetching(aborted), 0, true);
                }
                assert!(queues.io.abort(aborted, &mut queues.thread.cx(IO)));
                let status = |cid| if cid == aborted { Status::ABORT_REQUESTED } else { Status::FAILED_FUSED };
                assert_eq!(queues.statuses(), [(1, status(1)), (2, status(2))]);
                assert!(!queues.io.has_waiting());
            }
        }
        assert_eq!(queues.byte(), 0);
    }
}

#[test]
fn damaged_data_of_one_command_ends_both() {
    for damaged in [1, 2] {
        let mut queues = Queues::new();
        queues.compare(1, (Place::Fetched, 0));
        queues.write(2, (Place::Fetched, 7));
        queues.deliver_data(queues.fetching(3 - damaged), 0, true);
        queues.deliver_data(queues.fetching(damaged), 0, false);
        let status = |cid| if cid == damaged { Status::TRANSIENT_TRANSPORT } else { Status::FAILED_FUSED };
        assert_eq!(queues.statuses(), [(1, status(1)), (2, status(2))]);
        assert_eq!(queues.byte(), 0);
    }
}

#[test]
fn invalid_operations_change_nothing() {
    use opcode::io::{COMPARE, READ, WRITE};
    let mut queues = Queues::new();
    let invalid = Status::INVALID_FIELD.dnr();
    let two_blocks = |opcode, fused| {
        let sqe = Sqe::block_io(opcode, 1, 0, 2);
        Sqe { flags: sqe.flags | fused, ..sqe }
    };
    let beyond = |opcode, fused| half(opcode, fused, 16);
    let failed = Status::FAILED_FUSED;
    for (first, second, expected) in [
        (half(WRITE, 1, 0), half(COMPARE, 2, 0), [invalid, failed]),
        (half(COMPARE, 1, 0), half(READ, 2, 0), [failed, invalid]),
        (half(COMPARE, 1, 0), half(WRITE, 2, 1), [failed, invalid]),
        (half(COMPARE, 1, 0), two_blocks(WRITE, 2), [failed, invalid]),
        (two_blocks(COMPARE, 1), two_blocks(WRITE, 2), [invalid, failed]),
        (half(COMPARE, 1, 0), beyond(WRITE, 2), [failed, Status::LBA_OUT_OF_RANGE.dnr()]),
        (beyond(COMPARE, 1), beyond(WRITE, 2), [Status::LBA_OUT_OF_RANGE.dnr(), failed]),
        (half(COMPARE, 1, 0), Sqe { nsid: 2.into(), ..half(WRITE, 2, 0) }, [failed, invalid]),
        (half(COMPARE, 1, 0), Sqe { nsid: 3.into(), ..half(WRITE, 2, 0) }, [failed, Status::INVALID_NAMESPACE.dnr()]),
    ] {
        queues.send(first, 1, (Place::InCapsule, 0));
        queues.send(second, 2, (Place::InCapsule, 7));
        assert_eq!(queues.statuses(), [(1, expected[0]), (2, expected[1])]);
    }
    queues.send(half(COMPARE, 1, 0), 1, (Place::Fetched, 0));
    queues.send(half(WRITE, 2, 0), 1, (Place::Fetched, 0));
    assert_eq!(queues.statuses(), [(1, Status::CID_CONFLICT.dnr()), (1, failed)]);
    assert_eq!(queues.byte(), 0);
}

/// The block is on loan to a reader meanwhile, so that the backend is busy.
#[test]
fn an_operation_waits_for_a_reader() {
    for place in PLACES {
        let mut queues = Queues::new();
        queues.write_in_capsule(5, 3); // unwritten blocks are not on loan
        queues.statuses();
        let _ = queues.thread.namespaces.borrow(0, 0, 1).expect("it is lent");
        queues.compare(1, (place, 3));
        queues.write(2, (place, 4));
        if place == Place::Fetched {
            queues.deliver_data(queues.fetching(2), 4, true);
            queues.deliver_data(queues.fetching(1), 3, true);
        }
        assert!(queues.statuses().is_empty() && queues.io.has_waiting());
        queues.thread.namespaces.end_loans();
        queues.io.refill();
        queues.io.run_waiting(&mut queues.thread.cx(IO));
        assert_eq!(queues.statuses(), EQUAL);
        assert_eq!(queues.byte(), 4);
    }
}

/// Nothing of it is tried again, in the slots of later commands.
#[test]
fn an_aborted_operation_waits_no_longer() {
    for (aborted, is_busy) in [(1, false), (2, false), (1, true), (2, true)] {
        let mut queues = Queues::new();
        queues.write_in_capsule(5, 3);
        queues.statuses();
        let _ = queues.thread.namespaces.borrow(0, 0, 1).expect("it is lent");
        queues.io.transport.is_full = !is_busy;
        let place = if is_busy { Place::InCapsule } else { Place::Fetched };
        queues.compare(1, (place, 3));
        queues.write(2, (place, 4));
        assert!(queues.io.has_waiting());
        assert!(queues.io.abort(aborted, &mut queues.thread.cx(IO)));
        assert_eq!((queues.statuses().len(), queues.io.has_waiting()), (2, false));
        queues.io.transport.is_full = false;
        queues.thread.namespaces.end_loans();
        queues.compare(1, (Place::Fetched, 3));
        queues.flush(1, 6);
        assert_eq!(queues.statuses(), [(1, Status::MISSING_FUSED), (6, Status::SUCCESS)]);
        if !is_busy {
            assert_eq!(queues.byte(), 3); // otherwise the block is kept for the write for a while
        }
    }
}

/// A pair needs three blocks of memory; less is given to it as none.
#[test]
fn memory_is_taken_for_both_commands_or_for_none() {
    let mut queues = Queues::new();
    let pool = &mut queues.thread.memory.pool;
    let mut all: Vec<_> = std::iter::from_fn(|| pool.alloc(BLOCK)).collect();
    queues.compare(1, (Place::Fetched, 0));
    queues.write(2, (Place::Fetched, 7));
    while queues.io.transport.fetches.is_empty() {
        assert_eq!(queues.thread.memory.charged(), 0, "no buffer is held while another one is missing");
        queues.thread.memory.pool.free(all.pop().expect("less than the whole pool is enough"));
        queues.io.refill();
        queues.io.run_waiting(&mut queues.thread.cx(IO));
    }
    all.into_iter().for_each(|buffer| queues.thread.memory.pool.free(buffer));
    queues.deliver_data(queues.fetching(1), 0, true);
    queues.deliver_data(queues.fetching(2), 7, true);
    assert_eq!(queues.statuses(), EQUAL);
}

/// A channel that ends a request with a given result, later or at once.
#[derive(Clone, Default)]
struct Scripted(Arc<Mutex<Script>>);

#[derive(Default)]
struct Script {
    pending: Vec<Request>,
    at_once: Option<Result<(), IoError>>,
    later: Option<Result<(), IoError>>,
}

impl Scripted {
    fn script(&self) -> std::sync::MutexGuard<'_, Script> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Channel for Scripted {
    fn submit(&mut self, request: Request, _now_ns: u64) -> Submitted {
        let mut script = self.script();
        let Some(result) = script.at_once else {
            script.pending.push(request);
            return Submitted::Pending;
        };
        Submitted::Done(Completion { tag: request.tag, result, buffer: request.buffer })
    }

    fn poll(&mut self, _now_ns: u64, done: &mut Vec<Completion>) {
        let mut script = self.script();
        let Some(result) = script.later else { return };
        let completions = script.pending.drain(..);
        done.extend(completions.map(|Request { tag, buffer, .. }| Completion { tag, result, buffer }));
    }

    fn in_flight(&self) -> usize {
        self.script().pending.len()
    }
}

/// A failure of the write leaves the comparison successful.
#[test]
fn failures_of_the_backend_are_of_the_command_that_failed() {
    let failed = Status::FAILED_FUSED;
    for (error, expected) in [
        (IoError::Miscompare, [Status::COMPARE_FAILURE.dnr(), failed]),
        (IoError::UnreadMedium(5), [Status::UNRECOVERED_READ, failed]),
        (IoError::Checksum, [Status::UNRECOVERED_READ, failed]),
        (IoError::OutOfRange, [Status::LBA_OUT_OF_RANGE.dnr(), failed]),
        (IoError::Medium(5), [Status::SUCCESS, Status::WRITE_FAULT]),
        (IoError::NoSpace, [Status::SUCCESS, Status::CAPACITY_EXCEEDED.dnr()]),
    ] {
        for at_once in [false, true] {
            let backend = Scripted::default();
            let mut queues = Queues::with(Arc::new(ClonedChannel(backend.clone())), 8);
            if at_once {
                backend.script().at_once = Some(Err(error));
            }
            queues.compare(1, (Place::InCapsule, 3));
            queues.write(2, (Place::InCapsule, 4));
            if !at_once {
                let request = &backend.script().pending[0];
                assert_eq!((request.op, request.lba, request.blocks), (Op::CompareAndWrite { fua: false }, 0, 1));
                let buffer = request.buffer.as_deref().expect("a buffer");
                assert!(buffer[..BLOCK].iter().all(|&byte| byte == 3), "what to compare with");
                assert!(buffer[BLOCK..2 * BLOCK].iter().all(|&byte| byte == 4), "what to write");
            }
            backend.script().later = Some(Err(error));
            queues.complete_requests();
            assert_eq!(queues.statuses(), [(1, expected[0]), (2, expected[1])], "{error:?}");
        }
    }
}

#[test]
fn a_request_in_the_backend_outlives_its_queue() {
    for is_lost in [false, true] {
        let backend = Scripted::default();
        let mut queues = Queues::with(Arc::new(ClonedChannel(backend.clone())), 8);
        queues.compare(1, (Place::InCapsule, 3));
        queues.write(2, (Place::InCapsule, 4));
        for cid in [1, 2] {
            assert!(!queues.io.abort(cid, &mut queues.thread.cx(IO)), "in the backend");
        }
        let storage = queues.thread.namespaces.lease(0).expect("a lease").storage();
        let in_backend = queues.io.preempt(&storage, &mut queues.thread.cx(IO));
        assert_eq!(in_backend.len(), 1, "one request");
        if is_lost {
            queues.io.lost(&mut queues.thread.cx(IO));
        }
        assert!(queues.io.is_in_backend() && queues.statuses().is_empty());
        backend.script().later = Some(Ok(()));
        queues.complete_requests();
        assert!(!queues.io.is_in_backend());
        assert_eq!(queues.statuses(), if is_lost { &[][..] } else { &EQUAL[..] });
    }
}

/// Wherever its data is: a host that preempts waits for no data of the preempted one.
#[test]
fn an_operation_that_is_in_no_backend_is_preempted() {
    for arrived in [&[][..], &[1], &[2]] {
        let mut queues = Queues::new();
        queues.compare(1, (Place::Fetched, 0));
        queues.write(2, (Place::Fetched, 7));
        for &cid in arrived {
            queues.deliver_data(queues.fetching(cid), 0, true);
        }
        let storage = queues.thread.namespaces.lease(0).expect("a lease").storage();
        assert_eq!(queues.io.preempt(&storage, &mut queues.thread.cx(IO)), []);
        assert_eq!(queues.statuses(), [(1, Status::FAILED_FUSED), (2, Status::PREEMPTED)], "{arrived:?}");
        assert_eq!(queues.byte(), 0);
    }
}
