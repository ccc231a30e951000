//! The frequencies of a server's cores, where this machine lets it set them: cpufreq for the reactors.

use std::io;
use std::path::Path;
use std::sync::Arc;

use pilotlight_actuators::{CpuFreq, OpenError};
use pilotlight_plant::{CoreId, FrequencyRange};
use pilotlight_reactor::Frequencies;
use tracing::debug;

/// cpufreq, by reactor.
#[derive(Debug)]
struct ByCore(CpuFreq);

impl Frequencies for ByCore {
    fn range(&self) -> FrequencyRange {
        self.0.range()
    }

    fn set(&self, core: CoreId, khz: u32) -> io::Result<()> {
        self.0.set(core.index(), khz)
    }

    fn restore(&self) {
        self.0.restore();
    }
}

/// For reactors on these CPUs, below `root`; `None` where they cannot be set, which is only said to who looks for it: most
/// policies do not need them, and the one that does says so.
pub(super) fn open(root: &Path, cores: &[Option<u32>]) -> Option<Arc<dyn Frequencies>> {
    let pinned: Option<Vec<u32>> = cores.iter().copied().collect();
    match pinned.ok_or(OpenError::NoCpu).and_then(|cpus| CpuFreq::open(root, &cpus)) {
        Ok(cpus) => Some(Arc::new(ByCore(cpus))),
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
        let frequencies = open(root.path(), &[Some(7)]).unwrap();
        assert_eq!(frequencies.range().max_khz, 2_000_000);
        frequencies.set(CoreId(0), 1_500_000).unwrap();
        let max = || fs::read_to_string(folder.join("scaling_max_freq")).unwrap().trim().to_owned();
        assert_eq!(max(), "1500000");
        frequencies.restore();
        assert_eq!(max(), "2000000");
    }
}
