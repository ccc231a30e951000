//! Associations ended by the operator: none of their data is written afterwards, and other hosts are not disturbed.

mod host_support;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use host_support::{NQN, target};
use pilotlight_host::{Buffers, ConnectOptions, Connection, Controller, HostError, QueueSpec};
use pilotlight_nvme::Sqe;
use pilotlight_nvme::command::opcode::io as opcode;
use pilotlight_nvmf_target::backend::{Backend, Channel, Completion, Geometry, Op, Request, Submitted};

const BLOCK: usize = 4096;
const TIMEOUT: Duration = Duration::from_secs(60);

/// Holds writes while it is shut.
#[derive(Clone)]
struct Holding {
    inner: Arc<dyn Backend>,
    is_shut: Arc<AtomicBool>,
    taken: Arc<AtomicUsize>,
}

struct HoldingChannel {
    inner: Box<dyn Channel>,
    of: Holding,
    held: Vec<Request>,
}

impl Backend for Holding {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }
    fn allocated_bytes(&self) -> io::Result<u64> {
        self.inner.allocated_bytes()
    }
    fn open_channel(&self, depth: u32) -> io::Result<Box<dyn Channel>> {
        let inner = self.inner.open_channel(depth)?;
        Ok(Box::new(HoldingChannel { inner, of: self.clone(), held: Vec::new() }))
    }
    fn resize(&self, blocks: Option<u64>) -> io::Result<Geometry> {
        self.inner.resize(blocks)
    }
}

impl Channel for HoldingChannel {
    fn submit(&mut self, request: Request, now_ns: u64) -> Submitted {
        if !matches!(request.op, Op::Write { .. }) {
            return self.inner.submit(request, now_ns);
        }
        self.of.taken.fetch_add(1, SeqCst);
        self.held.push(request);
        Submitted::Pending
    }
    fn poll(&mut self, now_ns: u64, done: &mut Vec<Completion>) {
        if self.of.is_shut.load(SeqCst) {
            return;
        }
        for request in self.held.drain(..) {
            match self.inner.submit(request, now_ns) {
                Submitted::Done(completion) => done.push(completion),
                other => panic!("memory completes at once, got {other:?}"),
            }
        }
    }
    fn in_flight(&self) -> usize {
        self.held.len() + self.inner.in_flight()
    }
}

fn queue(controller: &Controller, qid: u16) -> Connection {
    let spec = QueueSpec { qid, depth: 16, max_io: BLOCK as u32, buffers: Buffers::PerCommand };
    controller.open_queue(&spec).expect("an I/O queue")
}

fn read(connection: &mut Connection, lba: u64) -> u8 {
    let mut data = vec![0; BLOCK];
    connection.execute("read", Sqe::block_io(opcode::READ, 1, lba, 1), &[], &mut data).expect("a read");
    data[0]
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !holds() {
        assert!(Instant::now() < deadline, "timed out after {TIMEOUT:?}: {what}");
        std::thread::yield_now();
    }
}

fn is_closed(connection: &mut Connection) -> bool {
    loop {
        match connection.take_completion(1000) {
            Ok(_) => {}
            Err(error) => break matches!(error, HostError::Closed(_) | HostError::Io { .. }),
        }
    }
}

#[test]
fn a_disconnect_waits_for_writes_in_the_backend_and_does_not_disturb_others() {
    for reactors in [1, 2] {
        let (is_shut, taken) = (Arc::new(AtomicBool::new(false)), Arc::<AtomicUsize>::default());
        let (shut, count) = (Arc::clone(&is_shut), Arc::clone(&taken));
        let target = target(reactors, 64, BLOCK as u32, move |inner| {
            Arc::new(Holding { inner, is_shut: Arc::clone(&shut), taken: Arc::clone(&count) }) as Arc<dyn Backend>
        });
        let options = target.options();
        let other = ConnectOptions { hostid: [9; 16], hostnqn: "nqn.2026-01.test:other".into(), ..target.options() };
        let (first, another) = (Controller::connect(options.clone()).unwrap(), Controller::connect(other).unwrap());
        let (mut io, mut io_2, mut of_other) = (queue(&first, 1), queue(&first, 2), queue(&another, 1));
        let associations = target.server.associations();
        let of_first = associations.iter().find(|one| one.hostnqn == options.hostnqn).expect("listed");
        assert_eq!((associations.len(), of_first.io_queues, of_first.nqn.as_deref()), (2, 2, Some(NQN)));
        assert!(!of_first.io_threads.is_empty() && of_first.peer.ip().is_loopback());
        is_shut.store(true, SeqCst);
        io.submit(Sqe::block_io(opcode::WRITE, 1, 7, 1), &[0x11; BLOCK], 0).expect("submitted");
        until("the write is in the backend", || taken.load(SeqCst) == 1);
        std::thread::scope(|scope| {
            let draining = target.server.disconnect(&options.hostnqn, Some(NQN)).expect("a subsystem");
            let ended = scope.spawn(move || draining.wait(Instant::now() + TIMEOUT));
            assert!(is_closed(&mut io) && is_closed(&mut io_2), "its queues are closed");
            assert!(!ended.is_finished(), "its write is still in flight");
            is_shut.store(false, SeqCst);
            let ended = ended.join().expect("no panic");
            assert_eq!((ended.associations.len(), ended.undrained), (1, 0));
        });
        assert_eq!(target.server.associations().len(), 1);
        assert_eq!(read(&mut of_other, 7), 0x11, "the write in the backend completed");
        let back = Controller::connect(options).expect("it may connect again");
        drop((first, io, io_2, back, another, of_other));
        target.stop();
    }
}

/// A change of the allowed hosts does not wait for a backend, so that its caller does not hold locks for long.
#[test]
fn access_is_revoked_at_once_and_waiting_for_writes_is_separate() {
    let (is_shut, taken) = (Arc::new(AtomicBool::new(true)), Arc::<AtomicUsize>::default());
    let (shut, count) = (Arc::clone(&is_shut), Arc::clone(&taken));
    let target = target(2, 64, BLOCK as u32, move |inner| {
        Arc::new(Holding { inner, is_shut: Arc::clone(&shut), taken: Arc::clone(&count) }) as Arc<dyn Backend>
    });
    let other = ConnectOptions { hostid: [9; 16], hostnqn: "nqn.2026-01.test:other".into(), ..target.options() };
    let controller = Controller::connect(target.options()).expect("a controller");
    let mut io = queue(&controller, 1);
    io.submit(Sqe::block_io(opcode::WRITE, 1, 7, 1), &[0x11; BLOCK], 0).expect("submitted");
    until("the write is in the backend", || taken.load(SeqCst) == 1);
    let draining = target.server.set_allowed_hosts(NQN, std::slice::from_ref(&other.hostnqn)).expect("changed");
    assert!(is_closed(&mut io), "its queue is closed");
    assert_eq!(draining.associations().len(), 1);
    assert_eq!(draining.wait(Instant::now()).undrained, 1, "its write is still in flight");
    target.server.set_allowed_hosts(NQN, &[]).expect("another change succeeds meanwhile");
    is_shut.store(false, SeqCst);
    assert_eq!(draining.wait(Instant::now() + TIMEOUT).undrained, 0);
    let other = Controller::connect(other).expect("a controller");
    let mut of_other = queue(&other, 1);
    assert_eq!(read(&mut of_other, 7), 0x11, "the write in the backend completed");
    drop((controller, io, other, of_other));
    target.stop();
}

/// Commands that have not reached a backend are aborted and not executed later.
#[test]
fn nothing_is_written_after_a_disconnect() {
    let target = target(2, 64, BLOCK as u32, |memory| memory);
    let mut marks = 0;
    for round in 0..50_u8 {
        let controller = Controller::connect(target.options()).expect("a controller");
        let mut io: Vec<Connection> = (1..=4).map(|qid| queue(&controller, qid)).collect();
        for (lba, connection) in (0..).zip(&mut io) {
            for _ in 0..8 {
                let _ = connection.submit(Sqe::block_io(opcode::WRITE, 1, lba, 1), &[round + 1; BLOCK], 0);
            }
        }
        let draining = target.server.disconnect(&target.options().hostnqn, None).expect("no subsystem is named");
        let ended = draining.wait(Instant::now() + TIMEOUT);
        assert_eq!(ended.undrained, 0);
        let reader = ConnectOptions { hostid: [9; 16], hostnqn: "nqn.2026-01.test:reader".into(), ..target.options() };
        let reader = Controller::connect(reader).expect("a reader");
        let mut of_reader = queue(&reader, 1);
        let seen: Vec<u8> = (0..4).map(|lba| read(&mut of_reader, lba)).collect();
        for _ in 0..20 {
            assert_eq!((0..4).map(|lba| read(&mut of_reader, lba)).collect::<Vec<_>>(), seen, "written afterwards");
        }
        marks += usize::from(seen.contains(&(round + 1)));
        drop((controller, io));
    }
    println!("{marks} of 50 rounds had a write before the disconnect");
    target.stop();
}
