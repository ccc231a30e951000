//! Results of sampling: values with times, punctuality, cost, markers and clocks; and energy of windows between markers.

use serde::{Deserialize, Serialize};

use crate::clock::{self, ClockReading, Jump};
use crate::energy::{self, Energy, EnergyError, Law, Point, Share, Window};
use crate::sensor::Domain;

/// Power is interpolated over up to this many intervals of its sensor,
const MAX_INTERPOLATED_INTERVALS: u64 = 5;
/// and in any case over this time in nanoseconds, as a busy machine delays the sampler.
const NO_GAP_NS: u64 = 1_000_000_000;
/// Tolerated difference of the clocks, in nanoseconds.
const JUMP_NS: u64 = 10_000_000;

/// All samples of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Recording {
    /// One per sensor, in configured order.
    pub tracks: Vec<Track>,
    /// In the order of time.
    pub markers: Vec<Marker>,
    /// Clock readings, about once a second.
    pub clock: Vec<ClockReading>,
    /// From the start of sampling to its end, in nanoseconds.
    pub wall_ns: u64,
    /// CPU time of the sampling threads, in nanoseconds.
    pub cpu_ns: u64,
}

/// A named time, such as the start of a phase.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Marker {
    /// Monotonic clock, in nanoseconds.
    pub at_ns: u64,
    /// Name of the event.
    pub name: String,
}

/// Samples of one sensor.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Track {
    /// Name of the sensor.
    pub sensor: String,
    /// Its domains.
    pub domains: Vec<Domain>,
    /// Values of each domain, in its unit, in the order of time. The time is the middle of a reading.
    pub points: Vec<Vec<Point>>,
    /// The configured interval, in nanoseconds.
    pub interval_ns: u64,
    /// Delay of each reading's start, in nanoseconds.
    pub late_ns: Vec<u32>,
    /// Duration of each reading, in nanoseconds; half of it is the uncertainty of the time.
    pub took_ns: Vec<u32>,
    /// Readings skipped because their time had passed.
    pub missed: u64,
    /// Intervals in which the sensor failed.
    pub gaps: Vec<SensorGap>,
    /// Cost of reading.
    pub cost: Cost,
}

/// An interval in which a sensor, or one of its domains, failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SensorGap {
    /// The first reading that failed, in nanoseconds.
    pub from_ns: u64,
    /// The next that did not, or the end of the run, in nanoseconds.
    pub to_ns: u64,
    /// The domain; `None` if all failed.
    #[serde(default)]
    pub domain: Option<usize>,
    /// The sensor's error.
    pub why: String,
}

/// Cost of reading a sensor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cost {
    /// Number of readings.
    pub reads: u64,
    /// CPU time of reading, in nanoseconds.
    pub cpu_ns: u64,
    /// CPU time of the sensor's programs and threads, in nanoseconds.
    pub helpers_cpu_ns: u64,
    /// Elapsed time of reading, in nanoseconds.
    pub wall_ns: u64,
}

/// Delays and durations of readings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Punctuality {
    /// Readings.
    pub reads: usize,
    /// Skipped readings.
    pub missed: u64,
    /// Median delay, in nanoseconds.
    pub late_median_ns: u32,
    /// 99th percentile of the delay, in nanoseconds.
    pub late_p99_ns: u32,
    /// Maximum delay, in nanoseconds.
    pub late_max_ns: u32,
    /// Median duration, in nanoseconds.
    pub took_median_ns: u32,
    /// Maximum duration, in nanoseconds.
    pub took_max_ns: u32,
}

impl Track {
    /// An empty one.
    pub fn new(sensor: &str, domains: &[Domain], interval_ns: u64) -> Self {
        Self {
            sensor: sensor.into(),
            domains: domains.to_vec(),
            points: vec![Vec::new(); domains.len()],
            interval_ns,
            ..Self::default()
        }
    }

    /// Delays and durations of its readings.
    pub fn punctuality(&self) -> Punctuality {
        let sorted = |values: &[u32]| {
            let mut values = values.to_vec();
            values.sort_unstable();
            values
        };
        let (late, took) = (sorted(&self.late_ns), sorted(&self.took_ns));
        let at = |values: &[u32], share: f64| {
            let index = ((values.len() as f64 * share) as usize).min(values.len().saturating_sub(1));
            values.get(index).copied().unwrap_or(0)
        };
        Punctuality {
            reads: late.len(),
            missed: self.missed,
            late_median_ns: at(&late, 0.5),
            late_p99_ns: at(&late, 0.99),
            late_max_ns: at(&late, 1.0),
            took_median_ns: at(&took, 0.5),
            took_max_ns: at(&took, 1.0),
        }
    }

    /// Energy of a domain in `window`.
    ///
    /// # Errors
    /// Where it is not known; gaps contain the sensor's error. Powers are not interpolated over readings that failed; a counter
    /// counts on meanwhile.
    pub fn energy(&self, domain: usize, window: Window) -> Result<Energy, EnergyError> {
        let longest_gap_ns = self.interval_ns.saturating_mul(MAX_INTERPOLATED_INTERVALS).max(NO_GAP_NS);
        let law = energy::law(&self.domains[domain], longest_gap_ns)?;
        let found = energy::energy(&self.points[domain], window, law).map_err(|error| {
            let gap = error.unknown_time().and_then(|(from_ns, to_ns)| self.gap_in(domain, Window { from_ns, to_ns }));
            error.because(gap.map(|gap| gap.why.as_str()))
        })?;
        match (law, self.gap_in(domain, window)) {
            (Law::Power { .. }, Some(gap)) => {
                Err(EnergyError::Gap { from_ns: gap.from_ns, to_ns: gap.to_ns, why: Some(gap.why.clone()) })
            }
            _ => Ok(found),
        }
    }

    fn gap_in(&self, domain: usize, window: Window) -> Option<&SensorGap> {
        let of_domain = self.gaps.iter().filter(|gap| gap.domain.is_none_or(|failed| failed == domain));
        of_domain.into_iter().find(|gap| window.touches(gap.from_ns, gap.to_ns))
    }

    /// Name of a domain with its sensor: `rapl/package-0`.
    pub fn name(&self, domain: usize) -> String {
        format!("{}/{}", self.sensor, self.domains[domain].name)
    }
}

impl Recording {
    /// From the first marker called `from` to the first one called `to` after it.
    pub fn window(&self, from: &str, to: &str) -> Option<Window> {
        let start = self.markers.iter().position(|marker| marker.name == from)?;
        let end = self.markers[start + 1..].iter().find(|marker| marker.name == to)?;
        Some(Window { from_ns: self.markers[start].at_ns, to_ns: end.at_ns })
    }

    /// When the wall clock jumped or the machine slept.
    pub fn jumps(&self) -> Vec<Jump> {
        clock::jumps(&self.clock, JUMP_NS)
    }

    /// Energy of a domain in `window`.
    ///
    /// # Errors
    /// Where it is not known, or the machine slept in between, which the monotonic clock does not count. A wall clock that
    /// jumped does no harm.
    pub fn energy(&self, track: usize, domain: usize, window: Window) -> Result<Energy, EnergyError> {
        let slept = |jump: &&Jump| jump.asleep_ns > 0 && window.touches(jump.from_ns, jump.to_ns);
        if let Some(jump) = self.jumps().iter().find(slept) {
            return Err(EnergyError::Suspended { at_ns: jump.to_ns, asleep_ns: jump.asleep_ns });
        }
        self.tracks[track].energy(domain, window)
    }

    /// Energy of a domain in `window`, to be added to others with [`energy::sum`].
    ///
    /// # Errors
    /// As of [`Recording::energy`].
    pub fn share(&self, track: usize, domain: usize, window: Window) -> Result<Share, EnergyError> {
        let uj = self.energy(track, domain, window)?.uj;
        let of = &self.tracks[track];
        Ok(Share { name: of.name(domain), part: of.domains[domain].part.clone(), uj })
    }

    /// The share of one CPU that sampling took, in millionths: of the sampler's threads and of the sensors' helpers.
    pub fn cost_ppm(&self) -> u64 {
        let helpers: u64 = self.tracks.iter().map(|track| track.cost.helpers_cpu_ns).sum();
        let spent = u128::from(self.cpu_ns + helpers) * 1_000_000;
        (spent / u128::from(self.wall_ns.max(1))) as u64
    }
}
