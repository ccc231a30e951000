//! A simulated machine: cores and their costs, network, and power by component and state.
//!
//! Figures come from `profiles/*.toml` (each with its source) and `profiles/calibration/*.toml` (free parameters, each with a
//! range). Both are read into these structs, so that a run needs no file.

use serde::Deserialize;

use crate::jobs::JobCosts;

/// A machine without its drives.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// Name in outputs.
    pub name: String,
    /// Costs of a polling loop.
    pub poll: PollCosts,
    /// How a core's speed depends on its frequency and its sibling.
    pub speed: Speed,
    /// Sleep depths that a policy can command.
    pub sleep: SleepCosts,
    /// Costs of the kernel path: interrupts, context switches, idle states.
    pub kernel: KernelCosts,
    /// Costs of decisions and commands on the main core.
    pub director: DirectorCosts,
    /// Network between hosts and this machine.
    pub network: Network,
    /// Power by component and state.
    pub power: Power,
    /// Costs of requests of programs on scheduled cores.
    #[serde(default)]
    pub jobs: JobCosts,
    /// Parameters of CPU quotas and the power limit.
    #[serde(default)]
    pub limits: Limits,
    /// The frequency governor.
    #[serde(default)]
    pub governor: Governor,
    /// CPU hotplug; `None` if unsupported.
    #[serde(default)]
    pub hotplug: Option<Hotplug>,
    /// How this project's server and its client differ from the machines of the papers; by default not at all.
    #[serde(default)]
    pub sockets: Sockets,
}

/// A server on TCP sockets and its client, on one machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Sockets {
    /// Whether namespaces are in memory: a poll step answers what it receives, connection by connection, and no drive is used.
    pub memory: bool,
    /// With `memory`: cost of the system calls of a poll step for each connection that has sent requests, in nanoseconds. Its answers leave together.
    pub connection_ns: u32,
    /// Whether the policy is also called between the poll steps of two I/O threads, and a message ends a loop after a step with work.
    pub between_polls: bool,
    /// CPU time of a sleep of the whole server, in nanoseconds; 0: no core waits in the kernel for want of requests alone.
    pub server_sleep_ns: u64,
    /// Threads of the client, one for each port. They keep to their schedule with `depth` requests in progress: later ones are due meanwhile, sent
    /// as soon as possible, and their latency begins when they are due.
    pub client: Client,
    /// CPU time to begin a wait in the kernel, in nanoseconds.
    pub wait_ns: u32,
    /// CPU time to set a timer that ends soon, in nanoseconds: for each pause, and for short waits once it has passed.
    pub timer_ns: u32,
    /// CPU time after a wait or sleep for each doubling of it beyond `warm_ns`, in nanoseconds: caches and the virtual CPU grow cold. Busy time of the core after a wait, of no I/O thread.
    pub cold_ns: u32,
    /// A wait after which nothing is cold, in nanoseconds.
    pub warm_ns: u32,
    /// How long the host of a virtual CPU polls for the end of its wait, in nanoseconds. Longer waits end later, by an exponential time.
    pub host_polls_ns: u64,
    /// Mean of that time, in nanoseconds.
    pub host_wakes_ns: u32,
}

impl Sockets {
    /// CPU time that a core loses to cold caches after waiting for `waited_ns`; straight lines between the doublings.
    pub(crate) fn cold_ns(&self, waited_ns: u64) -> u32 {
        let warm_ns = u64::from(self.warm_ns.max(1));
        if self.cold_ns == 0 || waited_ns <= warm_ns {
            return 0;
        }
        let doublings = (waited_ns / warm_ns).ilog2();
        let since_ns = (waited_ns >> doublings) - warm_ns; // since the last doubling, scaled to the first
        let part_ns = u64::from(self.cold_ns) * since_ns.min(warm_ns) / warm_ns;
        self.cold_ns * doublings + part_ns as u32
    }
}

/// Costs of a thread of `pilotlight load` that serves its connections in turn, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Client {
    /// Looking at a connection without answers; 0: hosts are not threads, and send each request when it is due.
    pub look_ns: u32,
    /// Receiving from a connection with answers.
    pub receive_ns: u32,
    /// For each answer.
    pub response_ns: u32,
    /// Sending to a connection.
    pub send_ns: u32,
    /// For each request.
    pub request_ns: u32,
    /// Mean time between stalls of a thread (exponential); 0: none.
    pub stall_gap_ns: u64,
    /// Mean duration of a stall (exponential).
    pub stall_ns: u32,
}

/// CPU hotplug.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hotplug {
    /// From the command until a core without I/O threads is offline, in nanoseconds; it is awake until then.
    pub offline_ns: u64,
    /// From the command until an offline core polls, in nanoseconds; it is awake from the command on.
    pub online_ns: u64,
}

/// The kernel's frequency governor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Governor {
    /// The highest frequency, unless a policy sets another.
    #[default]
    Performance,
    /// The frequency follows the utilisation of a core (`schedutil.rs`); no policy can set it.
    Schedutil,
}

/// Limits of CPU time and of power.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Period of the CPU quota, in nanoseconds.
    pub quota_period_ns: u64,
    /// CPU time that a core takes from the quota at a time, in nanoseconds.
    pub quota_slice_ns: u64,
    /// Whether the quota includes the main core, as in PASS, where all reactors are in the group; policy calls are then late.
    pub quota_of_main: bool,
    /// Control period of the package's power limit, in nanoseconds.
    pub power_period_ns: u64,
}

impl Default for Limits {
    /// 100 ms and 5 ms are the kernel's defaults (`cpu.cfs_period_us`, `sched_cfs_bandwidth_slice_us`); 1 ms is chosen, the order of magnitude of the firmware's response time.
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
/// thread on the core `thread_ns` and `queue_ns` for each of its device queues, then the work found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PollCosts {
    /// Fixed part of a loop.
    pub loop_ns: u32,
    /// For each I/O thread.
    pub thread_ns: u32,
    /// For each device queue of a thread.
    pub queue_ns: u32,
    /// Receiving a request from the network.
    pub receive_ns: u32,
    /// Submitting a command to a device.
    pub submit_ns: u32,
    /// Processing a completion of a device.
    pub complete_ns: u32,
    /// Sending a response to the network.
    pub respond_ns: u32,
    /// Computing parity, per KiB of parity.
    pub parity_ns_per_kib: u32,
    /// Maximum requests, and maximum completions, of one poll step.
    pub batch: u32,
}

/// Speed of a core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Speed {
    /// Lowest frequency in kHz.
    pub min_khz: u32,
    /// Highest frequency in kHz; costs refer to it.
    pub max_khz: u32,
    /// Difference between two neighbouring frequencies, in kHz.
    pub step_khz: u32,
    /// Duration of a frequency transition, in nanoseconds.
    pub transition_ns: u64,
    /// Whether a new command restarts the transition.
    pub transition_restarts: bool,
    /// Share of a cost that does not depend on the frequency (memory), in millionths.
    pub stalled_ppm: u32,
    /// Speed-up of a core while its sibling is idle, in millionths.
    pub sibling_gain_ppm: u32,
}

/// Costs of commanded sleep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SleepCosts {
    /// Whether cores have a wait instruction.
    pub monitor: bool,
    /// From the store to the first poll after a wait instruction, in nanoseconds.
    pub monitor_wake_ns: u64,
    /// From the command to the first poll after a sleep in the kernel, in nanoseconds, excluding the exit from the idle state.
    pub software_wake_ns: u64,
    /// Cost of a software wake-up for the waker, in nanoseconds.
    pub software_waker_ns: u64,
    /// From the end of a pause between polls ([`pilotlight_plant::CompletionMode::Hybrid`]) to the first poll, in nanoseconds.
    pub rest_wake_ns: u64,
}

/// Costs of the kernel path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KernelCosts {
    /// Interrupt coalescing time of a device or network card, in nanoseconds.
    pub coalesce_ns: u64,
    /// CPU time of an interrupt, in nanoseconds.
    pub interrupt_ns: u32,
    /// CPU time of a context switch, in nanoseconds.
    pub switch_ns: u32,
    /// CPU time of a request beyond that of the polled path, in nanoseconds.
    pub request_ns: u32,
    /// Exit latency of the shallow idle state, in nanoseconds.
    pub shallow_exit_ns: u64,
    /// Exit latency of the deep idle state, in nanoseconds.
    pub deep_exit_ns: u64,
    /// The idle governor selects the deep state if it predicts at least this idle time, in nanoseconds; `u64::MAX` for never.
    pub deep_residency_ns: u64,
    /// Completion queues of each drive, each with its own interrupt, handled by one of the cores that share the queue, depending on the drive's
    /// number (`engine/interrupts.rs`). 0: one interrupt on its own core wakes a waiting I/O thread, for any event.
    #[serde(default)]
    pub drive_queues: u32,
    /// Receive queues of all network cards, likewise. 0: a packet interrupts the core of its I/O thread while the thread waits in the kernel.
    #[serde(default)]
    pub network_queues: u32,
    /// From the end of an interrupt handler until the IPI reaches the core of the I/O thread, in nanoseconds.
    #[serde(default)]
    pub ipi_ns: u64,
    /// Whether the array is the kernel's md driver: one thread handles all writes and rebuilds, page by page (`engine/md.rs`).
    #[serde(default)]
    pub md: bool,
    /// Time of that thread for each 4 KiB page of a command, including dispatch and completion, in nanoseconds.
    #[serde(default)]
    pub md_page_ns: u32,
}

/// Costs of decisions and commands on the main core, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DirectorCosts {
    /// Fixed part of a tick or interval.
    pub decide_ns: u32,
    /// Part of a tick or interval for each I/O thread.
    pub decide_thread_ns: u32,
    /// Time that each core spends per tick to fill its statistics.
    pub fill_ns: u32,
    /// Moving an I/O thread from one polling core to another.
    pub move_ns: u32,
    /// Setting the frequency of one core by a write to sysfs.
    pub frequency_ns: u32,
    /// Share of moves, sleeps and frequency changes that fail when tried, in millionths. No published value; default 0.
    #[serde(default)]
    pub fails_ppm: u32,
    /// Whether an I/O thread leaves its core at once even if software has yet to wake the destination core; it is not polled meanwhile. Otherwise it
    /// stays until that core is awake.
    #[serde(default)]
    pub leaves_at_once: bool,
}

/// Network between hosts and this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Network {
    /// Ports; connections are assigned round robin.
    pub ports: u32,
    /// Rate of a port in each direction, in Mbit/s.
    pub port_mbit_s: u32,
    /// Round trip from host to target without queueing, in nanoseconds, including the host's own time.
    pub round_trip_ns: u64,
    /// Protocol bytes of each request and each response.
    pub overhead_bytes: u32,
}

/// Power by component and state. Power between the measured states is unknown: the fields of `family` span the possible models.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Power {
    /// Physical cores of the measured machine, all in one state.
    pub physical_cores: u32,
    /// CPU, in microwatts.
    pub cpu_uw: ByState,
    /// All other components (fans, memory, network, losses), in microwatts.
    pub others_uw: ByState,
    /// All drives when idle, in microwatts.
    pub drives_idle_uw: u64,
    /// Energy of reading 4 KiB, in nanojoules.
    pub read_4k_nj: u64,
    /// Energy of writing 4 KiB, in nanojoules.
    pub write_4k_nj: u64,
    /// Parameters that the measured states leave open.
    pub family: Family,
    /// Power of the package outside its cores (mesh, caches, controllers) while any core is not in the deep state, in microwatts, at the highest
    /// frequency that its limit allows; it scales with that frequency like the power of a polling core. Part of `cpu_uw.poll`. If set, `others_uw` is
    /// a linear function of CPU power through `deep` and `poll`.
    #[serde(default)]
    pub uncore_uw: Option<u64>,
    /// Additional parameters of machines with scheduled cores.
    #[serde(default)]
    pub scheduled: Option<ScheduledPower>,
}

/// Power of a machine with scheduled cores, where it differs from the states'.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScheduledPower {
    /// Power of a core that only polls a queue, relative to a working core, both above shallow sleep, in millionths.
    pub looks_ppm: u32,
    /// Cores share one budget: power of a core while all work, relative to its power while few do, in millionths.
    pub of_all_ppm: u32,
    /// Constant part of the system power besides CPU and drives.
    pub base_uw: u64,
    /// System power per watt of CPU and drives, including that watt, in millionths. Replaces `others_uw`.
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

/// Parameters that the measured states leave open.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Family {
    /// Share of shallow minus deep that is saved only when every core is in the deep state, in millionths.
    pub package_ppm: u32,
    /// Share of a physical core's polling power that is saved while one of two siblings sleeps, in millionths.
    pub sibling_saves_ppm: u32,
    /// Exponent of CPU power over frequency, between lowest and highest frequency.
    pub frequency_exponent: f64,
    /// Exponent of the other components' power over the share of cores that poll.
    pub others_exponent: f64,
    /// Whether cores idled by the kernel are in the deep state (else in the shallow one).
    pub kernel_idles_deep: bool,
    /// Whether a core that exits an idle state draws the power of that state (else that of an awake core).
    pub exit_at_rest: bool,
}
