//! Frequency of each core: `scaling_cur_freq` of cpufreq, in kilohertz. With some drivers this is the last requested frequency, not a
//! measured one.

use std::path::PathBuf;

use pilotlight_drive::Roots;

use crate::files;
use crate::sensor::{Domain, Missing, Open, ReadError, Reading, Sensor, SensorInfo, Unit, Why};

const NAME: &str = "frequency";
pub(crate) const INTERVAL_NS: u64 = 10_000_000;
const HELP: &str = "cpufreq needs a driver for this CPU, which most virtual machines lack";

/// Frequencies of all CPUs.
#[derive(Debug)]
pub struct Frequency {
    files: Vec<PathBuf>,
    info: SensorInfo,
}

impl Open for Frequency {
    type Options = ();

    fn open(roots: &Roots, (): &()) -> Result<Self, Missing> {
        let root = roots.sys.join("devices/system/cpu");
        let names = cpus(roots).map_err(|error| Missing::file(NAME, &root, &error, HELP, HELP))?;
        let (mut files, mut domains) = (Vec::new(), Vec::new());
        for cpu in names {
            let file = root.join(&cpu).join("cpufreq/scaling_cur_freq");
            if file.exists() {
                files.push(file);
                domains.push(Domain::gauge(cpu, Unit::KiloHertz));
            }
        }
        if files.is_empty() {
            let what = format!("no CPU in {} has cpufreq/scaling_cur_freq", root.display());
            return Err(Missing::new(NAME, Why::Absent, what, HELP));
        }
        Ok(Self { files, info: SensorInfo::new(NAME, INTERVAL_NS, domains) })
    }
}

/// `cpu0`, `cpu1` and so on.
pub(crate) fn cpus(roots: &Roots) -> std::io::Result<Vec<String>> {
    let is_cpu = |name: &String| name.strip_prefix("cpu").is_some_and(|n| n.parse::<u32>().is_ok());
    Ok(files::names(&roots.sys.join("devices/system/cpu"))?.into_iter().filter(is_cpu).collect())
}

impl Sensor for Frequency {
    fn info(&self) -> &SensorInfo {
        &self.info
    }

    fn read(&mut self, into: &mut Vec<Reading>) -> Result<(), ReadError> {
        for (domain, file) in self.files.iter().enumerate() {
            let value = files::number(file).map_err(|error| ReadError::io(file.display(), error))?;
            into.push(Reading { domain, value });
        }
        Ok(())
    }
}
