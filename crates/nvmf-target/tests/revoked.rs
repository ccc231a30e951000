//! Associations ended by the operator: none of their data is written afterwards, and other hosts are not disturbed.

#[path = "association/gate.rs"]
mod gate;
mod host_support;

use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use gate::{BLOCK, gated, queue, read, until};
use host_support::{NQN, target};
use pilotlight_host::{ConnectOptions, Connection, Controller, HostError};
use pilotlight_nvme::Sqe;
use pilotlight_nvme::command::opcode::io as opcode;

const TIMEOUT: Duration = Duration::from_secs(60);

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
        let (target, gate) = gated(reactors);
        let options = target.options();
        let other = ConnectOptions { hostid: [9; 16], hostnqn: "nqn.2026-01.test:other".into(), ..target.options() };
        let (first, another) = (Controller::connect(options.clone()).unwrap(), Controller::connect(other).unwrap());
        let (mut io, mut io_2, mut of_other) = (queue(&first, 1), queue(&first, 2), queue(&another, 1));
        let associations = target.server.associations();
        let of_first = associations.iter().find(|one| one.hostnqn == options.hostnqn).expect("listed");
        assert_eq!((associations.len(), of_first.io_queues, of_first.nqn.as_deref()), (2, 2, Some(NQN)));
        assert!(!of_first.io_threads.is_empty() && of_first.peer.ip().is_loopback());
        gate.shut.store(true, SeqCst);
        io.submit(Sqe::block_io(opcode::WRITE, 1, 7, 1), &[0x11; BLOCK], 0).expect("submitted");
        until("the write is in the backend", || gate.taken.load(SeqCst) == 1);
        std::thread::scope(|scope| {
            let draining = target.server.disconnect(&options.hostnqn, Some(NQN)).expect("a subsystem");
            let ended = scope.spawn(move || draining.wait(Instant::now() + TIMEOUT));
            assert!(is_closed(&mut io) && is_closed(&mut io_2), "its queues are closed");
            assert!(!ended.is_finished(), "its write is still in flight");
            gate.shut.store(false, SeqCst);
            let ended = ended.join().expect("no panic");
            assert_eq!((ended.associations.len(), ended.undrained), (1, 0));
        });
        assert_eq!(target.server.associations().len(), 1);
        assert_eq!(read(&mut of_other, 7)[0], 0x11, "the write in the backend completed");
        let back = Controller::connect(options).expect("it may connect again");
        drop((first, io, io_2, back, another, of_other));
        target.stop();
    }
}

/// A change of the allowed hosts does not wait for a backend, so that its caller does not hold locks for long.
#[test]
fn access_is_revoked_at_once_and_waiting_for_writes_is_separate() {
    let (target, gate) = gated(2);
    gate.shut.store(true, SeqCst);
    let other = ConnectOptions { hostid: [9; 16], hostnqn: "nqn.2026-01.test:other".into(), ..target.options() };
    let controller = Controller::connect(target.options()).expect("a controller");
    let mut io = queue(&controller, 1);
    io.submit(Sqe::block_io(opcode::WRITE, 1, 7, 1), &[0x11; BLOCK], 0).expect("submitted");
    until("the write is in the backend", || gate.taken.load(SeqCst) == 1);
    let draining = target.server.set_allowed_hosts(NQN, std::slice::from_ref(&other.hostnqn)).expect("changed");
    assert!(is_closed(&mut io), "its queue is closed");
    assert_eq!(draining.associations().len(), 1);
    assert_eq!(draining.wait(Instant::now()).undrained, 1, "its write is still in flight");
    target.server.set_allowed_hosts(NQN, &[]).expect("another change succeeds meanwhile");
    gate.shut.store(false, SeqCst);
    assert_eq!(draining.wait(Instant::now() + TIMEOUT).undrained, 0);
    let other = Controller::connect(other).expect("a controller");
    let mut of_other = queue(&other, 1);
    assert_eq!(read(&mut of_other, 7)[0], 0x11, "the write in the backend completed");
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
        let seen: Vec<u8> = (0..4).map(|lba| read(&mut of_reader, lba)[0]).collect();
        for _ in 0..20 {
            assert_eq!((0..4).map(|lba| read(&mut of_reader, lba)[0]).collect::<Vec<_>>(), seen, "written afterwards");
        }
        marks += usize::from(seen.contains(&(round + 1)));
        drop((controller, io));
    }
    println!("{marks} of 50 rounds had a write before the disconnect");
    target.stop();
}
