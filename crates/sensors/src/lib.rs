//! Watts and counters in.
//!
//! - [`sensor`]: what a sensor is; each sensor is a file of its own, here or, where it only reads files of the kernel that tell watts, in
//!   `pilotlight-power`.
//! - [`sampler`]: reads sensors, each at its own rate, on one clock, and keeps what came when and at what cost.
//! - [`energy`]: what the readings add up to. Pure.
//! - [`catalogue`]: all sensors by name, from a configuration; and a survey of what this machine has. [`live`]: what they say now.
//!
//! Nothing here changes anything on the machine. What cannot be read says why and what would help; it is never 0 W.

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
pub mod sampler;
mod sys;
pub mod target;

use pilotlight_power::{files, wide};

pub use catalogue::{Config, Found, survey};
pub use pilotlight_drive::Roots;
pub use recording::Recording;

pub use pilotlight_power::{
    About, Counts, Domain, Kind, Missing, Open, Origin, Part, ReadError, Reading, Sensor, Timing, Unit, Why, cputime,
    energy, hwmon, live, modelled, rapl, sensor, timing,
};
pub use sampler::{Planned, Sampler};
pub use sys::child::{Usage, wait_for};
