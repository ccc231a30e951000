//! Effect of a bandwidth cap on commands: which are delayed, which pass, and which charges are returned, in simulated time.

#[path = "waiting/host.rs"]
mod host;

use host::{BLOCK, Host, MS, bench, capsule, memory};
use pilotlight_nvme::command::opcode::{admin, io as opcode};
use pilotlight_nvme::command::{Sgl, fuse};
use pilotlight_nvme::pdu::{C2HData, PduType, R2T};
use pilotlight_nvme::{Sqe, Status};
use pilotlight_nvmf_target::testing::Bench;
use zerocopy::FromBytes;

const S: u64 = 1_000 * MS;
/// The largest request, 128 KiB, takes 131 ms.
const CAP: u64 = 1_000_000;
const LARGEST: u64 = 128 << 10;

fn command(op: u8, lba: u64, blocks: u32) -> Sqe {
    let mut sqe = Sqe::block_io(op, 1, lba, blocks);
    sqe.sgl = Sgl::transport(blocks * BLOCK);
    sqe
}

/// A capped namespace and the queues of a host, after one large read (CID 100) has overdrawn the budget.
fn overspent() -> (Bench, Host, Host) {
    let mut bench = bench(&memory(), 4 << 20);
    let (admin, mut queue) = Host::both(&mut bench, 1, false);
    bench.set_cap(Some(CAP));
    bench.run(S);
    read(&mut bench, &mut queue, 100, 32);
    (bench, admin, queue)
}

/// Completes a read.
fn read(bench: &mut Bench, queue: &mut Host, cid: u16, blocks: u32) {
    queue.send(&capsule(cid, command(opcode::READ, 0, blocks), &[]));
    assert_eq!(received(bench, queue), cid);
}

/// The CID of the next data PDU.
fn received(bench: &mut Bench, queue: &mut Host) -> u16 {
    let pdu = queue.pdu(bench);
    assert_eq!(pdu[0], PduType::C2HData as u8);
    C2HData::read_from_prefix(&pdu).expect("data").0.cccid.get()
}

#[test]
fn a_read_waits_for_its_budget_and_its_latency_begins_afterwards() {
    let (mut bench, _admin, mut queue) = overspent();
    let latency = bench.latency();
    queue.send(&capsule(1, command(opcode::READ, 0, 1), &[]));
    assert_eq!(queue.pdu_within(&mut bench, 100 * MS), None);
    assert_eq!((bench.cap().throttled_now, bench.cap().throttled), (1, 0));
    assert_eq!(received(&mut bench, &mut queue), 1);
    let cap = bench.cap();
    assert_eq!((cap.throttled_now, cap.throttled, cap.bytes), (0, 1, LARGEST + u64::from(BLOCK)));
    assert!((100 * MS..140 * MS).contains(&cap.wait_ns), "{} ns", cap.wait_ns);
    assert!(bench.cap_waits().max_ns() >= 100 * MS);
    let own = bench.latency().since(&latency);
    assert!(own.count() == 1 && own.max_ns() < MS, "{own:?}: the delay is not included");
}

#[test]
fn a_write_waits_before_its_data_is_requested() {
    let (mut bench, _admin, mut queue) = overspent();
    queue.send(&capsule(1, command(opcode::WRITE, 0, 4), &[]));
    assert_eq!(queue.pdu_within(&mut bench, 100 * MS), None, "no R2T");
    assert_eq!(bench.usage().buffers, 0, "and no buffer for it");
    queue.send_r2t_data(&mut bench);
    queue.completion(&mut bench);
}

#[test]
fn in_capsule_data_of_a_throttled_write_is_written_later() {
    let (mut bench, _admin, mut queue) = overspent();
    let mut sqe = command(opcode::WRITE, 7, 1);
    sqe.sgl = Sgl::in_capsule(BLOCK);
    queue.send(&capsule(1, sqe, &[0x5a; BLOCK as usize]));
    assert_eq!(queue.pdu_within(&mut bench, 100 * MS), None);
    queue.completion(&mut bench);
    queue.send(&capsule(2, command(opcode::READ, 7, 1), &[]));
    let pdu = queue.pdu(&mut bench);
    assert!(pdu.ends_with(&[0x5a; BLOCK as usize]), "the in-capsule data");
}

#[test]
fn flush_and_admin_commands_are_not_throttled() {
    let (mut bench, mut admin_queue, mut queue) = overspent();
    queue.send(&capsule(1, command(opcode::READ, 0, 1), &[]));
    queue.send(&capsule(2, Sqe::new(opcode::FLUSH, 1), &[]));
    let flushed = queue.completion(&mut bench);
    assert_eq!((flushed.cid.get(), bench.cap().throttled_now), (2, 1));
    admin_queue.send(&capsule(3, Sqe::new(admin::KEEP_ALIVE, 0), &[]));
    admin_queue.completion(&mut bench);
    assert_eq!(bench.cap().throttled_now, 1);
    assert_eq!(received(&mut bench, &mut queue), 1);
}

/// Aborts command `cid` of queue 1.
fn abort(bench: &mut Bench, admin_queue: &mut Host, cid: u16) {
    admin_queue.send(&capsule(9, Sqe::new(admin::ABORT, 0).with_cdw(10, u32::from(cid) << 16 | 1), &[]));
    assert_eq!(admin_queue.completion(bench).result.get(), 0, "the command is aborted");
}

#[test]
fn an_aborted_command_returns_its_unused_budget() {
    let (mut bench, mut admin_queue, mut queue) = overspent();
    bench.run(200 * MS); // refills the budget
    queue.send(&capsule(1, command(opcode::WRITE, 0, 32), &[]));
    let pdu = queue.pdu(&mut bench);
    assert_eq!(pdu[0], PduType::R2T as u8, "it has been charged");
    let (r2t, _) = R2T::read_from_prefix(&pdu).expect("an R2T");
    assert_eq!(r2t.cccid.get(), 1);
    abort(&mut bench, &mut admin_queue, 1);
    assert_eq!(queue.response(&mut bench).status(), Status::ABORT_REQUESTED);
    let before = bench.now_ns();
    read(&mut bench, &mut queue, 2, 32);
    assert!(bench.now_ns() - before < MS, "a second command does not wait");
    assert_eq!((bench.cap().throttled, bench.cap().bytes), (0, 2 * LARGEST));
}

#[test]
fn an_aborted_throttled_command_is_removed() {
    let (mut bench, mut admin_queue, mut queue) = overspent();
    queue.send(&capsule(1, command(opcode::READ, 0, 32), &[]));
    queue.send(&capsule(2, command(opcode::READ, 0, 1), &[]));
    bench.run(MS);
    assert_eq!(bench.cap().throttled_now, 2);
    abort(&mut bench, &mut admin_queue, 1);
    assert_eq!(queue.response(&mut bench).status(), Status::ABORT_REQUESTED);
    assert_eq!(received(&mut bench, &mut queue), 2);
    assert_eq!((bench.cap().throttled_now, bench.cap().throttled), (0, 1));
}

/// Both commands wait for the budget of the write; an abort of either removes both.
#[test]
fn a_fused_operation_is_throttled_as_one_write() {
    let (mut bench, mut admin_queue, mut queue) = overspent();
    let half = |op, fused| Sqe { flags: command(op, 0, 1).flags | fused, ..command(op, 0, 1) };
    for aborted in [1, 2] {
        queue.send(&capsule(1, half(opcode::COMPARE, fuse::FIRST), &[]));
        queue.send(&capsule(2, half(opcode::WRITE, fuse::SECOND), &[]));
        bench.run(MS);
        assert_eq!((bench.cap().throttled_now, bench.usage().buffers), (1, 0));
        if aborted == 2 {
            assert_eq!(queue.pdu_within(&mut bench, 100 * MS), None, "no R2T");
        }
        abort(&mut bench, &mut admin_queue, aborted);
        let statuses = [queue.response(&mut bench).status(), queue.response(&mut bench).status()];
        let mut expected = [Status::FAILED_FUSED; 2];
        expected[usize::from(aborted) - 1] = Status::ABORT_REQUESTED;
        assert_eq!((statuses, bench.cap().throttled_now), (expected, 0));
    }
    let before = bench.cap().bytes;
    queue.send(&capsule(1, half(opcode::COMPARE, fuse::FIRST), &[]));
    queue.send(&capsule(2, half(opcode::WRITE, fuse::SECOND), &[]));
    (0..2).for_each(|_| queue.send_r2t_data(&mut bench));
    let statuses = [queue.response(&mut bench).status(), queue.response(&mut bench).status()];
    assert_eq!(
        statuses,
        [Status::COMPARE_FAILURE.dnr(), Status::FAILED_FUSED],
        "the host sends other data than zeroes"
    );
    assert_eq!(bench.cap().bytes - before, u64::from(BLOCK));
}

#[test]
fn a_lost_connection_returns_the_unused_budget_of_its_commands() {
    let (mut bench, _admin, queue) = overspent();
    bench.run(200 * MS);
    let (_other_admin, mut other) = Host::both(&mut bench, 2, false);
    let mut lost = queue;
    lost.send(&capsule(1, command(opcode::WRITE, 0, 32), &[]));
    assert_eq!(lost.pdu(&mut bench)[0], PduType::R2T as u8, "it has been charged");
    lost.send(&capsule(2, command(opcode::READ, 0, 1), &[]));
    bench.run(MS);
    assert_eq!(bench.cap().throttled_now, 1);
    drop(lost);
    bench.run(MS);
    assert_eq!((bench.cap().throttled_now, bench.cap().bytes), (0, LARGEST));
    let before = bench.now_ns();
    read(&mut bench, &mut other, 3, 32);
    assert!(bench.now_ns() - before < 10 * MS, "{} ns", bench.now_ns() - before);
}

#[test]
fn removing_or_raising_a_cap_releases_throttled_commands() {
    for lifted in [None, Some(1_000_000_000)] {
        let (mut bench, _admin, mut queue) = overspent();
        for cid in 0..8 {
            queue.send(&capsule(cid, command(opcode::READ, 0, 32), &[]));
        }
        bench.run(10 * MS);
        assert_eq!(bench.cap().throttled_now, 8);
        bench.set_cap(lifted);
        let before = bench.now_ns();
        for _ in 0..8 {
            received(&mut bench, &mut queue);
        }
        assert!(bench.now_ns() - before < 10 * MS, "{lifted:?}: {} ns", bench.now_ns() - before);
    }
}

#[test]
fn the_cap_of_a_host_does_not_affect_other_hosts() {
    let mut bench = bench(&memory(), 4 << 20);
    let (_admin, mut capped) = Host::both(&mut bench, 1, false);
    let (_other_admin, mut other) = Host::both(&mut bench, 2, false);
    bench.set_host_cap("nqn.2026-01.test:1", Some(CAP));
    bench.run(S);
    read(&mut bench, &mut capped, 1, 32);
    capped.send(&capsule(2, command(opcode::READ, 0, 32), &[]));
    assert_eq!(capped.pdu_within(&mut bench, 100 * MS), None);
    let before = bench.now_ns();
    read(&mut bench, &mut other, 1, 32);
    assert!(bench.now_ns() - before < MS);
    assert_eq!(received(&mut bench, &mut capped), 2);
}

/// A thread with only throttled commands waits until one is due. The bench checks each step.
#[test]
fn a_thread_waits_in_the_kernel_while_all_commands_are_throttled() {
    let (mut bench, _admin, mut queue) = overspent();
    (0..4).for_each(|cid| queue.send(&capsule(cid, command(opcode::READ, 0, 32), &[])));
    bench.run(MS);
    let polls = bench.run(50 * MS);
    assert!(polls <= 60, "{polls} polls in 50 ms");
    assert!(bench.asleep().is_some());
    for cid in 0..4 {
        assert_eq!(received(&mut bench, &mut queue), cid, "in order");
    }
}

#[test]
fn a_stopping_server_completes_throttled_commands_at_once() {
    let (mut bench, _admin, mut queue) = overspent();
    (0..8).for_each(|cid| queue.send(&capsule(cid, command(opcode::READ, 0, 32), &[])));
    bench.run(MS);
    bench.drain();
    let (before, peer) = (bench.now_ns(), queue.into_peer());
    let (mut bytes, mut chunk) = (0, vec![0; 1 << 20]);
    while let Some(more) = peer.receive(&mut chunk) {
        bytes += more as u64;
        bench.run(MS / 10);
        assert!(bench.now_ns() - before < 100 * MS, "{bytes} bytes");
    }
    assert!(bytes > 8 * LARGEST, "{bytes} bytes, then the connection is closed");
}
