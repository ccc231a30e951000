//! What a sensor is, and the watts of this machine that files of the kernel tell.
//!
//! - [`sensor`]: what a sensor is; [`rapl`], [`hwmon`] and [`modelled`] are some, and [`cputime`] is what the last one computes from.
//! - [`energy`]: what readings add up to; [`shares`]: how energy is divided among hosts. Pure. [`live`]: what sensors say now.
//!
//! A crate of its own, because the server needs these and no others: those of `pilotlight-sensors` talk to networks, devices and programs.

pub mod cputime;
pub mod energy;
pub mod files;
pub mod hwmon;
pub mod live;
pub mod modelled;
pub mod rapl;
pub mod sensor;
pub mod shares;
pub mod timing;
pub mod wide;

pub use pilotlight_drive::Roots;
pub use sensor::{About, Counts, Domain, Kind, Missing, Open, Origin, Part, ReadError, Reading, Sensor, Unit, Why};
pub use timing::Timing;
