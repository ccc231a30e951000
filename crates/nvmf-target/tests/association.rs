//! Associations: order of writes after a reconnect, events, aborts, keep-alive, identity after a restart, drains.

#[path = "association/gate.rs"]
mod gate;
mod host_support;

use std::io;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use gate::{BLOCK, Gate, gated, queue, read, until};
use host_support::{NQN, Target, target};
use pilotlight_host::{ConnectOptions, Connection, Controller, HostError};
use pilotlight_nvme::command::opcode::{admin, io as io_opcode};
use pilotlight_nvme::fabrics::{cc, csts, property};
use pilotlight_nvme::feature::{NAMESPACE_CHANGED, async_event, fid};
use pilotlight_nvme::identify::cns;
use pilotlight_nvme::{Sqe, Status};
use pilotlight_nvmf_target::{NamespaceConfig, Server, ServerConfig, SubsystemConfig};
use pilotlight_reactor::{Idle, RuntimeOptions};
use pilotlight_storage::{Backend, Channel, Geometry};

fn write(connection: &mut Connection, lba: u64, byte: u8) -> u16 {
    let sqe = Sqe::block_io(io_opcode::WRITE, 1, lba, 1);
    connection.submit(sqe, &[byte; BLOCK], 0).expect("submitted")
}

/// Loses a host's connections, and waits until the target knows: before that another association is a second path.
fn lose(target: &Target, first: Controller, io: Connection) {
    drop((first, io));
    until("the association has ended", || target.server.associations().is_empty());
}

/// Connects on another thread, so that the test can observe whether it waits.
fn connect_behind(options: ConnectOptions) -> mpsc::Receiver<Controller> {
    let (connected, controller) = mpsc::channel();
    std::thread::spawn(move || {
        // a failed test has dropped the receiver
        let _ = connected.send(Controller::connect(options).expect("connects"));
    });
    controller
}

/// Adds namespace 2, which shares the gate.
fn add_second(target: &Target) {
    let backend = "mem:1MiB".parse().expect("valid");
    let config = NamespaceConfig::new(2, backend, BLOCK as u32);
    target.server.add_namespace(NQN, &config).expect("added");
}

/// Twenty writes and reads of namespace 2, one after another.
fn use_second(io: &mut Connection) {
    for lba in 0..20 {
        let sqe = Sqe::block_io(io_opcode::WRITE, 2, lba, 1);
        io.execute("write", sqe, &[0x77; BLOCK], &mut []).expect("the other namespace is served");
        let sqe = Sqe::block_io(io_opcode::READ, 2, lba, 1);
        io.execute("read", sqe, &[], &mut [0; BLOCK]).expect("the other namespace is served");
    }
}

/// Commands to the stuck namespace: more than a queue passes over to reach those of another one.
const MANY: usize = 200;

/// Writes 0x22 where the earlier association's write of 0x11 is in the backend; namespace 2 is served meanwhile.
fn overwrite(second: &Controller, gate: &Gate) {
    let mut io = queue(second, 1);
    let newer = write(&mut io, 7, 0x22);
    let by_transfer =
        io.submit(Sqe::block_io(io_opcode::WRITE, 1, 8, 16), &vec![0x22; 16 * BLOCK], 0).expect("submitted");
    let seen = io.submit(Sqe::block_io(io_opcode::READ, 1, 7, 1), &[], BLOCK as u32).expect("submitted");
    let reads: Vec<u16> = (0..MANY)
        .map(|_| io.submit(Sqe::block_io(io_opcode::READ, 1, 100, 1), &[], BLOCK as u32).expect("submitted"))
        .collect();
    use_second(&mut io);
    let early = io.take_completion(0).expect("connected").map(|(completed, _)| completed.cid);
    gate.shut.store(false, SeqCst);
    assert_eq!(early, None, "served before the write of the earlier association");
    let mut data = [0; BLOCK];
    io.wait(seen, "read", &mut data).expect("read");
    for read in reads {
        io.wait(read, "read", &mut [0; BLOCK]).expect("read");
    }
    assert_ne!(data[0], 0, "the old write completes before commands of the new association");
    for cid in [newer, by_transfer] {
        assert!(io.wait(cid, "write", &mut []).expect("answered").status.is_success());
    }
    assert_eq!(read(&mut io, 7)[0], 0x22, "a write of the old association overwrote one of the new");
    use_second(&mut io);
}

fn reconnect(target: &Target) -> Controller {
    let connected = connect_behind(target.options()).recv_timeout(Duration::from_secs(60));
    connected.expect("connected with a write of the earlier association in the backend")
}

#[test]
fn only_commands_to_the_namespace_of_an_earlier_write_wait_for_it() {
    for reactors in [1, 2] {
        let (target, gate) = gated(reactors);
        add_second(&target);
        let first = Controller::connect(target.options()).expect("a controller");
        let mut io = queue(&first, 1);
        gate.shut_only_for(0x11);
        gate.shut.store(true, SeqCst);
        write(&mut io, 7, 0x11);
        until("the write is in the backend", || gate.taken.load(SeqCst) == 1);
        lose(&target, first, io);
        let began = Instant::now();
        let second = reconnect(&target);
        println!("{reactors} reactors: reconnected after {:?}", began.elapsed());
        overwrite(&second, &gate);
        drop(second);
        target.stop();
    }
}

/// The network loses the FIN of the admin queue: the old association still looks active, though its I/O queues have ended.
#[test]
fn writes_of_a_lost_io_queue_are_waited_for_although_its_admin_queue_looks_active() {
    for reactors in [1, 2] {
        let (target, gate) = gated(reactors);
        add_second(&target);
        let first = Controller::connect(target.options()).expect("a controller");
        let mut io = queue(&first, 1);
        gate.shut_only_for(0x11);
        gate.shut.store(true, SeqCst);
        write(&mut io, 7, 0x11);
        until("the write is in the backend", || gate.taken.load(SeqCst) == 1);
        drop(io);
        let second = reconnect(&target);
        overwrite(&second, &gate);
        drop((first, second));
        target.stop();
    }
}

/// Neither writes nor the flush of a shutdown of later associations get stuck as well: their queues would count for the host.
#[test]
fn reconnects_behind_a_stuck_write_leave_nothing_behind() {
    let (target, gate) = gated(2);
    add_second(&target);
    let first = Controller::connect(target.options()).expect("a controller");
    let mut io = queue(&first, 1);
    gate.shut_only_for(0x11);
    gate.holds_flushes.store(true, SeqCst);
    gate.shut.store(true, SeqCst);
    write(&mut io, 7, 0x11);
    until("the write is in the backend", || gate.taken.load(SeqCst) == 1);
    lose(&target, first, io);
    for round in 0..20 {
        let mut again = reconnect(&target);
        let mut io = queue(&again, 1);
        write(&mut io, 7, 0x11);
        io.submit(Sqe::new(io_opcode::FLUSH, 1), &[], 0).expect("submitted");
        use_second(&mut io);
        if round % 2 == 0 {
            let shutdown = cc::EN | cc::IOSQES_IOCQES | 1 << 14;
            again.set_property(property::CC, shutdown).expect("CC");
            until("the shutdown reports that namespace 1 cannot be flushed", || {
                again.property(property::CSTS, false).expect("CSTS") as u32 & csts::CFS != 0
            });
        }
        drop((again, io));
        until("only the first association is left", || target.server.stats().associations == 1);
    }
    assert_eq!(gate.taken.load(SeqCst), 1 + 20 * 20, "a later write to namespace 1 was submitted");
    drop(gate);
    until("no association is left", || target.server.stats().associations == 0);
    target.stop();
}

/// The second path of a multipath host must not wait for writes in flight on the first.
#[test]
fn a_second_path_does_not_wait_for_the_writes_of_the_first() {
    let (target, gate) = gated(2);
    let first = Controller::connect(target.options()).expect("a controller");
    let mut io = queue(&first, 1);
    gate.shut.store(true, SeqCst);
    let waits = write(&mut io, 7, 0x11);
    until("the write is in the backend", || gate.taken.load(SeqCst) == 1);
    let path =
        connect_behind(target.options()).recv_timeout(Duration::from_secs(60)).expect("the second path connects");
    gate.shut.store(false, SeqCst);
    io.wait(waits, "write", &mut []).expect("the first path is served");
    drop((first, path, io));
    target.stop();
}

#[test]
fn another_host_does_not_wait() {
    let (target, gate) = gated(2);
    let first = Controller::connect(target.options()).expect("a controller");
    let mut io = queue(&first, 1);
    gate.shut.store(true, SeqCst);
    write(&mut io, 7, 0x11);
    until("the write is in the backend", || gate.taken.load(SeqCst) == 1);
    drop((first, io));
    let mut options = target.options();
    options.hostid = [9; 16];
    let other = connect_behind(options).recv_timeout(Duration::from_secs(20)).expect("another host connects");
    gate.shut.store(false, SeqCst);
    drop(other);
    target.stop();
}

#[test]
fn a_lost_association_submits_no_further_requests() {
    let (target, gate) = gated(2);
    let first = Controller::connect(target.options()).expect("a controller");
    let mut io = queue(&first, 1);
    gate.busy.store(true, SeqCst);
    for lba in 0..8 {
        write(&mut io, lba, 0x33);
    }
    // None may reach the backend, whether or not they had arrived when the connection ended.
    lose(&target, first, io);
    let second = Controller::connect(target.options()).expect("connects without a wait, as nothing is in flight");
    gate.busy.store(false, SeqCst);
    let mut io = queue(&second, 1);
    let mark = write(&mut io, 200, 0x44);
    io.wait(mark, "write", &mut []).expect("written");
    assert_eq!(gate.taken.load(SeqCst), 1, "a write of the lost association was submitted");
    for lba in 0..8 {
        assert_eq!(read(&mut io, lba), [0; BLOCK], "block {lba}");
    }
    drop((second, io));
    target.stop();
}

#[test]
fn the_end_of_the_admin_queue_ends_the_io_queues() {
    let (target, _gate) = gated(2);
    let first = Controller::connect(target.options()).expect("a controller");
    let mut io = queue(&first, 1);
    assert_eq!(read(&mut io, 0), [0; BLOCK]);
    drop(first);
    let closed = loop {
        match io.take_completion(1000) {
            Ok(None) => {}
            Ok(Some(completion)) => panic!("unexpected completion: {completion:?}"),
            Err(error) => break error,
        }
    };
    assert!(matches!(closed, HostError::Closed(_) | HostError::Io { .. }), "{closed}");
    until("the register is empty", || target.server.stats().associations == 0);
    target.stop();
}

#[test]
fn the_power_state_of_a_controller_is_reported_until_the_controller_ends() {
    let subsystem = SubsystemConfig::new(NQN, Vec::new());
    let serve = |power_states| {
        let listeners = vec![(std::net::Ipv4Addr::LOCALHOST, 0).into()];
        let subsystems = vec![subsystem.clone()];
        let config = ServerConfig { listeners, subsystems, power_states, ..ServerConfig::default() };
        let no_backend = |_: &NamespaceConfig| unreachable!("there are no namespaces");
        Server::start_with(config, RuntimeOptions::new(vec![None], Idle::Yield), Box::new(no_backend)).expect("starts")
    };
    let server = serve(true);
    let options = ConnectOptions::new(server.local_addrs()[0], NQN);
    let mut first = Controller::connect(options.clone()).expect("a controller");
    let second = Controller::connect(ConnectOptions { hostid: [8; 16], ..options }).expect("another");
    first.set_feature(2, 0, 3).expect("the last state but one");
    let power_states = || server.stats().power_states.iter().map(|(_, state)| *state).collect::<Vec<_>>();
    assert_eq!(power_states(), [3, 0]);
    drop(first);
    until("the first controller ends", || power_states() == [0]);
    drop(second);
    server.stop(Duration::from_secs(10)).expect("stops");
    let plain = serve(false);
    let host = Controller::connect(ConnectOptions::new(plain.local_addrs()[0], NQN)).expect("a controller");
    assert!(plain.stats().power_states.is_empty(), "no power states are reported");
    drop(host);
    plain.stop(Duration::from_secs(10)).expect("stops");
}

#[test]
fn a_silent_host_is_disconnected_and_a_reading_host_is_not() {
    let (target, _gate) = gated(2);
    let mut options = target.options();
    options.kato_ms = 1_500; // for the reader too: on a busy machine it may pause, but not for this long
    let silent = Controller::connect(options.clone()).expect("a controller");
    options.hostid = [8; 16];
    let reader = Controller::connect(options).expect("a controller");
    let mut io = queue(&reader, 1);
    let began = Instant::now();
    until("the silent host is disconnected", || {
        assert_eq!(read(&mut io, 0), [0; BLOCK], "traffic on an I/O queue keeps the association (TBKAS)");
        target.server.stats().associations == 1
    });
    let after = began.elapsed();
    assert!(after >= Duration::from_millis(1_450), "disconnected too early, after {after:?}");
    drop((silent, reader, io));
    target.stop();
}

#[test]
fn hosts_get_events_when_a_namespace_is_added_resized_or_removed() {
    let (target, _gate) = gated(2);
    let mut controller = Controller::connect(target.options()).expect("a controller");
    controller
        .set_feature(u32::from(fid::ASYNC_EVENT_CONFIGURATION), 0, async_event::NAMESPACE_ATTRIBUTE)
        .expect("set");
    let wait_for_event = |controller: &mut Controller, changed: &[u32]| {
        let cid = controller.admin().submit(Sqe::new(admin::ASYNC_EVENT_REQUEST, 0), &[], 0).expect("submitted");
        let event = controller.admin().wait(cid, "an event", &mut []).expect("an event");
        assert_eq!(event.result as u32, NAMESPACE_CHANGED);
        let mut list = [0; 4096];
        controller.log_page(0x04, u32::MAX, 0, &mut list).expect("the changed namespaces");
        let listed: Vec<u32> = list.chunks(4).map(|c| u32::from_le_bytes([c[0], c[1], c[2], c[3]])).collect();
        assert_eq!(&listed[..changed.len()], changed);
        assert_eq!(listed[changed.len()], 0);
    };
    let config = NamespaceConfig::new(5, "mem:1MiB".parse().expect("valid"), 4096);
    target.server.add_namespace(NQN, &config).expect("added");
    wait_for_event(&mut controller, &[5]);
    assert_eq!(controller.active_namespaces().expect("a list"), [1, 5]);
    target.server.resize_namespace(NQN, 5, Some(512)).expect("resized");
    wait_for_event(&mut controller, &[5]);
    assert_eq!(controller.namespace(5).expect("identified").blocks, 512);
    target.server.remove_namespace(NQN, 5).expect("removed");
    wait_for_event(&mut controller, &[5]);
    assert_eq!(controller.active_namespaces().expect("a list"), [1]);
    let mut io = queue(&controller, 1);
    let gone = io.execute("read", Sqe::block_io(io_opcode::READ, 5, 0, 1), &[], &mut [0; BLOCK]);
    assert!(matches!(gone, Err(HostError::Status { status, .. }) if status.code() == Status::INVALID_NAMESPACE));
    drop((controller, io));
    target.stop();
}

/// A resize may wait for requests in progress, so the I/O threads that complete them must not wait for the resize.
#[test]
fn admin_commands_are_answered_while_a_resize_waits() {
    let (target, gate) = gated(1);
    let mut controller = Controller::connect(target.options()).expect("a controller");
    gate.resize_waits.store(true, SeqCst);
    std::thread::scope(|scope| {
        let resize = scope.spawn(|| target.server.resize_namespace(NQN, 1, Some(512)));
        until("the resize has begun", || gate.resizing.load(SeqCst));
        assert_eq!(controller.active_namespaces().expect("a list"), [1]);
        gate.resize_waits.store(false, SeqCst);
        assert_eq!(resize.join().expect("no panic").expect("resized"), 512);
    });
    drop(controller);
    target.stop();
}

/// A backend whose channels cannot be opened.
struct Unreachable(Arc<dyn Backend>);

impl Backend for Unreachable {
    fn geometry(&self) -> Geometry {
        self.0.geometry()
    }
    fn allocated_bytes(&self) -> io::Result<u64> {
        self.0.allocated_bytes()
    }
    fn open_channel(&self, _depth: u32) -> io::Result<Box<dyn Channel>> {
        Err(io::ErrorKind::QuotaExceeded.into())
    }
    fn resize(&self, blocks: Option<u64>) -> io::Result<Geometry> {
        self.0.resize(blocks)
    }
}

/// Linux treats a flush that fails with Invalid Namespace as successful, so a namespace must be available on every I/O thread.
#[test]
fn a_namespace_without_a_channel_on_an_io_thread_is_refused() {
    let memory = |ns: &NamespaceConfig| {
        let budget = Arc::new(pilotlight_storage::MemoryBudget::unlimited());
        let memory = pilotlight_storage::open(&ns.backend, ns.block_size, &budget)?;
        Ok(Arc::new(Unreachable(memory)) as Arc<dyn Backend>)
    };
    let config = NamespaceConfig::new(2, "mem:1MiB".parse().expect("valid"), 4096);
    let subsystem = |namespaces| SubsystemConfig::new(NQN, namespaces);
    let start = |namespaces| {
        let listeners = vec![(std::net::Ipv4Addr::LOCALHOST, 0).into()];
        let config = ServerConfig { listeners, subsystems: vec![subsystem(namespaces)], ..ServerConfig::default() };
        let options = RuntimeOptions::new(vec![None], Idle::Yield);
        Server::start_with(config, options, Box::new(memory))
    };
    let Err(error) = start(vec![config.clone()]) else { panic!("the server starts without a channel") };
    assert!(error.to_string().contains("namespace 2"), "{error}");
    let server = start(vec![]).expect("a server without namespaces");
    let refused = server.add_namespace(NQN, &config).expect_err("no channel");
    assert!(refused.to_string().contains("namespace 2"), "{refused}");
    server.stop(Duration::from_secs(10)).expect("stops");
}

fn abort(controller: &mut Controller, sqid: u16, cid: u16) -> u64 {
    let sqe = Sqe::new(admin::ABORT, 0).with_cdw(10, u32::from(sqid) | u32::from(cid) << 16);
    controller.admin().execute("abort", sqe, &[], &mut []).expect("Abort itself succeeds")
}

#[test]
fn abort_stops_waiting_commands_and_not_those_in_the_backend() {
    let (target, gate) = gated(2);
    let mut controller = Controller::connect(target.options()).expect("a controller");
    let mut io = queue(&controller, 1);
    gate.busy.store(true, SeqCst);
    let waiting = write(&mut io, 1, 0x55);
    // The abort may arrive before the write, as they use two connections.
    until("the abort finds the write", || abort(&mut controller, 1, waiting) == 0);
    let ended = io.wait(waiting, "the aborted write", &mut []).expect("answered");
    assert_eq!(ended.status.code(), Status::ABORT_REQUESTED);
    gate.shut.store(true, SeqCst);
    gate.busy.store(false, SeqCst);
    let in_backend = write(&mut io, 2, 0x66);
    until("the write is in the backend", || gate.taken.load(SeqCst) == 1);
    assert_eq!(abort(&mut controller, 1, in_backend), 1, "not stopped");
    assert_eq!(abort(&mut controller, 1, 999), 1, "there is no such command");
    assert_eq!(abort(&mut controller, 77, 1), 1, "there is no such queue");
    gate.shut.store(false, SeqCst);
    assert!(io.wait(in_backend, "the write", &mut []).expect("answered").status.is_success());
    assert_eq!(read(&mut io, 1), [0; BLOCK], "the aborted write has changed no block");
    assert_eq!(read(&mut io, 2), [0x66; BLOCK]);
    drop((controller, io));
    target.stop();
}

#[test]
fn identity_is_the_same_after_a_restart() {
    let identity = || {
        let (target, _gate) = gated(1);
        let mut controller = Controller::connect(target.options()).expect("a controller");
        let ids: Vec<Vec<u8>> =
            [(cns::NAMESPACE, 104..120), (cns::NAMESPACE_DESCRIPTORS, 0..64), (cns::CONTROLLER, 4..24)]
                .map(|(cns, range)| controller.identify(cns, 1).expect("identified")[range].to_vec())
                .into();
        drop(controller);
        target.stop();
        ids
    };
    let first = identity();
    assert!(first.iter().all(|id| id.iter().any(|&byte| byte != 0)));
    assert_eq!(first, identity());
}

#[test]
fn a_reset_controller_can_be_used_again() {
    let (target, _gate) = gated(2);
    let mut controller = Controller::connect(target.options()).expect("a controller");
    let io = queue(&controller, 1);
    controller.disable().expect("CSTS.RDY falls");
    drop(io);
    controller.enable().expect("ready again");
    let mut io = queue(&controller, 1);
    assert_eq!(read(&mut io, 0), [0; BLOCK]);
    drop(io);
    controller.shutdown().expect("a normal shutdown");
    target.stop();
}

/// All acknowledged writes are in the backend, and the server stops in time although a host continues to send.
#[test]
fn a_drain_completes_requests_in_progress() {
    let contents: Arc<Mutex<Option<Arc<dyn Backend>>>> = Arc::default();
    let keep = Arc::clone(&contents);
    let target = target(2, 4096, BLOCK as u32, move |inner| {
        *keep.lock().expect("not poisoned") = Some(Arc::clone(&inner));
        inner
    });
    let options = target.options();
    let writer = std::thread::spawn(move || {
        let controller = Controller::connect(options).expect("a controller");
        let mut io = queue(&controller, 1);
        let mut acknowledged = 0;
        for lba in 0..4096 {
            let sqe = Sqe::block_io(io_opcode::WRITE, 1, lba, 1);
            match io.execute("write", sqe, &[lba as u8 | 1; BLOCK], &mut []) {
                Ok(_) => acknowledged = lba + 1,
                Err(_) => break,
            }
        }
        acknowledged
    });
    until("writes are flowing", || target.server.stats().totals.writes > 100);
    target.stop();
    let acknowledged = writer.join().expect("the writer ends");
    let backend = contents.lock().expect("not poisoned").clone().expect("opened");
    let bytes = backend.allocated_bytes().expect("known");
    assert!(bytes >= acknowledged * BLOCK as u64, "{acknowledged} blocks acknowledged, {bytes} bytes stored");
}
