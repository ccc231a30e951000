//! Cost of waking a sleeping core, measured before the reactors start.
//!
//! A thread is pinned to a reactor's core, sleeps as the reactor would, and is woken repeatedly for a few milliseconds. Results are
//! medians; on a busy machine with too few samples there is none.

use std::io::{Read as _, Write as _};
use std::num::NonZeroU64;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use pilotlight_plant::{Cost, RestCost};
use rustix::event::epoll;
use rustix::thread::set_current_timer_slack;

use crate::affinity::{keep_off, pin};
use crate::clock;
use crate::inbox::{Inbox, Sender};
use crate::kernel_wait::KernelWait;
use crate::wait::Monitor;

/// Longest measurement of a kind of sleep.
const LIMIT: Duration = Duration::from_millis(15);
/// Time for the sleeper to fall asleep.
const REST: Duration = Duration::from_micros(300);
/// Number of samples, and the fewest for a result.
const WAKES: usize = 31;
const FEWEST: usize = 9;

/// Length of sampled rests in nanoseconds, typical for a policy.
const SAMPLE_NS: u64 = 50_000;

/// Cost of a wake-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WakeUp {
    /// Time of the core that wakes the other.
    pub(crate) waker_ns: u64,
    /// Time from then until the other handles its messages.
    pub(crate) wake_ns: u64,
}

/// A message to the sleeper.
enum Call {
    /// Wake up; when it was sent.
    Wake(u64),
    /// End.
    End,
}

/// The cost of waking a thread on this CPU (anywhere if `None`) that sleeps with this wait instruction, or in the kernel if there is none.
/// Takes at most 15 ms, and what the system takes to start and end a thread.
pub(crate) fn wake_up(cpu: Option<u32>, monitor: Option<Monitor>) -> Option<WakeUp> {
    let mut inbox = Inbox::new(2);
    let calls = inbox.sender();
    let (results, answers) = sync_channel(WAKES);
    let sleeper = std::thread::Builder::new().name("wake-probe".into()).spawn(move || {
        if cpu.is_some_and(|cpu| pin(cpu).is_err()) {
            return;
        }
        loop {
            match inbox.take() {
                Some(Call::Wake(sent_ns)) => drop(results.send(clock::now_ns().saturating_sub(sent_ns))),
                Some(Call::End) => return,
                None => match monitor {
                    Some(monitor) => inbox.wait_monitor(monitor, u64::MAX),
                    None => inbox.wait_futex(u64::MAX),
                },
            }
        }
    });
    let sleeper = sleeper.ok()?;
    let found = sample(&calls, &answers);
    let _ = calls.send(Call::End);
    let _ = sleeper.join();
    found
}

fn sample(calls: &Sender<Call>, answers: &Receiver<u64>) -> Option<WakeUp> {
    let until = Instant::now() + LIMIT;
    let (mut waker_ns, mut wake_ns) = (Vec::with_capacity(WAKES), Vec::with_capacity(WAKES));
    while wake_ns.len() < WAKES && Instant::now() < until {
        std::thread::sleep(REST);
        let sent_ns = clock::now_ns();
        if calls.send(Call::Wake(sent_ns)).is_err() {
            break;
        }
        waker_ns.push(clock::now_ns() - sent_ns);
        match answers.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(took_ns) => wake_ns.push(took_ns),
            Err(_) => break,
        }
    }
    (wake_ns.len() >= FEWEST).then(|| WakeUp { waker_ns: median(waker_ns), wake_ns: median(wake_ns) })
}

/// What a sleep costs in the kernel that ends when a socket has something, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SocketSleep {
    /// CPU time of falling asleep and of waking up.
    pub(crate) cpu_ns: u64,
    /// Time from the other side's send until the sleeper runs.
    pub(crate) wake_ns: u64,
}

/// The cost of a sleep of a thread on this CPU (any CPU if `None`) until a socket is readable; as an I/O thread's sockets, it is
/// behind an epoll descriptor. Takes at most 15 ms, and what the system takes to start and end two threads.
pub(crate) fn socket_sleep(cpu: Option<u32>) -> Option<SocketSleep> {
    let (caller, socket) = UnixStream::pair().ok()?;
    let sleeper = std::thread::Builder::new().name("sleep-probe".into()).spawn(move || {
        cpu.map_or(Ok(()), pin)?;
        sleeps(socket)
    });
    // From another CPU, where there is one: there the sleeper's is idle, as a server's is.
    let waker = std::thread::Builder::new().name("sleep-probe".into()).spawn(move || {
        keep_off(cpu.as_slice());
        call(caller);
    });
    waker.ok()?.join().ok()?;
    let (cpu_ns, wake_ns) = sleeper.ok()?.join().ok()?.ok()?;
    (cpu_ns.len() >= FEWEST).then(|| SocketSleep { cpu_ns: median(cpu_ns), wake_ns: median(wake_ns) })
}

/// Wakes the other side of the socket again and again with the time at which it does, and hangs up.
fn call(mut socket: UnixStream) {
    let until = Instant::now() + LIMIT;
    for _ in 0..WAKES {
        std::thread::sleep(REST);
        if Instant::now() >= until || socket.write_all(&clock::now_ns().to_ne_bytes()).is_err() {
            return;
        }
    }
}

/// CPU time of each sleep, and time that it took to end it, until the other side of the socket hangs up.
fn sleeps(mut socket: UnixStream) -> std::io::Result<(Vec<u64>, Vec<u64>)> {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    epoll::add(&epoll, &socket, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
    let (mut cpu_ns, mut wake_ns) = (Vec::with_capacity(WAKES), Vec::with_capacity(WAKES));
    let mut wait = KernelWait::new();
    loop {
        wait.clear();
        wait.add(epoll.as_fd());
        let before_ns = clock::thread_cpu_ns();
        wait.wait(u64::MAX);
        let (after_ns, awake_ns) = (clock::thread_cpu_ns(), clock::now_ns());
        let mut sent = [0; 8];
        if socket.read(&mut sent)? < sent.len() {
            return Ok((cpu_ns, wake_ns));
        }
        cpu_ns.push(after_ns - before_ns);
        wake_ns.push(awake_ns.saturating_sub(u64::from_ne_bytes(sent)));
    }
}

/// What a rest in the kernel costs a thread on this CPU (anywhere if `None`). Takes at most 15 ms, and what the system takes to start and
/// end a thread.
pub(crate) fn rest(cpu: Option<u32>) -> Option<RestCost> {
    let sleeper = std::thread::Builder::new().name("rest-probe".into()).spawn(move || {
        cpu.map_or(Ok(()), pin)?;
        Ok::<_, std::io::Error>(rests())
    });
    let (cpu_ns, late_ns) = sleeper.ok()?.join().ok()?.ok()?;
    let cost = |ns| Cost::Measured(median(ns));
    (late_ns.len() >= FEWEST).then(|| RestCost { cpu: cost(cpu_ns), late: cost(late_ns) })
}

/// CPU time of each rest, and how late it ended.
fn rests() -> (Vec<u64>, Vec<u64>) {
    let _ = set_current_timer_slack(NonZeroU64::new(1)); // as a reactor that rests
    let mut inbox = Inbox::<Call>::new(2);
    let (mut cpu_ns, mut late_ns) = (Vec::with_capacity(WAKES), Vec::with_capacity(WAKES));
    let until = Instant::now() + LIMIT;
    while late_ns.len() < WAKES && Instant::now() < until {
        let before_ns = clock::thread_cpu_ns();
        let due_ns = clock::now_ns() + SAMPLE_NS;
        inbox.wait_futex(due_ns);
        late_ns.push(clock::now_ns().saturating_sub(due_ns));
        cpu_ns.push(clock::thread_cpu_ns().saturating_sub(before_ns));
    }
    (cpu_ns, late_ns)
}

fn median(mut all: Vec<u64>) -> u64 {
    all.sort_unstable();
    all[all.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Also that the sleeper ends: the test would.
    #[test]
    fn a_thread_in_the_kernel_is_woken_again_and_again() {
        match wake_up(None, None) {
            Some(cost) => assert!(cost.wake_ns > 0 && cost.waker_ns > 0, "{cost:?}"),
            None => println!("skipped: the machine is too busy for {FEWEST} wake-ups in {LIMIT:?}"),
        }
    }

    #[test]
    fn a_rest_costs_something() {
        match rest(None) {
            Some(RestCost { cpu, .. }) => assert!(cpu.ns() > 0),
            None => println!("skipped: the machine is too busy for {FEWEST} rests in {LIMIT:?}"),
        }
    }

    #[test]
    fn a_cpu_that_is_not_there_gives_no_figure() {
        assert_eq!(wake_up(Some(100_000), None), None);
        assert_eq!((socket_sleep(Some(100_000)), rest(Some(100_000))), (None, None));
    }

    /// Also that both threads end: the test would hang.
    #[test]
    fn a_socket_sleep_costs_less_than_its_duration() {
        match socket_sleep(None) {
            Some(SocketSleep { cpu_ns, wake_ns }) => {
                let limit_ns = LIMIT.as_nanos() as u64;
                assert!(cpu_ns > 0 && cpu_ns < limit_ns && wake_ns > 0 && wake_ns < limit_ns, "{cpu_ns}, {wake_ns} ns");
            }
            None => println!("skipped: the machine is too busy for {FEWEST} sleeps in {LIMIT:?}"),
        }
    }
}
