//! One OS thread for periodic and event-driven work that waits for nothing: not for storage, a device, a file or a peer.
//!
//! A *task* is a function of the time that returns when it is called next. A [`Waker`] makes it due before its time, from any thread, without a lock
//! or allocation. There are less than ten tasks, so the thread looks at all of them after each wait.
//!
//! **Properties** (tests). A task is called at its time and after each wake-up, also the last, never twice at once. A due task waits at most
//! for one call of each other one. A task that panics is named and not called again; the others continue. Once its [`Task`] is dropped,
//! a task does not run, and what it had captured is dropped.
//!
//! What may block has another thread, so that one sensor or file that hangs delays no reading of a policy that limits power.

use std::io::{self, Write as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, fence};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;

use crate::affinity::keep_off;
use crate::clock;
use crate::sync::Futex;

/// When a task is called next. Times are those of [`clock`], in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// When it is woken.
    Woken,
    /// At this time, or when it is woken earlier.
    At(u64),
    /// When it is woken, but not before this time.
    NotBefore(u64),
}

/// Makes one task due. Wake-ups before its call are one.
#[derive(Clone, Debug, Default)]
pub struct Waker(Arc<WakerState>);

#[derive(Debug, Default)]
struct WakerState {
    is_woken: AtomicBool,
    /// Of the thread, once the task is added. Incremented by each wake-up.
    wake_ups: OnceLock<Arc<Futex>>,
}

impl Waker {
    /// Wakes the task: a system call for the first wake-up after its last call, none for others.
    pub fn wake(&self) {
        if !self.0.is_woken.swap(true, AcqRel) {
            fence(SeqCst); // with that of `add`: this sees the thread, or the thread sees the wake-up
            self.0.wake_ups.get().into_iter().for_each(|wake_ups| wake_thread(wake_ups));
        }
    }

    fn is_woken(&self) -> bool {
        self.0.is_woken.load(Acquire)
    }
}

fn wake_thread(wake_ups: &Futex) {
    wake_ups.fetch_add(1, Release);
    wake_ups.wake();
}

/// What a task does at a time.
type Call = Box<dyn FnMut(u64) -> Next + Send>;

struct Entry {
    name: &'static str,
    call: Call,
    waker: Waker,
    /// `None` after a panic.
    next: Option<Next>,
}

impl Entry {
    /// When it is due; `None`: not before it is woken.
    fn due_ns(&self) -> Option<u64> {
        let is_woken = self.waker.is_woken();
        match self.next? {
            Next::At(at_ns) => Some(if is_woken { 0 } else { at_ns }),
            Next::Woken => is_woken.then_some(0),
            Next::NotBefore(at_ns) => is_woken.then_some(at_ns),
        }
    }

    fn call(&mut self, now_ns: u64) {
        self.waker.0.is_woken.swap(false, AcqRel); // before the call, so that a wake-up in it leads to another
        self.next = catch_unwind(AssertUnwindSafe(|| (self.call)(now_ns))).ok();
        if self.next.is_none() {
            let name = self.name;
            // not eprintln!, which panics if nobody reads
            let _ = writeln!(
                io::stderr(),
                "pilotlight: task {name} panicked (see above) and is not called again; please report it"
            );
        }
    }
}

/// The tasks. The waker of each identifies it.
#[derive(Default)]
struct Tasks(Vec<Entry>);

impl Tasks {
    /// Calls each task that is due, once. Returns the time at which the next one is; 0 is past.
    fn call_due(&mut self, clock: impl Fn() -> u64) -> Option<u64> {
        for task in &mut self.0 {
            let now_ns = clock();
            if task.due_ns().is_some_and(|due_ns| due_ns <= now_ns) {
                task.call(now_ns);
            }
        }
        self.0.iter().filter_map(Entry::due_ns).min()
    }
}

#[derive(Default)]
struct Shared {
    /// Locked during a call.
    tasks: Mutex<Tasks>,
    wake_ups: Arc<Futex>,
    is_stopped: AtomicBool,
}

impl Shared {
    fn tasks(&self) -> MutexGuard<'_, Tasks> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        loop {
            let wake_ups = self.wake_ups.load(Acquire); // a later one ends the wait
            if self.is_stopped.load(Relaxed) {
                return;
            }
            let due_ns = self.tasks().call_due(clock::now_ns);
            self.wake_ups.wait(wake_ups, due_ns.unwrap_or(u64::MAX));
        }
    }
}

/// The running thread. Dropping it ends the thread after the current call.
pub struct Housekeeping {
    shared: Arc<Shared>,
    join: Option<JoinHandle<()>>,
}

impl Housekeeping {
    /// Starts the thread, off these CPUs where others exist.
    ///
    /// # Errors
    /// If the system has no thread left.
    pub fn start(cpus: Vec<u32>) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let theirs = Arc::clone(&shared);
        let body = move || {
            keep_off(&cpus);
            theirs.run();
        };
        let join = std::thread::Builder::new().name("housekeeping".into()).spawn(body)?;
        Ok(Self { shared, join: Some(join) })
    }

    /// Adds a task, which is called once `waker` wakes it or if that has woken it before. A waker is of one task. `name` is for the message about a
    /// panic. Waits for the end of current calls, so a task must not add another.
    pub fn add(&self, name: &'static str, waker: &Waker, call: impl FnMut(u64) -> Next + Send + 'static) -> Task {
        let is_new = waker.0.wake_ups.set(Arc::clone(&self.shared.wake_ups)).is_ok();
        debug_assert!(is_new, "a waker of two tasks");
        fence(SeqCst); // see `wake`
        let entry = Entry { name, call: Box::new(call), waker: waker.clone(), next: Some(Next::Woken) };
        self.shared.tasks().0.push(entry);
        wake_thread(&self.shared.wake_ups);
        Task { shared: Arc::clone(&self.shared), waker: waker.clone() }
    }
}

impl Drop for Housekeeping {
    fn drop(&mut self) {
        self.shared.is_stopped.store(true, Relaxed);
        wake_thread(&self.shared.wake_ups);
        if let Some(join) = self.join.take() {
            let _ = join.join();
        }
    }
}

/// A task that was added. Dropping this waits for the end of current calls, removes the task, and calls it a last time if it was woken; so a task
/// must not drop one.
#[must_use]
pub struct Task {
    shared: Arc<Shared>,
    waker: Waker,
}

impl Drop for Task {
    fn drop(&mut self) {
        let is_own = |entry: &mut Entry| Arc::ptr_eq(&entry.waker.0, &self.waker.0);
        let removed: Vec<Entry> = self.shared.tasks().0.extract_if(.., is_own).collect();
        for mut task in removed {
            if task.next.is_some() && self.waker.is_woken() {
                task.call(clock::now_ns());
            }
        }
    }
}

#[cfg(test)]
mod tests;
