//! Watts that nobody measured: from CPU time, with a model of three numbers.
//!
//! `energy = base x time + idle x idle time of all cores + busy x busy time of all cores`, from `/proc/stat`. It knows
//! nothing of frequencies, of which instructions run, of depths of sleep, memory or drives, and takes time in `umwait` for
//! busy. It is there so that everything that follows from watts can be tried where there are none; its one domain carries the
//! name of the profile and says that it is modelled, wherever it is shown.

use std::path::PathBuf;

use pilotlight_drive::Roots;

use crate::cputime;
use crate::sensor::{About, Counts, Domain, Kind, Missing, Open, Origin, Part, ReadError, Reading, Sensor, Unit};

const NAME: &str = "modelled";
const INTERVAL_NS: u64 = 10_000_000;
const HELP: &str = "is /proc mounted?";

/// The constants of the model, and whose they are.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Options {
    /// The profile whose constants these are; part of the domain's name.
    pub profile: String,
    /// Power of all packages together that is there whatever the cores do, in microwatts.
    pub base_uw: u64,
    /// Power of an idle core, in microwatts.
    pub idle_core_uw: u64,
    /// Power of a busy core, in microwatts.
    pub busy_core_uw: u64,
}

impl Default for Options {
    /// Round numbers of no machine in particular: 10 W, and 1 W or 5 W a core.
    fn default() -> Self {
        Self { profile: "generic".into(), base_uw: 10_000_000, idle_core_uw: 1_000_000, busy_core_uw: 5_000_000 }
    }
}

/// A model in the place of a sensor.
#[derive(Debug)]
pub struct Modelled {
    stat: PathBuf,
    options: Options,
    about: About,
    cores: usize,
}

impl Modelled {
    /// Power with every core idle, in microwatts: it never reads less.
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
        Ok(Self { stat, options: options.clone(), about: About::new(NAME, INTERVAL_NS, vec![domain]), cores })
    }
}

impl Sensor for Modelled {
    fn about(&self) -> &About {
        &self.about
    }

    fn read(&mut self, into: &mut Vec<Reading>) -> Result<(), ReadError> {
        let cores = cputime::cores(&self.stat).map_err(|error| ReadError::io(self.stat.display(), error))?;
        if cores.len() != self.cores {
            // One that comes would bring all its time since the machine was started.
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
