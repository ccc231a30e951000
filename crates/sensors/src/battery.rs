//! Power that flows out of a laptop's batteries: `/sys/class/power_supply` (Documentation/ABI/testing/sysfs-class-power):
//! `power_now` (microwatts), or `current_now` (microamperes) times `voltage_now` (microvolts).
//!
//! Only while a battery discharges is this the power of the system. On mains it is that of charging, or 0: the sensor then
//! says so instead of giving a number.

use std::path::{Path, PathBuf};

use pilotlight_drive::Roots;

use crate::files;
use crate::sensor::{About, Domain, Missing, Open, Part, ReadError, Reading, Sensor, Why};

const NAME: &str = "battery";
const INTERVAL_NS: u64 = 1_000_000_000;

/// The batteries of this machine, together.
#[derive(Debug)]
pub struct Battery {
    about: About,
    folders: Vec<PathBuf>,
}

impl Open for Battery {
    type Options = ();

    fn open(roots: &Roots, (): &()) -> Result<Self, Missing> {
        let root = roots.sys.join("class/power_supply");
        let help = "only machines with a battery have one: use another sensor";
        let names = files::names(&root).map_err(|error| Missing::file(NAME, &root, &error, help, help))?;
        let folders = names.into_iter().map(|name| root.join(name)).filter(|folder| is_battery(folder)).collect();
        // The firmware asks the battery's own controller: that can take long.
        let about = About::slow(NAME, INTERVAL_NS, vec![Domain::power("battery", Part::System)]);
        let mut battery = Self { about, folders };
        if battery.folders.is_empty() {
            return Err(Missing::new(NAME, Why::Absent, format!("no battery in {}", root.display()), help));
        }
        match battery.read(&mut Vec::new()) {
            Ok(()) => Ok(battery),
            Err(error @ ReadError::Io { .. }) => Err(Missing::new(NAME, Why::Broken, error.to_string(), help)),
            Err(error) => {
                Err(Missing::new(NAME, Why::NotCounting, error.to_string(), "unplug the charger while measuring"))
            }
        }
    }
}

/// A battery of the system that is in its bay: those of mice and the like have the scope `Device`.
fn is_battery(folder: &Path) -> bool {
    let says = |file: &str, text: &str| files::text(&folder.join(file)).is_ok_and(|found| found == text);
    says("type", "Battery") && !says("scope", "Device") && !says("present", "0")
}

impl Sensor for Battery {
    fn about(&self) -> &About {
        &self.about
    }

    fn read(&mut self, into: &mut Vec<Reading>) -> Result<(), ReadError> {
        let (mut value, mut discharges) = (0, false);
        for folder in &self.folders {
            let path = folder.join("status");
            match files::text(&path).map_err(|error| ReadError::io(path.display(), error))?.as_str() {
                "Discharging" => (value, discharges) = (value + power_uw(folder)?, true),
                // Of two batteries one may rest while the other discharges.
                "Not charging" | "Full" | "Unknown" => {}
                other => {
                    return Err(ReadError::Content(format!("{} is {other}: not the system's power", folder.display())));
                }
            }
        }
        if value == 0 {
            let why = if discharges {
                "a battery discharges and says 0 W, which it does where it does not measure"
            } else {
                "no battery discharges: the system runs from mains"
            };
            return Err(ReadError::Content(why.into()));
        }
        into.push(Reading { domain: 0, value });
        Ok(())
    }
}

fn power_uw(folder: &Path) -> Result<i64, ReadError> {
    let number = |file: &str| {
        let path = folder.join(file);
        // Some drivers give what flows out as negative.
        files::number::<i64>(&path).map(i64::abs).map_err(|error| ReadError::io(path.display(), error))
    };
    if let Ok(power) = number("power_now") {
        return Ok(power);
    }
    let (ua, uv) = (number("current_now")?, number("voltage_now")?);
    Ok((i128::from(ua) * i128::from(uv) / 1_000_000) as i64)
}
