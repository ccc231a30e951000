//! The CPUs of the calling thread.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Runs the calling thread on this CPU only.
pub(crate) fn pin(core: u32) -> std::io::Result<()> {
    let mut set = CpuSet::new();
    if core as usize >= CpuSet::MAX_CPU {
        return Err(std::io::ErrorKind::InvalidInput.into());
    }
    set.set(core as usize);
    Ok(sched_setaffinity(None, &set)?)
}

/// Keeps the calling thread off these CPUs, if it may run on others.
pub fn keep_off(cpus: &[u32]) {
    let Ok(mut set) = sched_getaffinity(None) else { return };
    cpus.iter().map(|&cpu| cpu as usize).filter(|&cpu| cpu < CpuSet::MAX_CPU).for_each(|cpu| set.unset(cpu));
    if set.count() > 0 {
        let _ = sched_setaffinity(None, &set); // best effort
    }
}
