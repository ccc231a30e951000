//! A reactor with many I/O threads skips polls of I/O threads without work. These tests cover what makes a poll necessary.
//!
//! The bench verifies in every step of every test that a skipped poll would have had no work.

#[path = "waiting/host.rs"]
mod host;

use std::sync::Arc;

use host::{BLOCK, Host, MS, bench, capsule, memory};
use pilotlight_nvme::Sqe;
use pilotlight_nvme::command::Sgl;
use pilotlight_nvme::command::opcode::io as opcode;
use pilotlight_nvme::pdu::PduType;
use pilotlight_nvmf_target::testing::Bench;
use pilotlight_reactor::CompletionMode;
use pilotlight_storage::{Backend, DelayBackend, Delays};

fn command(opcode: u8, lba: u64, blocks: u32) -> Sqe {
    let mut sqe = Sqe::block_io(opcode, 1, lba, blocks);
    sqe.sgl = Sgl::transport(blocks * BLOCK);
    sqe
}

/// Polls until polls of an idle I/O thread are skipped.
fn settle(bench: &mut Bench) {
    (0..4).for_each(|_| _ = bench.step(1));
}

/// Whether a poll would be skipped now.
fn is_skipped(bench: &mut Bench) -> bool {
    !bench.is_readable() && !bench.needs_poll(0)
}

#[test]
fn an_idle_io_thread_is_polled_for_its_deadlines_only() {
    let mut bench = bench(&memory(), 4 << 20);
    let _hosts: Vec<_> = (0..10).map(|hostid| Host::both(&mut bench, hostid, false)).collect();
    settle(&mut bench);
    let polls = (0..1000).filter(|_| {
        bench.step(100_000);
        !is_skipped(&mut bench)
    });
    assert_eq!(polls.count(), 0);
    assert!(bench.needs_poll(10 * MS), "deadlines are checked every 10 ms");
}

#[test]
fn a_message_needs_a_poll() {
    let mut bench = bench(&memory(), 4 << 20);
    settle(&mut bench);
    assert!(is_skipped(&mut bench));
    bench.ring();
    assert!(bench.needs_poll(0));
    settle(&mut bench);
    assert!(is_skipped(&mut bench));
}

#[test]
fn a_readable_socket_makes_the_descriptor_readable() {
    let mut bench = bench(&memory(), 4 << 20);
    let (_admin, mut queue) = Host::both(&mut bench, 1, false);
    settle(&mut bench);
    assert!(is_skipped(&mut bench));
    queue.send(&capsule(1, command(opcode::READ, 0, 1), &[]));
    assert!(bench.is_readable() && !bench.needs_poll(0));
    assert_eq!(queue.pdu(&mut bench)[0], PduType::C2HData as u8);
    settle(&mut bench);
    assert!(is_skipped(&mut bench));
}

#[test]
fn a_request_in_a_backend_needs_polls_until_it_completes() {
    for mode in [CompletionMode::Poll, CompletionMode::Interrupt] {
        let delays = Delays { shortest_ns: 5 * MS, longest_ns: 5 * MS, seed: 1 };
        let backend: Arc<dyn Backend> = Arc::new(DelayBackend::new(memory(), delays));
        let mut bench = bench(&backend, 4 << 20);
        let (_admin, mut queue) = Host::both(&mut bench, 1, false);
        bench.set_completions(mode);
        queue.send(&capsule(1, command(opcode::READ, 0, 1), &[]));
        settle(&mut bench);
        while bench.usage().in_backends > 0 {
            assert!(bench.needs_poll(0), "{mode:?}");
            bench.step(100_000);
        }
        assert_eq!(queue.pdu(&mut bench)[0], PduType::C2HData as u8);
        settle(&mut bench);
        assert!(is_skipped(&mut bench), "{mode:?}");
    }
}

#[test]
fn a_request_of_a_lost_connection_needs_polls_too() {
    let delays = Delays { shortest_ns: 5 * MS, longest_ns: 5 * MS, seed: 1 };
    let backend: Arc<dyn Backend> = Arc::new(DelayBackend::new(memory(), delays));
    let mut bench = bench(&backend, 4 << 20);
    let (admin, mut queue) = Host::both(&mut bench, 1, false);
    queue.send(&capsule(1, command(opcode::READ, 0, 1), &[]));
    settle(&mut bench);
    drop((admin, queue));
    settle(&mut bench);
    assert_eq!(bench.usage().in_backends, 1);
    while bench.usage().in_backends > 0 {
        assert!(bench.needs_poll(0));
        bench.step(100_000);
    }
    settle(&mut bench);
    assert!(is_skipped(&mut bench));
}

#[test]
fn a_command_that_waits_for_memory_needs_polls() {
    let mut bench = bench(&memory(), 1 << 20);
    let mut stalling: Vec<_> = (0..4).map(|hostid| Host::both(&mut bench, hostid, false)).collect();
    for (_, host) in &mut stalling {
        (0..8).for_each(|cid| host.send(&capsule(cid, command(opcode::WRITE, u64::from(cid) * 32, 32), &[])));
    }
    bench.run(MS);
    let (_admin, mut queue) = Host::both(&mut bench, 9, false);
    queue.send(&capsule(1, command(opcode::WRITE, 0, 32), &[]));
    settle(&mut bench);
    assert!(bench.needs_poll(0));
}

#[test]
fn a_draining_thread_needs_polls() {
    let mut bench = bench(&memory(), 4 << 20);
    settle(&mut bench);
    bench.drain();
    assert!(bench.needs_poll(0));
    let mut polls = 0;
    while !bench.poll(1).finished {
        assert!(bench.needs_poll(0));
        polls += 1;
        assert!(polls < 100_000, "the drain ends");
    }
}
