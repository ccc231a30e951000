//! Modelled power from CPU time, with three constants.
//!
//! `energy = base x time + idle x idle time of all cores + busy x busy time of all cores`, from `/proc/stat`. It
//! ignores frequencies, instructions, sleep depths, memory and drives, and counts time in `umwait` as busy. It allows trying functions that
//! need power on machines without a sensor; the name of its domain has the profile, and its origin is `modelled`.

use std::path::PathBuf;

use pilotlight_drive::Roots;

use crate::cputime;
use crate::sensor::{Counts, Domain, Kind, Missing, Open, Origin, Part, ReadError, Reading, Sensor, SensorInfo, Unit};

const NAME: &str = "modelled";
/// Update interval in nanoseconds.
pub const INTERVAL_NS: u64 = 10_000_000;
const HELP: &str = "check that /proc is mounted";

/// The constants of the model.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Options {
    /// Name of the profile, which is part of the domain's name.
    pub profile: String,
    /// Power of all packages independent of the cores, in microwatts.
    pub base_uw: u64,
    /// Power of an idle core, in microwatts.
    pub idle_core_uw: u64,
    /// Power of a busy core, in microwatts.
    pub busy_core_uw: u64,
}

impl Default for Options {
    /// Generic constants: 10 W, and 1 W or 5 W per core.
    fn default() -> Self {
        Self { profile: "generic".into(), base_uw: 10_000_000, idle_core_uw: 1_000_000, busy_core_uw: 5_000_000 }
    }
}

/// A power model as a sensor.
#[derive(Debug)]
pub struct Modelled {
    stat: PathBuf,
    options: Options,
    info: SensorInfo,
    cores: usize,
}

impl Modelled {
    /// Power with every core idle, the minimum, in microwatts.
    #[must_use]
    pub fn lowest_uw(&self) -> u64 {
        self.options.base_uw + self.cores as u64 * self.options.idle_core_uw
    }
}

impl Open for Modelled {
    type Options = Options;

    fn open(roots: &Roots, options: &Options) -> Result<Self, Missing> {
        let stat = roots.proc.join("stat");
        let cores = cputime::cores(&stat).map_err(|error| Missing::file(NAME, &stat, &error, HELP, HELP))?.len();
        let kind = Kind::EnergyCounter(Counts { update_ns: INTERVAL_NS, ..Counts::endless() });
        let name = format!("cpu-modelled-{}", options.profile);
        let origin = Origin::Modelled { profile: options.profile.clone() };
        let domain = Domain { origin, ..Domain::new(name, kind, Unit::MicroJoule, Part::Cpu) };
        Ok(Self { stat, options: options.clone(), info: SensorInfo::new(NAME, INTERVAL_NS, vec![domain]), cores })
    }
}

impl Sensor for Modelled {
    fn info(&self) -> &SensorInfo {
        &self.info
    }

    fn read(&mut self, into: &mut Vec<Reading>) -> Result<(), ReadError> {
        let cores = cputime::cores(&self.stat).map_err(|error| ReadError::io(self.stat.display(), error))?;
        if cores.len() != self.cores {
            // A new CPU would add its time since boot.
            return Err(ReadError::Content("the number of CPUs has changed".into()));
        }
        let (mut uw_ns, mut passed_ns) = (0_i128, 0_i64);
        for core in &cores {
            let (idle, busy) = (core.idle_ns(), core.busy_ns());
            uw_ns += i128::from(idle) * i128::from(self.options.idle_core_uw);
            uw_ns += i128::from(busy) * i128::from(self.options.busy_core_uw);
            passed_ns = passed_ns.max(idle + busy);
        }
        uw_ns += i128::from(passed_ns) * i128::from(self.options.base_uw);
        into.push(Reading { domain: 0, value: (uw_ns / 1_000_000_000) as i64 });
        Ok(())
    }
}
