//! Namespaces that only some hosts see: in Identify, in commands and in events, from the start and while the server runs.

use std::net::Ipv4Addr;
use std::time::Duration;

use pilotlight_host::{Buffers, ConnectOptions, Connection, Controller, HostError, QueueSpec};
use pilotlight_nvme::command::opcode::{admin, io as opcode};
use pilotlight_nvme::feature::{NAMESPACE_CHANGED, async_event, fid};
use pilotlight_nvme::identify::cns;
use pilotlight_nvme::log::lid;
use pilotlight_nvme::{Sqe, Status};
use pilotlight_nvmf_target::backend::{BackendSpec, MemoryBudget, open};
use pilotlight_nvmf_target::{NamespaceConfig, Server, ServerConfig, SubsystemConfig};
use pilotlight_reactor::{Idle, RuntimeOptions};

const NQN: &str = "nqn.2026-01.test:views";
const A: &str = "nqn.2026-01.test:a";
const B: &str = "nqn.2026-01.test:b";
const BLOCK: usize = 4096;
/// How long an event may take that comes.
const PATIENCE_MS: u64 = 30_000;

fn names(hosts: &[&str]) -> Vec<String> {
    hosts.iter().map(ToString::to_string).collect()
}

fn namespace(nsid: u32, hosts: &[&str]) -> NamespaceConfig {
    let backend = BackendSpec::Memory(1 << 20);
    NamespaceConfig { nsid, backend, block_size: BLOCK as u32, uuid: None, hosts: names(hosts) }
}

fn serve(namespaces: Vec<NamespaceConfig>) -> Server {
    let subsystem =
        SubsystemConfig { nqn: NQN.into(), serial: None, allowed_hosts: Vec::new(), controller_ids: None, namespaces };
    let config = ServerConfig {
        listeners: vec![(Ipv4Addr::LOCALHOST, 0).into()],
        subsystems: vec![subsystem],
        io_threads: 2,
        ..ServerConfig::default()
    };
    let budget = std::sync::Arc::new(MemoryBudget::unlimited());
    let opener = move |ns: &NamespaceConfig| open(&ns.backend, ns.block_size, &budget);
    let options = RuntimeOptions::new(vec![None; 2], Idle::Yield);
    Server::start_with(config, options, Box::new(opener)).expect("the server starts")
}

/// A host with queues on both I/O threads, which asks for events.
struct Host {
    controller: Controller,
    queues: Vec<Connection>,
    awaited: u16,
}

impl Host {
    fn new(server: &Server, hostnqn: &str, id: u8) -> Self {
        let options = ConnectOptions::new(server.local_addrs()[0], NQN);
        let options = ConnectOptions { hostnqn: hostnqn.into(), hostid: [id; 16], ..options };
        let mut controller = Controller::connect(options).expect("connects");
        let config = u32::from(fid::ASYNC_EVENT_CONFIGURATION);
        controller.set_feature(config, 0, async_event::NAMESPACE_ATTRIBUTE).expect("it reports changes");
        let spec = |qid| QueueSpec { qid, depth: 8, max_io: BLOCK as u32, buffers: Buffers::PerCommand };
        let queues = (1..=4).map(|qid| controller.open_queue(&spec(qid)).expect("an I/O queue")).collect();
        let awaited = Self::ask(&mut controller);
        Self { controller, queues, awaited }
    }

    fn ask(controller: &mut Controller) -> u16 {
        controller.admin().submit(Sqe::new(admin::ASYNC_EVENT_REQUEST, 0), &[], 0).expect("asked")
    }

    fn listed(&mut self) -> Vec<u32> {
        self.controller.active_namespaces().expect("the list")
    }

    /// Whether reads, writes and flushes on every queue succeed; they all do, or all fail as on an inactive namespace.
    fn can_use(&mut self, nsid: u32) -> bool {
        let results: Vec<bool> = self
            .queues
            .iter_mut()
            .flat_map(|queue| {
                let read = queue.execute("read", Sqe::block_io(opcode::READ, nsid, 0, 1), &[], &mut [0; BLOCK]);
                let write = queue.execute("write", Sqe::block_io(opcode::WRITE, nsid, 0, 1), &[1; BLOCK], &mut []);
                let flush = queue.execute("flush", Sqe::new(opcode::FLUSH, nsid), &[], &mut []);
                [read, write, flush].map(|result| match result {
                    Ok(_) => true,
                    Err(HostError::Status { status, .. }) if status.code() == Status::INVALID_NAMESPACE => false,
                    other => panic!("{other:?}"),
                })
            })
            .collect();
        assert!(results.iter().all(|result| *result == results[0]), "{results:?}");
        results[0]
    }

    /// Waits for an event about this namespace.
    fn hears_of(&mut self, nsid: u32) {
        let (event, _) = self.controller.admin().take_completion(PATIENCE_MS).expect("connected").expect("an event");
        assert_eq!((event.cid, event.result as u32), (self.awaited, NAMESPACE_CHANGED));
        let mut list = [0; 4096];
        self.controller.log_page(lid::CHANGED_NAMESPACES, u32::MAX, 0, &mut list).expect("the log");
        let listed: Vec<u32> =
            list.chunks_exact(4).map(|id| u32::from_le_bytes(id.try_into().expect("four"))).collect();
        assert_eq!(listed[..2], [nsid, 0]);
        self.awaited = Self::ask(&mut self.controller);
    }

    /// Whether an event has come. Its I/O thread sends what there is before it answers the next command.
    fn has_heard(&mut self) -> bool {
        self.controller.keep_alive().expect("alive");
        self.controller.admin().take_completion(0).expect("connected").is_some()
    }
}

fn is_zero(identified: &[u8]) -> bool {
    identified.iter().all(|&byte| byte == 0)
}

#[test]
fn a_namespace_is_inactive_for_hosts_that_it_does_not_name() {
    let server = serve(vec![namespace(1, &[]), namespace(2, &[A]), namespace(3, &[A, B])]);
    let (mut a, mut b, mut other) = (Host::new(&server, A, 1), Host::new(&server, B, 2), Host::new(&server, "", 3));
    assert_eq!([a.listed(), b.listed(), other.listed()], [vec![1, 2, 3], vec![1, 3], vec![1]]);
    assert_eq!([1, 2, 3].map(|nsid| a.can_use(nsid)), [true; 3]);
    assert_eq!([1, 2, 3].map(|nsid| b.can_use(nsid)), [true, false, true]);
    assert_eq!([1, 2, 3].map(|nsid| other.can_use(nsid)), [true, false, false]);
    // Base 5.1.13.2: inactive gives zeroes, the descriptors of an inactive one Invalid Namespace or Format
    assert!(is_zero(&*b.controller.identify(cns::NAMESPACE, 2).expect("zeroes")));
    assert!(is_zero(&*b.controller.identify(cns::NAMESPACE_INDEPENDENT, 2).expect("zeroes")));
    assert!(!is_zero(&*a.controller.identify(cns::NAMESPACE, 2).expect("it is active")));
    match b.controller.identify(cns::NAMESPACE_DESCRIPTORS, 2) {
        Err(HostError::Status { status, .. }) => assert_eq!(status.code(), Status::INVALID_NAMESPACE),
        other => panic!("{:?}", other.map(|_| "descriptors")),
    }
    for queue in &mut other.queues {
        queue.execute("flush of all", Sqe::new(opcode::FLUSH, u32::MAX), &[], &mut []).expect("of those that it sees");
    }
    server.stop(Duration::from_secs(10)).expect("stops");
}

#[test]
fn namespaces_are_shown_and_hidden_while_hosts_are_connected_and_only_those_are_told() {
    let server = serve(vec![namespace(1, &[]), namespace(2, &[])]);
    let (mut a, mut b) = (Host::new(&server, A, 1), Host::new(&server, B, 2));
    assert!(a.can_use(2) && b.can_use(2));
    server.set_namespace_hosts(NQN, 2, &names(&[A])).expect("there is one");
    b.hears_of(2);
    assert!(!a.has_heard(), "nothing has changed for it");
    assert_eq!((a.listed(), b.listed()), (vec![1, 2], vec![1]));
    assert!(a.can_use(2) && !b.can_use(2) && b.can_use(1));
    let mut late = Host::new(&server, B, 3);
    assert!(!late.can_use(2) && late.listed() == [1], "another association of the same host");
    server.set_namespace_hosts(NQN, 2, &names(&[A, B])).expect("there is one");
    [&mut b, &mut late].into_iter().for_each(|host| host.hears_of(2));
    assert!(!a.has_heard() && b.can_use(2) && late.can_use(2) && b.listed() == [1, 2]);
    server.set_namespace_hosts(NQN, 2, &names(&[B])).expect("there is one");
    a.hears_of(2);
    assert!(!a.can_use(2) && b.can_use(2) && !b.has_heard());
    server.set_namespace_hosts(NQN, 2, &[]).expect("there is one");
    a.hears_of(2);
    assert!(a.can_use(2) && b.can_use(2) && !b.has_heard());
    assert!(server.set_namespace_hosts(NQN, 9, &[]).is_err());
    server.stop(Duration::from_secs(10)).expect("stops");
}

#[test]
fn hosts_hear_of_the_namespaces_that_they_see_and_of_no_others() {
    let server = serve(vec![namespace(1, &[])]);
    let (mut a, mut b) = (Host::new(&server, A, 1), Host::new(&server, B, 2));
    server.add_namespace(NQN, &namespace(2, &[A])).expect("added");
    a.hears_of(2);
    assert!(!b.has_heard() && b.listed() == [1] && a.can_use(2) && !b.can_use(2));
    server.resize_namespace(NQN, 2, Some(1)).expect("resized");
    a.hears_of(2);
    server.move_namespace((NQN, 2), NQN, &namespace(5, &[A])).expect("moved");
    assert!(a.listed() == [1, 5] && a.can_use(5) && !b.can_use(5) && !b.has_heard());
    server.remove_namespace(NQN, 5).expect("removed");
    assert!(!a.can_use(5) && !b.has_heard());
    server.add_namespace(NQN, &namespace(5, &[])).expect("what was said of the removed one is forgotten");
    b.hears_of(5);
    assert!(a.can_use(5) && b.can_use(5));
    server.stop(Duration::from_secs(10)).expect("stops");
}
