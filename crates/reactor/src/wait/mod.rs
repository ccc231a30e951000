//! Waiting for a store: the core sleeps until a write to a cache line, without a system call on either side.
//!
//! | machine | arm | wait | ends at the latest |
//! |---|---|---|---|
//! | Intel, CPUID `waitpkg` | `umonitor` | `umwait`, state C0.2 if the system allows it | deadline, or `IA32_UMWAIT_CONTROL` |
//! | AMD, CPUID `monitorx` | `monitorx` | `mwaitx`, state C1 | deadline |
//! | Arm, `HWCAP2_WFXT` | `ldaxr` | `wfet` | deadline |
//! | Arm, `HWCAP_EVTSTRM` | `ldaxr` | `wfe` | the kernel's event stream, about 0.1 ms |
//!
//! Every wait may end early: by an interrupt, a write to another word of the line, the system's limit. The caller checks and waits again.
//! The kernel accounts the time as user time.

use crate::sync::AtomicU64;

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "aarch64")]
use aarch64 as machine;
#[cfg(target_arch = "x86_64")]
mod x86;
#[cfg(target_arch = "x86_64")]
use x86 as machine;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod other;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
use other as machine;

/// Instructions that wait for a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Monitor {
    /// `umonitor` and `umwait` (Intel).
    Umwait,
    /// `monitorx` and `mwaitx` (AMD).
    Mwaitx,
    /// `ldaxr` and `wfe` (Arm).
    Wfe,
    /// `ldaxr` and `wfet` (Arm from version 8.7 on).
    Wfet,
}

/// The instruction of this machine, if any. Reads CPUID each time, which is slow under a hypervisor: call it once.
#[must_use]
pub fn available() -> Option<Monitor> {
    machine::available()
}

impl Monitor {
    /// Watches the cache line of `word` from now on. Check `word` after this, and before [`Armed::wait`].
    ///
    /// # Panics
    /// If the instruction is another architecture's. One that only this CPU lacks ends the process with `SIGILL`.
    #[inline]
    pub(crate) fn arm(self, word: &AtomicU64) -> Armed<'_> {
        machine::arm(self, word);
        Armed { how: self, word }
    }
}

/// A watched cache line.
pub(crate) struct Armed<'a> {
    how: Monitor,
    word: &'a AtomicU64,
}

impl Armed<'_> {
    /// Sleeps until the line is stored to, at most until `until_ns` (`CLOCK_MONOTONIC`; `u64::MAX`: no limit). Does not sleep if it has
    /// been stored to since it was armed. `unchanged` is the value of the word after arming.
    #[inline]
    pub(crate) fn wait(self, unchanged: u64, until_ns: u64) {
        machine::wait(self.how, self.word, unchanged, until_ns);
    }
}

#[cold]
fn not_of_this_machine(how: Monitor) -> ! {
    panic!("{how:?} is no instruction of {}; use one that available() names", std::env::consts::ARCH)
}
