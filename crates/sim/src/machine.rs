//! A machine as the simulator takes it: cores and their costs, network, and power by component and state.
//!
//! Figures come from `profiles/*.toml` (taken as given, each with its source) and `calibration.toml` (free constants, each with
//! a range). Both are read into these structs, so that a run needs no file.

use serde::Deserialize;

use crate::jobs::JobCosts;

/// Everything about a machine but its drives.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// What outputs call it.
    pub name: String,
    /// What a polling loop costs.
    pub poll: PollCosts,
    /// How a core's speed depends on its frequency and its sibling.
    pub speed: Speed,
    /// The ways of sleeping by command.
    pub sleep: SleepCosts,
    /// What the kernel's way costs: interrupts, context switches, idle states.
    pub kernel: KernelCosts,
    /// What deciding and commanding costs the main core.
    pub director: DirectorCosts,
    /// The way between hosts and this machine.
    pub network: Network,
    /// Watts by component and state.
    pub power: Power,
    /// What it costs programs on scheduled cores to have requests done.
    #[serde(default)]
    pub jobs: JobCosts,
    /// How it limits CPU time and power, where a policy says so.
    #[serde(default)]
    pub limits: Limits,
    /// What chooses the frequency of its cores.
    #[serde(default)]
    pub governor: Governor,
    /// What it takes to switch a core off and on while the machine runs. Without it no core can be.
    #[serde(default)]
    pub hotplug: Option<Hotplug>,
}

/// CPU hotplug.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hotplug {
    /// From the order until a core without I/O threads is off, in nanoseconds; it is awake until then.
    pub offline_ns: u64,
    /// From the order until a core that is off polls, in nanoseconds; it is awake from the order on.
    pub online_ns: u64,
}

/// The kernel's frequency governor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Governor {
    /// The highest frequency, unless a policy orders another one.
    #[default]
    Performance,
    /// The frequency follows how much of the time a core runs (`schedutil.rs`); no policy can order one.
    Schedutil,
}

/// Limits of CPU time and of power.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Length of a period of the quota of CPU time, in nanoseconds.
    pub quota_period_ns: u64,
    /// CPU time that a core takes from the quota at once, in nanoseconds.
    pub quota_slice_ns: u64,
    /// Whether the quota counts for the main core too, as in PASS, where all reactors are in the group; the policy is then asked late.
    pub quota_of_main: bool,
    /// Time between two looks of the package at its power, in nanoseconds.
    pub power_period_ns: u64,
}

impl Default for Limits {
    /// 100 ms and 5 ms are the kernel's defaults (`cpu.cfs_period_us`, `sched_cfs_bandwidth_slice_us`); 1 ms is chosen, of the order of the time in which firmware follows a limit.
    fn default() -> Self {
        Self {
            quota_period_ns: 100_000_000,
            quota_slice_ns: 5_000_000,
            quota_of_main: false,
            power_period_ns: 1_000_000,
        }
    }
}

/// Costs of a polling loop on a core at full speed whose sibling is busy too, in nanoseconds. A loop is `loop_ns`, then for each I/O
/// thread on the core `thread_ns` and `queue_ns` for each of its device queues, then what there is to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PollCosts {
    /// Fixed part of a loop.
    pub loop_ns: u32,
    /// For each I/O thread.
    pub thread_ns: u32,
    /// For each device queue of a thread.
    pub queue_ns: u32,
    /// Taking a request from the network.
    pub receive_ns: u32,
    /// Handing a command to a device.
    pub submit_ns: u32,
    /// Taking a completion from a device.
    pub complete_ns: u32,
    /// Handing an answer to the network.
    pub respond_ns: u32,
    /// Computing parity, for each KiB of it.
    pub parity_ns_per_kib: u32,
    /// Most requests, and most completions, that one poll step takes.
    pub batch: u32,
}

/// How fast a core is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Speed {
    /// Lowest frequency in kHz.
    pub min_khz: u32,
    /// Highest frequency in kHz: costs hold at this one.
    pub max_khz: u32,
    /// From one frequency to the next, in kHz.
    pub step_khz: u32,
    /// Time until a core runs at another frequency, in nanoseconds.
    pub transition_ns: u64,
    /// Whether a new order begins the transition anew.
    pub transition_restarts: bool,
    /// Share of a cost that does not depend on the frequency (memory), in millionths.
    pub stalled_ppm: u32,
    /// How much more a core does while its sibling rests, in millionths.
    pub sibling_gain_ppm: u32,
}

/// Sleeping by command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SleepCosts {
    /// Whether cores have a wait instruction.
    pub monitor: bool,
    /// From the store to the first poll after a wait instruction, in nanoseconds.
    pub monitor_wake_ns: u64,
    /// From the order to the first poll after a sleep in the kernel, in nanoseconds, without the exit from the idle state.
    pub software_wake_ns: u64,
    /// What a software wake-up costs the waker, in nanoseconds.
    pub software_waker_ns: u64,
    /// From the end of a rest between polls ([`pilotlight_plant::CompletionMode::Hybrid`]) to the first poll, in nanoseconds.
    pub rest_wake_ns: u64,
}

/// The kernel's way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KernelCosts {
    /// Time for which a device or network card gathers events before it interrupts, in nanoseconds.
    pub coalesce_ns: u64,
    /// CPU time of an interrupt, in nanoseconds.
    pub interrupt_ns: u32,
    /// CPU time of a context switch, in nanoseconds.
    pub switch_ns: u32,
    /// CPU time that a request needs beyond the polled path, in nanoseconds.
    pub request_ns: u32,
    /// Exit latency of the shallow idle state, in nanoseconds.
    pub shallow_exit_ns: u64,
    /// Exit latency of the deep idle state, in nanoseconds.
    pub deep_exit_ns: u64,
    /// The idle governor takes the deep state where it expects at least this much idle time, in nanoseconds; `u64::MAX` if
    /// never.
    pub deep_residency_ns: u64,
    /// Completion queues of each drive, each with an interrupt of its own, taken by one of the cores that share the queue, by the drive's number
    /// (`engine/interrupts.rs`). 0: an I/O thread that waits in the kernel is woken on its own core, by one interrupt for whatever comes.
    #[serde(default)]
    pub drive_queues: u32,
    /// Receive queues of the network cards in all, likewise. 0: a packet interrupts the core of its I/O thread, while that waits in the kernel.
    #[serde(default)]
    pub network_queues: u32,
    /// From the end of an interrupt until another core is told to run the I/O thread that it is for, in nanoseconds.
    #[serde(default)]
    pub ipi_ns: u64,
    /// Whether the kernel's md driver makes the array: one thread handles all that writes or rebuilds, a page after the other
    /// (`engine/md.rs`).
    #[serde(default)]
    pub md: bool,
    /// Time of that thread for each page of 4 KiB that a command moves, its dispatch and its completion, in nanoseconds.
    #[serde(default)]
    pub md_page_ns: u32,
}

/// Deciding and commanding, on the main core, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DirectorCosts {
    /// A tick or interval: fixed part.
    pub decide_ns: u32,
    /// A tick or interval: for each I/O thread.
    pub decide_thread_ns: u32,
    /// What each core spends to fill its statistics, for each tick.
    pub fill_ns: u32,
    /// Handing an I/O thread from one polling core to another.
    pub move_ns: u32,
    /// Setting the frequency of one core: a write to a file of the kernel.
    pub frequency_ns: u32,
    /// Share of moves, sleeps and frequencies that fail when they are tried, in millionths; nobody has printed one, so it is none unless
    /// asked for.
    #[serde(default)]
    pub fails_ppm: u32,
    /// Whether an I/O thread leaves its core at once, though software has yet to wake the core that it goes to: nobody polls it meanwhile.
    /// Else it stays until that core is awake.
    #[serde(default)]
    pub leaves_at_once: bool,
}

/// The way between hosts and this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Network {
    /// Ports; connections are dealt round robin.
    pub ports: u32,
    /// Rate of a port in each direction, in Mbit/s.
    pub port_mbit_s: u32,
    /// Time from host to target and back without waiting, in nanoseconds, the host's own time included.
    pub round_trip_ns: u64,
    /// Bytes on the wire beside the data, for each request and each answer.
    pub overhead_bytes: u32,
}

/// Watts by component and state. Between the states that were measured the truth is a family; its members differ in the fields
/// under `family`.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Power {
    /// Physical cores that the states below are about, all in one state.
    pub physical_cores: u32,
    /// CPU, in microwatts.
    pub cpu_uw: ByState,
    /// Everything but CPU and drives (fans, memory, network, losses), in microwatts.
    pub others_uw: ByState,
    /// All drives without load, in microwatts.
    pub drives_idle_uw: u64,
    /// Energy of reading 4 KiB, in nanojoules.
    pub read_4k_nj: u64,
    /// Energy of writing 4 KiB, in nanojoules.
    pub write_4k_nj: u64,
    /// What the states do not fix.
    pub family: Family,
    /// What the package draws while any core is not deep beside what its cores do (mesh, caches, controllers), in microwatts: at the highest
    /// frequency that its limit allows; it follows that frequency as the power of a polling core does. A part of `cpu_uw.poll`. Where it is
    /// given, `others_uw` follows the power of the CPU, as a line through `deep` and `poll`.
    #[serde(default)]
    pub uncore_uw: Option<u64>,
    /// What machines with scheduled cores have beside that.
    #[serde(default)]
    pub scheduled: Option<ScheduledPower>,
}

/// Watts of a machine with scheduled cores, where they are not those of the states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScheduledPower {
    /// A core that only looks at a queue draws this share of what one that works draws over a shallow sleep, in millionths.
    pub looks_ppm: u32,
    /// Cores share one budget: what one draws while all work, of what it draws while few do, in millionths.
    pub of_all_ppm: u32,
    /// What the system takes beside CPU and drives,
    pub base_uw: u64,
    /// and for each watt of these, themselves included, in millionths. In the place of `others_uw`.
    pub slope_ppm: u64,
}

/// Microwatts with every core in one state (SANDMAN, Table 2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ByState {
    /// Polling at the highest frequency (P-0).
    pub poll: u64,
    /// Polling at the lowest frequency (P-N).
    pub slow: u64,
    /// Shallow sleep (C-1).
    pub shallow: u64,
    /// Deep sleep (C-N).
    pub deep: u64,
}

/// What the measured states leave open.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Family {
    /// Share of shallow minus deep that goes only when every core is deep, in millionths.
    pub package_ppm: u32,
    /// Share of a physical core's polling power that is saved while one of two siblings sleeps, in millionths.
    pub sibling_saves_ppm: u32,
    /// Exponent of CPU power over frequency, between the lowest and the highest.
    pub frequency_exponent: f64,
    /// Exponent of the other components' power over the share of cores that poll.
    pub others_exponent: f64,
    /// Whether the kernel's idle cores rest in the deep state (else in the shallow one).
    pub kernel_idles_deep: bool,
    /// Whether a core draws, while the hardware takes it out of a state, what it draws in that state (else what an awake core draws).
    pub exit_at_rest: bool,
}
