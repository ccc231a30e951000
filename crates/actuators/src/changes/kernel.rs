//! Interface to the kernel: files and folders of `/sys` and `/proc`, and drives. A trait, so that tests can simulate a kernel that rounds,
//! refuses or ignores values.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;

use pilotlight_drive::{Controller, Drive};
use rustix::thread::{CpuSet, Pid, sched_setaffinity};

/// Interface to a kernel.
pub trait Kernel: Send {
    /// Reads a file.
    ///
    /// # Errors
    /// As of reading.
    fn read(&mut self, path: &Path) -> io::Result<String>;

    /// Writes to an existing file in one write.
    ///
    /// # Errors
    /// The kernel refuses.
    fn write(&mut self, path: &Path, text: &str) -> io::Result<()>;

    /// Whether a file or folder exists; true if unknown.
    fn has(&mut self, path: &Path) -> bool;

    /// Creates a folder (a cgroup).
    ///
    /// # Errors
    /// The kernel refuses.
    fn make_folder(&mut self, path: &Path) -> io::Result<()>;

    /// Removes a folder with the kernel's files in it.
    ///
    /// # Errors
    /// The kernel refuses: it is in use.
    fn remove_folder(&mut self, path: &Path) -> io::Result<()>;

    /// Sets the CPU affinity of a thread.
    ///
    /// # Errors
    /// The kernel refuses: none of them is online, or in the thread's cpuset.
    fn set_affinity(&mut self, thread: u32, cpus: &BTreeSet<u32>) -> io::Result<()>;

    /// The drive with this character device.
    ///
    /// # Errors
    /// As of opening it.
    fn drive(&mut self, path: &Path) -> io::Result<Box<dyn Drive>>;
}

/// The running kernel.
#[derive(Clone, Copy, Debug, Default)]
pub struct Linux;

impl Kernel for Linux {
    fn read(&mut self, path: &Path) -> io::Result<String> {
        fs::read_to_string(path)
    }

    fn write(&mut self, path: &Path, text: &str) -> io::Result<()> {
        // Truncated for regular files in tests.
        OpenOptions::new().write(true).truncate(true).open(path)?.write_all(text.as_bytes())
    }

    fn has(&mut self, path: &Path) -> bool {
        path.try_exists().unwrap_or(true)
    }

    fn make_folder(&mut self, path: &Path) -> io::Result<()> {
        fs::create_dir(path)
    }

    fn remove_folder(&mut self, path: &Path) -> io::Result<()> {
        fs::remove_dir(path)
    }

    fn set_affinity(&mut self, thread: u32, cpus: &BTreeSet<u32>) -> io::Result<()> {
        let mut set = CpuSet::new();
        cpus.iter().map(|&cpu| cpu as usize).filter(|&cpu| cpu < CpuSet::MAX_CPU).for_each(|cpu| set.set(cpu));
        let thread = i32::try_from(thread).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidInput)?;
        Ok(sched_setaffinity(Some(thread), &set)?)
    }

    fn drive(&mut self, path: &Path) -> io::Result<Box<dyn Drive>> {
        Ok(Box::new(Controller::open_to_set(path)?))
    }
}
