//! CPU time of each core by state: the lines `cpuN` of `/proc/stat` (proc_stat(5)), in ticks of 10 ms as nanoseconds.
//!
//! Time in `umwait` and similar instructions counts as busy: the kernel does not detect it.

use std::path::{Path, PathBuf};

use pilotlight_drive::Roots;

use crate::files;
use crate::sensor::{Domain, Missing, Open, ReadError, Reading, Sensor, SensorInfo, Unit};

const NAME: &str = "cputime";
/// Update interval in nanoseconds.
pub const INTERVAL_NS: u64 = 10_000_000;
const HELP: &str = "check that /proc is mounted";
/// Names of the first eight columns.
const COLUMNS: [&str; 8] = ["user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal"];

/// CPU time of all cores.
#[derive(Debug)]
pub struct CpuTime {
    path: PathBuf,
    info: SensorInfo,
}

/// One core's time since boot, in nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Core {
    /// The kernel's name, such as `cpu0`.
    pub name: String,
    /// By column of the file.
    pub spent_ns: [i64; 8],
}

impl Core {
    /// Idle or waiting for a device, in nanoseconds.
    pub fn idle_ns(&self) -> i64 {
        self.spent_ns[3] + self.spent_ns[4]
    }

    /// Everything else, in nanoseconds.
    pub fn busy_ns(&self) -> i64 {
        self.spent_ns.iter().sum::<i64>() - self.idle_ns()
    }
}

/// All cores of a `/proc/stat`.
///
/// # Errors
/// As of reading.
pub fn cores(path: &Path) -> std::io::Result<Vec<Core>> {
    let tick_ns = 1_000_000_000 / rustix::param::clock_ticks_per_second().max(1) as i64;
    let text = files::text(path)?;
    let core = |line: &str| {
        let mut fields = line.split_whitespace();
        let name = fields.next()?.to_owned();
        name.strip_prefix("cpu")?.parse::<u32>().ok()?;
        let mut spent_ns = [0; 8];
        for spent in &mut spent_ns {
            *spent = fields.next()?.parse::<i64>().ok()?.saturating_mul(tick_ns);
        }
        Some(Core { name, spent_ns })
    };
    Ok(text.lines().filter_map(core).collect())
}

/// The part of all CPU time that is in use.
#[derive(Debug)]
pub struct Busy {
    path: PathBuf,
    /// Busy and all time at the last reading.
    last: Option<(i64, i64)>,
}

impl Busy {
    /// Of this machine.
    #[must_use]
    pub fn of(roots: &Roots) -> Self {
        Self { path: roots.proc.join("stat"), last: None }
    }

    /// Since the last reading, in thousandths; `None` at the first one, and where it is unknown.
    pub fn permille(&mut self) -> Option<u64> {
        let cores = cores(&self.path).unwrap_or_default();
        let busy_ns: i64 = cores.iter().map(Core::busy_ns).sum();
        let all_ns = busy_ns + cores.iter().map(Core::idle_ns).sum::<i64>();
        let (busy_before_ns, before_ns) = self.last.replace((busy_ns, all_ns))?;
        let (busy_ns, all_ns) = (busy_ns - busy_before_ns, all_ns - before_ns); // both fall when a CPU goes offline
        (all_ns > 0 && busy_ns >= 0).then(|| (i128::from(busy_ns) * 1000 / i128::from(all_ns)) as u64)
    }
}

impl Open for CpuTime {
    type Options = ();

    fn open(roots: &Roots, (): &()) -> Result<Self, Missing> {
        let path = roots.proc.join("stat");
        let cores = cores(&path).map_err(|error| Missing::file(NAME, &path, &error, HELP, HELP))?;
        let of_core =
            |core: &Core| COLUMNS.map(|what| Domain::counter(format!("{}/{what}", core.name), Unit::NanoSecond));
        let domains = cores.iter().flat_map(of_core).collect();
        Ok(Self { path, info: SensorInfo::new(NAME, INTERVAL_NS, domains) })
    }
}

impl Sensor for CpuTime {
    fn info(&self) -> &SensorInfo {
        &self.info
    }

    fn read(&mut self, into: &mut Vec<Reading>) -> Result<(), ReadError> {
        let cores = cores(&self.path).map_err(|error| ReadError::io(self.path.display(), error))?;
        let values = cores.iter().flat_map(|core| core.spent_ns);
        if cores.len() * COLUMNS.len() != self.info.domains.len() {
            return Err(ReadError::Content("the number of CPUs has changed".into()));
        }
        into.extend(values.enumerate().map(|(domain, value)| Reading { domain, value }));
        Ok(())
    }
}
