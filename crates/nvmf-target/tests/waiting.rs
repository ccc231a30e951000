//! An I/O thread that waits in the kernel misses nothing, and is not woken for nothing.
//!
//! Everything here runs through `Bench::run`, which polls the thread only when its descriptor is readable or its time is
//! over; time is handed in. That nothing was to be done whenever the thread waited is checked by the bench in every step,
//! with scripts at random in `corpus.rs`.

#[path = "waiting/host.rs"]
mod host;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use host::{BLOCK, Host, MS, bench, capsule, memory};
use pilotlight_nvme::Sqe;
use pilotlight_nvme::command::Sgl;
use pilotlight_nvme::command::opcode::{admin, io as opcode};
use pilotlight_nvme::pdu::PduType;
use pilotlight_nvmf_target::backend::{
    Backend, Channel, Completion, DelayBackend, Delays, Geometry, Request, Submitted,
};
use pilotlight_reactor::CompletionMode;

const S: u64 = 1_000 * MS;

fn read(blocks: u32) -> Sqe {
    let mut sqe = Sqe::block_io(opcode::READ, 1, 0, blocks);
    sqe.sgl = Sgl::transport(blocks * BLOCK);
    sqe
}

/// A write whose data the target asks for.
fn write(lba: u64, blocks: u32) -> Sqe {
    let mut sqe = Sqe::block_io(opcode::WRITE, 1, lba, blocks);
    sqe.sgl = Sgl::transport(blocks * BLOCK);
    sqe
}

#[test]
fn a_thread_with_nothing_to_do_waits_for_ever_and_a_message_wakes_it() {
    let mut bench = bench(&memory(), 4 << 20);
    bench.run(MS);
    assert_eq!((bench.asleep(), bench.is_readable()), (Some(u64::MAX), false));
    assert_eq!(bench.run(3600 * S), 0);
    bench.ring();
    assert!(bench.is_readable());
    assert!(bench.run(MS) > 0);
    assert_eq!((bench.asleep(), bench.is_readable()), (Some(u64::MAX), false));
}

#[test]
fn a_message_ends_every_wait_and_not_only_the_first() {
    let mut bench = bench(&memory(), 4 << 20);
    for _ in 0..100 {
        bench.run(MS);
        assert!(bench.asleep().is_some() && !bench.is_readable());
        bench.ring();
        bench.ring();
        assert!(bench.is_readable());
    }
}

#[test]
fn hosts_without_work_cost_nothing_and_are_served_at_once() {
    let mut bench = bench(&memory(), 4 << 20);
    let mut hosts: Vec<_> = (0..10).map(|hostid| Host::both(&mut bench, hostid, false)).collect();
    assert_eq!(bench.run(3600 * S), 0, "nobody has anything to do");
    for (_, queue) in &mut hosts {
        queue.send(&capsule(3, read(1), &[]));
        assert!(bench.is_readable());
        assert_eq!(queue.pdu(&mut bench)[0], PduType::C2HData as u8);
    }
}

#[test]
fn a_silent_host_is_expelled_on_time() {
    const KATO_MS: u32 = 1000;
    let mut bench = bench(&memory(), 4 << 20);
    let (mut talker, _) = Host::admin(&mut bench, 1, KATO_MS);
    let (silent, _) = Host::admin(&mut bench, 2, KATO_MS);
    let (since_ns, mut expelled_ns, mut polls) = (bench.now_ns(), None, 0);
    for step in 0..1000 {
        if step % 80 == 0 {
            talker.send(&capsule(9, Sqe::new(admin::KEEP_ALIVE, 0), &[]));
            talker.completion(&mut bench);
        }
        polls += bench.run(10 * MS);
        if bench.associations() < 2 {
            expelled_ns = expelled_ns.or(Some(bench.now_ns() - since_ns));
        }
    }
    // One and a quarter timeouts are allowed, and the silence is noticed within the next quarter.
    assert!(expelled_ns.is_some_and(|ns| (1240 * MS..1520 * MS).contains(&ns)), "after {expelled_ns:?} ns");
    assert_eq!(bench.associations(), 1, "who keeps alive is left alone");
    assert!(silent.is_closed());
    assert!(polls <= 60, "{polls} polls in ten seconds for two hosts");
}

#[test]
fn a_connection_that_says_nothing_is_closed_on_time() {
    let mut bench = bench(&memory(), 4 << 20);
    let peer = bench.connect(false).expect("a connection");
    bench.run(4990 * MS);
    assert_eq!(peer.receive(&mut [0; 8]), Some(0));
    let polls = bench.run(30 * MS);
    assert_eq!(peer.receive(&mut [0; 8]), None);
    assert!(polls <= 3, "{polls}");
}

#[test]
fn an_unfinished_send_waits_for_the_socket() {
    let mut bench = bench(&memory(), 4 << 20);
    let (_admin, mut queue) = Host::both(&mut bench, 1, true);
    queue.send(&capsule(3, read(32), &[]));
    bench.run(MS);
    let mut got = 0;
    while got < 24 + 32 * BLOCK as usize {
        assert_eq!((bench.asleep(), bench.is_readable()), (Some(u64::MAX), false), "after {got} bytes");
        assert_eq!(bench.run(60 * S), 0);
        let most = 1 << 20;
        let received = queue.receive(most);
        assert!(received > 0, "the rest comes as the host reads, after {got} bytes");
        got += received;
        bench.run(MS);
    }
}

/// The first host has asked for as much as it gets and sends nothing of it; a second one needs memory too.
#[test]
fn what_waits_for_memory_gets_it_when_there_is_some_or_when_patience_ends() {
    for answers in [true, false] {
        let mut bench = bench(&memory(), 1 << 20);
        let mut hogs: Vec<_> = (0..4).map(|hostid| Host::both(&mut bench, hostid, false)).collect();
        for (_, hog) in &mut hogs {
            (0..8).for_each(|cid| hog.send(&capsule(cid, write(u64::from(cid) * 32, 32), &[])));
        }
        bench.run(MS);
        let (_admin, mut queue) = Host::both(&mut bench, 9, false);
        queue.send(&capsule(1, write(0, 32), &[]));
        assert_eq!(queue.pdu_within(&mut bench, 100 * MS), None, "there is no memory for one more");
        let polls = bench.run(S);
        assert!(polls < 100, "{polls} polls in a second for a command that waits for memory");
        if answers {
            let (_, hog) = &mut hogs[0];
            hog.answer_r2t(&mut bench);
            hog.answer_r2t(&mut bench);
        } else {
            bench.run(1200 * MS); // all hosts have been patient
        }
        queue.answer_r2t(&mut bench);
        queue.completion(&mut bench);
    }
}

/// Turns every request away while told to.
struct Picky {
    inner: Arc<dyn Backend>,
    busy: Arc<AtomicBool>,
}

struct PickyChannel {
    inner: Box<dyn Channel>,
    busy: Arc<AtomicBool>,
}

impl Backend for Picky {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }
    fn allocated_bytes(&self) -> io::Result<u64> {
        self.inner.allocated_bytes()
    }
    fn open_channel(&self, depth: u32) -> io::Result<Box<dyn Channel>> {
        Ok(Box::new(PickyChannel { inner: self.inner.open_channel(depth)?, busy: Arc::clone(&self.busy) }))
    }
    fn resize(&self, blocks: Option<u64>) -> io::Result<Geometry> {
        self.inner.resize(blocks)
    }
}

impl Channel for PickyChannel {
    fn submit(&mut self, request: Request, now_ns: u64) -> Submitted {
        if self.busy.load(SeqCst) { Submitted::Busy(request) } else { self.inner.submit(request, now_ns) }
    }
    fn poll(&mut self, now_ns: u64, done: &mut Vec<Completion>) {
        self.inner.poll(now_ns, done);
    }
    fn in_flight(&self) -> usize {
        self.inner.in_flight()
    }
}

#[test]
fn what_a_backend_was_too_busy_for_is_tried_again_soon() {
    let busy = Arc::new(AtomicBool::new(true));
    let backend: Arc<dyn Backend> = Arc::new(Picky { inner: memory(), busy: Arc::clone(&busy) });
    let mut bench = bench(&backend, 4 << 20);
    let (_admin, mut queue) = Host::both(&mut bench, 1, false);
    queue.send(&capsule(1, read(1), &[]));
    let polls = bench.run(100 * MS);
    assert!((1000..10_000).contains(&polls), "{polls} polls in 100 ms: not at once, and not late");
    busy.store(false, SeqCst);
    assert!(queue.pdu_within(&mut bench, MS / 10).is_some());
    assert_eq!(bench.run(S), 0);
}

#[test]
fn requests_in_flight_are_waited_for_or_polled_for_as_the_reactor_says() {
    let delays = Delays { shortest_ns: 5 * MS, longest_ns: 6 * MS, seed: 1 };
    let backend: Arc<dyn Backend> = Arc::new(DelayBackend::new(memory(), delays));
    let mut bench = bench(&backend, 4 << 20);
    let (_admin, mut queue) = Host::both(&mut bench, 1, false);
    for (how, cid) in [(CompletionMode::Interrupt, 1), (CompletionMode::Poll, 2), (CompletionMode::Interrupt, 3)] {
        bench.set_completions(how);
        queue.send(&capsule(cid, read(1), &[]));
        let polls = bench.run(4 * MS);
        let waited = bench.asleep().is_some_and(|limit_ns| limit_ns > bench.now_ns());
        assert_eq!(waited, how == CompletionMode::Interrupt, "{how:?}: {:?}", bench.asleep());
        assert_eq!(polls < 10, how == CompletionMode::Interrupt, "{how:?}: {polls} polls");
        assert_eq!(queue.pdu(&mut bench)[0], PduType::C2HData as u8);
    }
}

#[test]
fn only_commands_on_io_queues_are_load() {
    let mut bench = bench(&memory(), 4 << 20);
    let (mut admin, mut queue) = Host::both(&mut bench, 1, false);
    admin.send(&capsule(9, Sqe::new(admin::KEEP_ALIVE, 0), &[]));
    let polled = bench.poll(MS);
    assert!(polled.busy && polled.requests == 0, "{polled:?}");
    (0..5).for_each(|cid| queue.send(&capsule(cid, read(1), &[])));
    assert_eq!(bench.poll(MS).requests, 5);
    assert_eq!(bench.poll(MS).requests, 0);
}

#[test]
fn latency_is_from_the_poll_that_reads_a_command_to_the_one_that_answers_it() {
    let delays = Delays { shortest_ns: 5 * MS, longest_ns: 5 * MS, seed: 1 };
    let backend: Arc<dyn Backend> = Arc::new(DelayBackend::new(memory(), delays));
    let mut bench = bench(&backend, 4 << 20);
    let (_admin, mut queue) = Host::both(&mut bench, 1, false);
    assert_eq!(bench.latency().count(), 0, "what is no read and no write does not count");
    for cid in 0..20 {
        queue.send(&capsule(cid, read(1), &[]));
        queue.pdu(&mut bench);
    }
    let latency = bench.latency();
    assert_eq!(latency.count(), 20);
    let (shortest, longest) = (latency.percentile_ns(0.0), latency.max_ns());
    // A request that is done at once has its answer held back; one that was held back is done at its end.
    assert!(shortest >= 5 * MS && longest < 12 * MS, "{latency:?}");
}

#[test]
fn the_time_until_a_slow_host_takes_its_answer_counts() {
    let mut bench = bench(&memory(), 4 << 20);
    let (_admin, mut queue) = Host::both(&mut bench, 1, true);
    queue.send(&capsule(3, read(32), &[]));
    bench.run(70 * MS);
    assert_eq!(bench.latency().count(), 0, "it is not out yet");
    while queue.receive(1 << 20) > 0 {
        bench.run(MS);
    }
    let latency = bench.latency();
    assert!(latency.count() == 1 && latency.max_ns() > 70 * MS, "{latency:?}");
}
