//! Memory for queues: charges are returned, queues beyond the limit are refused, and many new connections do not delay hosts.
//!
//! Time is simulated.

#[path = "waiting/host.rs"]
mod host;

use std::sync::Arc;

use host::{BLOCK, Host, MS, bench, capsule, connect_cmd, connect_data, memory};
use pilotlight_nvme::command::Sgl;
use pilotlight_nvme::command::opcode::io as opcode;
use pilotlight_nvme::fabrics::{CNTLID_DYNAMIC, ConnectData};
use pilotlight_nvme::pdu::PduType;
use pilotlight_nvme::{Sqe, Status};
use pilotlight_nvmf_target::Limits;
use pilotlight_nvmf_target::testing::{Bench, NQN};
use pilotlight_storage::{Backend, DelayBackend, Delays};
use proptest::prelude::*;

/// Simulated time after which the target has detected all closed connections.
const SETTLED_NS: u64 = 3_000 * MS;

fn limited(limits: Limits) -> Bench {
    Bench::new(&memory(), limits, 4 << 20).expect("a bench")
}

fn read(cid: u16) -> Vec<u8> {
    let mut sqe = Sqe::block_io(opcode::READ, 1, 0, 1);
    sqe.sgl = Sgl::transport(BLOCK);
    capsule(cid, sqe, &[])
}

fn is_busy(status: Status) -> bool {
    status == Status::CONNECT_BUSY // without DNR: the host may retry
}

#[test]
fn many_new_connections_are_accepted_in_parts_and_hosts_are_served_in_between() {
    const STORM: u32 = 200;
    let mut bench = bench(&memory(), 4 << 20);
    let (_admin, mut queue) = Host::both(&mut bench, 1, false);
    let before = bench.usage().connections;
    let _storm: Vec<_> = (0..STORM).map(|_| bench.connect(false).expect("a connection")).collect();
    let mut polls = 0;
    while bench.usage().connections < before + STORM {
        let taken = bench.usage().connections;
        queue.send(&read(polls));
        bench.step(1_000);
        polls += 1;
        assert!(bench.usage().connections <= taken + 64, "{} taken in one poll", bench.usage().connections - taken);
        assert!(queue.receive(65_536) > 0, "a host is delayed by new connections");
        let all_taken = bench.usage().connections == before + STORM;
        assert!(all_taken || bench.asleep().is_none(), "the thread waits with a non-empty inbox");
        assert!(polls <= STORM as u16, "too many polls");
    }
    assert!(polls > 1);
}

/// The old connections of the hosts look active, because their FINs are lost.
#[test]
fn the_cost_of_a_reconnect_does_not_grow_with_the_number_of_hosts() {
    const HOSTS: u8 = 60;
    let mut bench = bench(&memory(), 4 << 20);
    let old: Vec<_> = (0..HOSTS).map(|hostid| Host::both(&mut bench, hostid, false)).collect();
    assert_eq!(bench.barrier_checks(), 0, "an I/O queue's Connect needs no barrier");
    let new: Vec<_> = (0..HOSTS).map(|hostid| Host::admin(&mut bench, hostid, 0)).collect();
    assert_eq!(bench.barrier_checks(), 2 * u64::from(HOSTS), "each host's own two queues");
    assert_eq!(bench.associations(), 2 * usize::from(HOSTS));
    drop((old, new));
    bench.run(SETTLED_NS);
    assert_eq!((bench.admitted(), bench.associations()), ((0, 0), 0));
}

#[test]
fn a_queue_without_memory_is_refused_and_may_connect_later() {
    let limits = Limits { queue_memory: 5 << 18, ..Limits::default() };
    let mut bench = limited(limits.clone());
    let mut hosts = Vec::new();
    let mut refused = loop {
        let hostid = hosts.len() as u8;
        let (admin, cntlid) = Host::admin(&mut bench, hostid, 0);
        let mut queue = Host::shaken(&mut bench, false);
        let response = queue.try_connect(&mut bench, connect_cmd(1, 1024), &connect_data(hostid, cntlid));
        assert!(bench.admitted().0 <= limits.queue_memory);
        hosts.push((admin, queue));
        if !response.status().is_success() {
            assert!(is_busy(response.status()), "{}", response.status());
            break hosts.pop().expect("just pushed");
        }
    };
    assert_eq!(hosts.len(), 2, "queues of 1,024 entries in 1.25 MiB");
    for (_, queue) in &mut hosts {
        queue.send(&read(7));
        assert_eq!(queue.pdu(&mut bench)[0], PduType::C2HData as u8, "connected hosts are served");
    }
    drop(hosts.remove(0));
    bench.run(SETTLED_NS);
    let again = refused.1.try_connect(&mut bench, connect_cmd(1, 1024), &connect_data(2, 3));
    assert!(again.status().is_success(), "memory is available again: {}", again.status());
}

#[test]
fn the_limit_of_queues_applies_to_each_host() {
    let mut bench = limited(Limits { max_host_queues: 3, ..Limits::default() });
    let (_admin, cntlid) = Host::admin(&mut bench, 1, 0);
    let connect = |bench: &mut Bench, qid| {
        let mut queue = Host::shaken(bench, false);
        let response = queue.try_connect(bench, connect_cmd(qid, 8), &connect_data(1, cntlid));
        (queue, response.status())
    };
    let (first, status) = connect(&mut bench, 1);
    assert!(status.is_success());
    let (_second, status) = connect(&mut bench, 2);
    assert!(status.is_success());
    let (_third, status) = connect(&mut bench, 3);
    assert!(is_busy(status), "{status}");
    let mut path = Host::shaken(&mut bench, false);
    let status = path.try_connect(&mut bench, connect_cmd(0, 8), &connect_data(1, CNTLID_DYNAMIC)).status();
    assert!(is_busy(status), "a second admin queue counts: {status}");
    let _other = Host::both(&mut bench, 2, false);
    drop(first);
    bench.run(SETTLED_NS);
    let (_fourth, status) = connect(&mut bench, 3);
    assert!(status.is_success(), "{status}");
}

/// A host without an NQN is identified by its host identifier.
#[test]
fn hosts_without_an_nqn_are_distinguished_by_their_identifiers() {
    let mut bench = bench(&memory(), 4 << 20);
    let unnamed = |hostid: u8, cntlid| ConnectData::new([hostid; 16], cntlid, NQN, "");
    let mut connect = |command, data: &ConnectData| {
        let mut peer = Host::shaken(&mut bench, false);
        let response = peer.try_connect(&mut bench, command, data);
        (peer, response)
    };
    let (mut admin, first) = connect(connect_cmd(0, 32), &unnamed(1, CNTLID_DYNAMIC));
    let (_other, second) = connect(connect_cmd(0, 32), &unnamed(2, CNTLID_DYNAMIC));
    assert!(first.status().is_success() && second.status().is_success());
    let cntlid = first.result.get() as u16;
    let (_other_host, refused) = connect(connect_cmd(1, 32), &unnamed(2, cntlid));
    assert_eq!((refused.status(), refused.result.get()), (Status::CONNECT_INVALID_PARAMETERS.dnr(), 0x1_0000));
    use pilotlight_nvme::fabrics::{PropertyCmd, cc, property};
    admin.send(&capsule(1, PropertyCmd::set(property::CC, cc::EN | cc::IOSQES_IOCQES), &[]));
    admin.completion(&mut bench);
    let mut queue = Host::shaken(&mut bench, false);
    assert!(queue.try_connect(&mut bench, connect_cmd(1, 32), &unnamed(1, cntlid)).status().is_success());
    assert_eq!(bench.admitted().1, 2, "two hosts");
}

/// An event of a random test.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// A host connects an admin queue.
    Admin { hostid: u8, entries: u16 },
    /// A host connects an I/O queue to a controller: its own, another host's, or a removed one.
    Io { hostid: u8, cntlid: u16, qid: u16, entries: u16 },
    /// A Connect is sent and the connection is closed before the response.
    ConnectAndClose { hostid: u8 },
    /// A connection sends a read, with or without a queue.
    Read { connection: usize },
    /// A connection is closed.
    Close { connection: usize },
    /// Time passes.
    Pass { ms: u64 },
}

fn event() -> impl Strategy<Value = Event> {
    let entries = || prop_oneof![Just(2u16), Just(32), Just(128), Just(1024), Just(1025)];
    prop_oneof![
        3 => (0u8..3, entries()).prop_map(|(hostid, entries)| Event::Admin { hostid, entries }),
        4 => (0u8..3, 0u16..8, 0u16..4, entries())
            .prop_map(|(hostid, cntlid, qid, entries)| Event::Io { hostid, cntlid, qid, entries }),
        1 => (0u8..3).prop_map(|hostid| Event::ConnectAndClose { hostid }),
        3 => (0usize..16).prop_map(|connection| Event::Read { connection }),
        3 => (0usize..16).prop_map(|connection| Event::Close { connection }),
        1 => (0u64..10).prop_map(|ms| Event::Pass { ms }),
    ]
}

fn apply(event: Event, bench: &mut Bench, connections: &mut Vec<Host>) {
    match event {
        Event::Admin { hostid, entries } => {
            let mut host = Host::shaken(bench, false);
            let response = host.try_connect(bench, connect_cmd(0, entries), &connect_data(hostid, CNTLID_DYNAMIC));
            if response.status().is_success() {
                use pilotlight_nvme::fabrics::{PropertyCmd, cc, property};
                host.send(&capsule(1, PropertyCmd::set(property::CC, cc::EN | cc::IOSQES_IOCQES), &[]));
            }
            connections.push(host);
        }
        Event::Io { hostid, cntlid, qid, entries } => {
            let mut host = Host::shaken(bench, false);
            host.try_connect(bench, connect_cmd(qid, entries), &connect_data(hostid, cntlid));
            connections.push(host);
        }
        Event::ConnectAndClose { hostid } => {
            use zerocopy::IntoBytes;
            let mut host = Host::shaken(bench, false);
            let data = connect_data(hostid, CNTLID_DYNAMIC);
            host.send(&capsule(0, connect_cmd(0, 32).encode(), data.as_bytes()));
        }
        Event::Read { connection } => {
            if let Some(host) = connections.get_mut(connection).filter(|host| !host.is_closed()) {
                host.send(&read(9));
            }
        }
        Event::Close { connection } if connection < connections.len() => drop(connections.remove(connection)),
        Event::Close { .. } => {}
        Event::Pass { ms } => drop(bench.run(ms * MS)),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

    /// Charges never exceed the limit, and all are returned when all hosts are gone.
    #[test]
    fn charges_of_queues_are_returned(events in prop::collection::vec(event(), 1..40)) {
        let limits = Limits { queue_memory: 2 << 20, max_host_queues: 5, ..Limits::default() };
        let delays = Delays { shortest_ns: MS, longest_ns: 5 * MS, seed: 1 };
        let late: Arc<dyn Backend> = Arc::new(DelayBackend::new(memory(), delays));
        let mut bench = Bench::new(&late, limits.clone(), 4 << 20).expect("a bench");
        let mut connections = Vec::new();
        for event in events {
            apply(event, &mut bench, &mut connections);
            let (charged, hosts) = bench.admitted();
            prop_assert!(charged <= limits.queue_memory && hosts <= 3, "{} bytes, {} hosts", charged, hosts);
        }
        connections.clear();
        bench.run(SETTLED_NS);
        prop_assert_eq!((bench.admitted(), bench.associations(), bench.usage().connections), ((0, 0), 0, 0));
    }
}
