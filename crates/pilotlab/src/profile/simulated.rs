//! Profiles of a simulated machine, for planning and to verify that a profile recovers the machine's constants.

use pilotlight_lab::simulated::hold::Hold;
use pilotlight_plant::{Kind, Topology};
use pilotlight_sim::engine::capabilities;
use pilotlight_sim::machine::Machine;
use pilotlight_sim::scenario::{Connection, Kind as Request, Phase, Rate, Scenario, Sensors, Spacing, Workload};
use pilotlight_sim::ssd::SsdModel;
use pilotlight_sim::{run, run_polls};

use super::subject::{
    Axes, Configuration, CpuSubject, DriveMeasured, DriveSubject, Limit, Load, Measured, Quota, Stopped,
};

/// Number of power windows in a measurement.
const WINDOWS: u64 = 5;
/// Time step of the simulation, in nanoseconds.
const GRID_NS: u64 = 10_000;
/// Size of a request of drive loads, and the queue depth for full bandwidth.
const BYTES: u32 = 128 << 10;
const DEPTH: u32 = 32;

/// A simulated machine.
#[derive(Clone, Debug)]
pub(super) struct Simulated {
    /// The machine.
    pub(super) machine: Machine,
    /// Its drives.
    pub(super) drives: Vec<SsdModel>,
    /// Polling cores and I/O threads.
    pub(super) cores: u16,
    pub(super) threads: u16,
    /// Simulated time of a measurement, in nanoseconds.
    pub(super) measured_ns: u64,
    axes: Axes,
    /// Settling time, in nanoseconds.
    settle_ns: u64,
}

impl Simulated {
    /// A machine with these numbers of cores and I/O threads.
    ///
    /// # Errors
    /// Without a core.
    pub(super) fn new(
        machine: Machine,
        drives: Vec<SsdModel>,
        (cores, threads): (u16, u16),
        measured_ns: u64,
    ) -> Result<Self, Stopped> {
        let measured_ns = measured_ns.div_ceil(WINDOWS * GRID_NS) * WINDOWS * GRID_NS;
        let axes = Axes { cores, quota: None, limit: None };
        let mut simulated = Self { machine, drives, cores, threads, measured_ns, axes, settle_ns: 0 };
        let scenario = simulated.scenario(Workload::default())?;
        let found = capabilities(&scenario);
        let ends = |kind| {
            let (_, knob) = found.knobs_of(kind).next()?;
            knob.values.lowest().zip(knob.values.highest())
        };
        simulated.settle_ns = found.knobs.iter().map(|knob| knob.caller.ns() + knob.effect.ns()).max().unwrap_or(0);
        // The simulated quota is divided equally among all workers, including sleeping ones.
        simulated.axes.quota = ends(Kind::QuotaPpm).map(|(least_ppm, _)| Quota { least_ppm, is_shared: false });
        simulated.axes.limit = ends(Kind::LimitUw).map(|(least_uw, most_uw)| Limit { least_uw, most_uw });
        Ok(simulated)
    }

    fn scenario(&self, workload: Workload) -> Result<Scenario, Stopped> {
        let window_ns = self.measured_ns / WINDOWS;
        let warm_up_ns = (self.settle_ns.div_ceil(window_ns) + 1) * window_ns;
        Ok(Scenario {
            machine: self.machine.clone(),
            family: Vec::new(),
            topology: Topology::flat(self.cores).map_err(anyhow::Error::from)?,
            threads: self.threads,
            drives: self.drives.clone(),
            workload,
            scheduled: None,
            duration_ns: self.measured_ns + warm_up_ns,
            warm_up_ns,
            series_ns: window_ns,
            seed: 1,
            sensors: Sensors::default(),
            goals: Vec::new(),
            changes: Vec::new(),
            eager: false,
        })
    }
}

impl From<pilotlight_sim::RunError> for Stopped {
    fn from(error: pilotlight_sim::RunError) -> Self {
        Self::Failed(anyhow::anyhow!("the simulation failed: {error}"))
    }
}

impl CpuSubject for Simulated {
    fn axes(&self) -> &Axes {
        &self.axes
    }

    fn measure(&mut self, configuration: Configuration) -> Result<Measured, Stopped> {
        let Configuration { cores, quota_ppm, limit_uw } = configuration;
        let scenario = self.scenario(Workload::default())?;
        let found = capabilities(&scenario);
        let set = |(kind, value)| found.knobs_of(kind).map(move |(id, _)| (id, value)).collect::<Vec<_>>();
        let knobs = [(Kind::QuotaPpm, quota_ppm), (Kind::LimitUw, limit_uw)].map(set).concat();
        let (outcome, intervals) = run_polls(&scenario, Box::new(Hold::new(cores, knobs)))?;
        let window_s = scenario.series_ns as f64 / 1e9;
        let measured = &outcome.series[outcome.series.len() - WINDOWS as usize..];
        let awake_ns: u64 = measured.iter().map(|stretch| stretch.awake_ns).sum();
        Ok(Measured {
            configuration,
            mean_ns: intervals.mean(),
            p99_ns: intervals.quantile(0.99) as f64,
            used_cores: awake_ns as f64 / self.measured_ns as f64,
            watts: measured.iter().map(|stretch| stretch.energy.cpu_uj as f64 / 1e6 / window_s).collect(),
        })
    }
}

impl DriveSubject for Simulated {
    fn drives(&self) -> u32 {
        self.drives.len() as u32
    }

    fn measure(&mut self, load: Load) -> Result<DriveMeasured, Stopped> {
        let drives = self.drives.len() as u16;
        let requests = load.bytes_per_s.map(|bytes| bytes as f64 / f64::from(BYTES) / f64::from(drives.max(1)));
        let rate = match requests {
            None => Rate::Unlimited,
            Some(0.0) => Rate::Off,
            Some(rate) => Rate::PerSecond(rate),
        };
        let connection = |drive: u16| Connection {
            thread: drive % self.threads.max(1),
            drives: (drive, 1),
            request: Request::Plain {
                writes_ppm: if load.writes { 1_000_000 } else { 0 },
                bytes: BYTES,
                sequential: true,
            },
            depth: DEPTH,
            spacing: Spacing::Paced,
            phases: vec![Phase { label: 0, length_ns: u64::MAX, rate }],
            think_ns: 0,
        };
        let scenario =
            self.scenario(Workload { connections: (0..drives).map(connection).collect(), ..Workload::default() })?;
        let outcome = run(&scenario, Box::new(Hold::new(self.cores, Vec::new())))?;
        let window_s = scenario.series_ns as f64 / 1e9;
        let measured = &outcome.series[outcome.series.len() - WINDOWS as usize..];
        let answered: u64 = measured.iter().map(|stretch| stretch.answered).sum();
        let bytes_per_s = answered as f64 * f64::from(BYTES) / (self.measured_ns as f64 / 1e9);
        let (read, written) = if load.writes { (0.0, bytes_per_s) } else { (bytes_per_s, 0.0) };
        let watts = measured.iter().map(|stretch| stretch.energy.drives_uj as f64 / 1e6 / window_s).collect();
        Ok(DriveMeasured { load, read, written, watts })
    }
}
