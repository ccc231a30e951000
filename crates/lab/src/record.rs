//! Measurements as lines of `runs.jsonl`, the input of all metrics.

use std::collections::BTreeMap;

use pilotlight_sensors::clock::Jump;
use pilotlight_sensors::energy::Window;
use pilotlight_sensors::recording::{Marker, Punctuality};
use pilotlight_sensors::{Kind, Origin, Part, Recording};
use serde::{Deserialize, Serialize};

use crate::observed;
use crate::plan::Key;
use crate::study::Completion;
use pilotlight_workloads::Point;
use pilotlight_workloads::record::Record;

/// A finished measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Its point and repeat.
    pub key: Key,
    /// Its knobs.
    pub knobs: Point,
    /// Start of the command, in nanoseconds since 1970.
    pub began_wall_ns: u64,
    /// Start and end of the command on the monotonic clock, in nanoseconds.
    pub span: Window,
    /// The measured window, without start and warm-up.
    pub window: Window,
    /// The results of the workload.
    pub record: Record,
    /// Values of the sensors in the window.
    pub sensed: Sensed,
    /// Evidence of the completion mechanism, if the workload requests one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion: Option<Completion>,
}

/// An idle baseline.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Baseline {
    /// Settings of the machine.
    pub setting: Point,
    /// The round; 0 in journals with one baseline for all rounds.
    #[serde(default)]
    pub round: u32,
    /// Whether programs of the experiment ran, such as a server: their CPU time is part of its idle machine.
    #[serde(default)]
    pub own_programs: bool,
    /// The window on the monotonic clock.
    pub window: Window,
    /// Values of the sensors in the window.
    pub sensed: Sensed,
}

/// A line of `runs.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Entry {
    /// A finished measurement.
    Run(Box<Run>),
    /// A failed measurement.
    Failed {
        /// Its point and repeat.
        key: Key,
        /// The error.
        why: String,
    },
    /// An idle baseline.
    Baseline(Box<Baseline>),
}

/// Values of sensors in a window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sensed {
    /// Energy of every domain of power or energy.
    pub energies: Vec<DomainEnergy>,
    /// Other domains by column: counters as rates, gauges as means.
    pub observed: BTreeMap<String, f64>,
    /// Start times of phases on the monotonic clock.
    pub markers: Vec<Marker>,
    /// CPU time of sampling, in parts per million of one CPU.
    pub sampling_cost_ppm: u64,
    /// Punctuality of each sensor.
    pub punctuality: BTreeMap<String, Punctuality>,
    /// Jumps of the wall clock and suspensions of the machine.
    pub jumps: Vec<Jump>,
}

/// Energy of one domain over a window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DomainEnergy {
    /// Sensor and domain, such as `rapl/package-0`.
    pub name: String,
    /// The part of the machine.
    pub part: Part,
    /// Whether it was measured.
    pub origin: Origin,
    /// In microjoules, or the reason why it is unknown.
    pub uj: Result<i64, String>,
}

impl Sensed {
    /// The values of a recording in a window.
    #[must_use]
    pub fn from_recording(recording: &Recording, window: Window) -> Self {
        let mut sensed = Self {
            markers: recording.markers.clone(),
            sampling_cost_ppm: recording.cost_ppm(),
            jumps: recording.jumps(),
            ..Self::default()
        };
        for (at, track) in recording.tracks.iter().enumerate() {
            sensed.punctuality.insert(track.sensor.clone(), track.punctuality());
            for (index, domain) in track.domains.iter().enumerate() {
                if observed::is_energy(domain) {
                    let uj = recording.energy(at, index, window);
                    sensed.energies.push(DomainEnergy {
                        name: track.name(index),
                        part: domain.part.clone(),
                        origin: domain.origin.clone(),
                        uj: uj.map(|energy| energy.uj).map_err(|error| error.to_string()),
                    });
                } else if let Some((column, value)) = observed::value(track, index, window) {
                    sensed.observed.insert(column, value);
                }
            }
        }
        sensed
    }

    /// As [`Sensed::from_recording`], without domains for which the window is too short or the counter too coarse.
    #[must_use]
    pub fn measured(recording: &Recording, window: Window) -> Self {
        let mut sensed = Self::from_recording(recording, window);
        let all = recording.tracks.iter().flat_map(|track| (0..track.domains.len()).map(move |index| (track, index)));
        for (track, index) in all {
            let (domain, name) = (&track.domains[index], track.name(index));
            let too_short = domain.timing.too_short(window.length_ns(), track.interval_ns);
            if too_short.is_some() {
                let of_counter = |column: &str| column.starts_with(&name) && column.ends_with("_per_s");
                sensed.observed.retain(|column, _| !of_counter(column));
            }
            for energy in sensed.energies.iter_mut().filter(|energy| energy.name == name) {
                let is_counter = matches!(domain.kind, Kind::EnergyCounter(_));
                let uj = energy.uj.as_ref().ok().filter(|_| is_counter);
                let too_coarse = uj.and_then(|uj| domain.timing.too_coarse(uj.unsigned_abs(), domain.unit.suffix()));
                if let Some(why) = too_short.clone().or(too_coarse) {
                    energy.uj = Err(why);
                }
            }
        }
        sensed
    }
}
