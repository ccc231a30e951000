//! The sensor interface, and power of this machine from files of the kernel.
//!
//! - [`sensor`]: what a sensor is; [`rapl`], [`hwmon`] and [`modelled`] are some, and [`cputime`] is what the last one computes from.
//! - [`plausible`]: whether a power can be true. Pure. [`checked`]: reading with its check; [`sources`]: domains of which some can fail.
//! - [`energy`]: energy of a window from readings; [`shares`]: division of energy among hosts. Pure. [`live`]: current values.
//!
//! A crate of its own, because the server needs these and no others: those of `pilotlight-sensors` access networks, devices and programs.

pub mod checked;
pub mod cputime;
pub mod energy;
pub mod files;
pub mod hwmon;
pub mod live;
pub mod modelled;
pub mod plausible;
pub mod rapl;
pub mod sensor;
pub mod shares;
pub mod sources;
pub mod timing;
pub mod wide;

pub use pilotlight_drive::Roots;
pub use sensor::{
    Counts, Domain, Failed, Kind, Missing, Open, Origin, Part, ReadError, Reading, Sensor, SensorInfo, Unit, Why,
};
pub use timing::Timing;
