//! Sensors of power and counters, and their sampling.
//!
//! - [`sensor`]: the interface of a sensor. Each sensor is a file, here or, if the server reads it too, in `pilotlight-power`.
//! - [`sampler`]: reads sensors at their own rates on one clock and records values, times and cost.
//! - [`energy`]: integration of readings.
//! - [`catalogue`]: all sensors by name, and a survey of this machine. [`live`]: current values.
//!
//! Sensors do not change the machine. An unreadable sensor returns a reason and a remedy, never 0 W.

pub mod battery;
pub mod catalogue;
pub mod clock;
pub mod command;
pub mod decimal;
pub mod diskstats;
pub mod frequency;
pub mod hook;
pub mod http;
pub mod idle;
pub mod ipmi;
pub mod kernel;
pub mod netio;
pub mod nvme;
pub mod powersensor3;
pub mod rapl_perf;
pub mod recording;
pub mod redfish;
#[cfg(test)]
mod reference;
pub mod sampler;
mod sdr;
mod sys;
pub mod target;

use pilotlight_power::{checked, files, wide};

pub use catalogue::{Config, Found, survey};
pub use pilotlight_drive::Roots;
pub use recording::Recording;

pub use pilotlight_power::{
    Counts, Domain, Failed, Kind, Missing, Open, Origin, Part, ReadError, Reading, Sensor, SensorInfo, Timing, Unit,
    Why, cputime, energy, hwmon, live, modelled, rapl, sensor, timing,
};
pub use sampler::{Planned, Sampler};
pub use sys::child::{Usage, wait_for};
