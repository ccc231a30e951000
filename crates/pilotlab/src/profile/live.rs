//! The CPU of this machine: reactors and polling I/O threads as in the server, under the server's knobs.
//!
//! Each I/O thread polls its own epoll descriptor, as an I/O thread without connections does, and records the time since the last poll. Settings
//! are restored at the end, after `kill -9` by `pilotlab restore`.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use pilotlight_actuators::changes::fresh;
use pilotlight_actuators::knobs::{Missing, Wanted};
use pilotlight_actuators::{Knobs, Roots};
use pilotlight_lab::run::StopFlag;
use pilotlight_plant::{CoreId, Kind, Knob, KnobId, Refusal};
use pilotlight_reactor::{
    Histogram, HistogramSnapshot, Idle, IdleTimeout, IoThread, Polled, Refusals, Runtime, RuntimeOptions, RuntimeStats,
};
use rustix::event::epoll;

use super::meter::Meter;
use super::subject::{Axes, Configuration, CpuSubject, Limit, Measured, Quota, Stopped, sleep};
use pilotlight_lab::simulated::hold::Hold;

/// Length of a power window.
const WINDOW: Duration = Duration::from_secs(1);

/// This machine.
pub(super) struct Live {
    runtime: Runtime,
    knobs: Knobs,
    quota: Option<KnobId>,
    limits: Vec<(KnobId, u64)>,
    pollers: Vec<Arc<Histogram>>,
    meter: Meter,
    axes: Axes,
    settle: Duration,
    measured: Duration,
    stop: StopFlag,
}

/// Options.
pub(super) struct Options {
    /// CPUs of the reactors, the main core first.
    pub(super) cpus: Vec<u32>,
    /// I/O threads.
    pub(super) threads: u16,
    /// Time of each configuration; the first fifth is for settling.
    pub(super) each: Duration,
}

/// Kernel thread IDs of the workers, once they run.
#[derive(Debug, Default)]
struct Workers(Mutex<Vec<u32>>);

impl pilotlight_reactor::Knobs for Workers {
    fn knobs(&self) -> Vec<Knob> {
        Vec::new()
    }

    fn connect(&self, _refusals: Refusals, workers: &[u32]) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = workers.to_vec();
    }

    fn set(&self, _knob: KnobId, _value: u64) -> Result<(), Refusal> {
        Err(Refusal::Unknown)
    }

    fn restore(&self) {}
}

/// An I/O thread without connections.
struct Poller {
    id: u32,
    last_ns: Option<u64>,
    intervals: Arc<Histogram>,
    sockets: OwnedFd,
}

impl IoThread for Poller {
    fn id(&self) -> u32 {
        self.id
    }

    fn poll(&mut self, now_ns: u64) -> Polled {
        if let Some(last_ns) = self.last_ns.replace(now_ns) {
            self.intervals.record(now_ns.saturating_sub(last_ns), 1);
        }
        let none = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut events = [std::mem::MaybeUninit::<epoll::Event>::uninit(); 1];
        let _ = epoll::wait(&self.sockets, &mut events, Some(&none));
        Polled::default()
    }
}

impl Live {
    /// Starts the reactors. Also returns missing mechanisms with reasons.
    ///
    /// # Errors
    /// If a CPU cannot be used, or settings of an earlier process were not restored.
    pub(super) fn start(options: &Options, meter: Meter, stop: StopFlag) -> anyhow::Result<(Self, Vec<Missing>)> {
        let cpus: Vec<Option<u32>> = options.cpus.iter().copied().map(Some).collect();
        let wanted = Wanted { cpus: cpus.clone(), ..Wanted::default() };
        let (mut knobs, missing) = Knobs::find(&Roots::default(), &fresh(), &wanted)?;
        let workers = Arc::new(Workers::default());
        let runtime = RuntimeOptions {
            idle_timeout: IdleTimeout::Never,
            knobs: Some(workers.clone()),
            ..RuntimeOptions::new(cpus, Idle::Spin)
        };
        let cores = options.cpus.len() as u16;
        let runtime = Runtime::start(&runtime)?;
        knobs.set_workers(&workers.0.lock().unwrap_or_else(PoisonError::into_inner));
        let mut pollers = Vec::new();
        for id in 0..options.threads {
            let intervals = Arc::<Histogram>::default();
            let sockets = epoll::create(epoll::CreateFlags::CLOEXEC).context("cannot make an epoll descriptor")?;
            let poller = Poller { id: id.into(), last_ns: None, intervals: intervals.clone(), sockets };
            runtime.adopt(CoreId(id % cores), Box::new(poller));
            pollers.push(intervals);
        }
        let list = knobs.list();
        let of = |kind| (0..).map(KnobId).zip(&list).filter(move |(_, knob)| knob.kind == kind);
        let quota = of(Kind::QuotaPpm).next();
        let limits: Vec<(KnobId, u64)> = of(Kind::LimitUw).map(|(id, knob)| (id, knob.initial)).collect();
        let least_uw: u64 = of(Kind::LimitUw).filter_map(|(_, knob)| knob.values.lowest()).sum();
        let axes = Axes {
            cores,
            quota: quota.and_then(|(_, knob)| Some(Quota { least_ppm: knob.values.lowest()?, is_shared: true })),
            limit: (!limits.is_empty())
                .then(|| Limit { least_uw, most_uw: limits.iter().map(|(_, found_uw)| found_uw).sum() }),
        };
        let quota = quota.map(|(id, _)| id);
        let settle = options.each / 5;
        let measured = options.each - settle;
        Ok((Self { runtime, knobs, quota, limits, pollers, meter, axes, settle, measured, stop }, missing))
    }

    /// Applies the available settings; a limit is divided over packages in proportion to their initial limits.
    fn set(&mut self, configuration: Configuration) -> Result<(), Stopped> {
        let Configuration { cores, quota_ppm, limit_uw } = configuration;
        if let Some(quota) = self.quota {
            let value = (quota_ppm < self.axes.full_ppm(cores)).then_some(quota_ppm);
            self.knobs.set(quota, value).map_err(anyhow::Error::from)?;
        }
        let most_uw = self.axes.most_uw().max(1);
        for &(knob, found_uw) in &self.limits {
            let share_uw = (u128::from(limit_uw) * u128::from(found_uw) / u128::from(most_uw)) as u64;
            self.knobs.set(knob, (limit_uw < most_uw).then_some(share_uw)).map_err(anyhow::Error::from)?;
        }
        let hold = self.runtime.set_policy(Box::new(Hold::new(cores, Vec::new())));
        Ok(hold.map_err(anyhow::Error::from)?)
    }

    fn intervals(&self) -> HistogramSnapshot {
        let mut all = HistogramSnapshot::default();
        self.pollers.iter().for_each(|one| all += &one.snapshot());
        all
    }

    /// Mean power of consecutive windows of a measurement.
    fn windows(&mut self) -> Result<Vec<f64>, Stopped> {
        self.meter.watts()?;
        let mut watts = Vec::new();
        let mut left = self.measured;
        while !left.is_zero() {
            let window = if left < WINDOW * 2 { left } else { WINDOW };
            sleep(&self.stop, window)?;
            left -= window;
            watts.extend(self.meter.watts()?);
        }
        if watts.is_empty() {
            let name = &self.meter.name;
            return Err(anyhow::anyhow!("{name} returned no power while a configuration was measured").into());
        }
        Ok(watts)
    }
}

/// CPU time of all reactors, as the kernel accounts it, in nanoseconds.
fn cpu_ns(stats: &RuntimeStats) -> u64 {
    stats.reactors.iter().map(|reactor| reactor.cpu_ns).sum()
}

impl CpuSubject for Live {
    fn axes(&self) -> &Axes {
        &self.axes
    }

    fn measure(&mut self, configuration: Configuration) -> Result<Measured, Stopped> {
        self.set(configuration)?;
        sleep(&self.stop, self.settle)?;
        let (before, cpu_before_ns) = (self.intervals(), cpu_ns(&self.runtime.stats()));
        let began = std::time::Instant::now();
        let watts = self.windows()?;
        let took_s = began.elapsed().as_secs_f64();
        let intervals = self.intervals().since(&before);
        let used_ns = cpu_ns(&self.runtime.stats()) - cpu_before_ns;
        Ok(Measured {
            configuration,
            mean_ns: intervals.mean_ns() as f64,
            p99_ns: intervals.percentile_ns(0.99) as f64,
            used_cores: used_ns as f64 / 1e9 / took_s,
            watts,
        })
    }
}

/// Throttling is removed before the reactors stop.
impl Drop for Live {
    fn drop(&mut self) {
        for knob in self.quota.into_iter().chain(self.limits.iter().map(|(knob, _)| *knob)) {
            let _ = self.knobs.set(knob, None); // settings that cannot be restored stay in the journal of changes
        }
    }
}
