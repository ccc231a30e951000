//! Input of the sections: the kernel's files, CPUID, the limits of this process, and
//! measurements. Plain data, so that tests can describe other machines.

use std::collections::BTreeMap;
use std::time::Duration;

use super::tree::Tree;

/// A family of processors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Architecture {
    X86,
    Arm,
    Other,
}

/// CPUID of the processor.
#[derive(Clone, Debug)]
pub(super) struct Cpu {
    pub(super) architecture: Architecture,
    /// `GenuineIntel`, `AuthenticAMD`, or empty.
    pub(super) vendor: String,
    /// The model's name.
    pub(super) model: String,
    /// The name of the hypervisor underneath, if it is visible.
    pub(super) hypervisor: Option<String>,
    /// `umonitor`, `umwait`: CPUID leaf 7, ECX bit 5.
    pub(super) waitpkg: bool,
    /// `monitorx`, `mwaitx`: CPUID leaf 8000_0001h, ECX bit 29.
    pub(super) monitorx: bool,
    /// `wfet`: the hwcap `wfxt`.
    pub(super) wfxt: bool,
    /// Frequency of the time stamp counter in kHz, if the CPU or the hypervisor reports it.
    pub(super) tsc_khz: Option<u64>,
}

/// A limit of this process; `None` is no limit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limit {
    pub(super) soft: Option<u64>,
    pub(super) hard: Option<u64>,
}

/// The measured cost of a wake-up by futex.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WakeUp {
    /// Number of measurements.
    pub(super) samples: usize,
    /// Minimum sleep before each wake-up.
    pub(super) asleep: Duration,
    /// From just before the store and the futex call until the sleeper runs: median and 99th percentile.
    pub(super) back: [Duration; 2],
    /// Time spent by the waker: median and 99th percentile.
    pub(super) waker: [Duration; 2],
    /// The waker's CPU and the sleeper's.
    pub(super) cpus: [u32; 2],
    /// Load of the sleeper's CPU meanwhile, in percent; the measurement's own load is negligible.
    pub(super) busy_percent: u32,
}

/// Features that `io_uring_setup` accepts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ring {
    /// IORING_SETUP_COOP_TASKRUN (Linux 5.19).
    pub(super) coop_taskrun: bool,
    /// IORING_SETUP_SINGLE_ISSUER (Linux 6.0).
    pub(super) single_issuer: bool,
    /// IORING_SETUP_DEFER_TASKRUN (Linux 6.1).
    pub(super) defer_taskrun: bool,
}

/// Interrupt coalescing of received packets of a network interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Coalescing {
    /// Microseconds after the first packet.
    pub(super) rx_us: u32,
    /// Packets.
    pub(super) rx_frames: u32,
    /// Whether the driver adapts both.
    pub(super) adaptive: bool,
}

/// A power state of an NVMe drive (Base 5.1.13.2.1, Power State Descriptor).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PowerState {
    /// Maximum power in microwatts; 0 if the drive does not report it.
    pub(super) max_uw: u64,
    /// Whether it serves no I/O.
    pub(super) non_operational: bool,
    /// Entry latency; 0 if the drive does not report it.
    pub(super) entry_us: u32,
    /// Exit latency, likewise.
    pub(super) exit_us: u32,
}

/// This machine, or a recorded one.
#[derive(Debug)]
pub(super) struct Facts {
    pub(super) tree: Tree,
    pub(super) cpu: Cpu,
    /// CPUs that this process may run on, ascending (sched_getaffinity).
    pub(super) allowed: Vec<u32>,
    /// Whether it may raise hard limits (CAP_SYS_RESOURCE).
    pub(super) raises_limits: bool,
    pub(super) open_files: Limit,
    /// Bytes.
    pub(super) locked_memory: Limit,
    /// The cost of a wake-up, or why it was not measured.
    pub(super) wake_up: anyhow::Result<WakeUp>,
    /// Features of io_uring, or why there are none.
    pub(super) ring: anyhow::Result<Ring>,
    /// By interface, where it could be read.
    pub(super) coalescing: BTreeMap<String, Coalescing>,
    /// By drive, such as `nvme0`, where they could be read.
    pub(super) power_states: BTreeMap<String, Vec<PowerState>>,
}

/// The server to check for.
#[derive(Clone, Debug)]
pub(super) struct Chosen {
    pub(super) cores: Vec<u32>,
    pub(super) main: u32,
    /// Source of the choice.
    pub(super) by: &'static str,
    pub(super) io_threads: u32,
    /// Namespaces in files and on drives; unknown without a configuration.
    pub(super) files: Option<u32>,
    pub(super) max_connections: u32,
}

impl Chosen {
    /// Cores that may sleep under load: all but the main core.
    pub(super) fn workers(&self) -> Vec<u32> {
        self.cores.iter().copied().filter(|&core| core != self.main).collect()
    }
}
