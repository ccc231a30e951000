//! Residency and usage of each core's idle states: `cpuidle/stateN/time` (microseconds) and `usage`
//! (Documentation/admin-guide/pm/cpuidle.rst of the kernel).

use std::path::{Path, PathBuf};

use pilotlight_drive::Roots;

use crate::files;
use crate::frequency::cpus;
use crate::sensor::{Domain, Missing, Open, ReadError, Reading, Sensor, SensorInfo, Unit, Why};

const NAME: &str = "idle";
pub(crate) const INTERVAL_NS: u64 = 100_000_000;
const HELP: &str = "cpuidle needs a driver for this CPU (intel_idle, acpi_idle, haltpoll)";

/// Idle-state counters of all CPUs.
#[derive(Debug)]
pub struct Idle {
    /// Files and the factors of their numbers.
    files: Vec<(PathBuf, i64)>,
    info: SensorInfo,
}

impl Open for Idle {
    type Options = ();

    fn open(roots: &Roots, (): &()) -> Result<Self, Missing> {
        let root = roots.sys.join("devices/system/cpu");
        let names = cpus(roots).map_err(|error| Missing::file(NAME, &root, &error, HELP, HELP))?;
        let mut idle = Self { files: Vec::new(), info: SensorInfo::new(NAME, INTERVAL_NS, Vec::new()) };
        for cpu in names {
            let folder = root.join(&cpu).join("cpuidle");
            for state in files::names(&folder).unwrap_or_default() {
                idle.add(&cpu, &folder.join(state));
            }
        }
        if idle.info.domains.is_empty() {
            let what = format!("no CPU in {} has cpuidle states", root.display());
            return Err(Missing::new(NAME, Why::Absent, what, HELP));
        }
        Ok(idle)
    }
}

impl Idle {
    fn add(&mut self, cpu: &str, state: &Path) {
        let Ok(name) = files::text(&state.join("name")) else { return };
        self.info.add(Domain::counter(format!("{cpu}/{name}/time"), Unit::NanoSecond));
        self.files.push((state.join("time"), 1_000));
        self.info.add(Domain::counter(format!("{cpu}/{name}/usage"), Unit::Count));
        self.files.push((state.join("usage"), 1));
    }
}

impl Sensor for Idle {
    fn info(&self) -> &SensorInfo {
        &self.info
    }

    fn read(&mut self, into: &mut Vec<Reading>) -> Result<(), ReadError> {
        for (domain, (file, factor)) in self.files.iter().enumerate() {
            let value: i64 = files::number(file).map_err(|error| ReadError::io(file.display(), error))?;
            into.push(Reading { domain, value: value.saturating_mul(*factor) });
        }
        Ok(())
    }
}
