//! `umonitor`/`umwait` and `monitorx`/`mwaitx`, each on a CPU that has them, or on the emulator.

use std::arch::asm;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use pilotlight_reactor::{Inbox, Monitor, clock, wait};

use crate::NO_LIMIT;
use crate::emulator::{Emulator, Op};
use crate::sender::Outcome;

/// One message each.
const ROUNDS: u64 = 100;

pub(crate) fn ops(how: Monitor) -> (Op, Op) {
    match how {
        Monitor::Umwait => (Op::Umonitor, Op::Umwait),
        _ => (Op::Monitorx, Op::Mwaitx),
    }
}

/// Whether `how` can be tested here: the CPU has it, or traps. Prints the reason if not.
pub(crate) fn runs(how: Monitor, emulator: &'static Emulator) -> bool {
    let traps = is_native(how) || executes(ops(how).0);
    if !traps {
        println!("skipped: CPUID denies {how:?}, yet this CPU takes {:?} for some other instruction", ops(how).0);
    }
    emulator.serve_this_thread();
    traps
}

/// Executes the arming instruction inline; returns whether it trapped, on a CPU that reports not to have it.
fn executes(op: Op) -> bool {
    static PROBED: Emulator = Emulator::new();
    PROBED.serve_this_thread();
    let (line, before) = (AtomicU64::new(0), PROBED.traps(op));
    // SAFETY: each reads at most a line with a live word, and changes only named registers.
    unsafe {
        match op {
            Op::Umonitor => asm!("umonitor rax", in("rax") line.as_ptr()),
            _ => asm!("monitorx", in("rax") line.as_ptr(), in("ecx") 0, in("edx") 0),
        }
    }
    PROBED.traps(op) > before
}

pub(crate) fn is_native(how: Monitor) -> bool {
    wait::available() == Some(how)
}

fn a_store_alone_wakes(how: Monitor, emulator: &'static Emulator) {
    if !runs(how, emulator) {
        return;
    }
    emulator.stop_the_clock(); // only a store ends a wait
    let mut inbox = Inbox::new(4);
    let asleep = move || if is_native(how) { true } else { emulator.is_asleep() };
    let outcome = Outcome::start(inbox.sender(), ROUNDS, asleep);
    for message in 0..ROUNDS {
        let got = loop {
            match inbox.take() {
                Some(got) => break got,
                None => inbox.wait_monitor(how, NO_LIMIT),
            }
            assert_eq!(emulator.unarmed(), 0, "a wait that nothing was armed for");
        };
        assert_eq!(got, message);
        outcome.taken.store(message + 1, SeqCst);
    }
    let counted = outcome.wait();
    println!("{how:?}: native {}, {emulator:?}, {counted:?}", is_native(how));
    check_traps(how, emulator);
    match counted {
        None => println!("system calls of the sender were not counted: no seccomp filter here"),
        Some(counted) => {
            assert_eq!(counted.by_sends, 0, "the sender's system calls");
            assert_eq!(counted.by_a_ring, 1, "the count does see a ring of the doorbell");
            assert_eq!(counted.by_a_futex_wake, 1, "and a futex");
        }
    }
}

fn check_traps(how: Monitor, emulator: &Emulator) {
    let (arm, wait) = ops(how);
    if is_native(how) {
        assert_eq!((emulator.traps(arm), emulator.traps(wait)), (0, 0), "the CPU runs them itself");
        return;
    }
    assert!(emulator.traps(arm) >= emulator.traps(wait), "{emulator:?}");
    assert!(emulator.woken_by_store() >= ROUNDS, "each send waited until the owner slept: {emulator:?}");
    assert_eq!(emulator.traps(wait), emulator.woken_by_store(), "every wait was ended by a store");
}

#[test]
fn a_store_alone_wakes_umwait() {
    static EMULATOR: Emulator = Emulator::new();
    a_store_alone_wakes(Monitor::Umwait, &EMULATOR);
}

#[test]
fn a_store_alone_wakes_mwaitx() {
    static EMULATOR: Emulator = Emulator::new();
    a_store_alone_wakes(Monitor::Mwaitx, &EMULATOR);
}

fn a_deadline_ends_the_wait(how: Monitor, emulator: &'static Emulator) {
    if !runs(how, emulator) {
        return;
    }
    let mut inbox = Inbox::<u64>::new(1);
    let until = clock::now_ns() + 2_000_000;
    while clock::now_ns() < until {
        inbox.wait_monitor(how, until);
    }
    assert!(is_native(how) || emulator.woken_by_deadline() > 0, "{emulator:?}");
    assert_eq!(emulator.woken_by_store(), 0);
}

#[test]
fn a_deadline_ends_umwait() {
    static EMULATOR: Emulator = Emulator::new();
    a_deadline_ends_the_wait(Monitor::Umwait, &EMULATOR);
}

#[test]
fn a_deadline_ends_mwaitx() {
    static EMULATOR: Emulator = Emulator::new();
    a_deadline_ends_the_wait(Monitor::Mwaitx, &EMULATOR);
}

#[test]
fn the_systems_limit_ends_umwait_early() {
    static EMULATOR: Emulator = Emulator::new();
    if !runs(Monitor::Umwait, &EMULATOR) {
        return;
    }
    EMULATOR.limit_umwait(100_000); // the kernel's default: IA32_UMWAIT_CONTROL
    let mut inbox = Inbox::<u64>::new(1);
    // A thread that is preempted between deadline and wait is late for both: retry.
    for _ in 0..20 {
        inbox.wait_monitor(Monitor::Umwait, NO_LIMIT);
        assert_eq!(inbox.take(), None, "early, without a message");
    }
    assert!(is_native(Monitor::Umwait) || EMULATOR.woken_by_limit() > 0, "{EMULATOR:?}");
}

#[test]
fn an_owner_with_a_message_or_a_past_deadline_does_not_wait() {
    static EMULATOR: Emulator = Emulator::new();
    for how in [Monitor::Umwait, Monitor::Mwaitx] {
        if !runs(how, &EMULATOR) {
            continue;
        }
        let mut inbox = Inbox::new(1);
        inbox.wait_monitor(how, 1); // long in the past
        inbox.sender().send(1).expect("room");
        inbox.wait_monitor(how, NO_LIMIT);
        assert_eq!(inbox.take(), Some(1));
        assert_eq!(EMULATOR.traps(ops(how).1), 0, "{EMULATOR:?}");
    }
}

#[test]
#[should_panic(expected = "no instruction of x86_64")]
fn an_instruction_of_another_architecture_panics() {
    Inbox::<u64>::new(1).wait_monitor(Monitor::Wfe, NO_LIMIT);
}
