//! A host with one drive: the machine of papers that measure fio's jobs on one Linux host (the energy thesis, the polling paper).
//!
//! It is read from two files, what is printed (`profiles/NAME.toml`) and what is free (`profiles/calibration/NAME.toml`), merged as those of
//! servers are ([`crate::simulated::machine`]). A run of jobs on it is a scenario in which every core is scheduled ([`Host::scenario`]). Times are in
//! nanoseconds, power in microwatts, sizes in bytes. profiles/README.md says what is modelled and what is not.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use toml::Value;

use pilotlight_input::file as read;
use pilotlight_plant::{CoreId, Topology};
use pilotlight_sim::jobs::{Job, JobCosts, Scheduled};
use pilotlight_sim::machine::{
    ByState, DirectorCosts, Family, Governor, KernelCosts, Limits, Machine, Network, PollCosts, Power as Watts,
    ScheduledPower, SleepCosts, Speed,
};
use pilotlight_sim::scenario::{Scenario, Sensors, Workload};
use pilotlight_sim::ssd::SsdModel;

use crate::simulated::calibration::Calibration;
use crate::simulated::machine::{MachineError, MachineFiles, calibration_of};

/// The folder of free constants, beside the profiles.
pub const CALIBRATIONS: &str = "calibration";

/// Times of a load are multiples of this.
pub const GRID_NS: u64 = 100_000;

const MILLION: u64 = 1_000_000;
/// More cores than any host has.
const MOST_CORES: u64 = 4_096;

/// Everything about such a machine.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// What outputs call it.
    pub name: String,
    /// How much of a run without writes and rests is simulated: nothing in the model remembers longer.
    pub window_ns: u64,
    /// Processors.
    #[serde(rename = "host")]
    pub processors: Processors,
    /// What it costs to have a request done, at the highest frequency.
    pub costs: JobCosts,
    /// The drive.
    pub drive: SsdModel,
    /// Watts of all but the drive.
    pub power: Power,
}

/// Processors and how they sleep.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Processors {
    /// Physical cores.
    pub cores: u16,
    /// Hardware threads of a core: 1 or 2.
    pub threads_per_core: u16,
    /// Time from an interrupt to the first instruction, out of a light sleep.
    pub light_exit_ns: u64,
    /// The same out of a deep sleep.
    pub deep_exit_ns: u64,
    /// A core that rests for at least so long rests deeply: the idle governor is taken to foresee it.
    pub deep_after_ns: u64,
}

/// Watts of processors and system.
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
    /// A core that looks at a queue all the time draws this share of one that works, in millionths.
    pub spin_ppm: u64,
    /// A core in light sleep draws this share of one that works, in millionths.
    pub light_ppm: u64,
    /// What the system draws beside processors and drive.
    pub system_base_uw: u64,
    /// What the system draws for each watt of processors and drive, in millionths.
    pub system_slope_ppm: u64,
}

/// Jobs that are all alike, and others beside them, for some time.
#[derive(Clone, Debug, PartialEq)]
pub struct Load {
    /// What each of them does; the cores are those of its number.
    pub job: Job,
    /// How many.
    pub jobs: u16,
    /// Others, which run on any core.
    pub beside: Vec<Job>,
    /// Index of the drive's power state.
    pub drive_state: usize,
    /// Whether the drive goes to its lowest state by itself.
    pub drive_autonomous: bool,
    /// Unmeasured time at the start.
    pub ramp_ns: u64,
    /// Measured time.
    pub duration_ns: u64,
    /// How long the machine is observed after that: the drive may have data to move.
    pub after_ns: u64,
    /// The seed of all random numbers.
    pub seed: u64,
}

/// Why there is no machine.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// A file cannot be read.
    #[error("{path}: {error}")]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// The files do not make up a machine.
    #[error("{path}: {error}")]
    Machine {
        /// The profile.
        path: PathBuf,
        /// Why.
        error: MachineError,
    },
}

/// Whether a profile is that of a host with one drive. A server may have a file in the same folder; its profile names it.
#[must_use]
pub fn is_one(profiles: &Path, name: &str) -> bool {
    let file = format!("{name}.toml");
    let names_its_file = |profile: String| calibration_of(&profile).is_ok_and(|path| path.ends_with(&file));
    let is_server = std::fs::read_to_string(profiles.join(&file)).is_ok_and(names_its_file);
    profiles.join(CALIBRATIONS).join(file).is_file() && !is_server
}

fn text(path: &Path) -> Result<String, HostError> {
    std::fs::read_to_string(path).map_err(|error| HostError::File { path: path.to_owned(), error })
}

/// The machine of a profile; its free constants are in the file of the same name in the folder `calibration` beside it.
///
/// # Errors
/// If a file cannot be read, or they do not make up a machine.
pub fn load(profile: &Path) -> Result<Host, HostError> {
    let folder = profile.parent().unwrap_or(Path::new("")).join(CALIBRATIONS);
    let free = folder.join(profile.file_name().unwrap_or_default());
    parse(&text(profile)?, &text(&free)?).map_err(|error| HostError::Machine { path: profile.to_owned(), error })
}

/// The same of texts.
///
/// # Errors
/// If they do not make up a machine.
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

/// The free constants of every such machine, by name; none where there is no folder.
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
    /// Whether a machine can have these figures.
    fn check(&self) -> Result<(), MachineError> {
        let Processors { cores, threads_per_core, .. } = self.processors;
        for (key, value, most) in [
            ("host.cores", u64::from(cores), MOST_CORES),
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

    /// A run of a load: jobs begin at the start, and the measured time begins after the ramp.
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

    /// The cores that have a job; all others are always asleep. Siblings are apart by the number of physical cores.
    fn topology(&self, load: &Load) -> Topology {
        let each = if load.job.method == pilotlight_sim::jobs::IoMethod::UringPolled { 2 } else { 1 };
        let used = load.jobs.saturating_mul(each).saturating_add(load.beside.len() as u16);
        let physical = self.processors.cores.max(1);
        let both = self.processors.threads_per_core == 2 && used > physical;
        let cores = if both { 2 * physical } else { used.clamp(1, physical) };
        let siblings = (0..cores).map(|core| both.then_some(CoreId((core + physical) % cores)));
        Topology::new(CoreId(0), siblings.collect()).unwrap_or_else(|_| unreachable!("each is its sibling's sibling"))
    }

    /// The machine without its drive. No core polls, nothing is commanded and there is no network.
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
        }
    }
}

impl Power {
    /// The same in the terms of a server's profile: watts with all cores in one state, and what lies between.
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
