//! The knobs of a server's machine, where it lets the server set them: cpufreq for the reactors.

use std::path::Path;
use std::sync::Arc;

use pilotlight_actuators::{CpuFreq, OpenError};
use pilotlight_plant::{Knob, KnobId, Refusal};
use pilotlight_reactor::Knobs;
use tracing::debug;

/// cpufreq, by reactor.
#[derive(Debug)]
struct Clocks(CpuFreq);

impl Knobs for Clocks {
    fn knobs(&self) -> Vec<Knob> {
        self.0.knobs()
    }

    fn set(&self, knob: KnobId, value: u64) -> Result<(), Refusal> {
        self.0.set(knob.index(), value).map_err(|_| Refusal::Failed)
    }

    fn restore(&self) {
        self.0.restore();
    }
}

/// For reactors on these CPUs, below `root`; `None` where they cannot be set, which is only said to who looks for it: most
/// policies do not need them, and the one that does says so.
pub(super) fn open(root: &Path, cores: &[Option<u32>]) -> Option<Arc<dyn Knobs>> {
    let pinned: Option<Vec<u32>> = cores.iter().copied().collect();
    match pinned.ok_or(OpenError::NoCpu).and_then(|cpus| CpuFreq::open(root, &cpus)) {
        Ok(cpus) => Some(Arc::new(Clocks(cpus))),
        Err(error) => {
            debug!("frequencies cannot be set: {error}");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn reactors_are_set_by_the_cpus_that_they_run_on() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("cpu7/cpufreq");
        fs::create_dir_all(&folder).unwrap();
        let files = ["cpuinfo_min_freq", "cpuinfo_max_freq", "scaling_min_freq", "scaling_max_freq"];
        for (name, khz) in files.into_iter().zip(["1000000", "2000000", "1000000", "2000000"]) {
            fs::write(folder.join(name), khz).unwrap();
        }
        assert!(open(root.path(), &[Some(7), None]).is_none(), "not pinned");
        assert!(open(root.path(), &[Some(0)]).is_none(), "no cpufreq");
        let clocks = open(root.path(), &[Some(7)]).unwrap();
        assert_eq!(clocks.knobs()[0].values.highest(), Some(2_000_000));
        clocks.set(KnobId(0), 1_500_000).unwrap();
        let max = || fs::read_to_string(folder.join("scaling_max_freq")).unwrap().trim().to_owned();
        assert_eq!(max(), "1500000");
        clocks.restore();
        assert_eq!(max(), "2000000");
    }
}
