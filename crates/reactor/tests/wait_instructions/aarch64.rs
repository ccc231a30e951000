//! `wfe` and `wfet`: both are executed, a message ends the wait, and the deadline of `wfet` is not late.
//!
//! A CPU without `wfet` raises `SIGILL`; the handler records the deadline and continues after the instruction, as after an event. It is
//! async-signal-safe: thread-local cells that need no initialisation, and the virtual counter.

use std::cell::Cell;
use std::sync::Once;

use pilotlight_reactor::{Inbox, Monitor, clock, wait};

use crate::NO_LIMIT;

const ROUNDS: u64 = 200;
/// `wfet` with its register, whose number is in the lowest five bits (Arm Architecture Reference Manual, "WFET").
const WFET: u32 = 0xd503_1000;
const REGISTER: u32 = 0x1f;

thread_local! {
    static TRAPS: Cell<u64> = const { Cell::new(0) };
    /// Maximum ticks from a trap to its deadline.
    static LONGEST_TICKS: Cell<u64> = const { Cell::new(0) };
}

fn emulate_wfet() {
    static HANDLER: Once = Once::new();
    // SAFETY: a zeroed sigaction is a valid one, and the handler is async-signal-safe.
    HANDLER.call_once(|| unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_sigill as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        assert_eq!(libc::sigaction(libc::SIGILL, &raw const action, std::ptr::null_mut()), 0);
    });
}

extern "C" fn on_sigill(signal: i32, _info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: with SA_SIGINFO the kernel passes the trapped thread's context, to which this handler has exclusive access.
    let machine = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext };
    let at = std::ptr::with_exposed_provenance::<u32>(machine.pc as usize);
    // SAFETY: the trapped instruction, in this program's code.
    let instruction = unsafe { at.read() };
    if instruction & !REGISTER != WFET {
        // SAFETY: restores the default action; the instruction traps again and ends the process.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
        return;
    }
    let deadline = machine.regs[(instruction & REGISTER) as usize];
    LONGEST_TICKS.set(LONGEST_TICKS.get().max(deadline.saturating_sub(counter())));
    TRAPS.set(TRAPS.get() + 1);
    machine.pc += 4;
}

fn counter() -> u64 {
    let value;
    // SAFETY: Linux leaves the counter readable; no memory, no flags.
    unsafe { std::arch::asm!("mrs {}, cntvct_el0", out(reg) value, options(nomem, nostack, preserves_flags)) }
    value
}

fn counter_hz() -> u64 {
    let value;
    // SAFETY: as above.
    unsafe { std::arch::asm!("mrs {}, cntfrq_el0", out(reg) value, options(nomem, nostack, preserves_flags)) }
    value
}

fn is_native() -> bool {
    wait::available() == Some(Monitor::Wfet)
}

/// Messages sent one by one, each while the owner waits or is about to.
fn messages_arrive(how: Monitor) {
    emulate_wfet();
    let mut inbox = Inbox::new(1);
    let sender = inbox.sender();
    let sending = std::thread::spawn(move || {
        for message in 0..ROUNDS {
            while sender.send(message).is_err() {
                std::thread::yield_now();
            }
        }
    });
    for message in 0..ROUNDS {
        while inbox.is_empty() {
            inbox.wait_monitor(how, NO_LIMIT);
        }
        assert_eq!(inbox.take(), Some(message));
    }
    sending.join().expect("sends");
}

#[test]
fn messages_end_wfe() {
    messages_arrive(Monitor::Wfe);
}

#[test]
fn messages_end_wfet() {
    messages_arrive(Monitor::Wfet);
}

#[test]
fn wfet_waits_until_the_deadline_and_a_millisecond_at_most() {
    emulate_wfet();
    let mut inbox = Inbox::<u64>::new(1);
    let ticks = |ns: u64| (ns * counter_hz()).div_ceil(1_000_000_000);
    for (wait_ns, longest_ns) in [(10_000_000_000, 1_000_000), (300_000, 300_000)] {
        LONGEST_TICKS.set(0);
        for _ in 0..100 {
            inbox.wait_monitor(Monitor::Wfet, clock::now_ns() + wait_ns);
        }
        assert!(LONGEST_TICKS.get() <= ticks(longest_ns), "{} ticks for {wait_ns} ns", LONGEST_TICKS.get());
    }
    println!("native {}, {} traps at {} Hz", is_native(), TRAPS.get(), counter_hz());
    assert!(is_native() || TRAPS.get() >= 100, "each wait that is not over yet is executed: {}", TRAPS.get());
}

#[test]
fn an_owner_with_a_message_or_a_past_deadline_does_not_wait() {
    emulate_wfet();
    for how in [Monitor::Wfe, Monitor::Wfet] {
        let mut inbox = Inbox::new(1);
        inbox.wait_monitor(how, 1); // long in the past
        inbox.sender().send(1).expect("room");
        inbox.wait_monitor(how, NO_LIMIT);
        assert_eq!(inbox.take(), Some(1));
    }
}

#[test]
#[should_panic(expected = "no instruction of aarch64")]
fn an_instruction_of_another_architecture_panics() {
    Inbox::<u64>::new(1).wait_monitor(Monitor::Umwait, NO_LIMIT);
}
