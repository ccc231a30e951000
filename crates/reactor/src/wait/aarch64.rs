//! `ldaxr`, then `wfe` or `wfet` (Arm Architecture Reference Manual, "Wait for Event mechanism"): a load-exclusive arms the
//! core's exclusive monitor, and losing it to another core's store is an event that ends the wait.
//!
//! `wfet` (FEAT_WFxT, from Armv8.7) also ends when the virtual counter reaches a value; `wfe` relies on the event stream of the kernel.

use std::arch::asm;

use super::{Monitor, not_of_this_machine};
use crate::clock;
use crate::sync::AtomicU64;

/// `AT_HWCAP`: the kernel sends an event to every core about every 0.1 ms (arch/arm64/include/uapi/asm/hwcap.h).
const HWCAP_EVTSTRM: usize = 1 << 2;
/// `AT_HWCAP2`: the CPU has `wfet`.
const HWCAP2_WFXT: usize = 1 << 31;

/// Longest single `wfet`, as on x86. Another task that runs on the core between `ldaxr` and `wfet` clears the exclusive monitor, so a store
/// is no longer an event; this limits the delay.
const LONGEST_NS: u64 = 1_000_000;

pub(super) fn available() -> Option<Monitor> {
    let (hwcap, hwcap2) = rustix::param::linux_hwcap();
    choose(hwcap, hwcap2)
}

/// `wfe` only with the event stream: without it, no event ends a wait at its deadline.
fn choose(hwcap: usize, hwcap2: usize) -> Option<Monitor> {
    if hwcap2 & HWCAP2_WFXT != 0 {
        return Some(Monitor::Wfet);
    }
    (hwcap & HWCAP_EVTSTRM != 0).then_some(Monitor::Wfe)
}

/// Nothing: another access between `ldaxr` and `wfe` could clear the exclusive monitor without an event, so [`wait`] arms, checks and waits
/// in one sequence.
#[inline]
pub(super) fn arm(how: Monitor, _word: &AtomicU64) {
    if !matches!(how, Monitor::Wfe | Monitor::Wfet) {
        not_of_this_machine(how);
    }
}

/// The event stream ends a `wfe` long before most deadlines, and at most one of its periods after a near one.
#[inline]
pub(super) fn wait(how: Monitor, word: &AtomicU64, unchanged: u64, until_ns: u64) {
    let left_ns = if until_ns == u64::MAX { LONGEST_NS } else { until_ns.saturating_sub(clock::now_ns()) };
    match how {
        _ if left_ns == 0 => {}
        Monitor::Wfe => wfe(word, unchanged),
        Monitor::Wfet => wfet(word, unchanged, counter().wrapping_add(ticks(left_ns, counter_hz()))),
        Monitor::Umwait | Monitor::Mwaitx => not_of_this_machine(how),
    }
}

#[inline]
fn wfe(word: &AtomicU64, unchanged: u64) {
    // SAFETY: reads a live word and waits; writes one scratch register and the flags.
    unsafe {
        asm!(
            "ldaxr {now}, [{word}]",
            "cmp {now}, {unchanged}",
            "b.ne 2f",
            "wfe",
            "2:",
            now = out(reg) _,
            word = in(reg) word.as_ptr(),
            unchanged = in(reg) unchanged,
            options(nostack),
        );
    }
}

/// Until the virtual counter is at `deadline`.
#[inline]
fn wfet(word: &AtomicU64, unchanged: u64, deadline: u64) {
    // SAFETY: reads a live word and waits; writes one scratch register and the flags. `wfet` is encoded as a number, because assemblers
    // accept its name only for Armv8.7.
    unsafe {
        asm!(
            "ldaxr {now}, [{word}]",
            "cmp {now}, {unchanged}",
            "b.ne 2f",
            ".inst 0xd5031009", // wfet x9
            "2:",
            now = out(reg) _,
            word = in(reg) word.as_ptr(),
            unchanged = in(reg) unchanged,
            in("x9") deadline,
            options(nostack),
        );
    }
}

/// The virtual counter, to which `wfet` compares its operand.
#[inline]
fn counter() -> u64 {
    let value;
    // SAFETY: Linux leaves the counter readable; no memory, no flags.
    unsafe { asm!("mrs {}, cntvct_el0", out(reg) value, options(nomem, nostack, preserves_flags)) }
    value
}

/// Its frequency.
#[inline]
fn counter_hz() -> u64 {
    let value;
    // SAFETY: as above.
    unsafe { asm!("mrs {}, cntfrq_el0", out(reg) value, options(pure, nomem, nostack, preserves_flags)) }
    value
}

/// A wait of at most [`LONGEST_NS`] in ticks of the counter, rounded down. The clock may run 0.05 % faster than the counter (adjtimex(2)):
/// 0.5 us over the longest wait.
fn ticks(wait_ns: u64, hz: u64) -> u64 {
    wait_ns.min(LONGEST_NS) * hz / 1_000_000_000 // the register has 32 bits: no overflow
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wfet_comes_before_wfe_and_wfe_needs_the_event_stream() {
        assert_eq!(choose(0, 0), None);
        assert_eq!(choose(HWCAP_EVTSTRM, 0), Some(Monitor::Wfe));
        assert_eq!(choose(0, HWCAP2_WFXT), Some(Monitor::Wfet));
        assert_eq!(choose(HWCAP_EVTSTRM, HWCAP2_WFXT), Some(Monitor::Wfet));
    }

    #[test]
    fn a_deadline_in_ticks_is_never_late() {
        assert_eq!(ticks(700, 1_000_000_000), 700);
        assert_eq!(ticks(99, 25_000_000), 2, "a tick of 40 ns");
        assert_eq!(ticks(u64::MAX - 1, 1_000_000_000), LONGEST_NS);
        assert_eq!(ticks(LONGEST_NS, u64::from(u32::MAX)), 4_294_967);
    }

    #[test]
    fn the_counter_runs_at_its_frequency() {
        let (hz, first, began_ns) = (counter_hz(), counter(), clock::now_ns());
        while clock::now_ns() < began_ns + 20_000_000 {}
        let elapsed_ns = clock::now_ns() - began_ns;
        let counted = counter() - first; // over a longer time than the clock, so that too high a frequency is detected
        let expected = u128::from(elapsed_ns) * u128::from(hz) / 1_000_000_000;
        assert!(u128::from(counted) * 1000 >= expected * 990, "{counted} ticks in {elapsed_ns} ns at {hz} Hz");
    }
}
