//! The knobs of a server's machine, where it lets the server set them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pilotlight_actuators::Roots;
use pilotlight_actuators::changes::{self, Error, Options};
use pilotlight_actuators::knobs::{Knobs as Found, Wanted, list};
use pilotlight_plant::{Knob, KnobId, Refusal};
use pilotlight_reactor::{Actuation, Knobs, Machine};
use tracing::{debug, info, warn};

/// This machine, by its knobs.
struct ThisMachine {
    found: Found,
    /// Knobs whose last setting was refused: the log says it once.
    refused: BTreeSet<KnobId>,
}

impl Machine for ThisMachine {
    fn knobs(&self) -> Vec<Knob> {
        self.found.list()
    }

    fn set_workers(&mut self, workers: &[u32]) {
        self.found.set_workers(workers);
    }

    fn set(&mut self, knob: KnobId, value: Option<u64>) -> Result<(), Refusal> {
        match self.found.set(knob, value) {
            Ok(()) => {
                self.refused.remove(&knob);
                Ok(())
            }
            Err(error) => {
                if self.refused.insert(knob) {
                    warn!("{error}");
                }
                Err(Refusal::Failed)
            }
        }
    }
}

/// What the reactors on these CPUs can set. Nothing is changed.
pub(super) fn look(cores: &[Option<u32>]) -> Vec<Knob> {
    list(&Roots::default(), &wanted(cores))
}

/// Starts what sets knobs for the reactors on these CPUs; `None` where nothing can be set, which is only said to who looks for it:
/// most policies do not need any, and one that does says so. What a killed process left behind is put back first.
pub(super) fn open(cores: &[Option<u32>]) -> Option<Arc<dyn Knobs>> {
    open_in(&Roots::default(), &changes::fresh(), cores)
}

fn open_in(roots: &Roots, journal: &Path, cores: &[Option<u32>]) -> Option<Arc<dyn Knobs>> {
    put_leftovers_back(roots, journal.parent()?);
    let found = match find(roots, journal, cores) {
        Ok(found) => found,
        Err(error) => {
            warn!("nothing of this machine will be set: {error}");
            return None;
        }
    };
    if found.list().is_empty() {
        return None;
    }
    match Actuation::start(Box::new(ThisMachine { found, refused: BTreeSet::new() }), cores) {
        Ok(actuation) => Some(Arc::new(actuation)),
        Err(error) => {
            warn!("nothing of this machine will be set: cannot start a thread for it: {error}");
            None
        }
    }
}

fn find(roots: &Roots, journal: &Path, cores: &[Option<u32>]) -> Result<Found, Error> {
    let (found, missing) = Found::find(roots, journal, &wanted(cores))?;
    missing.iter().for_each(|missing| debug!("{} cannot be set: {}", missing.what, missing.why));
    Ok(found)
}

fn wanted(cores: &[Option<u32>]) -> Wanted {
    Wanted { cpus: cores.to_vec(), drives: Vec::new() }
}

/// Puts back what processes that were killed have set. What cannot be put back stays in its journal.
fn put_leftovers_back(roots: &Roots, folder: &Path) {
    for journal in left_behind(folder) {
        match changes::restore(&journal, roots, Options::default()) {
            Ok(all) => all.iter().for_each(|back| info!("left behind by a process that was killed: {back}")),
            Err(Error::Lives { .. } | Error::Foreign { .. }) => {} // another process's; no journal
            Err(error) => warn!("{error}"),
        }
    }
}

fn left_behind(folder: &Path) -> Vec<PathBuf> {
    changes::find(folder).unwrap_or_else(|error| {
        warn!("{error}");
        Vec::new()
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::{Duration, Instant};

    use super::*;

    /// A machine with the frequencies of CPU 7.
    fn machine() -> (tempfile::TempDir, Roots, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let cpufreq = folder.path().join("sys/devices/system/cpu/cpu7/cpufreq");
        fs::create_dir_all(&cpufreq).unwrap();
        let files = ["cpuinfo_min_freq", "cpuinfo_max_freq", "scaling_min_freq", "scaling_max_freq"];
        for (name, khz) in files.into_iter().zip(["1000000", "2000000", "1000000", "2000000"]) {
            fs::write(cpufreq.join(name), format!("{khz}\n")).unwrap();
        }
        let roots = Roots::below(folder.path());
        (folder, roots, cpufreq.join("scaling_max_freq"))
    }

    fn khz(file: &Path) -> String {
        fs::read_to_string(file).unwrap().trim().to_owned()
    }

    fn until_it_is(file: &Path, wanted: &str) {
        let until = Instant::now() + Duration::from_secs(60);
        while khz(file) != wanted {
            assert!(Instant::now() < until, "{} is {}, not {wanted}", file.display(), khz(file));
            std::thread::yield_now();
        }
    }

    #[test]
    fn reactors_are_set_by_the_cpus_that_they_run_on_and_put_back() {
        let (folder, roots, max) = machine();
        let journal = folder.path().join("run/1.jsonl");
        assert!(open_in(&roots, &journal, &[None]).is_none(), "not pinned");
        assert!(open_in(&roots, &journal, &[Some(0)]).is_none(), "no cpufreq");
        let knobs = open_in(&roots, &journal, &[Some(7)]).unwrap();
        assert_eq!(knobs.knobs()[0].values.highest(), Some(2_000_000));
        knobs.set(KnobId(0), 1_500_000).unwrap();
        until_it_is(&max, "1500000");
        drop(knobs);
        assert_eq!(khz(&max), "2000000");
        assert!(!journal.exists());
    }

    #[test]
    fn what_a_killed_server_left_is_put_back_before_anything_is_set() {
        let (folder, roots, max) = machine();
        let killed = folder.path().join("run/1.jsonl");
        let knobs = open_in(&roots, &killed, &[Some(7)]).unwrap();
        knobs.set(KnobId(0), 1_500_000).unwrap();
        until_it_is(&max, "1500000");
        let left = fs::read_to_string(&killed).unwrap();
        drop(knobs);
        // As it stands after a kill: set, and on record by a process that does not live.
        fs::write(&killed, left.replacen(&format!("\"pid\":{}", std::process::id()), "\"pid\":0", 1)).unwrap();
        fs::write(&max, "1500000\n").unwrap();
        let again = open_in(&roots, &folder.path().join("run/2.jsonl"), &[Some(7)]).unwrap();
        assert_eq!(khz(&max), "2000000");
        assert_eq!(again.knobs()[0].found, 2_000_000);
        assert!(!killed.exists());
    }
}
