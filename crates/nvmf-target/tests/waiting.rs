//! An I/O thread that waits in the kernel wakes up for every event, and only for events.
//!
//! `Bench::run` polls the thread only when its descriptor is readable or its timer has expired, in simulated time. The bench
//! verifies in every step that a waiting thread has no work; `corpus.rs` does so with random scripts.

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
use pilotlight_reactor::CompletionMode;
use pilotlight_storage::{Backend, Channel, Completion, DelayBackend, Delays, Geometry, Request, Submitted};

const S: u64 = 1_000 * MS;

fn read(blocks: u32) -> Sqe {
    let mut sqe = Sqe::block_io(opcode::READ, 1, 0, blocks);
    sqe.sgl = Sgl::transport(blocks * BLOCK);
    sqe
}

/// A write with an R2T.
fn write(lba: u64, blocks: u32) -> Sqe {
    let mut sqe = Sqe::block_io(opcode::WRITE, 1, lba, blocks);
    sqe.sgl = Sgl::transport(blocks * BLOCK);
    sqe
}

#[test]
fn an_idle_thread_waits_without_a_timer_and_a_message_wakes_it() {
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
fn a_message_ends_every_wait() {
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
fn idle_hosts_cause_no_polls_and_are_served_at_once() {
    let mut bench = bench(&memory(), 4 << 20);
    let mut hosts: Vec<_> = (0..10).map(|hostid| Host::both(&mut bench, hostid, false)).collect();
    assert_eq!(bench.run(3600 * S), 0, "no host has work");
    for (_, queue) in &mut hosts {
        queue.send(&capsule(3, read(1), &[]));
        assert!(bench.is_readable());
        assert_eq!(queue.pdu(&mut bench)[0], PduType::C2HData as u8);
    }
}

#[test]
fn a_silent_host_is_disconnected_on_time() {
    const KATO_MS: u32 = 1000;
    let mut bench = bench(&memory(), 4 << 20);
    let (mut active, _) = Host::admin(&mut bench, 1, KATO_MS);
    let (silent, _) = Host::admin(&mut bench, 2, KATO_MS);
    let (since_ns, mut disconnected_ns, mut polls) = (bench.now_ns(), None, 0);
    for step in 0..1000 {
        if step % 80 == 0 {
            active.send(&capsule(9, Sqe::new(admin::KEEP_ALIVE, 0), &[]));
            active.completion(&mut bench);
        }
        polls += bench.run(10 * MS);
        if bench.associations() < 2 {
            disconnected_ns = disconnected_ns.or(Some(bench.now_ns() - since_ns));
        }
    }
    // The limit is 1.25 timeouts, and it is checked every quarter of a timeout.
    assert!(disconnected_ns.is_some_and(|ns| (1240 * MS..1520 * MS).contains(&ns)), "after {disconnected_ns:?} ns");
    assert_eq!(bench.associations(), 1, "a host with Keep Alive remains connected");
    assert!(silent.is_closed());
    assert!(polls <= 60, "{polls} polls in ten seconds for two hosts");
}

#[test]
fn a_silent_connection_is_closed_on_time() {
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
        assert!(received > 0, "the rest is sent as the host receives, after {got} bytes");
        got += received;
        bench.run(MS);
    }
}

/// The first hosts use all memory and send no data. Another one needs memory too.
#[test]
fn waiting_commands_get_memory_when_it_is_freed_or_after_a_timeout() {
    for responds in [true, false] {
        let mut bench = bench(&memory(), 1 << 20);
        let mut stalling: Vec<_> = (0..4).map(|hostid| Host::both(&mut bench, hostid, false)).collect();
        for (_, host) in &mut stalling {
            (0..8).for_each(|cid| host.send(&capsule(cid, write(u64::from(cid) * 32, 32), &[])));
        }
        bench.run(MS);
        let (_admin, mut queue) = Host::both(&mut bench, 9, false);
        queue.send(&capsule(1, write(0, 32), &[]));
        assert_eq!(queue.pdu_within(&mut bench, 100 * MS), None, "no memory is left");
        let polls = bench.run(S);
        assert!(polls < 100, "{polls} polls in a second for a command that waits for memory");
        if responds {
            let (_, host) = &mut stalling[0];
            host.send_r2t_data(&mut bench);
            host.send_r2t_data(&mut bench);
        } else {
            bench.run(1200 * MS); // the timeout of all hosts expires
        }
        queue.send_r2t_data(&mut bench);
        queue.completion(&mut bench);
    }
}

/// Rejects requests as busy while `busy` is set.
struct Busy {
    inner: Arc<dyn Backend>,
    busy: Arc<AtomicBool>,
}

struct BusyChannel {
    inner: Box<dyn Channel>,
    busy: Arc<AtomicBool>,
}

impl Backend for Busy {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }
    fn allocated_bytes(&self) -> io::Result<u64> {
        self.inner.allocated_bytes()
    }
    fn open_channel(&self, depth: u32) -> io::Result<Box<dyn Channel>> {
        Ok(Box::new(BusyChannel { inner: self.inner.open_channel(depth)?, busy: Arc::clone(&self.busy) }))
    }
    fn resize(&self, blocks: Option<u64>) -> io::Result<Geometry> {
        self.inner.resize(blocks)
    }
}

impl Channel for BusyChannel {
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
fn requests_to_a_busy_backend_are_retried_soon() {
    let busy = Arc::new(AtomicBool::new(true));
    let backend: Arc<dyn Backend> = Arc::new(Busy { inner: memory(), busy: Arc::clone(&busy) });
    let mut bench = bench(&backend, 4 << 20);
    let (_admin, mut queue) = Host::both(&mut bench, 1, false);
    queue.send(&capsule(1, read(1), &[]));
    let polls = bench.run(100 * MS);
    assert!((1000..10_000).contains(&polls), "{polls} polls in 100 ms");
    busy.store(false, SeqCst);
    assert!(queue.pdu_within(&mut bench, MS / 10).is_some());
    assert_eq!(bench.run(S), 0);
}

#[test]
fn completions_are_polled_or_waited_for_as_configured() {
    let delays = Delays { shortest_ns: 5 * MS, longest_ns: 6 * MS, seed: 1 };
    let backend: Arc<dyn Backend> = Arc::new(DelayBackend::new(memory(), delays));
    let mut bench = bench(&backend, 4 << 20);
    let (_admin, mut queue) = Host::both(&mut bench, 1, false);
    for (mode, cid) in [(CompletionMode::Interrupt, 1), (CompletionMode::Poll, 2), (CompletionMode::Interrupt, 3)] {
        bench.set_completions(mode);
        queue.send(&capsule(cid, read(1), &[]));
        let polls = bench.run(4 * MS);
        let waited = bench.asleep().is_some_and(|limit_ns| limit_ns > bench.now_ns());
        assert_eq!(waited, mode == CompletionMode::Interrupt, "{mode:?}: {:?}", bench.asleep());
        assert_eq!(polls < 10, mode == CompletionMode::Interrupt, "{mode:?}: {polls} polls");
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
fn latency_lasts_from_the_poll_that_reads_a_command_to_the_one_that_responds() {
    let delays = Delays { shortest_ns: 5 * MS, longest_ns: 5 * MS, seed: 1 };
    let backend: Arc<dyn Backend> = Arc::new(DelayBackend::new(memory(), delays));
    let mut bench = bench(&backend, 4 << 20);
    let (_admin, mut queue) = Host::both(&mut bench, 1, false);
    assert_eq!(bench.latency().count(), 0, "only reads and writes count");
    for cid in 0..20 {
        queue.send(&capsule(cid, read(1), &[]));
        queue.pdu(&mut bench);
    }
    let latency = bench.latency();
    assert_eq!(latency.count(), 20);
    let (shortest, longest) = (latency.percentile_ns(0.0), latency.max_ns());
    // A request that completes at once is delayed before its response; a delayed one completes afterwards.
    assert!(shortest >= 5 * MS && longest < 12 * MS, "{latency:?}");
}

#[test]
fn latency_includes_the_time_until_a_slow_host_receives_the_data() {
    let mut bench = bench(&memory(), 4 << 20);
    let (_admin, mut queue) = Host::both(&mut bench, 1, true);
    queue.send(&capsule(3, read(32), &[]));
    bench.run(70 * MS);
    assert_eq!(bench.latency().count(), 0, "it is not sent yet");
    while queue.receive(1 << 20) > 0 {
        bench.run(MS);
    }
    let latency = bench.latency();
    assert!(latency.count() == 1 && latency.max_ns() > 70 * MS, "{latency:?}");
}
