//! A host with one drive, as in papers that measure fio jobs on a Linux host (the energy thesis, the polling paper).
//!
//! It has two files, printed values (`profiles/NAME.toml`) and free constants (`profiles/calibration/NAME.toml`), merged as those of servers
//! ([`crate::simulated::machine`]). Jobs run in a scenario with scheduled cores ([`Host::scenario`]). Times are in nanoseconds, power in
//! microwatts, sizes in bytes. profiles/README.md has the sources, and what is not modelled.
//!
//! # Model
//! Each job of fio runs on one hardware thread. A request costs the job's time, the path into the kernel and the path back. Completion:
//!
//! | mechanism | cost |
//! |---|---|
//! | interrupt (`psync`, `libaio`, `io_uring`) | half a context switch to leave; an interrupt, the exit from the CPU's idle state, and half a switch to return. An interrupt that is pending or handled takes further completions with it |
//! | classic polling (`pvsync2 hipri`) | the CPU polls the queue until the request completes |
//! | hybrid polling | half of the mean time asleep (a timer, a switch), then polling |
//! | `io_uring` with a submission thread | a second CPU submits and polls, the first polls shared memory |
//! | `posixaio` | a helper thread makes one synchronous call at a time; waiting for it counts as latency |
//! | SPDK | polling without the kernel |
//!
//! - **Sharing a CPU.** Jobs run in the order of arrival until they wait; a polling job yields after each request. An interrupt preempts a
//!   program at once and kernel work at its end.
//! - **Sleep.** A waiting CPU rests lightly, or deeply where it rests for longer than the target residency of the deep state, which is
//!   taken to be predicted correctly.
//! - **Drive.** One controller with a rate. Random reads wait for one of many units of flash, sequential ones are read ahead. Writes
//!   complete in the buffer, which is written to flash at a rate. On the thesis's drive programs occupy the units of flash (1.2 ms for 96
//!   KiB, assumed), and a read suspends one, which takes 100 us (assumed). A write of part of a 4 KiB unit reads the unit first, unless
//!   it continues a sequential write. Written data is moved later (garbage collection) at a rate and power of the state; when too much is
//!   pending, writes are slowed to that rate. A drive enters its rest after 60 ms and needs 90 us to return; with APST it enters its lowest
//!   state after 100 ms.
//! - **Lower power states** limit both rates: each read waits in a queue with random service times.
//! - **I/O schedulers** are a lock that each request holds for a while. Waiters spin; with `costs.lock_sleeps` (thesis) the job sleeps.
//! - **Large requests** are split into commands of `costs.command_bytes` (thesis: 512 KiB), which the drive ends together, each with its
//!   own completion.
//! - **Power.** CPU: idle, more while any core is not deeply asleep, and an amount for each working core that decreases with their number.
//!   Polling and light sleep are shares of working. Of two hardware threads the one with the higher power counts. SSD: resting, awake, for
//!   each byte, and for moving data. System: a line over both.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use toml::Value;

use pilotlight_input::file as read;
use pilotlight_plant::{CoreId, Topology};
use pilotlight_sim::jobs::{Job, JobCosts, Scheduled};
use pilotlight_sim::machine::{
    ByState, DirectorCosts, Family, Governor, KernelCosts, Limits, Machine, Network, PollCosts, Power as Watts,
    ScheduledPower, SleepCosts, Sockets, Speed,
};
use pilotlight_sim::scenario::{Scenario, Sensors, Workload};
use pilotlight_sim::ssd::SsdModel;

use crate::simulated::calibration::Calibration;
use crate::simulated::machine::{MachineError, MachineFiles, calibration_of};

/// The folder of free constants beside the profiles.
pub const CALIBRATIONS: &str = "calibration";

/// Times of a load are multiples of this.
pub const GRID_NS: u64 = 100_000;

const MILLION: u64 = 1_000_000;
/// Upper limit of cores.
const MAX_CORES: u64 = 4_096;

/// A host.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// Its name.
    pub name: String,
    /// Simulated time of a run without writes and think time, which is memoryless beyond this.
    pub window_ns: u64,
    /// Processors.
    #[serde(rename = "host")]
    pub processors: Processors,
    /// CPU costs of a request at the highest frequency.
    pub costs: JobCosts,
    /// The drive.
    pub drive: SsdModel,
    /// Power without the drive.
    pub power: Power,
}

/// Processors and their sleep states.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Processors {
    /// Physical cores.
    pub cores: u16,
    /// Hardware threads of a core: 1 or 2.
    pub threads_per_core: u16,
    /// Exit latency of light sleep.
    pub light_exit_ns: u64,
    /// Exit latency of deep sleep.
    pub deep_exit_ns: u64,
    /// Minimum idle time for deep sleep, with perfect prediction by the idle governor.
    pub deep_after_ns: u64,
}

/// Power of processors and system.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Power {
    /// Packages and memory with all cores in deep sleep.
    pub cpu_idle_uw: u64,
    /// Additional power while any core is not in deep sleep.
    pub uncore_uw: u64,
    /// Additional power of a busy core while few others are busy.
    pub core_uw: u64,
    /// Additional power of each busy core while all are busy.
    pub core_of_all_uw: u64,
    /// Power of a polling core relative to a busy one, in millionths.
    pub spin_ppm: u64,
    /// Power of a core in light sleep relative to a busy one, in millionths.
    pub light_ppm: u64,
    /// Constant power of the rest of the system.
    pub system_base_uw: u64,
    /// Additional power of the system per power of processors and drive, in millionths.
    pub system_slope_ppm: u64,
}

/// A load: equal jobs, and background jobs, for a time.
#[derive(Clone, Debug, PartialEq)]
pub struct Load {
    /// The job; job N runs on core N.
    pub job: Job,
    /// Number of jobs.
    pub jobs: u16,
    /// Background jobs, which run on any core.
    pub beside: Vec<Job>,
    /// Index of the drive's power state.
    pub drive_state: usize,
    /// Whether the drive has autonomous power state transitions.
    pub drive_autonomous: bool,
    /// Unmeasured time at the start.
    pub ramp_ns: u64,
    /// Measured time.
    pub duration_ns: u64,
    /// Time after the measured time, in which the drive may move data.
    pub after_ns: u64,
    /// The seed of all random numbers.
    pub seed: u64,
}

/// A host cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// A file cannot be read.
    #[error("{path}: {error}")]
    File {
        /// The file.
        path: PathBuf,
        /// The error.
        error: std::io::Error,
    },
    /// The files are invalid.
    #[error("{path}: {error}")]
    Machine {
        /// The profile.
        path: PathBuf,
        /// The error.
        error: MachineError,
    },
}

/// Whether a profile is of a host with one drive. Servers may have calibrations in the same folder, named by their profile.
#[must_use]
pub fn is_one(profiles: &Path, name: &str) -> bool {
    let file = format!("{name}.toml");
    let names_its_file = |profile: String| calibration_of(&profile).is_ok_and(|path| path.ends_with(&file));
    let is_server = std::fs::read_to_string(profiles.join(&file)).is_ok_and(names_its_file);
    profiles.join(CALIBRATIONS).join(file).is_file() && !is_server
}

/// The name of an experiment on a host: `thesis/depth` of `papers/thesis/depth.toml`.
#[must_use]
pub fn name_of(file: &Path) -> String {
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    let folder = file.parent().and_then(Path::file_name).map(|folder| format!("{}/", folder.to_string_lossy()));
    format!("{}{stem}", folder.unwrap_or_default())
}

fn text(path: &Path) -> Result<String, HostError> {
    std::fs::read_to_string(path).map_err(|error| HostError::File { path: path.to_owned(), error })
}

/// Reads the host of a profile; its free constants are in `calibration/` with the same name.
///
/// # Errors
/// If a file cannot be read or is invalid.
pub fn load(profile: &Path) -> Result<Host, HostError> {
    let folder = profile.parent().unwrap_or(Path::new("")).join(CALIBRATIONS);
    let free = folder.join(profile.file_name().unwrap_or_default());
    parse(&text(profile)?, &text(&free)?).map_err(|error| HostError::Machine { path: profile.to_owned(), error })
}

/// Parses a host from texts.
///
/// # Errors
/// If they are invalid.
pub fn parse(profile: &str, calibration: &str) -> Result<Host, MachineError> {
    let files = MachineFiles::read(profile, calibration)?;
    let mut merged = files.merged(&[])?;
    if let Some(Value::Table(drive)) = merged.get_mut("drive") {
        for key in ["name", "source"] {
            drive.insert(key.to_owned(), Value::String(files.name.clone()));
        }
    }
    let host: Host = read::table(merged, "profile and calibration together")?;
    host.check()?;
    Ok(host)
}

/// The free constants of all machines by name; none without the folder.
///
/// # Errors
/// If one cannot be read.
pub fn calibrations(profiles: &Path) -> Result<Vec<(String, Calibration)>, HostError> {
    let Ok(entries) = std::fs::read_dir(profiles.join(CALIBRATIONS)) else { return Ok(Vec::new()) };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    let read = |path: PathBuf| {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let calibration = Calibration::parse(&text(&path)?);
        Ok((name, calibration.map_err(|error| HostError::Machine { path, error: error.into() })?))
    };
    paths.into_iter().map(read).collect()
}

impl Host {
    /// Checks the limits of values.
    fn check(&self) -> Result<(), MachineError> {
        let Processors { cores, threads_per_core, .. } = self.processors;
        for (key, value, most) in [
            ("host.cores", u64::from(cores), MAX_CORES),
            ("host.threads_per_core", threads_per_core.into(), 2),
            ("power.light_ppm", self.power.light_ppm.max(1), MILLION),
            ("power.spin_ppm", self.power.spin_ppm.max(1), MILLION),
        ] {
            if !(1..=most).contains(&value) {
                return Err(MachineError::Figure { key, value, most });
            }
        }
        Ok(self.drive.check()?)
    }

    /// The scenario of a load: jobs start at 0, the measured time after the warm-up.
    #[must_use]
    pub fn scenario(&self, load: &Load) -> Scenario {
        let work_ns = load.ramp_ns + load.duration_ns;
        let all_ns = work_ns + load.after_ns;
        let fits =
            |step: &u64| all_ns / step >= 100 && load.ramp_ns.is_multiple_of(*step) && work_ns.is_multiple_of(*step);
        let series_ns = [100_000_000, 10_000_000, 1_000_000, GRID_NS].into_iter().find(fits).unwrap_or(10_000);
        let topology = self.topology(load);
        let cores = topology.len() as u16;
        Scenario {
            machine: self.machine(),
            family: Vec::new(),
            threads: 0,
            drives: vec![self.drive.clone()],
            workload: Workload::default(),
            scheduled: Some(Scheduled {
                first_core: 0,
                jobs: (0..load.jobs)
                    .map(|at| Job {
                        cores: (at % cores, 1),
                        helper: (load.jobs % cores + at % cores) % cores,
                        ..load.job
                    })
                    .chain(load.beside.iter().map(|job| Job { cores: (0, cores), ..*job }))
                    .collect(),
                quotas: Vec::new(),
                until_ns: work_ns,
                drive_state: load.drive_state,
                drive_autonomous: load.drive_autonomous,
            }),
            topology,
            duration_ns: all_ns.next_multiple_of(series_ns),
            warm_up_ns: load.ramp_ns,
            series_ns,
            seed: load.seed,
            eager: false,
            sensors: Sensors::default(),
            goals: Vec::new(),
            changes: Vec::new(),
        }
    }

    /// Cores with a job; others always sleep. Hardware threads of a core differ by the number of physical cores.
    fn topology(&self, load: &Load) -> Topology {
        let each = if load.job.method == pilotlight_sim::jobs::IoMethod::UringPolled { 2 } else { 1 };
        let used = load.jobs.saturating_mul(each).saturating_add(load.beside.len() as u16);
        let physical = self.processors.cores.max(1);
        let both = self.processors.threads_per_core == 2 && used > physical;
        let cores = if both { 2 * physical } else { used.clamp(1, physical) };
        let siblings = (0..cores).map(|core| both.then_some(CoreId((core + physical) % cores)));
        Topology::new(CoreId(0), siblings.collect()).unwrap_or_else(|_| unreachable!("each is its sibling's sibling"))
    }

    /// The machine without its drive, without polling cores, policy commands and network.
    #[must_use]
    pub fn machine(&self) -> Machine {
        let processors = &self.processors;
        Machine {
            name: self.name.clone(),
            poll: PollCosts { loop_ns: 1, batch: 1, ..PollCosts::default() },
            speed: Speed { min_khz: 1_000_000, max_khz: 1_000_000, step_khz: 1, ..Speed::default() },
            sleep: SleepCosts::default(),
            kernel: KernelCosts {
                shallow_exit_ns: processors.light_exit_ns,
                deep_exit_ns: processors.deep_exit_ns,
                deep_residency_ns: processors.deep_after_ns,
                ..KernelCosts::default()
            },
            director: DirectorCosts::default(),
            network: Network { ports: 1, port_mbit_s: 1, round_trip_ns: 2, overhead_bytes: 0 },
            power: self.power.watts(processors.cores),
            jobs: self.costs,
            limits: Limits::default(),
            governor: Governor::default(),
            hotplug: None,
            sockets: Sockets::default(),
        }
    }
}

impl Power {
    /// Power in terms of a server's profile: for all cores in one state, and between.
    fn watts(&self, cores: u16) -> Watts {
        let light_uw = self.core_uw * self.light_ppm / MILLION;
        let deep = self.cpu_idle_uw;
        let shallow = deep + self.uncore_uw + u64::from(cores) * light_uw;
        let poll = shallow + u64::from(cores) * (self.core_uw - light_uw);
        let share = |part: u64, of: u64| (part * MILLION).checked_div(of).unwrap_or(0) as u32;
        Watts {
            physical_cores: u32::from(cores),
            cpu_uw: ByState { poll, slow: poll, shallow, deep },
            others_uw: ByState::default(),
            drives_idle_uw: 0,
            read_4k_nj: 0,
            write_4k_nj: 0,
            family: Family {
                package_ppm: share(self.uncore_uw, shallow - deep),
                sibling_saves_ppm: 0,
                frequency_exponent: 1.0,
                others_exponent: 1.0,
                kernel_idles_deep: true,
                exit_at_rest: false,
            },
            uncore_uw: None,
            scheduled: Some(ScheduledPower {
                looks_ppm: share(self.spin_ppm.saturating_sub(self.light_ppm), MILLION - self.light_ppm),
                of_all_ppm: share(self.core_of_all_uw, self.core_uw),
                base_uw: self.system_base_uw,
                slope_ppm: self.system_slope_ppm,
            }),
        }
    }
}
