//! Watts and counters in.
//!
//! - [`sensor`]: what a sensor is; each sensor is a file of its own below.
//! - [`sampler`]: reads sensors, each at its own rate, on one clock, and keeps what came when and at what cost.
//! - [`energy`]: what the readings add up to. Pure.
//! - [`catalogue`]: all sensors by name, from a configuration; and a survey of what this machine has.
//!
//! Nothing here changes anything on the machine. What cannot be read says why and what would help; it is never 0 W.

pub mod decimal;
pub mod energy;
pub mod roots;
pub mod sensor;

pub use roots::Roots;
pub use sensor::{Counts, Domain, Kind, Missing, Open, Origin, Part, ReadError, Reading, Sensor, Unit, Why};
