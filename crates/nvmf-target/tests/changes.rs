//! Configuration changes and queries of media do not delay hosts.

mod host_support;

use std::io;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use host_support::{NQN, target};
use pilotlight_host::{ConnectOptions, Controller};
use pilotlight_nvme::command::opcode::{admin, io as opcode};
use pilotlight_nvme::{Sqe, Status};
use pilotlight_storage::{Backend, Channel, Geometry};

/// A backend whose resize waits until the test allows it.
struct SlowToResize {
    inner: Arc<dyn Backend>,
    begun: Arc<AtomicBool>,
    go_on: Arc<AtomicBool>,
}

impl Backend for SlowToResize {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }
    fn allocated_bytes(&self) -> io::Result<u64> {
        self.inner.allocated_bytes()
    }
    fn open_channel(&self, depth: u32) -> io::Result<Box<dyn Channel>> {
        self.inner.open_channel(depth)
    }
    fn resize(&self, blocks: Option<u64>) -> io::Result<Geometry> {
        self.begun.store(true, SeqCst);
        wait(&self.go_on);
        self.inner.resize(blocks)
    }
}

fn wait(flag: &AtomicBool) {
    let until = Instant::now() + Duration::from_secs(30);
    while !flag.load(SeqCst) && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Shrinking a file waits for requests beyond its new end. Reactors complete those, so reactors must not wait for the resize.
#[test]
fn admin_commands_are_answered_while_a_namespace_is_resized() {
    let (begun, go_on) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
    let (their_begun, their_go_on) = (Arc::clone(&begun), Arc::clone(&go_on));
    let target = target(1, 64, 4096, move |inner| {
        let (begun, go_on) = (Arc::clone(&their_begun), Arc::clone(&their_go_on));
        Arc::new(SlowToResize { inner, begun, go_on })
    });
    let mut options = target.options();
    options.timeout_ms = 3000;
    let mut controller = Controller::connect(options).expect("a controller");
    std::thread::scope(|scope| {
        let resize = scope.spawn(|| target.server.resize_namespace(NQN, 1, Some(32)));
        wait(&begun);
        let namespace = controller.namespace(1);
        go_on.store(true, SeqCst);
        assert_eq!(namespace.expect("Identify completes meanwhile").blocks, 64);
        assert_eq!(resize.join().expect("no panic").expect("resized"), 32);
    });
    assert_eq!(controller.namespace(1).expect("Identify").blocks, 32);
    controller.shutdown().expect("shut down");
    target.stop();
}

/// A backend that records the callers of `allocated_bytes` and returns when the test allows it.
#[derive(Clone)]
struct SlowUsage {
    inner: Arc<dyn Backend>,
    callers: Arc<Mutex<Vec<String>>>,
    go_on: Arc<AtomicBool>,
}

impl Backend for SlowUsage {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }
    fn allocated_bytes(&self) -> io::Result<u64> {
        let requester = std::thread::current().name().unwrap_or("unnamed").to_owned();
        self.callers.lock().expect("not poisoned").push(requester);
        wait(&self.go_on);
        self.inner.allocated_bytes()
    }
    fn open_channel(&self, depth: u32) -> io::Result<Box<dyn Channel>> {
        self.inner.open_channel(depth)
    }
    fn resize(&self, blocks: Option<u64>) -> io::Result<Geometry> {
        self.inner.resize(blocks)
    }
}

/// Blocks in use (NUSE of Identify Namespace).
fn blocks_in_use(controller: &mut Controller) -> u64 {
    let identified = controller.identify(0, 1).expect("Identify");
    u64::from_le_bytes(identified[16..24].try_into().expect("eight bytes"))
}

/// `fstat` and `lseek` may wait for file system locks. Only Identify Namespace needs them, and no reactor calls them.
#[test]
fn a_blocked_medium_does_not_block_a_reactor() {
    let callers = Arc::<Mutex<Vec<String>>>::default();
    let go_on = Arc::new(AtomicBool::new(true));
    let (theirs, gate) = (Arc::clone(&callers), Arc::clone(&go_on));
    let target = target(1, 64, 4096, move |inner| {
        Arc::new(SlowUsage { inner, callers: Arc::clone(&theirs), go_on: Arc::clone(&gate) })
    });
    let (mut controller, mut io) = target.queue(target.options(), 8, 4096);
    assert_eq!(blocks_in_use(&mut controller), 0);
    io.execute("write", Sqe::block_io(opcode::WRITE, 1, 5, 1), &[7; 4096], &mut []).expect("written");
    assert_eq!(blocks_in_use(&mut controller), 1, "the number is current when Identify arrives");
    let called = callers.lock().expect("not poisoned").len();
    go_on.store(false, SeqCst);
    let late = Sqe::new(admin::IDENTIFY, 1);
    std::thread::scope(|scope| {
        // Holds the lock of configuration changes until the medium responds.
        let status = scope.spawn(|| target.server.allocated_bytes(NQN, 1));
        while callers.lock().expect("not poisoned").len() == called {
            std::thread::yield_now();
        }
        let cid = controller.admin().submit(late, &[], 4096).expect("submitted");
        let kept_alive = controller.keep_alive();
        let listed = controller.active_namespaces();
        let read = io.execute("read", Sqe::block_io(opcode::READ, 1, 5, 1), &[], &mut [0; 4096]);
        go_on.store(true, SeqCst);
        kept_alive.expect("Keep Alive completes meanwhile");
        assert_eq!(listed.expect("Identify without a query of the medium completes"), [1]);
        read.expect("a read completes");
        let mut data = [0; 4096];
        let identified = controller.admin().wait(cid, "Identify", &mut data).expect("answered later");
        assert!(identified.status.is_success());
        assert_eq!(status.join().expect("no panic").expect("told"), 4096);
    });
    let called = callers.lock().expect("not poisoned").len();
    (0..10).for_each(|_| controller.keep_alive().expect("alive"));
    let callers = callers.lock().expect("not poisoned").clone();
    assert_eq!(callers.len(), called, "Keep Alive does not query the medium");
    assert!(callers.iter().all(|requester| !requester.starts_with("reactor")), "called by a reactor: {callers:?}");
    controller.shutdown().expect("shut down");
    target.stop();
}

/// The response to an Identify that is aborted, or whose connection ends, during the query is discarded.
#[test]
fn an_identify_that_waits_for_a_medium_can_be_aborted() {
    let callers = Arc::<Mutex<Vec<String>>>::default();
    let go_on = Arc::new(AtomicBool::new(true));
    let (theirs, gate) = (Arc::clone(&callers), Arc::clone(&go_on));
    let target = target(1, 64, 4096, move |inner| {
        Arc::new(SlowUsage { inner, callers: Arc::clone(&theirs), go_on: Arc::clone(&gate) })
    });
    let mut controller = Controller::connect(target.options()).expect("a controller");
    let leaving = Controller::connect(ConnectOptions { hostid: [9; 16], ..target.options() });
    let mut leaving = leaving.expect("another controller");
    go_on.store(false, SeqCst);
    leaving.admin().submit(Sqe::new(admin::IDENTIFY, 1), &[], 4096).expect("submitted");
    let cid = controller.admin().submit(Sqe::new(admin::IDENTIFY, 1), &[], 4096).expect("submitted");
    let abort = Sqe::new(admin::ABORT, 0).with_cdw(10, u32::from(cid) << 16);
    assert_eq!(controller.admin().execute("abort", abort, &[], &mut []).expect("answered"), 0, "stopped");
    let aborted = controller.admin().wait(cid, "the aborted Identify", &mut []).expect("answered");
    assert_eq!(aborted.status.code(), Status::ABORT_REQUESTED);
    drop(leaving);
    go_on.store(true, SeqCst);
    for _ in 0..100 {
        assert_eq!(blocks_in_use(&mut controller), 0);
    }
    controller.shutdown().expect("shut down");
    target.stop();
}
