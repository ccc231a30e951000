//! A sender whose system calls are counted: a seccomp filter on its thread turns each into a `SIGSYS`, which is
//! counted, and the call is not executed.
//!
//! The thread never ends, because that needs system calls too. It ends with the process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use pilotlight_reactor::{Inbox, Sender};

/// Counts of the sender thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counted {
    /// System calls by all sends to the sleeping owner.
    pub(crate) by_sends: u64,
    /// By one send to an owner that has armed its doorbell.
    pub(crate) by_a_ring: u64,
    /// By one futex wake.
    pub(crate) by_a_futex_wake: u64,
}

/// Shared with the sender thread.
#[derive(Default)]
pub(crate) struct Outcome {
    /// Messages taken by the owner.
    pub(crate) taken: AtomicU64,
    is_filtered: AtomicBool,
    is_done: AtomicBool,
    counts: [AtomicU64; 3],
}

impl Outcome {
    /// Starts a thread that sends `0..rounds`, each when the previous one is taken and the owner is `asleep`.
    pub(crate) fn start(sender: Sender<u64>, rounds: u64, asleep: impl Fn() -> bool + Send + 'static) -> Arc<Self> {
        let outcome = Arc::new(Self::default());
        let shared = Arc::clone(&outcome);
        std::thread::spawn(move || {
            let armed = armed_inbox();
            shared.is_filtered.store(filter::install(), SeqCst);
            shared.counts[0].store(count(|| send_all(&sender, rounds, &shared.taken, asleep)), SeqCst);
            shared.counts[1].store(count(|| armed.sender().send(0).unwrap_or_default()), SeqCst);
            shared.counts[2].store(count(futex_wake), SeqCst);
            shared.is_done.store(true, SeqCst);
            loop {
                std::hint::black_box(&armed);
                // SAFETY: waits for a signal; no argument. The filter allows it.
                unsafe { libc::pause() };
            }
        });
        outcome
    }

    /// The counts; `None` if the system refuses the filter.
    pub(crate) fn wait(&self) -> Option<Counted> {
        while !self.is_done.load(SeqCst) {
            std::thread::yield_now();
        }
        let [by_sends, by_a_ring, by_a_futex_wake] = [0, 1, 2].map(|i: usize| self.counts[i].load(SeqCst));
        self.is_filtered.load(SeqCst).then_some(Counted { by_sends, by_a_ring, by_a_futex_wake })
    }
}

fn armed_inbox() -> Inbox<u64> {
    let mut inbox = Inbox::new(1);
    inbox.doorbell().expect("made");
    assert!(inbox.arm());
    inbox
}

fn send_all(sender: &Sender<u64>, rounds: u64, taken: &AtomicU64, asleep: impl Fn() -> bool) {
    for message in 0..rounds {
        while taken.load(SeqCst) < message || !asleep() {
            std::hint::spin_loop();
        }
        let _ = sender.send(message);
    }
}

fn futex_wake() {
    let word = 0u32;
    // SAFETY: a wake-up of a valid word without waiters.
    unsafe { libc::syscall(libc::SYS_futex, &raw const word, libc::FUTEX_WAKE, 1) };
}

/// Number of system calls of this thread in `work`.
fn count(work: impl FnOnce()) -> u64 {
    let before = filter::trapped();
    work();
    filter::trapped() - before
}

mod filter {
    use std::cell::Cell;

    thread_local! {
        static TRAPPED: Cell<u64> = const { Cell::new(0) };
    }

    /// System calls of this thread that were trapped.
    pub(super) fn trapped() -> u64 {
        TRAPPED.get()
    }

    extern "C" fn on_sigsys(_signal: i32, _info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
        TRAPPED.set(TRAPPED.get() + 1);
    }

    const fn statement(code: u32, k: u32) -> libc::sock_filter {
        libc::sock_filter { code: code as u16, jt: 0, jf: 0, k }
    }

    /// Continues with the next statement if the system call is `number`, else skips it.
    const fn unless(number: libc::c_long) -> libc::sock_filter {
        libc::sock_filter { code: (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16, jt: 0, jf: 1, k: number as u32 }
    }

    /// From now on every system call of this thread traps, except those that the signal handler and `pause` need.
    pub(super) fn install() -> bool {
        let allow = statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW);
        let mut rules = [
            statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0), // the system call's number
            unless(libc::SYS_rt_sigreturn),
            allow,
            unless(libc::SYS_pause),
            allow,
            unless(libc::SYS_exit_group),
            allow,
            statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_TRAP),
        ];
        let program = libc::sock_fprog { len: rules.len() as u16, filter: rules.as_mut_ptr() };
        // SAFETY: a zeroed sigaction is a valid one; the handler touches a thread-local cell only. The program outlives
        // the call, which copies it.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_sigsys as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO;
            libc::sigaction(libc::SIGSYS, &raw const action, std::ptr::null_mut()) == 0
                && libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
                && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) == 0
        }
    }
}
