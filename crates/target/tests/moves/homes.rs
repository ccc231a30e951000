//! Who runs the I/O threads and moves them: for now two OS threads of the test's own.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use pilotlight_reactor::{Completions, IoThread, clock};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd};

/// Something that runs I/O threads and can move them.
pub(crate) trait Mover {
    /// Moves every I/O thread to another home, has it polled there at least `polls` times, and the old home sleep
    /// meanwhile.
    fn move_all(&mut self, polls: u64);

    /// From now on homes without work wait in the kernel, or poll.
    fn set_completions(&mut self, how: Completions);

    /// Runs the I/O threads, wherever they are, to their end.
    fn finish(self);
}

type Threads = Vec<Box<dyn IoThread>>;

/// What a home is told.
struct Order {
    threads: Threads,
    polls: u64,
    how: Completions,
}

/// An OS thread that sleeps unless it has I/O threads.
struct Home {
    orders: Sender<Order>,
    leave: Arc<Leave>,
    join: JoinHandle<()>,
}

/// Asks a home for its I/O threads, wherever it waits.
struct Leave {
    asked: AtomicBool,
    bell: OwnedFd,
}

/// Two homes, of which one is awake.
pub(crate) struct Homes {
    homes: [Home; 2],
    awake: usize,
    how: Completions,
    /// I/O threads that a home has given up.
    left: Receiver<Threads>,
    /// A home has polled as often as it was told.
    served: Receiver<()>,
}

impl Homes {
    pub(crate) fn start(threads: Threads, how: Completions) -> Self {
        let ((leaves, left), (serves, served)) = (channel(), channel());
        let home = || Home::start(leaves.clone(), serves.clone());
        let homes = Self { homes: [home(), home()], awake: 0, how, left, served };
        homes.hand_over(threads, 1);
        homes
    }

    fn hand_over(&self, threads: Threads, polls: u64) {
        let order = Order { threads, polls, how: self.how };
        self.homes[self.awake].orders.send(order).expect("homes live as long as this");
        self.served.recv().expect("a home did not panic");
    }

    fn take_back(&self) -> Threads {
        self.homes[self.awake].leave.ask();
        self.left.recv().expect("a home did not panic")
    }
}

impl Mover for Homes {
    fn move_all(&mut self, polls: u64) {
        let threads = self.take_back();
        self.awake = 1 - self.awake;
        self.hand_over(threads, polls);
    }

    fn set_completions(&mut self, how: Completions) {
        self.how = how;
    }

    fn finish(self) {
        let mut threads = self.take_back();
        while !threads.is_empty() {
            let now_ns = clock::now_ns();
            threads.retain_mut(|thread| !thread.poll(now_ns).finished);
        }
        for home in self.homes {
            drop(home.orders);
            home.join.join().expect("no panic");
        }
    }
}

impl Leave {
    fn ask(&self) {
        self.asked.store(true, SeqCst);
        rustix::io::write(&self.bell, &1_u64.to_ne_bytes()).expect("rung");
    }

    /// Whether the home was asked; once for each time.
    fn take(&self) -> bool {
        if !self.asked.swap(false, SeqCst) {
            return false;
        }
        let _ = rustix::io::read(&self.bell, &mut [0; 8]); // it may ring a moment later: one wait ends early then
        true
    }
}

impl Home {
    fn start(leaves: Sender<Threads>, serves: Sender<()>) -> Self {
        let (orders, receiver) = channel();
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("a descriptor");
        let leave = Arc::new(Leave { asked: AtomicBool::new(false), bell });
        let asked = Arc::clone(&leave);
        let join = std::thread::spawn(move || {
            // It sleeps here, in the kernel, while the I/O threads are elsewhere.
            while let Ok(order) = receiver.recv() {
                let threads = serve(order, &asked, &serves);
                if leaves.send(threads).is_err() {
                    return;
                }
            }
        });
        Self { orders, leave, join }
    }
}

/// Polls the I/O threads until they are asked for.
fn serve(order: Order, leave: &Leave, serves: &Sender<()>) -> Threads {
    let Order { mut threads, polls, how } = order;
    threads.iter_mut().for_each(|thread| thread.set_completions(how));
    for round in 1.. {
        let mut busy = false;
        for thread in &mut threads {
            busy |= thread.poll(clock::now_ns()).busy;
        }
        if round == polls.max(1) {
            serves.send(()).expect("somebody waits for it");
        }
        if leave.take() {
            break;
        }
        match how {
            _ if busy => {}
            Completions::Poll => nap(),
            Completions::Interrupt => wait(&mut threads, leave, round < polls),
        }
    }
    threads
}

/// Leaves the CPU to others for the shortest time there is. Threads that do nothing but yield can keep those of the kernel
/// from running that finish direct writes, for seconds (seen on Linux 6.18 with two CPUs).
fn nap() {
    std::thread::sleep(Duration::from_nanos(1));
}

/// Waits in the kernel if all I/O threads may; not for long while `owed` polls.
fn wait(threads: &mut Threads, leave: &Leave, owed: bool) {
    let now_ns = clock::now_ns();
    let (mut prepared, mut until_ns) = (0, if owed { now_ns + 1_000_000 } else { u64::MAX });
    for thread in threads.iter_mut() {
        let Some(limit_ns) = thread.prepare_wait(now_ns) else { break };
        until_ns = until_ns.min(limit_ns);
        prepared += 1;
    }
    if prepared == threads.len() {
        let fds = threads.iter().map(|thread| thread.wait_fd().expect("it can wait"));
        let fds = fds.chain([leave.bell.as_fd()]);
        let mut fds: Vec<_> = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        let left = Duration::from_nanos(until_ns.saturating_sub(clock::now_ns()));
        let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        let _ = rustix::event::poll(&mut fds, Some(&timeout).filter(|_| until_ns < u64::MAX)); // a signal ends it early
    }
    threads[..prepared].iter_mut().for_each(|thread| thread.end_wait());
}
