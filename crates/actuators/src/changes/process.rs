//! Identity of the process that made changes, and whether it still runs. PIDs are reused, so the start time is included.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// A process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// PID.
    pub pid: u32,
    /// Start time in clock ticks since boot (field 22 of `/proc/PID/stat`); `None` if unknown.
    pub start_ticks: Option<u64>,
    /// Boot ID (`/proc/sys/kernel/random/boot_id`); empty if unknown.
    pub boot_id: String,
}

impl Process {
    /// This process.
    #[must_use]
    pub fn own(proc: &Path) -> Self {
        let pid = std::process::id();
        Self { pid, start_ticks: start_ticks(&proc.join(pid.to_string())), boot_id: boot_id(proc) }
    }

    /// Whether the machine has not been restarted since; true if unknown.
    #[must_use]
    pub fn is_of_this_boot(&self, proc: &Path) -> bool {
        let now = boot_id(proc);
        self.boot_id == now || self.boot_id.is_empty() || now.is_empty()
    }

    /// Whether it still runs.
    #[must_use]
    pub fn lives(&self, proc: &Path) -> bool {
        let now = start_ticks(&proc.join(self.pid.to_string()));
        self.is_of_this_boot(proc) && now.is_some() && (self.start_ticks.is_none() || now == self.start_ticks)
    }
}

fn boot_id(proc: &Path) -> String {
    fs::read_to_string(proc.join("sys/kernel/random/boot_id")).unwrap_or_default().trim().to_owned()
}

/// Start time of a process or thread: field 22 of `stat`, counted after the name in brackets, which may contain anything. `None` for a
/// zombie.
pub(super) fn start_ticks(folder: &Path) -> Option<u64> {
    let stat = fs::read_to_string(folder.join("stat")).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let ended = matches!(fields.next()?, "Z" | "X");
    fields.nth(18).filter(|_| !ended)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(proc: &Path, pid: u32, start: u64) {
        let folder = proc.join(pid.to_string());
        fs::create_dir_all(&folder).unwrap();
        let zeros = "0 ".repeat(18);
        fs::write(folder.join("stat"), format!("{pid} (a b) S) S {zeros}{start} 1 2 3")).unwrap();
    }

    #[test]
    fn this_process_lives() {
        let own = Process::own(Path::new("/proc"));
        assert!(own.start_ticks.is_some() && !own.boot_id.is_empty(), "{own:?}");
        assert!(own.lives(Path::new("/proc")));
    }

    #[test]
    fn a_reused_pid_is_another_process() {
        let proc = tempfile::tempdir().unwrap();
        write(proc.path(), 42, 1000);
        let process = |start_ticks| Process { pid: 42, start_ticks, boot_id: String::new() };
        assert!(process(Some(1000)).lives(proc.path()) && process(None).lives(proc.path()));
        assert!(!process(Some(999)).lives(proc.path()));
        assert!(!Process { pid: 43, ..process(None) }.lives(proc.path()));
    }

    #[test]
    fn after_a_restart_no_earlier_process_runs_and_unknown_ones_may() {
        let proc = tempfile::tempdir().unwrap();
        write(proc.path(), 42, 1000);
        let process = |boot: &str| Process { pid: 42, start_ticks: Some(1000), boot_id: boot.into() };
        assert!(process("one").is_of_this_boot(proc.path()), "/proc does not say which boot this is");
        fs::create_dir_all(proc.path().join("sys/kernel/random")).unwrap();
        fs::write(proc.path().join("sys/kernel/random/boot_id"), "one\n").unwrap();
        assert!(process("one").lives(proc.path()) && process("").is_of_this_boot(proc.path()));
        assert!(!process("another").lives(proc.path()));
    }

    #[test]
    fn a_zombie_does_not_run() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let process = Process { pid: child.id(), ..Process::own(Path::new("/proc")) };
        let process =
            Process { start_ticks: start_ticks(&Path::new("/proc").join(process.pid.to_string())), ..process };
        assert!(process.lives(Path::new("/proc")));
        child.kill().unwrap();
        while process.lives(Path::new("/proc")) {
            std::thread::yield_now();
        }
        child.wait().unwrap();
    }
}
