//! Namespaces restricted to some hosts: in Identify, in commands and in events, at start and after changes.

#[path = "support/servers.rs"]
mod servers;

use std::time::Duration;

use pilotlight_host::{Buffers, ConnectOptions, Connection, Controller, HostError, QueueSpec};
use pilotlight_nvme::command::opcode::{admin, io as opcode};
use pilotlight_nvme::feature::{NAMESPACE_CHANGED, async_event, fid};
use pilotlight_nvme::identify::cns;
use pilotlight_nvme::log::lid;
use pilotlight_nvme::{Sqe, Status};
use pilotlight_nvmf_target::{NamespaceConfig, Server, ServerConfig};
use pilotlight_reactor::{Idle, RuntimeOptions};
use pilotlight_storage::BackendSpec;

const NQN: &str = "nqn.2026-01.test:views";
const A: &str = "nqn.2026-01.test:a";
const B: &str = "nqn.2026-01.test:b";
const BLOCK: usize = 4096;
/// Timeout of an event.
const TIMEOUT_MS: u64 = 30_000;

fn names(hosts: &[&str]) -> Vec<String> {
    hosts.iter().map(ToString::to_string).collect()
}

fn namespace(nsid: u32, hosts: &[&str]) -> NamespaceConfig {
    let backend = BackendSpec::Memory(1 << 20);
    NamespaceConfig { hosts: names(hosts), ..NamespaceConfig::new(nsid, backend, BLOCK as u32) }
}

fn serve(namespaces: Vec<NamespaceConfig>) -> Server {
    let subsystem = servers::subsystem(NQN, namespaces);
    let config = ServerConfig { io_threads: 2, ..servers::config(vec![subsystem]) };
    let options = RuntimeOptions::new(vec![None; 2], Idle::Yield);
    servers::start_on(config, options)
}

/// A host with queues on both I/O threads and an outstanding Asynchronous Event Request.
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
        let awaited = Self::request_event(&mut controller);
        Self { controller, queues, awaited }
    }

    fn request_event(controller: &mut Controller) -> u16 {
        controller.admin().submit(Sqe::new(admin::ASYNC_EVENT_REQUEST, 0), &[], 0).expect("submitted")
    }

    fn active_namespaces(&mut self) -> Vec<u32> {
        self.controller.active_namespaces().expect("the list")
    }

    /// Whether reads, writes and flushes succeed on every queue. Otherwise all must fail as on an inactive namespace.
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

    /// Waits for an event of this namespace.
    fn wait_for_event(&mut self, nsid: u32) {
        let (event, _) = self.controller.admin().take_completion(TIMEOUT_MS).expect("connected").expect("an event");
        assert_eq!((event.cid, event.result as u32), (self.awaited, NAMESPACE_CHANGED));
        let mut list = [0; 4096];
        self.controller.log_page(lid::CHANGED_NAMESPACES, u32::MAX, 0, &mut list).expect("the log");
        let listed: Vec<u32> =
            list.chunks_exact(4).map(|id| u32::from_le_bytes(id.try_into().expect("four"))).collect();
        assert_eq!(listed[..2], [nsid, 0]);
        self.awaited = Self::request_event(&mut self.controller);
    }

    /// Whether an event has arrived: the I/O thread sends events before the response to the next command.
    fn has_event(&mut self) -> bool {
        self.controller.keep_alive().expect("alive");
        self.controller.admin().take_completion(0).expect("connected").is_some()
    }
}

fn is_zero(identified: &[u8]) -> bool {
    identified.iter().all(|&byte| byte == 0)
}

#[test]
fn a_restricted_namespace_is_inactive_for_other_hosts() {
    let server = serve(vec![namespace(1, &[]), namespace(2, &[A]), namespace(3, &[A, B])]);
    let (mut a, mut b, mut other) = (Host::new(&server, A, 1), Host::new(&server, B, 2), Host::new(&server, "", 3));
    assert_eq!(
        [a.active_namespaces(), b.active_namespaces(), other.active_namespaces()],
        [vec![1, 2, 3], vec![1, 3], vec![1]]
    );
    assert_eq!([1, 2, 3].map(|nsid| a.can_use(nsid)), [true; 3]);
    assert_eq!([1, 2, 3].map(|nsid| b.can_use(nsid)), [true, false, true]);
    assert_eq!([1, 2, 3].map(|nsid| other.can_use(nsid)), [true, false, false]);
    // Base 5.1.13.2: zeroes for an inactive namespace; Invalid Namespace or Format for its descriptors
    assert!(is_zero(&*b.controller.identify(cns::NAMESPACE, 2).expect("zeroes")));
    assert!(is_zero(&*b.controller.identify(cns::NAMESPACE_INDEPENDENT, 2).expect("zeroes")));
    assert!(!is_zero(&*a.controller.identify(cns::NAMESPACE, 2).expect("it is active")));
    match b.controller.identify(cns::NAMESPACE_DESCRIPTORS, 2) {
        Err(HostError::Status { status, .. }) => assert_eq!(status.code(), Status::INVALID_NAMESPACE),
        other => panic!("{:?}", other.map(|_| "descriptors")),
    }
    for queue in &mut other.queues {
        queue
            .execute("flush of all", Sqe::new(opcode::FLUSH, u32::MAX), &[], &mut [])
            .expect("a flush of its visible namespaces");
    }
    server.stop(Duration::from_secs(10)).expect("stops");
}

#[test]
fn visibility_changes_at_runtime_and_only_affected_hosts_get_events() {
    let server = serve(vec![namespace(1, &[]), namespace(2, &[])]);
    let (mut a, mut b) = (Host::new(&server, A, 1), Host::new(&server, B, 2));
    assert!(a.can_use(2) && b.can_use(2));
    server.set_namespace_hosts(NQN, 2, &names(&[A])).expect("changed");
    b.wait_for_event(2);
    assert!(!a.has_event(), "no change for this host");
    assert_eq!((a.active_namespaces(), b.active_namespaces()), (vec![1, 2], vec![1]));
    assert!(a.can_use(2) && !b.can_use(2) && b.can_use(1));
    let mut late = Host::new(&server, B, 3);
    assert!(!late.can_use(2) && late.active_namespaces() == [1], "another association of the same host");
    server.set_namespace_hosts(NQN, 2, &names(&[A, B])).expect("changed");
    [&mut b, &mut late].into_iter().for_each(|host| host.wait_for_event(2));
    assert!(!a.has_event() && b.can_use(2) && late.can_use(2) && b.active_namespaces() == [1, 2]);
    server.set_namespace_hosts(NQN, 2, &names(&[B])).expect("changed");
    a.wait_for_event(2);
    assert!(!a.can_use(2) && b.can_use(2) && !b.has_event());
    server.set_namespace_hosts(NQN, 2, &[]).expect("changed");
    a.wait_for_event(2);
    assert!(a.can_use(2) && b.can_use(2) && !b.has_event());
    assert!(server.set_namespace_hosts(NQN, 9, &[]).is_err());
    server.stop(Duration::from_secs(10)).expect("stops");
}

#[test]
fn hosts_get_events_of_visible_namespaces_only() {
    let server = serve(vec![namespace(1, &[])]);
    let (mut a, mut b) = (Host::new(&server, A, 1), Host::new(&server, B, 2));
    server.add_namespace(NQN, &namespace(2, &[A])).expect("added");
    a.wait_for_event(2);
    assert!(!b.has_event() && b.active_namespaces() == [1] && a.can_use(2) && !b.can_use(2));
    server.resize_namespace(NQN, 2, Some(1)).expect("resized");
    a.wait_for_event(2);
    server.move_namespace((NQN, 2), NQN, &namespace(5, &[A])).expect("moved");
    assert!(a.active_namespaces() == [1, 5] && a.can_use(5) && !b.can_use(5) && !b.has_event());
    server.remove_namespace(NQN, 5).expect("removed");
    assert!(!a.can_use(5) && !b.has_event());
    server.add_namespace(NQN, &namespace(5, &[])).expect("added without the restriction of the removed one");
    b.wait_for_event(5);
    assert!(a.can_use(5) && b.can_use(5));
    server.stop(Duration::from_secs(10)).expect("stops");
}
