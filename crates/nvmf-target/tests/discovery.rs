//! The discovery service while referrals, subsystems and allowed hosts change.

mod host_support;

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use host_support::{NQN, Target, memory_target};
use pilotlight_host::{ConnectOptions, Controller, DiscoveryEntry, HostError, discover};
use pilotlight_nvme::Sqe;
use pilotlight_nvme::command::opcode::{admin, io};
use pilotlight_nvme::fabrics::DISCOVERY_NQN;
use pilotlight_nvme::feature::{DISCOVERY_CHANGED, async_event, fid};
use pilotlight_nvme::log::lid;
use pilotlight_nvmf_target::config::Advertised;
use pilotlight_nvmf_target::{Server, ServerConfig, ServerError, SubsystemConfig};

const OTHER: &str = "nqn.2026-01.test:other";
const FRIEND: &str = "nqn.2026-01.test:friend";
const STRANGER: &str = "nqn.2026-01.test:stranger";
/// Timeout of an event.
const TIMEOUT_MS: u64 = 10_000;

fn subsystem(nqn: &str, allowed_hosts: &[&str]) -> SubsystemConfig {
    let allowed_hosts = allowed_hosts.iter().map(ToString::to_string).collect();
    SubsystemConfig { allowed_hosts, ..SubsystemConfig::new(nqn, Vec::new()) }
}

fn options(target: &Target, subnqn: &str, hostnqn: &str) -> ConnectOptions {
    ConnectOptions { hostnqn: hostnqn.into(), subnqn: subnqn.into(), ..target.options() }
}

/// A host with a persistent discovery controller that asks for events.
struct Watcher {
    options: ConnectOptions,
    controller: Controller,
    awaited: u16,
}

impl Watcher {
    fn new(target: &Target, hostnqn: &str) -> Self {
        let options = options(target, DISCOVERY_NQN, hostnqn);
        let mut controller = Controller::connect(options.clone()).expect("a discovery controller");
        let config = u32::from(fid::ASYNC_EVENT_CONFIGURATION);
        controller.set_feature(config, 0, async_event::DISCOVERY_CHANGE).expect("it reports changes");
        let awaited = controller.admin().submit(Sqe::new(admin::ASYNC_EVENT_REQUEST, 0), &[], 0).expect("asked");
        Self { options, controller, awaited }
    }

    fn generation(&mut self) -> u64 {
        let mut header = [0; 16];
        self.controller.log_page(lid::DISCOVERY, 0, 0, &mut header).expect("the log");
        u64::from_le_bytes(header[..8].try_into().expect("eight bytes"))
    }

    /// Waits for the event, submits the next request and reads the log, as Linux does.
    fn wait_for_change(&mut self) -> Vec<DiscoveryEntry> {
        let event = self.controller.admin().take_completion(TIMEOUT_MS).expect("connected");
        let (event, _) = event.expect("an event");
        assert_eq!((event.cid, event.result as u32), (self.awaited, DISCOVERY_CHANGED));
        self.awaited =
            self.controller.admin().submit(Sqe::new(admin::ASYNC_EVENT_REQUEST, 0), &[], 0).expect("submitted");
        self.generation(); // clears the event
        discover(&self.options).expect("the log")
    }

    /// Whether an event has arrived: the I/O thread sends events before the response to the next command.
    fn has_event(&mut self) -> bool {
        self.generation();
        self.controller.admin().take_completion(0).expect("connected").is_some()
    }
}

fn names(entries: &[DiscoveryEntry]) -> Vec<(u8, &str)> {
    entries.iter().map(|entry| (entry.subtype, entry.subnqn.as_str())).collect()
}

#[test]
fn hosts_get_changes_of_referrals_and_of_the_advertised_address() {
    let target = memory_target();
    let mut host = Watcher::new(&target, FRIEND);
    let before = host.generation();
    target.server.set_discovery(Advertised::default(), vec![("10.0.0.2".into(), 8009)]);
    let entries = host.wait_for_change();
    assert_eq!(names(&entries), [(2, NQN), (1, DISCOVERY_NQN)]);
    assert_eq!((entries[1].traddr.as_str(), entries[1].trsvcid.as_str()), ("10.0.0.2", "8009"));
    assert_eq!(host.generation(), before + 1);
    target.server.set_discovery(Advertised::default(), vec![("10.0.0.2".into(), 8009)]);
    assert!(!host.has_event() && host.generation() == before + 1, "nothing has changed");
    target
        .server
        .set_discovery(Advertised { plain: Some(("storage.example.com".into(), 4420)), tls: None }, Vec::new());
    assert_eq!(host.wait_for_change()[0].traddr, "storage.example.com");
    assert_eq!(host.generation(), before + 2);
    target.stop();
}

#[test]
fn only_hosts_with_access_get_events() {
    let target = memory_target();
    let (mut friend, mut stranger) = (Watcher::new(&target, FRIEND), Watcher::new(&target, STRANGER));
    let before = stranger.generation();
    target.server.add_subsystem(&subsystem(OTHER, &[FRIEND])).expect("added");
    assert_eq!(names(&friend.wait_for_change()), [(2, NQN), (2, OTHER)]);
    assert!(!stranger.has_event());
    assert_eq!(stranger.generation(), before + 1, "the generation counter has changed");
    target.server.set_allowed_hosts(OTHER, &[STRANGER.into()]).expect("changed");
    assert_eq!(names(&friend.wait_for_change()), [(2, NQN)]);
    assert_eq!(names(&stranger.wait_for_change()), [(2, NQN), (2, OTHER)]);
    target.server.remove_subsystem(OTHER).expect("removed");
    assert_eq!(names(&stranger.wait_for_change()), [(2, NQN)]);
    assert!(!friend.has_event());
    target.stop();
}

fn refusal(options: ConnectOptions) -> u16 {
    match Controller::connect(options) {
        Err(HostError::Status { what: "Connect", status }) => status.to_field() >> 1 & 0x7ff,
        other => panic!("{:?}", other.map(|_| "connected")),
    }
}

/// Connect Invalid Parameters, and Connect Invalid Host.
const INVALID_PARAMETERS: u16 = 0x182;
const INVALID_HOST: u16 = 0x184;

#[test]
fn allowed_hosts_change_while_the_server_runs() {
    let target = memory_target();
    let connect = |nqn, host| Controller::connect(options(&target, nqn, host)).map(drop);
    assert_eq!(refusal(options(&target, OTHER, FRIEND)), INVALID_PARAMETERS);
    target.server.add_subsystem(&subsystem(OTHER, &[FRIEND])).expect("added");
    assert!(target.server.add_subsystem(&subsystem(OTHER, &[])).is_err(), "there is one");
    connect(OTHER, FRIEND).expect("on the list");
    assert_eq!(refusal(options(&target, OTHER, STRANGER)), INVALID_HOST);
    target.server.set_allowed_hosts(OTHER, &[STRANGER.into()]).expect("changed");
    connect(OTHER, STRANGER).expect("on the new list");
    assert_eq!(refusal(options(&target, OTHER, FRIEND)), INVALID_HOST);
    target.server.set_allowed_hosts(OTHER, &[]).expect("changed");
    connect(OTHER, FRIEND).expect("any host");
    target.server.remove_subsystem(OTHER).expect("removed");
    assert_eq!(refusal(options(&target, OTHER, FRIEND)), INVALID_PARAMETERS);
    assert!(target.server.set_allowed_hosts(OTHER, &[]).is_err() && target.server.remove_subsystem(OTHER).is_err());
    connect(NQN, FRIEND).expect("the other subsystem is unchanged");
    target.stop();
}

fn await_no_association(server: &Server) {
    let until = Instant::now() + Duration::from_secs(10);
    while server.stats().associations > 0 {
        assert!(Instant::now() < until, "an association remains");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn removing_a_subsystem_ends_its_connections_and_it_can_be_added_again() {
    let target = host_support::target(2, 64, 4096, |memory| memory);
    target.server.add_subsystem(&subsystem(OTHER, &[])).expect("added");
    let namespace = || pilotlight_nvmf_target::NamespaceConfig::new(7, "mem:256KiB".parse().expect("a backend"), 4096);
    for round in 0..3 {
        target.server.add_namespace(OTHER, &namespace()).expect("a namespace");
        let (mut controller, mut queue) = target.queue(options(&target, OTHER, FRIEND), 8, 4096);
        queue.execute("write", Sqe::block_io(io::WRITE, 7, 5, 1), &[7; 4096], &mut []).expect("written");
        target.server.remove_subsystem(OTHER).expect("removed");
        let written = queue.execute("write", Sqe::block_io(io::WRITE, 7, 5, 1), &[7; 4096], &mut []);
        assert!(!matches!(written, Ok(_) | Err(HostError::Status { .. })), "round {round}: {written:?}");
        assert!(controller.identify(1, 0).is_err(), "its admin queue has ended too");
        await_no_association(&target.server);
        target.server.add_subsystem(&subsystem(OTHER, &[])).expect("added again");
        let mut controller = Controller::connect(options(&target, OTHER, FRIEND)).expect("connects again");
        assert!(controller.namespace(7).is_err(), "without its namespace");
    }
    target.stop();
}

/// A configuration with these listeners.
fn listening_on(addresses: &[SocketAddr]) -> ServerConfig {
    ServerConfig { listeners: addresses.to_vec(), ..ServerConfig::default() }
}

fn loopback(last: u8, port: u16) -> SocketAddr {
    ([127, 0, 0, last], port).into()
}

fn addresses(entries: &[DiscoveryEntry]) -> Vec<String> {
    entries.iter().map(|entry| format!("{}:{}", entry.traddr, entry.trsvcid)).collect()
}

#[test]
fn addresses_come_and_go_while_hosts_use_others() {
    let target = memory_target();
    let kept = loopback(1, 0); // as configured: the port is any free one
    let (mut watcher, mut stays) =
        (Watcher::new(&target, FRIEND), Controller::connect(target.options()).expect("connected"));
    let ended = target.server.set_listeners(&listening_on(&[kept, loopback(2, 0)])).expect("another address");
    assert!(ended.associations().is_empty());
    let second = target.server.local_addrs()[1];
    assert_eq!(addresses(&watcher.wait_for_change()), [target.addr.to_string(), second.to_string()]);
    let mut at_second = Controller::connect(ConnectOptions { addr: second, ..target.options() }).expect("by both");
    at_second.identify(1, 0).expect("served");
    let ended = target.server.set_listeners(&listening_on(&[kept])).expect("without it");
    assert_eq!(ended.associations().len(), 1);
    assert!(at_second.identify(1, 0).is_err(), "its address is gone");
    stays.identify(1, 0).expect("another address is not affected");
    assert_eq!(addresses(&watcher.wait_for_change()), [target.addr.to_string()]);
    assert!(TcpStream::connect(second).is_err(), "nothing listens there");
    assert!(!watcher.has_event());
    target.stop();
}

#[test]
fn an_address_that_cannot_be_opened_changes_nothing() {
    let target = memory_target();
    let taken = TcpListener::bind(loopback(3, 0)).expect("a port");
    let taken = taken.local_addr().map(|address| (taken, address)).expect("its address").1;
    let holder = TcpListener::bind(taken).expect("a listener of another program");
    let mut host = Controller::connect(target.options()).expect("connected");
    let refused = target.server.set_listeners(&listening_on(&[loopback(1, 0), loopback(4, 0), taken]));
    assert!(matches!(refused.map(drop), Err(ServerError::Listen { address, .. }) if address == taken));
    assert_eq!(target.server.local_addrs(), [target.addr]);
    // nor if it replaces another, which is closed first
    let refused = target.server.set_listeners(&listening_on(&[taken]));
    assert!(matches!(refused.map(drop), Err(ServerError::Listen { address, .. }) if address == taken));
    assert!(host.identify(1, 0).is_err(), "disconnected for the attempt");
    assert_eq!(target.server.local_addrs().len(), 1);
    let options = ConnectOptions { addr: target.server.local_addrs()[0], ..target.options() };
    Controller::connect(options).expect("the removed address is open again");
    drop(holder);
    target.stop();
}

#[test]
fn an_address_replaces_another_with_its_port() {
    let target = memory_target();
    let any = SocketAddr::from(([0; 4], target.addr.port()));
    target.server.set_listeners(&listening_on(&[any])).expect("0.0.0.0 after 127.0.0.1");
    assert_eq!(target.server.local_addrs(), [any]);
    let entries = discover(&options(&target, DISCOVERY_NQN, FRIEND)).expect("the log");
    assert_eq!(addresses(&entries), [target.addr.to_string()], "a host on this machine needs no other");
    target.server.set_listeners(&listening_on(&[target.addr])).expect("and back");
    Controller::connect(target.options()).expect("connected");
    target.stop();
}

#[test]
fn a_subsystem_is_offered_on_its_addresses_alone() {
    let target = memory_target();
    target.server.set_listeners(&listening_on(&[loopback(1, 0), loopback(2, 0)])).expect("two addresses");
    let second = target.server.local_addrs()[1];
    target.server.add_subsystem(&SubsystemConfig { listen: vec![second], ..subsystem(OTHER, &[]) }).expect("added");
    let listed = |addr| {
        let entries = discover(&ConnectOptions { addr, ..options(&target, DISCOVERY_NQN, FRIEND) }).expect("the log");
        names(&entries).into_iter().map(|(_, nqn)| nqn.to_owned()).zip(addresses(&entries)).collect::<Vec<_>>()
    };
    let (first, both) = (target.addr.to_string(), second.to_string());
    let expected = [(NQN, first), (NQN, both.clone()), (OTHER, both)].map(|(nqn, addr)| (nqn.to_owned(), addr));
    assert_eq!((listed(target.addr), listed(second)), (expected.to_vec(), expected.to_vec()));
    let at_second = ConnectOptions { addr: second, ..options(&target, OTHER, FRIEND) };
    let mut host = Controller::connect(at_second.clone()).expect("offered");
    assert_eq!(refusal(options(&target, OTHER, FRIEND)), INVALID_PARAMETERS);
    let ended = target.server.set_subsystem_listen(OTHER, &[target.addr]).expect("changed");
    assert_eq!(ended.associations().len(), 1);
    assert!(host.identify(1, 0).is_err());
    assert_eq!(refusal(at_second.clone()), INVALID_PARAMETERS);
    Controller::connect(options(&target, OTHER, FRIEND)).expect("offered here now");
    target.server.set_subsystem_listen(OTHER, &[]).expect("changed");
    Controller::connect(at_second).expect("on all");
    assert!(target.server.set_subsystem_listen("nqn.2026-01.test:none", &[]).is_err());
    target.stop();
}
