//! Asymmetric namespace access: states of paths by address and group, their log page and events, and draining a path.

mod host_support;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use host_support::{NQN, Target, servers};
use pilotlight_host::{Buffers, ConnectOptions, Connection, Controller, HostError, QueueSpec};
use pilotlight_nvme::ana::AnaState;
use pilotlight_nvme::command::opcode::{admin, io};
use pilotlight_nvme::feature::{ANA_CHANGED, async_event, fid};
use pilotlight_nvme::log::lid;
use pilotlight_nvme::{Sqe, Status};
use pilotlight_nvmf_target::config::PathRule;
use pilotlight_nvmf_target::{NamespaceConfig, ServerConfig};

/// Timeout of an event.
const TIMEOUT_MS: u64 = 60_000;
/// Timeout of the end of an association.
const DELAY_OF_END: Duration = Duration::from_secs(60);

fn two_addresses() -> (Target, SocketAddr) {
    let namespaces = vec![namespace(1, "mem:256KiB", 1), namespace(2, "mem:256KiB", 5)];
    let listeners = [1, 2].map(|last| SocketAddr::from(([127, 0, 0, last], 0))).to_vec();
    let config =
        ServerConfig { listeners, io_threads: 2, ..servers::config(vec![servers::subsystem(NQN, namespaces)]) };
    let server = servers::start(config, 2);
    let [addr, second] = server.local_addrs().try_into().expect("two addresses");
    (Target { server, addr }, second)
}

fn namespace(nsid: u32, backend: &str, ana_group: u32) -> NamespaceConfig {
    let backend = backend.parse().expect("a backend");
    NamespaceConfig { ana_group, ..NamespaceConfig::new(nsid, backend, 4096) }
}

fn connect(target: &Target, addr: SocketAddr) -> (Controller, Connection) {
    let controller = Controller::connect(ConnectOptions { addr, ..target.options() }).expect("connected");
    let spec = QueueSpec { qid: 1, depth: 8, max_io: 4096, buffers: Buffers::PerCommand };
    let queue = controller.open_queue(&spec).expect("an I/O queue");
    (controller, queue)
}

/// The status of a write of one block.
fn write(queue: &mut Connection, nsid: u32) -> Status {
    match queue.execute("write", Sqe::block_io(io::WRITE, nsid, 0, 1), &[7; 4096], &mut []) {
        Ok(_) => Status::SUCCESS,
        Err(HostError::Status { status, .. }) => status,
        Err(other) => panic!("{other}"),
    }
}

/// The log page: number of changes, and number, NSID and state of each group.
fn log(controller: &mut Controller) -> (u64, Vec<(u32, u32, u8)>) {
    let mut page = [0; 16 + 2 * 36];
    controller.log_page(lid::ANA, 0, 0, &mut page).expect("the log");
    let number = |at: usize| u32::from_le_bytes(page[at..at + 4].try_into().expect("four bytes"));
    let groups = (0..usize::from(page[8])).map(|group| 16 + 36 * group);
    (u64::from(page[0]), groups.map(|at| (number(at), number(at + 32), page[at + 16])).collect())
}

#[test]
fn states_are_those_of_address_and_group() {
    let (target, second) = two_addresses();
    let (mut first, mut by_first) = connect(&target, target.addr);
    let (mut other, mut by_second) = connect(&target, second);
    assert_eq!(log(&mut first), (0, vec![(1, 1, 1), (5, 2, 1)]));
    let rule = |address, group, state| PathRule { address, group, state };
    let _ = target.server.set_paths(&[
        rule(second, None, AnaState::Inaccessible),
        rule(second, Some(5), AnaState::NonOptimized),
        rule(target.addr, Some(5), AnaState::PersistentLoss),
    ]);
    assert_eq!((log(&mut first), log(&mut other)), ((1, vec![(1, 1, 1), (5, 2, 4)]), (1, vec![(1, 1, 3), (5, 2, 2)])));
    assert_eq!((write(&mut by_first, 1), write(&mut by_first, 2)), (Status::SUCCESS, Status::ANA_PERSISTENT_LOSS));
    assert_eq!((write(&mut by_second, 1), write(&mut by_second, 2)), (Status::ANA_INACCESSIBLE, Status::SUCCESS));
    let flush_all = by_second.execute("flush", Sqe::new(io::FLUSH, u32::MAX), &[], &mut []);
    assert!(matches!(flush_all, Err(HostError::Status { status, .. }) if status == Status::ANA_INACCESSIBLE));
    let (mut later, mut by_later) = connect(&target, second);
    assert_eq!(write(&mut by_later, 1), Status::ANA_INACCESSIBLE, "of a host that connects now");
    let _ = target.server.set_paths(&[]);
    assert_eq!([&mut by_first, &mut by_second, &mut by_later].map(|queue| write(queue, 1)), [Status::SUCCESS; 3]);
    assert_eq!(log(&mut later).0, 2);
    let id = later.identify(1, 0).expect("Identify Controller");
    assert_eq!((id[76] & 0b1011, id[342], id[343], id[344], id[348]), (0b1011, 30, 0x5f, 32, 32));
    assert_eq!(
        (id[92 + 1] & 1 << 3, later.identify(0, 2).expect("Identify Namespace")[92]),
        (1 << 3, 5),
        "OAES, ANAGRPID"
    );
    target.stop();
}

#[test]
fn hosts_by_a_changed_address_are_told() {
    let (target, second) = two_addresses();
    let (mut first, _queue) = connect(&target, target.addr);
    let (mut other, _other_queue) = connect(&target, second);
    let ask = |controller: &mut Controller| {
        controller.set_feature(u32::from(fid::ASYNC_EVENT_CONFIGURATION), 0, async_event::ANA_CHANGE).expect("set");
        controller.admin().submit(Sqe::new(admin::ASYNC_EVENT_REQUEST, 0), &[], 0).expect("submitted")
    };
    let (_, awaited) = (ask(&mut first), ask(&mut other));
    let closed = [PathRule { address: second, group: None, state: AnaState::Inaccessible }];
    let _ = target.server.set_paths(&closed);
    let (event, _) = other.admin().take_completion(TIMEOUT_MS).expect("connected").expect("an event");
    assert_eq!((event.cid, event.result as u32), (awaited, ANA_CHANGED));
    assert_eq!(log(&mut first).0, 0);
    assert!(first.admin().take_completion(0).expect("connected").is_none(), "nothing has changed by this address");
    log(&mut other); // clears the event
    other.admin().submit(Sqe::new(admin::ASYNC_EVENT_REQUEST, 0), &[], 0).expect("submitted");
    let _ = target.server.set_paths(&closed);
    log(&mut other);
    assert!(other.admin().take_completion(0).expect("connected").is_none(), "the same states");
    target.stop();
}

/// The removal of an address is no change of its states: the host only loses its connection, and the other one is not told either.
#[test]
fn hosts_are_not_told_of_paths_by_a_removed_address() {
    let (target, second) = two_addresses();
    let _ = target.server.set_paths(&[PathRule { address: second, group: None, state: AnaState::NonOptimized }]);
    let hosts = [target.addr, second].map(|addr| {
        let (mut controller, queue) = connect(&target, addr);
        controller.set_feature(u32::from(fid::ASYNC_EVENT_CONFIGURATION), 0, async_event::ANA_CHANGE).expect("set");
        controller.admin().submit(Sqe::new(admin::ASYNC_EVENT_REQUEST, 0), &[], 0).expect("submitted");
        (controller, queue)
    });
    let [(mut first, _queue), (mut other, _other_queue)] = hosts;
    let first_as_configured = SocketAddr::from(([127, 0, 0, 1], 0));
    let kept = ServerConfig { listeners: vec![first_as_configured], ..ServerConfig::default() };
    let ended = target.server.set_listeners(&kept).expect("without the second").wait(Instant::now() + DELAY_OF_END);
    assert_eq!((ended.associations.len(), ended.undrained), (1, 0));
    let event = other.admin().take_completion(TIMEOUT_MS);
    assert!(event.is_err(), "{event:?}");
    log(&mut first);
    assert!(first.admin().take_completion(0).expect("connected").is_none());
    target.stop();
}

/// A write in a backend is finished and waited for; none is accepted after it.
#[test]
fn draining_a_path_waits_for_commands_in_progress() {
    const DELAY: Duration = Duration::from_millis(300);
    let (target, _) = two_addresses();
    target.server.add_namespace(NQN, &namespace(3, "delay:300ms-300ms:mem:256KiB", 1)).expect("a slow namespace");
    let (_controller, mut queue) = connect(&target, target.addr);
    let began = Instant::now();
    queue.submit(Sqe::block_io(io::WRITE, 3, 0, 1), &[7; 4096], 0).expect("submitted");
    let read = queue.execute("read", Sqe::block_io(io::READ, 1, 0, 1), &[], &mut [0; 4096]);
    read.expect("the queue has received the write before");
    let rule = PathRule { address: target.addr, group: None, state: AnaState::Inaccessible };
    let ended = target.server.set_paths(&[rule]).wait(began + Duration::from_secs(60));
    // the delay begins with the poll that has received the write, which may have begun before `began`
    assert!(began.elapsed() >= DELAY / 2, "the write has not been waited for");
    assert_eq!((ended.associations.len(), ended.undrained), (1, 0));
    let (written, _) = queue.take_completion(TIMEOUT_MS).expect("connected").expect("completed");
    assert_eq!(written.status, Status::SUCCESS);
    assert_eq!(write(&mut queue, 1), Status::ANA_INACCESSIBLE);
    target.stop();
}
