//! Counters of the kernel: load average (`/proc/loadavg`), context switches, forks and interrupts (`/proc/stat`), and
//! interrupts per device (`/proc/interrupts`), summed over CPUs. The latter have 32 bits per CPU, which a drive with a million
//! requests per second exceeds in 72 minutes.

use std::path::{Path, PathBuf};

use pilotlight_drive::Roots;

use crate::files;
use crate::sensor::{Domain, Missing, Open, ReadError, Reading, Sensor, SensorInfo, Unit};
use crate::wide::Wide;

const NAME: &str = "kernel";
pub(crate) const INTERVAL_NS: u64 = 100_000_000;
const HELP: &str = "check that /proc is mounted";

/// Load, context switches and interrupts.
#[derive(Debug)]
pub struct Kernel {
    proc: PathBuf,
    info: SensorInfo,
    /// First columns of `/proc/interrupts`, in the order of their domains, and their counters.
    lines: Vec<(String, Wide)>,
}

/// Domains before those of interrupts.
const LOAD: usize = 0;
const SWITCHES: usize = 1;
const FORKS: usize = 2;
const INTERRUPTS: usize = 3;
const FIRST_LINE: usize = 4;

impl Open for Kernel {
    type Options = ();

    fn open(roots: &Roots, (): &()) -> Result<Self, Missing> {
        let proc = roots.proc.clone();
        let missing = |error: ReadError| match error {
            ReadError::Io { what, source } => Missing::file(NAME, Path::new(&what), &source, HELP, HELP),
            error => Missing::new(NAME, crate::Why::Broken, error.to_string(), HELP),
        };
        let interrupts = interrupts(&proc).map_err(missing)?;
        let mut domains = vec![
            Domain::gauge("load-1min", Unit::Milli),
            Domain::counter("context-switches", Unit::Count),
            Domain::counter("forks", Unit::Count),
            Domain::counter("interrupts", Unit::Count),
        ];
        let lines = interrupts.iter().map(|line| (line.id.clone(), Wide::default())).collect();
        domains.extend(interrupts.into_iter().map(|line| Domain::counter(format!("irq/{}", line.name), Unit::Count)));
        let mut kernel = Self { proc, info: SensorInfo::new(NAME, INTERVAL_NS, domains), lines };
        kernel.read(&mut Vec::new()).map_err(missing)?;
        Ok(kernel)
    }
}

/// A line of `/proc/interrupts`.
struct Line {
    id: String,
    /// `36:virtio1-req.0` or `RES`.
    name: String,
    total: i64,
}

fn text(path: &Path) -> Result<String, ReadError> {
    files::text(path).map_err(|error| ReadError::io(path.display(), error))
}

fn interrupts(proc: &Path) -> Result<Vec<Line>, ReadError> {
    let text = text(&proc.join("interrupts"))?;
    let cpus = text.lines().next().unwrap_or("").split_whitespace().count();
    let line = |line: &str| {
        let (id, rest) = line.trim().split_once(':')?;
        let counts: Vec<i64> = rest.split_whitespace().take(cpus).map_while(|count| count.parse().ok()).collect();
        let device = rest.split_whitespace().last().filter(|_| id.parse::<u32>().is_ok());
        let name = device.map_or_else(|| id.to_owned(), |device| format!("{id}:{device}"));
        Some(Line { id: id.into(), name, total: counts.iter().sum() })
    };
    Ok(text.lines().skip(1).filter_map(line).collect())
}

impl Sensor for Kernel {
    fn info(&self) -> &SensorInfo {
        &self.info
    }

    fn read(&mut self, into: &mut Vec<Reading>) -> Result<(), ReadError> {
        let mut add = |domain, value| into.push(Reading { domain, value });
        let load = text(&self.proc.join("loadavg"))?;
        let load = load.split_whitespace().next().and_then(|load| crate::decimal::scaled(load, 3));
        add(LOAD, load.ok_or_else(|| ReadError::Content("/proc/loadavg has no load average".into()))?);
        let stat = text(&self.proc.join("stat"))?;
        for (domain, name) in [(SWITCHES, "ctxt"), (FORKS, "processes"), (INTERRUPTS, "intr")] {
            let line = stat.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next());
            let value = line.and_then(|value| value.parse().ok());
            add(domain, value.ok_or_else(|| ReadError::Content(format!("/proc/stat has no {name}")))?);
        }
        // Lines of devices that were added later are ignored.
        for line in interrupts(&self.proc)? {
            let known = self.lines.iter_mut().enumerate().find(|(_, (id, _))| *id == line.id);
            if let Some((index, (_, wide))) = known {
                add(FIRST_LINE + index, wide.take(line.total));
            }
        }
        Ok(())
    }
}
