//! `src/sync.rs`, based on `loom`.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::rc::{Rc, Weak};

use loom::sync::atomic::AtomicU32;
use loom::sync::{Condvar, Mutex};
use loom::thread::{self, Thread};

pub(crate) use loom::cell::UnsafeCell;
pub(crate) use loom::sync::Arc;
pub(crate) use loom::sync::atomic::{Ordering, fence};
pub(crate) use std::sync::OnceLock; // filled before the threads of a model start

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Arm,
    Recheck,
    SenderFence,
    RestFence,
    RequestFence,
}

thread_local! {
    // The threads of a model are coroutines of one OS thread: a thread-local belongs to one test.
    static LEFT_OUT: Cell<Option<Step>> = const { Cell::new(None) };
    static EVENT: RefCell<Weak<Event>> = const { RefCell::new(Weak::new()) };
}

/// Whether the step is omitted in this model.
pub(crate) fn leaves_out(step: Step) -> bool {
    LEFT_OUT.get() == Some(step)
}

/// Omits `step` in this test's model from now on.
pub(crate) fn leave_out(step: Step) {
    LEFT_OUT.set(Some(step));
}

/// Makes `loom` try every order of the operations that take a turn.
///
/// `loom` tries another order only for an operation and the last dependent one before it. A load of the same thread is one, and hides that
/// an earlier load of another thread is dependent too. Turns always depend on each other, and being relaxed they order nothing else.
#[derive(Debug, Default)]
struct Turns(AtomicU32);

impl Turns {
    fn take(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// An atomic whose cache line one thread can watch: its stores end the wait, without another notification.
///
/// Nothing else runs between two operations of `loom`, so a store, the change of the line and the end of the wait are one step.
#[derive(Debug)]
pub(crate) struct AtomicU64 {
    value: loom::sync::atomic::AtomicU64,
    turns: Turns,
    line: std::sync::Mutex<Line>,
}

/// The coherent value, regardless of the results of loads.
#[derive(Debug)]
struct Line {
    value: u64,
    watcher: Option<Thread>,
}

impl AtomicU64 {
    pub(crate) fn new(value: u64) -> Self {
        let line = std::sync::Mutex::new(Line { value, watcher: None });
        Self { value: loom::sync::atomic::AtomicU64::new(value), turns: Turns::default(), line }
    }

    pub(crate) fn load(&self, order: Ordering) -> u64 {
        self.turns.take();
        self.value.load(order)
    }

    pub(crate) fn store(&self, value: u64, order: Ordering) {
        self.turns.take();
        self.value.store(value, order);
        let mut line = self.line.lock().expect("no panic holds it");
        line.value = value;
        if let Some(watcher) = line.watcher.take() {
            watcher.unpark();
        }
    }

    pub(crate) fn compare_exchange_weak(&self, old: u64, new: u64, ok: Ordering, not: Ordering) -> Result<u64, u64> {
        self.turns.take();
        self.value.compare_exchange_weak(old, new, ok, not) // never used on a watched line
    }

    /// Blocks until the line differs from `snapshot`.
    pub(crate) fn wait_until_changed_from(&self, snapshot: u64) {
        loop {
            self.turns.take();
            let mut line = self.line.lock().expect("no panic holds it");
            if line.value != snapshot {
                drop(line);
                return thread::yield_now(); // time passes: the store is seen soon
            }
            line.watcher = Some(thread::current());
            drop(line);
            thread::park();
        }
    }
}

/// A futex without deadlines: the kernel checks the word and queues waiters under one lock.
#[derive(Debug, Default)]
pub(crate) struct Futex {
    word: AtomicU32,
    turns: Turns,
    queue: Mutex<()>,
    woken: Condvar,
}

impl Futex {
    pub(crate) fn load(&self, order: Ordering) -> u32 {
        self.turns.take();
        self.word.load(order)
    }

    pub(crate) fn swap(&self, value: u32, order: Ordering) -> u32 {
        self.turns.take();
        self.word.swap(value, order)
    }

    pub(crate) fn wait(&self, value: u32, _until_ns: u64) {
        let queue = self.queue.lock().expect("no panic holds it");
        if self.load(Ordering::Relaxed) == value {
            drop(self.woken.wait(queue));
        }
    }

    pub(crate) fn wake(&self) {
        let _queue = self.queue.lock().expect("no panic holds it");
        self.woken.notify_one();
    }
}

#[derive(Debug, Default)]
struct Event {
    rings: Mutex<u64>,
    rung: Condvar,
}

/// An eventfd; a model has one.
#[derive(Debug)]
pub(crate) struct EventFd(Rc<Event>);

// SAFETY: all threads of a model run on one OS thread, one at a time.
unsafe impl Send for EventFd {}
// SAFETY: as above.
unsafe impl Sync for EventFd {}

impl EventFd {
    #[expect(clippy::unnecessary_wraps, reason = "as the system's")]
    pub(crate) fn new() -> io::Result<Self> {
        let event = Rc::new(Event::default());
        EVENT.set(Rc::downgrade(&event));
        Ok(Self(event))
    }

    pub(crate) fn ring(&self) {
        *self.0.rings.lock().expect("no panic holds it") += 1;
        self.0.rung.notify_one();
    }

    pub(crate) fn drain(&self) -> u64 {
        std::mem::take(&mut *self.0.rings.lock().expect("no panic holds it"))
    }
}

impl AsFd for EventFd {
    /// A placeholder: models call [`poll`].
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: never read, written or closed.
        unsafe { BorrowedFd::borrow_raw(0) }
    }
}

fn event() -> Rc<Event> {
    EVENT.with_borrow(Weak::upgrade).expect("the model has requested the doorbell")
}

/// Blocks until the model's doorbell is readable.
pub(crate) fn poll() {
    let event = event();
    let mut rings = event.rings.lock().expect("no panic holds it");
    while *rings == 0 {
        rings = event.rung.wait(rings).expect("no panic holds it");
    }
}

/// Whether the model's doorbell is readable.
pub(crate) fn is_readable() -> bool {
    *event().rings.lock().expect("no panic holds it") > 0
}
