//! Reservations between our own host and the target, over sockets.

#[path = "reservations/cluster.rs"]
mod cluster;
#[path = "host_support/mod.rs"]
mod host_support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use cluster::{
    ACQUIRE, CLEAR, CONFLICT, Gate, Member, PREEMPT, PREEMPT_AND_ABORT, REGISTER, RELEASE, Records, UNREGISTER,
    block_commands, gated, server, status_of,
};
use host_support::servers::eventually;
use host_support::{NQN, target};
use pilotlight_host::ConnectOptions;
use pilotlight_nvme::command::opcode::{admin, io};
use pilotlight_nvme::feature::fid;
use pilotlight_nvme::{Sqe, Status};
use pilotlight_storage::Backend;

/// Who may do what, by type: read and write of a host without registration, then of a registrant.
const RIGHTS: [(u8, [bool; 4]); 6] = [
    (1, [true, false, true, false]),
    (2, [false, false, false, false]),
    (3, [true, false, true, true]),
    (4, [false, false, true, true]),
    (5, [true, false, true, true]),
    (6, [false, false, true, true]),
];

fn plain(memory: Arc<dyn Backend>) -> Arc<dyn Backend> {
    memory
}

#[test]
fn each_type_has_the_rights_of_the_specification() {
    let target = target(2, 64, 4096, plain);
    let [mut holder, mut registrant, mut other] = [1, 2, 3].map(|number| Member::join(target.options(), number));
    for (kind, rights) in RIGHTS {
        holder.register(REGISTER, 0, 0xa1).expect("registered");
        registrant.register(REGISTER, 0, 0xb2).expect("registered");
        holder.acquire(ACQUIRE, kind, 0xa1, 0).expect("acquired");
        holder.acquire(ACQUIRE, kind, 0xa1, 0).expect("acquired again");
        let again = registrant.acquire(ACQUIRE, kind, 0xb2, 0);
        assert_eq!(again.is_ok(), kind > 4, "type {kind}: all registrants are holders");
        for (is_write, sqe, data) in block_commands() {
            for (member, at, name) in
                [(&mut holder, 4, "holder"), (&mut other, 0, "other"), (&mut registrant, 2, "registrant")]
            {
                let may = rights.get(at + usize::from(is_write)).is_none_or(|may| *may);
                let expected = if may { Status::SUCCESS } else { CONFLICT };
                assert_eq!(
                    member.run(sqe, &data),
                    expected,
                    "type {kind}, {name}, opcode {:#x}, nsid {:#x}",
                    sqe.opcode,
                    sqe.nsid
                );
            }
        }
        holder.release(CLEAR, 0, 0xa1).expect("cleared");
        for (_, sqe, data) in block_commands() {
            assert_eq!(other.run(sqe, &data), Status::SUCCESS, "without a reservation");
        }
    }
    target.stop();
}

#[test]
fn a_report_has_an_entry_for_each_controller() {
    let target = target(1, 64, 4096, plain);
    let [mut one, mut other] = [1, 2].map(|number| Member::join(target.options(), number));
    let second = Member::join(target.options(), 1);
    one.register(REGISTER, 0, 0x0807_0605_0403_0201).expect("registered");
    other.register(REGISTER, 0, 0xb2).expect("registered");
    one.acquire(ACQUIRE, 3, 0x0807_0605_0403_0201, 0).expect("acquired");
    let expected = |entries: &[(u16, u8, [u8; 8], u8)], generation: u8| {
        let mut bytes = vec![0; 64];
        (bytes[0], bytes[4], bytes[5]) = (generation, 3, entries.len() as u8);
        for (cntlid, status, key, host) in entries {
            let mut entry = [0; 64];
            entry[..2].copy_from_slice(&cntlid.to_le_bytes());
            entry[2] = *status;
            entry[8..16].copy_from_slice(key);
            entry[16..32].copy_from_slice(&[*host; 16]);
            bytes.extend(entry);
        }
        bytes.resize(1024, 0);
        bytes
    };
    let (first, key) = (one.controller.cntlid(), [1, 2, 3, 4, 5, 6, 7, 8]);
    let mut ids = [first, second.controller.cntlid()];
    ids.sort_unstable();
    let own = ids.map(|id| (id, 1, key, 1));
    let others = (other.controller.cntlid(), 0, [0xb2, 0, 0, 0, 0, 0, 0, 0], 2);
    assert_eq!(one.report(1024), expected(&[own[0], own[1], others], 2));
    assert_eq!(one.report(68), expected(&[own[0], own[1], others], 2)[..68], "truncated to NUMD");
    drop(second);
    drop(other);
    let gone = (0xffff, 0, others.2, 2);
    eventually("the controllers are gone", || one.report(1024) == expected(&[(first, 1, key, 1), gone], 2));
    target.stop();
}

#[test]
fn hosts_are_notified_by_event_and_log_page() {
    let target = target(2, 64, 4096, plain);
    let [mut one, mut other] = [1, 2].map(|number| Member::join(target.options(), number));
    let event = other.controller.admin().submit(Sqe::new(admin::ASYNC_EVENT_REQUEST, 0), &[], 0).expect("sent");
    one.register(REGISTER, 0, 1).expect("registered");
    other.register(REGISTER, 0, 2).expect("registered");
    one.acquire(ACQUIRE, 5, 1, 0).expect("acquired");
    one.release(RELEASE, 5, 1).expect("released");
    let completed = other.controller.admin().wait(event, "an event", &mut []).expect("an event");
    assert_eq!((completed.status, completed.result as u32), (Status::SUCCESS, 0x0080_0006));
    assert_eq!(other.notification(), (1, 2, 0, 1), "Reservation Released");
    one.acquire(PREEMPT, 1, 1, 2).expect("preempted");
    eventually("a notification", || other.peek() == (2, 1, 0, 1));
    assert_eq!(other.notification(), (2, 1, 0, 1), "Registration Preempted");
    other.register(REGISTER, 0, 2).expect("registered again");
    other.controller.set_feature(fid::RESERVATION_MASK.into(), 1, 1 << 3).expect("masked");
    assert_eq!(other.controller.feature(fid::RESERVATION_MASK.into(), 1).expect("the mask"), 1 << 3);
    one.release(CLEAR, 0, 1).expect("cleared");
    one.register(REGISTER, 0, 1).expect("registered");
    other.register(REGISTER, 0, 2).expect("registered");
    other.controller.set_feature(fid::RESERVATION_MASK.into(), u32::MAX, 0).expect("unmasked");
    one.release(CLEAR, 0, 1).expect("cleared");
    eventually("a notification", || other.peek() == (3, 3, 0, 1));
    assert_eq!(other.notification(), (3, 3, 0, 1), "Reservation Preempted, once");
    assert_eq!(one.notification(), (0, 0, 0, 0), "who sends the command is not told");
    target.stop();
}

/// A write of the preempted host is in the backend: Acquire completes after it. Another that has not reached it is aborted.
#[test]
fn preempt_and_abort_outlasts_writes_in_the_backend() {
    let gate = Arc::new(Gate::default());
    let target = gated(&gate);
    let [mut one, mut other] = [1, 2].map(|number| Member::join(target.options(), number));
    one.register(REGISTER, 0, 1).expect("registered");
    other.register(REGISTER, 0, 2).expect("registered");
    other.acquire(ACQUIRE, 1, 2, 0).expect("acquired");
    gate.close();
    let held = other.write(7, 0xbb);
    eventually("a write in the backend", || gate.waiting() == 1);
    let acquire = one.start_acquire(PREEMPT_AND_ABORT, 1, 1, 2);
    eventually("the new rights", || other.run(Sqe::new(io::FLUSH, 1), &[]) == CONFLICT);
    assert!(one.queue.take_completion(100).expect("connected").is_none(), "the write has not ended");
    gate.open();
    let acquired = one.queue.wait(acquire, "Acquire", &mut []).expect("an answer");
    assert_eq!((acquired.status, gate.waiting()), (Status::SUCCESS, 0));
    assert_eq!(other.queue.wait(held, "the write", &mut []).expect("an answer").status, Status::SUCCESS);
    assert_eq!(one.read(7), 0xbb, "it has landed before");
    assert_eq!(status_of(one.finish_write(7)), Status::SUCCESS);
    assert_eq!(status_of(other.finish_write(7)), CONFLICT, "nothing of it lands after");
    target.stop();
}

/// The preempted host's connection is lost while its write is in the backend.
#[test]
fn preempt_and_abort_outlasts_writes_of_lost_queues() {
    for lost_first in [false, true] {
        let gate = Arc::new(Gate::default());
        let target = gated(&gate);
        let [mut one, mut other] = [1, 2].map(|number| Member::join(target.options(), number));
        one.register(REGISTER, 0, 1).expect("registered");
        other.register(REGISTER, 0, 2).expect("registered");
        gate.close();
        other.write(7, 0xbb);
        eventually("a write in the backend", || gate.waiting() == 1);
        let mut other = Some(other);
        if lost_first {
            other = None;
            std::thread::sleep(Duration::from_millis(50)); // the target notices
        }
        let acquire = one.start_acquire(PREEMPT_AND_ABORT, 1, 1, 2);
        drop(other);
        assert!(one.queue.take_completion(100).expect("connected").is_none(), "the write has not ended: {lost_first}");
        gate.open();
        assert_eq!(one.queue.wait(acquire, "Acquire", &mut []).expect("an answer").status, Status::SUCCESS);
        assert_eq!(one.read(7), 0xbb, "it has landed before");
        target.stop();
    }
}

#[test]
fn the_host_identifier_of_another_host_has_no_rights() {
    let target = target(1, 64, 4096, plain);
    let mut one = Member::join(target.options(), 1);
    one.register(REGISTER, 0, 1).expect("registered");
    one.acquire(ACQUIRE, 4, 1, 0).expect("acquired");
    let mut thief = Member::join_as(ConnectOptions {
        hostnqn: "nqn.2026-01.test:thief".to_owned(),
        ..Member::options(target.options(), 1)
    });
    assert_eq!(status_of(thief.register(REGISTER, 0, 1)), CONFLICT);
    assert_eq!(status_of(thief.release(CLEAR, 0, 1)), CONFLICT);
    for (_, sqe, data) in block_commands() {
        assert_eq!(thief.run(sqe, &data), CONFLICT);
    }
    assert_eq!(one.read(0), 0);
    target.stop();
}

#[test]
fn a_state_with_ptpl_outlives_the_server() {
    let records = Arc::new(Records::default());
    for (persists, cptpl) in [(false, 0), (true, 3 << 30)] {
        let first = server(Some(&records));
        let mut one = Member::join(ConnectOptions::new(first.local_addrs()[0], NQN), 1);
        assert_eq!(one.controller.identify(0, 1).expect("a namespace")[31], 0xff, "PTPL is supported");
        one.register(REGISTER | cptpl, 0, 1).expect("registered");
        one.acquire(ACQUIRE, 1, 1, 0).expect("acquired");
        assert_eq!(one.controller.feature(fid::RESERVATION_PERSISTENCE.into(), 1).expect("PTPL"), u32::from(persists));
        assert_eq!(one.report(128)[9], u8::from(persists), "PTPLS");
        drop(one);
        first.stop(Duration::from_secs(10)).expect("stopped");
        let second = server(Some(&records));
        let mut other = Member::join(ConnectOptions::new(second.local_addrs()[0], NQN), 2);
        assert_eq!(status_of(other.finish_write(0)), if persists { CONFLICT } else { Status::SUCCESS });
        assert_eq!(other.report(128)[4..6], if persists { [1, 1] } else { [0, 0] });
        drop(other);
        second.stop(Duration::from_secs(10)).expect("stopped");
    }
    // Set Features ends it
    let third = server(Some(&records));
    let mut one = Member::join(ConnectOptions::new(third.local_addrs()[0], NQN), 1);
    one.controller.set_feature(fid::RESERVATION_PERSISTENCE.into(), u32::MAX, 0).expect("cleared");
    assert_eq!(records.len(), 0);
    assert_eq!(one.report(128)[4], 1, "the reservation stays until the server ends");
    one.controller.set_feature(fid::RESERVATION_PERSISTENCE.into(), 1, 1).expect("set");
    assert_eq!(records.len(), 1);
    drop(one);
    third.stop(Duration::from_secs(10)).expect("stopped");
}

#[test]
fn a_command_that_cannot_be_recorded_fails_and_changes_nothing() {
    let records = Arc::new(Records::default());
    let server = server(Some(&records));
    let mut one = Member::join(ConnectOptions::new(server.local_addrs()[0], NQN), 1);
    one.register(REGISTER | 3 << 30, 0, 1).expect("registered");
    let before = one.report(128);
    records.fail(true);
    assert_eq!(status_of(one.acquire(ACQUIRE, 1, 1, 0)).code(), Status::INTERNAL);
    assert_eq!(status_of(one.register(UNREGISTER, 1, 0)).code(), Status::INTERNAL);
    assert_eq!(one.report(128), before);
    records.fail(false);
    one.acquire(ACQUIRE, 1, 1, 0).expect("acquired");
    drop(one);
    server.stop(Duration::from_secs(10)).expect("stopped");
}

#[test]
fn a_namespace_that_is_added_again_keeps_its_reservation_with_ptpl() {
    for (persists, cptpl) in [(false, 0), (true, 3 << 30)] {
        let records = Arc::new(Records::default());
        let server = server(Some(&records));
        let mut one = Member::join(ConnectOptions::new(server.local_addrs()[0], NQN), 1);
        one.register(REGISTER | cptpl, 0, 1).expect("registered");
        one.acquire(ACQUIRE, 2, 1, 0).expect("acquired");
        server.remove_namespace(NQN, 1).expect("removed");
        assert_eq!(status_of(one.acquire(ACQUIRE, 2, 1, 0)).code(), Status::INVALID_NAMESPACE);
        server.add_namespace(NQN, &cluster::namespace()).expect("added");
        assert_eq!(one.report(128)[4..6], if persists { [2, 1] } else { [0, 0] });
        drop(one);
        server.stop(Duration::from_secs(10)).expect("stopped");
    }
}

/// Two hosts preempt each other with writes in progress; every command is answered, and the last holder has what it wrote.
#[test]
fn hosts_preempt_each_other_under_load() {
    const ROUNDS: u64 = 200;
    let target = target(2, 64, 4096, plain);
    let answered = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for number in [1, 2] {
            let (target, answered) = (&target, &answered);
            scope.spawn(move || {
                let mut member = Member::join(target.options(), number);
                let own = u64::from(number);
                for _ in 0..ROUNDS {
                    let _ = member.register(REGISTER, 0, own);
                    let write = member.write(3, number);
                    let _ = member.acquire(PREEMPT_AND_ABORT, 1 + number, own, 3 - own);
                    let _ = member.acquire(ACQUIRE, 1 + number, own, 0);
                    member.queue.wait(write, "a write", &mut []).expect("an answer");
                    answered.fetch_add(1, SeqCst);
                }
            });
        }
    });
    assert_eq!(answered.load(SeqCst), 2 * ROUNDS as u32);
    let mut third = Member::join(target.options(), 3);
    assert!(matches!(
        third.run(Sqe { sgl: Default::default(), ..Sqe::new(io::FLUSH, 1) }, &[]),
        Status::SUCCESS | CONFLICT
    ));
    target.stop();
}
