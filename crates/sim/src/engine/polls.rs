//! Intervals between polls of each I/O thread: the performance metric of PASS (section 3.2.2).

use crate::histogram::Histogram;

/// Intervals between polls of all I/O threads.
#[derive(Debug)]
pub(crate) struct Polls {
    from_ns: u64,
    /// Begin of the last loop, by core.
    last_ns: Vec<Option<u64>>,
    intervals: Histogram,
}

impl Polls {
    /// Measures `cores` cores from `from_ns` on.
    pub(crate) fn new(cores: usize, from_ns: u64) -> Self {
        Self { from_ns, last_ns: vec![None; cores], intervals: Histogram::default() }
    }

    /// A core begins a loop over its I/O threads.
    pub(crate) fn note(&mut self, core: u16, now_ns: u64, threads: usize) {
        let last_ns = self.last_ns[usize::from(core)].replace(now_ns).filter(|&last_ns| last_ns >= self.from_ns);
        if let Some(last_ns) = last_ns {
            (0..threads).for_each(|_| self.intervals.record(now_ns - last_ns));
        }
    }

    pub(crate) fn into_intervals(self) -> Histogram {
        self.intervals
    }
}
