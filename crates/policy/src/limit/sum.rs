//! Adds up intervals of a limiter for an inner policy that wants longer ones, reduced to the visible cores.

use pilotlight_plant::{CoreId, CoreSample, CoreState, Reading, Sample, ThreadSample, Topology, Wants};

/// Intervals added up.
#[derive(Debug, Default)]
pub(super) struct Sum {
    elapsed_ns: u64,
    /// Every core of the plant.
    cores: Vec<CoreSample>,
    threads: Vec<ThreadSample>,
    /// The visible cores.
    visible: Vec<CoreSample>,
    readings: Vec<Reading>,
}

impl Sum {
    /// Time of the intervals so far, in nanoseconds.
    pub(super) fn elapsed_ns(&self) -> u64 {
        self.elapsed_ns
    }

    pub(super) fn add(&mut self, sample: &Sample<'_>) {
        self.elapsed_ns += sample.elapsed_ns.max(1);
        self.cores.resize(sample.cores.len(), CoreSample::new(CoreState::Awake));
        self.threads.resize(sample.threads.len(), ThreadSample::default());
        for (sum, core) in self.cores.iter_mut().zip(sample.cores) {
            sum.state = core.state;
            sum.busy_ns += core.busy_ns;
            sum.awake_ns += core.awake_ns;
        }
        for (sum, thread) in self.threads.iter_mut().zip(sample.threads) {
            sum.home = thread.home;
            sum.class = thread.class;
            sum.requests += thread.requests;
            sum.busy_ns += thread.busy_ns;
            sum.answered += thread.answered;
            sum.in_progress_ns += thread.in_progress_ns;
        }
    }

    /// The sum as a sample of the visible plant.
    pub(super) fn seen(
        &mut self,
        last: &Sample<'_>,
        visible: &[CoreId],
        topology: Option<&Topology>,
        wants: &Wants,
    ) -> Sample<'_> {
        let place = |core: CoreId| visible.iter().position(|&one| one == core);
        let main = topology.and_then(|topology| place(topology.main())).unwrap_or_default();
        self.visible.clear();
        self.visible.extend(visible.iter().filter_map(|core| self.cores.get(core.index()).copied()));
        for thread in &mut self.threads {
            thread.home = CoreId(place(thread.home).unwrap_or(main) as u16);
        }
        self.readings.clear();
        let of = |id| last.readings.iter().find(|reading| reading.id == id).copied();
        self.readings.extend(wants.readings.iter().filter_map(|&id| of(id)));
        Sample {
            now_ns: last.now_ns,
            elapsed_ns: self.elapsed_ns,
            cores: &self.visible,
            threads: &self.threads,
            readings: &self.readings,
        }
    }

    pub(super) fn clear(&mut self) {
        self.elapsed_ns = 0;
        self.cores.clear();
        self.threads.clear();
    }
}
