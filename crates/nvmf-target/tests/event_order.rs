//! Hosts are notified of a namespace change only after every I/O thread has applied it.
//!
//! The test polls two I/O threads and delays the second one during a change, so that the order of events is deterministic.

#[path = "waiting/host.rs"]
mod host;

use std::time::{Duration, Instant};

use host::{BLOCK, Host, MS, capsule, memory};
use pilotlight_nvme::Sqe;
use pilotlight_nvme::command::Sgl;
use pilotlight_nvme::command::opcode::admin;
use pilotlight_nvme::feature::{NAMESPACE_CHANGED, async_event, fid};
use pilotlight_nvme::pdu::{Flags, PduType};
use pilotlight_nvmf_target::server::Changes;
use pilotlight_nvmf_target::testing::{Bench, NQN};
use pilotlight_nvmf_target::{Limits, NamespaceConfig, ServerError};

/// Timeout of the test.
const TIMEOUT: Duration = Duration::from_secs(60);

/// NSID and number of blocks; `None` for an inactive NSID.
type Identified = (u32, Option<u64>);

fn namespace(nsid: u32) -> NamespaceConfig {
    NamespaceConfig::new(nsid, "mem:4MiB".parse().expect("valid"), BLOCK)
}

/// A host with namespace events enabled and one outstanding Asynchronous Event Request.
fn listening_host(bench: &mut Bench) -> Host {
    let (mut host, _) = Host::admin(bench, 1, 0);
    let enable = Sqe::new(admin::SET_FEATURES, 0)
        .with_cdw(10, u32::from(fid::ASYNC_EVENT_CONFIGURATION))
        .with_cdw(11, async_event::NAMESPACE_ATTRIBUTE);
    host.send(&capsule(1, enable, &[]));
    host.completion(bench);
    host.send(&capsule(9, Sqe::new(admin::ASYNC_EVENT_REQUEST, 0), &[]));
    bench.run(MS);
    host
}

/// Identify Namespace of `nsid`.
fn identify(host: &mut Host, bench: &mut Bench, nsid: u32) -> Identified {
    let mut sqe = Sqe::new(admin::IDENTIFY, nsid);
    sqe.sgl = Sgl::transport(4096);
    host.send(&capsule(2, sqe, &[]));
    let data = host.pdu(bench);
    assert_eq!(data[0], PduType::C2HData as u8);
    let blocks = u64::from_le_bytes(data[data.len() - 4096..][..8].try_into().expect("eight bytes"));
    assert!(Flags::from_bits_retain(data[1]).contains(Flags::SUCCESS), "no completion follows");
    (nsid, Some(blocks).filter(|&blocks| blocks > 0))
}

/// Applies `change`, and compares the host's view while the second I/O thread is delayed, and afterwards.
fn check(
    before: &[Identified],
    change: impl FnOnce(&Changes) -> Result<(), ServerError> + Send + 'static,
    after: &[Identified],
) {
    let mut bench = Bench::with_threads(&memory(), Limits::default(), 4 << 20, 2).expect("a bench");
    let mut host = listening_host(&mut bench);
    bench.hold_others(true);
    let changes = bench.changes();
    let until = Instant::now() + TIMEOUT;
    let changing = std::thread::spawn(move || change(&changes));
    while !bench.others_have_messages() {
        assert!(Instant::now() < until, "the second I/O thread gets a message");
        std::thread::yield_now();
    }
    // The first I/O thread has its message and applies the change in this time.
    let event = host.pdu_within(&mut bench, 10 * MS);
    assert_eq!(event, None, "the host is notified before an I/O thread has applied the change");
    let seen: Vec<_> = before.iter().map(|&(nsid, _)| identify(&mut host, &mut bench, nsid)).collect();
    assert_eq!(seen, before, "Identify returns a change that an I/O thread has not applied");
    assert!(!changing.is_finished(), "the change waits for every I/O thread");
    bench.hold_others(false);
    let event = loop {
        assert!(Instant::now() < until, "the host is notified");
        if let Some(event) = host.pdu_within(&mut bench, MS) {
            break event;
        }
    };
    assert_eq!(u32::from_le_bytes(event[8..12].try_into().expect("four bytes")), NAMESPACE_CHANGED);
    while !changing.is_finished() {
        assert!(Instant::now() < until, "the change ends");
        bench.run(MS);
    }
    changing.join().expect("no panic").expect("changed");
    let seen: Vec<_> = after.iter().map(|&(nsid, _)| identify(&mut host, &mut bench, nsid)).collect();
    assert_eq!(seen, after);
}

#[test]
fn an_added_namespace_is_reported_last() {
    check(
        &[(1, Some(1024)), (2, None)],
        |changes| changes.add(NQN, &namespace(2)),
        &[(1, Some(1024)), (2, Some(1024))],
    );
}

#[test]
fn a_resize_is_reported_last() {
    check(&[(1, Some(1024))], |changes| changes.resize(NQN, 1, Some(2048)).map(drop), &[(1, Some(2048))]);
}

#[test]
fn a_removed_namespace_is_reported_last() {
    check(&[(1, Some(1024))], |changes| changes.remove(NQN, 1), &[(1, None)]);
}

#[test]
fn a_changed_nsid_is_reported_last() {
    let change = |changes: &Changes| changes.move_to((NQN, 1), NQN, &namespace(7));
    check(&[(1, Some(1024)), (7, None)], change, &[(1, None), (7, Some(1024))]);
}

#[test]
fn a_refused_move_changes_nothing() {
    let mut bench = Bench::with_threads(&memory(), Limits::default(), 4 << 20, 2).expect("a bench");
    bench.step(MS);
    let changes = bench.changes();
    let small_blocks = NamespaceConfig { block_size: 512, ..namespace(7) };
    let refused = |to: &NamespaceConfig, from| changes.move_to((NQN, from), NQN, to).expect_err("refused").to_string();
    assert!(refused(&small_blocks, 1).contains("4096 bytes, which a move cannot change to 512"));
    assert!(refused(&namespace(1), 1).contains("already has namespace 1"));
    assert!(refused(&namespace(7), 3).contains("has no namespace 3"));
    assert!(!bench.others_have_messages());
}
