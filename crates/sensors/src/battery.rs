//! Discharge power of a laptop's batteries: `/sys/class/power_supply` (Documentation/ABI/testing/sysfs-class-power):
//! `power_now` (microwatts), or `current_now` (microamperes) times `voltage_now` (microvolts).
//!
//! It is the power of the system only while a battery discharges. On mains the sensor returns an error.

use std::path::{Path, PathBuf};

use pilotlight_drive::Roots;

use crate::files;
use crate::sensor::{Domain, Missing, Open, Part, ReadError, Reading, Sensor, SensorInfo, Why};

const NAME: &str = "battery";
pub(crate) const INTERVAL_NS: u64 = 1_000_000_000;

/// All batteries of this machine.
#[derive(Debug)]
pub struct Battery {
    info: SensorInfo,
    folders: Vec<PathBuf>,
}

impl Open for Battery {
    type Options = ();

    fn open(roots: &Roots, (): &()) -> Result<Self, Missing> {
        let root = roots.sys.join("class/power_supply");
        let help = "use another sensor on a machine without a battery";
        let names = files::names(&root).map_err(|error| Missing::file(NAME, &root, &error, help, help))?;
        let folders = names.into_iter().map(|name| root.join(name)).filter(|folder| is_battery(folder)).collect();
        // Slow: the firmware queries the battery's controller.
        let info = SensorInfo::slow(NAME, INTERVAL_NS, vec![Domain::power("battery", Part::System)]);
        let mut battery = Self { info, folders };
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

/// Whether this is an installed battery of the system. Those of peripherals have the scope `Device`.
fn is_battery(folder: &Path) -> bool {
    let has = |file: &str, text: &str| files::text(&folder.join(file)).is_ok_and(|found| found == text);
    has("type", "Battery") && !has("scope", "Device") && !has("present", "0")
}

impl Sensor for Battery {
    fn info(&self) -> &SensorInfo {
        &self.info
    }

    fn read(&mut self, into: &mut Vec<Reading>) -> Result<(), ReadError> {
        let (mut value, mut discharges) = (0, false);
        for folder in &self.folders {
            let path = folder.join("status");
            match files::text(&path).map_err(|error| ReadError::io(path.display(), error))?.as_str() {
                "Discharging" => (value, discharges) = (value + power_uw(folder)?, true),
                // One of two batteries may be idle while the other discharges.
                "Not charging" | "Full" | "Unknown" => {}
                other => {
                    return Err(ReadError::Content(format!(
                        "{} is {other}, which is not the system's power",
                        folder.display()
                    )));
                }
            }
        }
        if value == 0 {
            let why = if discharges {
                "a battery discharges but reports 0 W: it does not measure power"
            } else {
                "no battery discharges: the system runs on mains"
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
        // Some drivers report discharge as negative.
        files::number::<i64>(&path).map(i64::abs).map_err(|error| ReadError::io(path.display(), error))
    };
    if let Ok(power) = number("power_now") {
        return Ok(power);
    }
    let (ua, uv) = (number("current_now")?, number("voltage_now")?);
    Ok((i128::from(ua) * i128::from(uv) / 1_000_000) as i64)
}
