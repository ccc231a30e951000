//! Changes of a running server hold up no host.

mod host_support;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use host_support::{NQN, target};
use pilotlight_host::Controller;
use pilotlight_target::backend::{Backend, Channel, Geometry};

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
