//! `ldaxr` and `wfe` (Arm Architecture Reference Manual, "Wait for Event mechanism"): a load-exclusive arms the core's
//! exclusive monitor, and losing it to another core's store is an event that ends `wfe`.

use std::arch::asm;

use super::{Monitor, not_of_this_machine};
use crate::sync::AtomicU64;

/// `AT_HWCAP`: the kernel wakes every `wfe` now and then (arch/arm64/include/uapi/asm/hwcap.h).
const HWCAP_EVTSTRM: usize = 1 << 2;

/// Only with the event stream: without it, nothing would end a wait at its deadline.
pub(super) fn available() -> Option<Monitor> {
    let (hwcap, _) = rustix::param::linux_hwcap();
    (hwcap & HWCAP_EVTSTRM != 0).then_some(Monitor::Wfe)
}

/// Nothing: another access between `ldaxr` and `wfe` could take the exclusive monitor away without an event, so
/// [`wait`] arms, looks and waits in one go.
#[inline]
pub(super) fn arm(how: Monitor, _word: &AtomicU64) {
    if how != Monitor::Wfe {
        not_of_this_machine(how);
    }
}

/// The event stream ends the wait long before most deadlines, and at most one of its periods after a near one.
#[inline]
pub(super) fn wait(_how: Monitor, word: &AtomicU64, unchanged: u64, _until_ns: u64) {
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
