//! `umonitor`/`umwait` (Intel SDM volume 2, "UMONITOR", "UMWAIT") and `monitorx`/`mwaitx` (AMD APM volume 3, "MONITORX",
//! "MWAITX").
//!
//! Both end a wait at a value of the time stamp counter. Its rate is estimated from the clock; an estimate that is too
//! low ends a wait early, which is allowed.

use std::arch::asm;
use std::arch::x86_64::_rdtsc;
use std::sync::OnceLock;

use raw_cpuid::CpuId;

use super::{Monitor, not_of_this_machine};
use crate::clock;
use crate::sync::AtomicU64;

/// Longest single wait, in cycles of the time stamp counter (1 to 2 ms). Another task that runs on the core between
/// arming and waiting can clear the monitor; this limits the delay if the system has no limit.
const LONGEST_CYCLES: u64 = 1 << 22;

/// `umwait`: bit 0 set selects C0.1, clear C0.2 (slower to wake, saves more).
const C0_2: u32 = 0;
/// `mwaitx` EAX: bits 7:4 are the C-state less one.
const C1: u32 = 0;
/// `mwaitx` ECX: bit 1 enables the timer, the longest wait in EBX, in cycles of the time stamp counter.
const WITH_TIMER: u32 = 1 << 1;

pub(super) fn available() -> Option<Monitor> {
    let cpu = CpuId::new();
    if cpu.get_extended_feature_info().is_some_and(|f| f.has_waitpkg()) {
        return Some(Monitor::Umwait);
    }
    let has_mwaitx = cpu.get_extended_processor_and_feature_identifiers().is_some_and(|f| f.has_monitorx_mwaitx());
    has_mwaitx.then_some(Monitor::Mwaitx)
}

#[inline]
pub(super) fn arm(how: Monitor, word: &AtomicU64) {
    match how {
        Monitor::Umwait => umonitor(word),
        Monitor::Mwaitx => monitorx(word),
        Monitor::Wfe | Monitor::Wfet => not_of_this_machine(how),
    }
}

#[inline]
pub(super) fn wait(how: Monitor, _word: &AtomicU64, _unchanged: u64, until_ns: u64) {
    let (now, cycles) = longest_wait(until_ns);
    match how {
        _ if cycles == 0 => {}
        Monitor::Umwait => umwait(now + cycles),
        Monitor::Mwaitx => mwaitx(cycles as u32), // at most LONGEST_CYCLES
        Monitor::Wfe | Monitor::Wfet => not_of_this_machine(how),
    }
}

#[inline]
fn umonitor(word: &AtomicU64) {
    // SAFETY: reads one byte of a live word and changes no register. Clobbers memory for the compiler, so that the next
    // read of the word stays after it.
    unsafe { asm!("umonitor {word}", word = in(reg) word.as_ptr(), options(nostack, preserves_flags)) }
}

#[inline]
fn umwait(deadline_tsc: u64) {
    // SAFETY: touches no memory and no register; sets the carry flag, so flags are not preserved.
    unsafe {
        asm!(
            "umwait {state:e}",
            state = in(reg) C0_2,
            in("eax") deadline_tsc as u32,
            in("edx") (deadline_tsc >> 32) as u32,
            options(nostack),
        );
    }
}

#[inline]
fn monitorx(word: &AtomicU64) {
    // SAFETY: reads one byte of a live word at RAX and changes no register; ECX and EDX hold no extension and no hint.
    // Clobbers memory for the compiler, so that the next read of the word stays after it.
    unsafe {
        asm!(
            "monitorx",
            in("rax") word.as_ptr(),
            in("ecx") 0,
            in("edx") 0,
            options(nostack, preserves_flags),
        );
    }
}

#[inline]
fn mwaitx(longest_cycles: u32) {
    // SAFETY: accesses no memory. RBX, which the compiler reserves, holds the timer and is restored.
    unsafe {
        asm!(
            "xchg {timer}, rbx",
            "mwaitx",
            "mov rbx, {timer}",
            timer = inout(reg) u64::from(longest_cycles) => _,
            in("eax") C1,
            in("ecx") WITH_TIMER,
            options(nostack, preserves_flags),
        );
    }
}

/// The time stamp counter, and the maximum wait in cycles that does not miss `until_ns`.
fn longest_wait(until_ns: u64) -> (u64, u64) {
    static START: OnceLock<(u64, u64)> = OnceLock::new();
    // SAFETY: every x86-64 has a time stamp counter; Linux leaves it readable.
    let tsc = unsafe { _rdtsc() };
    if until_ns == u64::MAX {
        return (tsc, LONGEST_CYCLES);
    }
    let now_ns = clock::now_ns();
    let &(start_tsc, start_ns) = START.get_or_init(|| (tsc, now_ns));
    let elapsed = (tsc.saturating_sub(start_tsc), now_ns.saturating_sub(start_ns));
    (tsc, cycles(elapsed, until_ns.saturating_sub(now_ns)))
}

/// `wait_ns` in cycles, at the rate of the elapsed `(cycles, nanoseconds)`.
fn cycles((elapsed_cycles, elapsed_ns): (u64, u64), wait_ns: u64) -> u64 {
    const ENOUGH_NS: u64 = 1_000_000; // two readings of the clock are some 10 ns off: 0.001 %
    let cycles = if elapsed_ns < ENOUGH_NS {
        u128::from(wait_ns) // 1 GHz: an underestimate
    } else {
        u128::from(wait_ns) * u128::from(elapsed_cycles) / u128::from(elapsed_ns)
    };
    cycles.min(u128::from(LONGEST_CYCLES)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_in_cycles_is_never_late() {
        assert_eq!(cycles((0, 0), 700), 700, "rate not known yet: 1 GHz");
        assert_eq!(cycles((2_500_000, 1_000_000), 1_000), 2_500);
        assert_eq!(cycles((2_500_000, 1_000_000), 0), 0, "past");
        assert_eq!(cycles((2_500_000, 1_000_000), u64::MAX - 1), LONGEST_CYCLES);
    }
}
