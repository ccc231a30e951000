//! A machine that does its own I/O, as data: processors, what the kernel's way costs, a drive with its power states, and power.
//!
//! Figures come from `profiles/NAME.toml` (printed, each with its source) and `profiles/calibration/NAME.toml` (free constants, each
//! with a range). Times are in nanoseconds, power in microwatts, sizes in bytes.

use serde::Deserialize;

/// Everything about a machine.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Local {
    /// What outputs call it.
    pub name: String,
    /// How much of a run without writes is simulated: nothing in the model remembers longer.
    pub window_ns: u64,
    /// Processors.
    pub host: Host,
    /// What it costs to have a request done.
    pub costs: Costs,
    /// The drive.
    pub drive: Drive,
    /// Watts by component and state.
    pub power: Power,
}

/// Processors and how they sleep.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// Physical cores.
    pub cores: u32,
    /// Hardware threads of a core.
    pub threads_per_core: u32,
    /// By how much work takes longer on a core whose sibling works too, in millionths.
    pub sibling_slows_ppm: u64,
    /// Time from an interrupt to the first instruction, out of a light sleep.
    pub light_exit_ns: u64,
    /// The same out of a deep sleep.
    pub deep_exit_ns: u64,
    /// A core that rests for at least so long rests deeply: the governor is taken to foresee it.
    pub deep_after_ns: u64,
}

/// What it costs to have a request done, at the highest frequency.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Costs {
    /// The load generator's own part of each request.
    pub job_ns: u64,
    /// From the system call to the doorbell.
    pub submit_ns: u64,
    /// From the completion queue's entry to the caller.
    pub complete_ns: u64,
    /// Mapping memory, for each KiB of a request.
    pub page_ns_per_kib: u64,
    /// Taking an interrupt.
    pub interrupt_ns: u64,
    /// Leaving a processor and coming back to it, half each.
    pub switch_ns: u64,
    /// Arming a timer and taking its interrupt, half each.
    pub timer_ns: u64,
    /// One look at a completion queue.
    pub look_ns: u64,
    /// What `libaio` takes more than a synchronous call.
    pub libaio_ns: u64,
    /// What `io_uring` takes more than a synchronous call.
    pub uring_ns: u64,
    /// The application's part of a request with a submission thread in the kernel.
    pub ring_ns: u64,
    /// Handing a request to a helper thread and back (`posixaio`).
    pub hand_over_ns: u64,
    /// Submission and completion without the kernel.
    pub bypass_ns: u64,
    /// How long each request holds the lock of the scheduler `kyber`.
    pub kyber_ns: u64,
    /// The same of `mq-deadline`.
    pub deadline_ns: u64,
}

/// A drive.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Drive {
    /// What every read takes, beside waiting and flash.
    pub front_ns: u64,
    /// What every write takes until it is in the buffer.
    pub write_ns: u64,
    /// Least time between two commands on the way through the controller.
    pub command_ns: u64,
    /// Bytes a second through the controller and the link.
    pub link_bytes_per_s: u64,
    /// Share of a command's time in the controller that is drawn (exponential), in millionths.
    pub random_ppm: u64,
    /// Units of flash that can read at the same time; 0 where a medium has none to wait for.
    pub units: u32,
    /// Time of a unit for a read.
    pub unit_ns: u64,
    /// More of it, for each KiB.
    pub unit_ns_per_kib: u64,
    /// A larger read is spread over units.
    pub page_bytes: u64,
    /// Most bytes a second of sequential reads, which are read ahead; 0 where sequential reads are like others.
    pub stream_bytes_per_s: u64,
    /// Extra time where a sequential stream turns from reads to writes or back.
    pub turn_ns: u64,
    /// The largest command; larger requests are cut.
    pub mdts_bytes: u64,
    /// Memory that takes writes.
    pub buffer_bytes: u64,
    /// Flash that takes writes at full speed before older ones must be moved.
    pub cache_bytes: u64,
    /// Bytes a second that are moved while writes wait for room.
    pub full_bytes_per_s: u64,
    /// Whether a random write must first read where its block is mapped.
    pub map_reads: bool,
    /// A drive without work begins to move data after so long.
    pub gc_after_ns: u64,
    /// A drive without anything to do goes to its own rest after so long
    pub rest_after_ns: u64,
    /// and takes so long to come back.
    pub wake_ns: u64,
    /// Where autonomous transitions are on, it goes to its lowest power state after so long without anything to do; it comes back from
    /// there as from its own rest.
    pub asleep_after_ns: u64,
    /// Power states in which it works, the first the fastest.
    pub state: Vec<State>,
}

/// A power state in which a drive works.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    /// Such as `ps1`.
    pub name: String,
    /// Most bytes a second of reads in this state; 0 for what the link allows.
    pub read_bytes_per_s: u64,
    /// Most bytes a second that go from the buffer to flash.
    pub write_bytes_per_s: u64,
    /// Bytes a second that are moved (garbage collection) when nothing else is to do.
    pub gc_bytes_per_s: u64,
    /// What moving takes beside the awake drive, in microwatts.
    pub gc_uw: u64,
}

/// Watts.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Power {
    /// Packages and memory with all cores in deep sleep.
    pub cpu_idle_uw: u64,
    /// More while any core is not in deep sleep.
    pub uncore_uw: u64,
    /// More for a core that works while few others do.
    pub core_uw: u64,
    /// More for each core that works while all do.
    pub core_of_all_uw: u64,
    /// A core that looks at a queue all the time takes this share of one that works, in millionths.
    pub spin_ppm: u64,
    /// A core in light sleep takes this share of one that works, in millionths.
    pub light_ppm: u64,
    /// Energy of a context switch beyond its time: caches refilled, in nanojoules.
    pub switch_nj: u64,
    /// The drive at its own rest.
    pub drive_rest_uw: u64,
    /// The drive in its lowest power state, as measured.
    pub drive_asleep_uw: u64,
    /// The drive awake.
    pub drive_awake_uw: u64,
    /// Picojoules for each byte read.
    pub drive_read_pj_per_byte: u64,
    /// Picojoules for each byte written.
    pub drive_write_pj_per_byte: u64,
    /// What the system takes beside processors and drive.
    pub system_base_uw: u64,
    /// What the system takes for each watt of processors and drive, in millionths.
    pub system_slope_ppm: u64,
}
