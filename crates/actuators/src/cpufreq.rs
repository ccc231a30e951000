//! Frequencies of CPUs through Linux cpufreq: files under `/sys/devices/system/cpu/cpuN/cpufreq`
//! (Documentation/admin-guide/pm/cpufreq.rst of the kernel).
//!
//! **Ways.** Where the kernel has its governor `userspace`, a CPU is given to it, and `scaling_setspeed` says how fast. Else
//! (drivers such as `intel_pstate` choose for themselves) the bounds `scaling_min_freq` and `scaling_max_freq` are both set to
//! the frequency.
//!
//! **Properties.** Nothing is changed before the first [`CpuFreq::set`] of a CPU. [`CpuFreq::restore`], and the end of the value,
//! put back what was found; a process that is killed cannot. Setting allocates nothing after the first time.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pilotlight_plant::{CoreId, Cost, Kind, Knob, Of, Values};

/// Where Linux has it.
pub const ROOT: &str = "/sys/devices/system/cpu";

/// Time of a write to a file of the kernel, in nanoseconds: an estimate, as no machine at hand has cpufreq.
const SET_NS: u64 = 5_000;
/// Time until a CPU runs at what was set, in nanoseconds, where the kernel does not know (SANDMAN Figure 5: over 450 us).
const LATENCY_NS: u64 = 450_000;
/// A step where the kernel lists no frequencies, in kHz: 100 MHz.
const STEP_KHZ: u64 = 100_000;
/// What the kernel writes for a latency that it does not know.
const UNKNOWN_NS: u64 = u32::MAX as u64;

/// Why frequencies cannot be set.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// There are no CPUs to set.
    #[error("no CPU is named: frequencies can be set only of reactors that are pinned")]
    NoCpu,
    /// The kernel offers none, or the file cannot be read.
    #[error("cannot read {path}: {source}; frequencies need a kernel with cpufreq, which most virtual machines lack")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        r#source: io::Error,
    },
    /// The file does not hold a number.
    #[error("{path} holds {text:?}, not a frequency in kHz")]
    NoNumber {
        /// The file.
        path: PathBuf,
        /// What it holds.
        text: String,
    },
    /// The server may not write it.
    #[error("cannot write {path}: {source}; run the server as root, or give it the right to write this file")]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        r#source: io::Error,
    },
}

/// CPUs whose frequencies can be set.
#[derive(Debug)]
pub struct CpuFreq {
    cpus: Vec<Cpu>,
}

#[derive(Debug)]
struct Cpu {
    folder: PathBuf,
    way: Way,
    values: Values,
    /// From the first setting on.
    held: Mutex<Option<Held>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Userspace,
    Bounds,
}

/// Files that are open, and what was found in them.
#[derive(Debug)]
enum Held {
    Userspace { speed: File, governor: String, khz: String },
    Bounds { min: File, max: File, found: [String; 2], last_khz: u32 },
}

impl CpuFreq {
    /// These CPUs, below `root` ([`ROOT`] but for tests). Changes nothing.
    ///
    /// # Errors
    /// If one of them has no cpufreq, or it may not be written.
    pub fn open(root: &Path, cpus: &[u32]) -> Result<Self, OpenError> {
        let folders: Vec<PathBuf> = cpus.iter().map(|cpu| root.join(format!("cpu{cpu}/cpufreq"))).collect();
        if folders.is_empty() {
            return Err(OpenError::NoCpu);
        }
        let cpus = folders.into_iter().map(Cpu::open).collect::<Result<_, _>>()?;
        Ok(Self { cpus })
    }

    /// The knob of each CPU; the CPU of an index is the core of that number.
    #[must_use]
    pub fn knobs(&self) -> Vec<Knob> {
        (0..).map(CoreId).zip(&self.cpus).map(|(core, cpu)| cpu.knob(core)).collect()
    }

    /// Lets the CPU of this index run at `khz`, or at the nearest that it has.
    ///
    /// # Errors
    /// If there is no such CPU, or the system refuses.
    pub fn set(&self, index: usize, khz: u64) -> io::Result<()> {
        let cpu = self.cpus.get(index).ok_or(io::ErrorKind::NotFound)?;
        let nearest = cpu.values.nearest(khz).ok_or(io::ErrorKind::InvalidInput)?;
        cpu.set(u32::try_from(nearest).map_err(io::Error::other)?)
    }

    /// Puts every CPU back as it was found. What the system refuses stays as it is.
    pub fn restore(&self) {
        self.cpus.iter().for_each(Cpu::restore);
    }
}

impl Drop for CpuFreq {
    fn drop(&mut self) {
        self.restore();
    }
}

impl Cpu {
    fn open(folder: PathBuf) -> Result<Self, OpenError> {
        let values = values(&folder)?;
        let governors = read(&folder.join("scaling_available_governors")).unwrap_or_default();
        let userspace = governors.split_whitespace().any(|governor| governor == "userspace");
        let way = if userspace { Way::Userspace } else { Way::Bounds };
        for name in way.files() {
            let path = folder.join(name);
            writable(&path).map_err(|source| OpenError::Write { path, source })?;
        }
        Ok(Self { folder, way, values, held: Mutex::new(None) })
    }

    fn knob(&self, core: CoreId) -> Knob {
        let number = |name: &str| read(&self.folder.join(name)).ok().and_then(|text| number::<u64>(&text));
        let latency = number("cpuinfo_transition_latency").filter(|&ns| ns > 0 && ns < UNKNOWN_NS);
        Knob {
            of: Of::Core(core),
            kind: Kind::FrequencyKhz,
            values: self.values.clone(),
            found: number("scaling_max_freq").or(self.values.highest()).unwrap_or(0),
            caller: Cost::Assumed(SET_NS),
            effect: Cost::Assumed(latency.unwrap_or(LATENCY_NS)),
        }
    }

    fn held(&self) -> MutexGuard<'_, Option<Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, khz: u32) -> io::Result<()> {
        let mut held = self.held();
        if held.is_none() {
            *held = Some(self.take()?);
        }
        match &mut *held {
            Some(Held::Userspace { speed, .. }) => write_khz(speed, khz),
            Some(Held::Bounds { min, max, last_khz, .. }) => {
                // The lower bound is never above the upper one.
                let order = if khz > *last_khz { [&*max, &*min] } else { [&*min, &*max] };
                *last_khz = khz;
                order.into_iter().try_for_each(|file| write_khz(file, khz))
            }
            None => Ok(()),
        }
    }

    /// Notes what is found, and takes the CPU over.
    fn take(&self) -> io::Result<Held> {
        let [first, second] = self.way.files();
        let found = [fs::read_to_string(self.folder.join(first))?, fs::read_to_string(self.folder.join(second))?];
        match self.way {
            Way::Userspace => {
                let [governor, khz] = found;
                let speed = writable(&self.folder.join(second))?;
                fs::write(self.folder.join(first), "userspace")?;
                Ok(Held::Userspace { speed, governor, khz })
            }
            Way::Bounds => {
                let [min, max] = [first, second].map(|name| writable(&self.folder.join(name)));
                // Whichever way the first setting goes, the upper bound makes room for it.
                Ok(Held::Bounds { min: min?, max: max?, last_khz: number(&found[1]).unwrap_or(0), found })
            }
        }
    }

    fn restore(&self) {
        let [first, second] = self.way.files().map(|name| self.folder.join(name));
        match self.held().take() {
            Some(Held::Userspace { governor, khz, .. }) => {
                if governor.trim() == "userspace" {
                    let _ = fs::write(second, khz);
                }
                let _ = fs::write(first, governor);
            }
            Some(Held::Bounds { found: [min, max], .. }) => {
                for (path, text) in in_turn((&first, &min), (&second, &max)) {
                    let _ = fs::write(path, text);
                }
            }
            None => {}
        }
    }
}

/// In which order bounds are brought back: one of two is right, and what comes too early is refused, and comes again.
fn in_turn<B: Copy>(lower: B, upper: B) -> [B; 3] {
    [upper, lower, upper]
}

impl Way {
    /// What is written.
    fn files(self) -> [&'static str; 2] {
        match self {
            Self::Userspace => ["scaling_governor", "scaling_setspeed"],
            Self::Bounds => ["scaling_min_freq", "scaling_max_freq"],
        }
    }
}

/// What a CPU can be set to: the frequencies that the kernel lists, or a range.
fn values(folder: &Path) -> Result<Values, OpenError> {
    let khz = |name: &str| {
        let path = folder.join(name);
        let text = read(&path)?;
        number(&text).ok_or(OpenError::NoNumber { path, text })
    };
    let (min, max) = (khz("cpuinfo_min_freq")?, khz("cpuinfo_max_freq")?);
    let listed = read(&folder.join("scaling_available_frequencies")).unwrap_or_default();
    let mut list: Vec<u64> = listed.split_whitespace().filter_map(number).collect();
    list.sort_unstable();
    Ok(if list.is_empty() { Values::Range { min, max, step: STEP_KHZ } } else { Values::List(list) })
}

fn number<N: std::str::FromStr>(text: &str) -> Option<N> {
    text.trim().parse().ok()
}

fn read(path: &Path) -> Result<String, OpenError> {
    fs::read_to_string(path).map_err(|source| OpenError::Read { path: path.to_owned(), source })
}

fn writable(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).open(path)
}

/// In one write, as the kernel wants it.
fn write_khz(file: &File, khz: u32) -> io::Result<()> {
    let mut text = [0; 12];
    let mut left = &mut text[..];
    writeln!(left, "{khz}")?;
    let used = 12 - left.len();
    file.write_all_at(&text[..used], 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A kernel that refuses to let the bounds cross.
    #[test]
    fn bounds_come_back_from_wherever_they_are() {
        let pairs = || (0..4).flat_map(|lower| (lower..4).map(move |upper| [lower, upper]));
        for now in pairs() {
            for found in pairs() {
                let mut bounds = now;
                for (which, value) in in_turn((0, found[0]), (1, found[1])) {
                    let mut new = bounds;
                    new[which] = value;
                    bounds = if new[0] <= new[1] { new } else { bounds };
                }
                assert_eq!(bounds, found, "from {now:?}");
            }
        }
    }
}
