//! Settings of the machine: applied for the points that need them, and restored.

use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::Path;

use pilotlight_actuators::{Attempt, Change, Changes, changes};
use pilotlight_sensors::Recording;

use super::{RunError, Runner};
use crate::experiment::machine::machine;
use crate::plan::{machine_knobs, workload_knobs};
use crate::study::verify::AppliedSetting;
use crate::study::{Completion, count, device};
use pilotlight_workloads::{Mechanism, Point, RunContext, Step, Target, problem};

/// The file of a cgroup that lists its processes and accepts new ones.
const PROCESSES: &str = "cgroup.procs";

/// The step in the cgroup of the run: a shell joins it and executes the program.
pub(super) fn in_cgroup(step: Step, cgroup: Option<&Path>) -> Step {
    let Some(cgroup) = cgroup else { return step };
    let join = r#"echo $$ > "$0" && exec "$@""#;
    let shell = ["sh".into(), "-c".into(), join.into(), cgroup.join(PROCESSES).into_os_string()];
    Step { argv: shell.into_iter().chain(step.argv).collect(), ..step }
}

/// Opens the record of changes.
///
/// # Errors
/// If changes of an earlier run were not restored.
pub(super) fn begin(roots: &pilotlight_sensors::Roots, journal: Option<&Path>) -> Result<Changes, RunError> {
    let journal = journal.map_or_else(changes::fresh, Path::to_owned);
    Ok(Changes::begin(&journal, roots.clone())?)
}

/// A path on the device of the target. A file may not exist before the workload creates it; its folder is on the same device.
fn device_of(place: &Target) -> Option<&Path> {
    match place {
        Target::File(path, _) | Target::Folder(path) | Target::Device(path) => {
            path.ancestors().find(|path| path.exists())
        }
        Target::None => None,
    }
}

impl Runner<'_> {
    /// Applies the settings of a point. Nothing changes if they are those of the previous point.
    pub(super) fn set_machine(&mut self, point: &Point) -> Result<(), RunError> {
        let wanted = (machine_knobs(point), self.loaded.workload.mechanism(&workload_knobs(point)));
        if self.setting.as_ref() == Some(&wanted) {
            return Ok(());
        }
        self.setting = None;
        if !self.changes.restore()?.is_empty() {
            self.settling.disturb();
        }
        let machine = machine(&self.loaded.experiment.machine, &wanted.0, &self.loaded.file)?;
        let device = device_of(&self.place);
        // For the cgroup `pilotlight-PID`.
        let name = std::process::id().to_string();
        for change in machine.changes(&self.settings.roots, device, &name)? {
            self.changes.make(&change)?;
            self.settling.disturb();
        }
        self.adopt()?;
        self.applied = wanted.1.map_or_else(|| Ok(Vec::new()), |mechanism| self.try_settings(mechanism))?;
        self.setting = Some(wanted);
        Ok(())
    }

    /// Applies the settings of a mechanism. Settings that the kernel ignores or refuses are kept for the verification.
    fn try_settings(&mut self, mechanism: Mechanism) -> Result<Vec<AppliedSetting>, RunError> {
        let (roots, mut all) = (self.settings.roots.clone(), Vec::new());
        for (key, wanted, machine) in mechanism.settings() {
            let why_not = match machine.changes(&roots, device_of(&self.place), "") {
                Err(error) => Some(error.why.to_string()),
                Ok(changes) => self.attempt(&changes, wanted)?,
            };
            all.push(AppliedSetting { key: key.to_owned(), wanted, why_not });
        }
        Ok(all)
    }

    /// Applies changes; the reason if one fails.
    fn attempt(&mut self, changes: &[Change], wanted: i64) -> Result<Option<String>, RunError> {
        for change in changes {
            match self.changes.attempt(change)? {
                Attempt::Applied => self.settling.disturb(),
                Attempt::Ignored(now) => {
                    return Ok(Some(format!(
                        "{wanted} was written but {now} is read back: this kernel ignores the setting"
                    )));
                }
                Attempt::Refused(why) => return Ok(Some(format!("the kernel refuses {wanted}: {why}"))),
            }
        }
        Ok(None)
    }

    /// Evidence of how requests were completed in a measurement.
    pub(super) fn completion(&self, requested: Mechanism, recording: &Recording, stage: &RunContext) -> Completion {
        let (roots, device) = (self.settings.roots.clone(), device_of(&self.place));
        let interrupts = device::interrupts(&roots, device);
        Completion {
            interrupts_count: interrupts.as_ref().ok().and_then(|begins| count::interrupts(recording, begins)),
            ramp_ns: (stage.ramp_s * 1e9) as u64,
            interrupts,
            requested: requested.to_string(),
            settings: self.applied.clone(),
            io_poll: device::setting(&roots, device, "io_poll").map(|value| value != 0),
            io_poll_delay: device::setting(&roots, device, "io_poll_delay"),
        }
    }

    /// Moves background servers into the cgroup of the point.
    fn adopt(&self) -> Result<(), RunError> {
        let Some(cgroup) = self.changes.cgroup() else { return Ok(()) };
        for running in &self.background {
            let moved = join(cgroup, &self.settings.roots.proc, running.pid());
            moved.map_err(|error| problem("machine.cgroup", format!("{}: {error}", cgroup.display())))?;
        }
        Ok(())
    }
}

/// Moves a process and its descendants into the cgroup, until no new ones appear.
fn join(cgroup: &Path, proc: &Path, root: u32) -> io::Result<()> {
    let mut moved = BTreeSet::new();
    loop {
        let new: Vec<u32> = descendants(proc, root).difference(&moved).copied().collect();
        if new.is_empty() {
            return Ok(());
        }
        for pid in new {
            match OpenOptions::new().append(true).open(cgroup.join(PROCESSES))?.write_all(format!("{pid}\n").as_bytes())
            {
                // The process has ended.
                Err(error) if error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error()) => {}
                other => other?,
            }
            moved.insert(pid);
        }
    }
}

/// A process and its descendants.
fn descendants(proc: &Path, root: u32) -> BTreeSet<u32> {
    let parents: Vec<(u32, u32)> =
        std::fs::read_dir(proc).into_iter().flatten().flatten().filter_map(|entry| parent(&entry)).collect();
    let mut all = BTreeSet::from([root]);
    loop {
        let before = all.len();
        let children: Vec<u32> =
            parents.iter().filter(|(_, parent)| all.contains(parent)).map(|(pid, _)| *pid).collect();
        all.extend(children);
        if all.len() == before {
            return all;
        }
    }
}

/// A process and its parent (proc_pid_stat(5): the second field after the name, which may contain any character).
fn parent(entry: &std::fs::DirEntry) -> Option<(u32, u32)> {
    let pid = entry.file_name().to_str()?.parse().ok()?;
    let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
    let (_, behind) = stat.rsplit_once(')')?;
    Some((pid, behind.split_whitespace().nth(1)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_and_its_descendants_join_the_cgroup_of_the_next_point() {
        let folder = tempfile::tempdir().unwrap();
        let list = folder.path().join(PROCESSES);
        std::fs::write(&list, "").unwrap();
        // As PostgreSQL: a child in its own session with a child.
        let script = "setsid sh -c 'sleep 20 & echo $! > grandchild; wait' & echo $! > child; wait";
        let step = Step { argv: ["sh", "-c", script].map(Into::into).to_vec(), ..Step::default() };
        let mut server = super::super::Running::start(&step, folder.path()).unwrap();
        let pid = |name: &str| loop {
            let text = std::fs::read_to_string(folder.path().join(name)).unwrap_or_default();
            if let Ok(pid) = text.trim().parse::<u32>() {
                return pid;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        };
        let expected = [server.pid(), pid("child"), pid("grandchild")];
        join(folder.path(), Path::new("/proc"), server.pid()).unwrap();
        let text = std::fs::read_to_string(&list).unwrap();
        let joined: BTreeSet<u32> = text.lines().map(|line| line.parse().unwrap()).collect();
        assert!(joined.is_superset(&expected.into()), "{joined:?} {expected:?}");
        assert_eq!(joined.len(), text.lines().count(), "no duplicates");
        assert!(!joined.contains(&std::process::id()));
        let grandchild = rustix::process::Pid::from_raw(expected[2] as i32).unwrap();
        rustix::process::kill_process(grandchild, rustix::process::Signal::KILL).unwrap();
        server.end();
        assert!(join(Path::new("/nowhere"), Path::new("/proc"), std::process::id()).is_err());
    }

    #[test]
    fn a_shell_joins_the_cgroup_and_executes_the_program() {
        let step = Step { argv: ["fio".into(), "a b".into()].to_vec(), ..Step::default() };
        assert_eq!(in_cgroup(step.clone(), None), step);
        let folder = tempfile::tempdir().unwrap();
        let step = Step { argv: ["echo".into(), "a  b".into()].to_vec(), ..Step::default() };
        let mut running = super::super::Running::start(&in_cgroup(step, Some(folder.path())), folder.path()).unwrap();
        running.wait(|| None::<()>).unwrap();
        assert_eq!(running.outcome().stdout, b"a  b\n");
        let joined = std::fs::read_to_string(folder.path().join("cgroup.procs")).unwrap();
        assert!(joined.trim().parse::<u32>().is_ok(), "{joined}");
    }
}
