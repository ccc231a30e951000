//! Changes of a running server hold up no host, and neither do looks at its media.

mod host_support;

use std::io;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use host_support::{NQN, target};
use pilotlight_host::{ConnectOptions, Controller};
use pilotlight_nvme::command::opcode::{admin, io as opcode};
use pilotlight_nvme::{Sqe, Status};
use pilotlight_nvmf_target::backend::{Backend, Channel, Geometry};

/// A backend whose size takes its time to change: until it is told to.
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

/// A shrinking file waits for requests beyond its new end, and only reactors bring those back: they must not be made to
/// wait for the resize in turn, as Identify once did.
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
        assert_eq!(namespace.expect("Identify is answered meanwhile").blocks, 64);
        assert_eq!(resize.join().expect("no panic").expect("resized"), 32);
    });
    assert_eq!(controller.namespace(1).expect("Identify").blocks, 32);
    controller.shutdown().expect("shut down");
    target.stop();
}

/// A backend that notes who asks how much it holds, and answers when it is told to.
#[derive(Clone)]
struct SlowToTell {
    inner: Arc<dyn Backend>,
    askers: Arc<Mutex<Vec<String>>>,
    go_on: Arc<AtomicBool>,
}

impl Backend for SlowToTell {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }
    fn allocated_bytes(&self) -> io::Result<u64> {
        let requester = std::thread::current().name().unwrap_or("unnamed").to_owned();
        self.askers.lock().expect("not poisoned").push(requester);
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

/// Blocks in use (NUSE), as Identify Namespace tells them.
fn blocks_in_use(controller: &mut Controller) -> u64 {
    let identified = controller.identify(0, 1).expect("Identify");
    u64::from_le_bytes(identified[16..24].try_into().expect("eight bytes"))
}

/// `fstat` and `lseek` may wait for locks of the file system: only Identify Namespace needs their answers, and no reactor
/// asks.
#[test]
fn a_medium_that_does_not_answer_holds_up_no_reactor() {
    let askers = Arc::<Mutex<Vec<String>>>::default();
    let go_on = Arc::new(AtomicBool::new(true));
    let (theirs, gate) = (Arc::clone(&askers), Arc::clone(&go_on));
    let target = target(1, 64, 4096, move |inner| {
        Arc::new(SlowToTell { inner, askers: Arc::clone(&theirs), go_on: Arc::clone(&gate) })
    });
    let (mut controller, mut io) = target.queue(target.options(), 8, 4096);
    assert_eq!(blocks_in_use(&mut controller), 0);
    io.execute("write", Sqe::block_io(opcode::WRITE, 1, 5, 1), &[7; 4096], &mut []).expect("written");
    assert_eq!(blocks_in_use(&mut controller), 1, "the number is the one that holds when Identify comes");
    let asked = askers.lock().expect("not poisoned").len();
    go_on.store(false, SeqCst);
    let late = Sqe::new(admin::IDENTIFY, 1);
    std::thread::scope(|scope| {
        // Holds what a change of a namespace holds, until the medium answers.
        let status = scope.spawn(|| target.server.allocated_bytes(NQN, 1));
        while askers.lock().expect("not poisoned").len() == asked {
            std::thread::yield_now();
        }
        let cid = controller.admin().submit(late, &[], 4096).expect("submitted");
        let kept_alive = controller.keep_alive();
        let listed = controller.active_namespaces();
        let read = io.execute("read", Sqe::block_io(opcode::READ, 1, 5, 1), &[], &mut [0; 4096]);
        go_on.store(true, SeqCst);
        kept_alive.expect("Keep Alive is answered meanwhile");
        assert_eq!(listed.expect("and what is no question to the medium"), [1]);
        read.expect("and a read");
        let mut data = [0; 4096];
        let identified = controller.admin().wait(cid, "Identify", &mut data).expect("answered later");
        assert!(identified.status.is_success());
        assert_eq!(status.join().expect("no panic").expect("told"), 4096);
    });
    let asked = askers.lock().expect("not poisoned").len();
    (0..10).for_each(|_| controller.keep_alive().expect("alive"));
    let askers = askers.lock().expect("not poisoned").clone();
    assert_eq!(askers.len(), asked, "Keep Alive looks at no medium");
    assert!(askers.iter().all(|requester| !requester.starts_with("reactor")), "a reactor asked: {askers:?}");
    controller.shutdown().expect("shut down");
    target.stop();
}

/// An Identify that is aborted, or whose connection ends, while the medium is being looked at, is answered to nobody else.
#[test]
fn an_identify_that_waits_for_a_medium_can_be_aborted() {
    let askers = Arc::<Mutex<Vec<String>>>::default();
    let go_on = Arc::new(AtomicBool::new(true));
    let (theirs, gate) = (Arc::clone(&askers), Arc::clone(&go_on));
    let target = target(1, 64, 4096, move |inner| {
        Arc::new(SlowToTell { inner, askers: Arc::clone(&theirs), go_on: Arc::clone(&gate) })
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
