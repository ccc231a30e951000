//! I/O counters of block devices: `/proc/diskstats` (Documentation/admin-guide/iostats.rst of the kernel). Its times are milliseconds in
//! 32 bits: the total time of requests wraps around after a day and a half at a queue depth of 32.

use pilotlight_drive::Roots;

use crate::files;
use crate::sensor::{Domain, Missing, Open, ReadError, Reading, Sensor, SensorInfo, Unit, Why};
use crate::wide::Wide;

const NAME: &str = "diskstats";
pub(crate) const INTERVAL_NS: u64 = 10_000_000;
const HELP: &str = "check that /proc is mounted";
/// Unit of sectors here, independent of the device.
const SECTOR: i64 = 512;
const NS_PER_MS: i64 = 1_000_000;

/// Options of the sensor.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Options {
    /// Names such as `nvme0n1`; default: all devices except partitions, loop, ram and zram.
    pub devices: Vec<String>,
}

/// Columns after the name: index, name, unit, factor, and whether it is a gauge.
const COLUMNS: [(usize, &str, Unit, i64, bool); 13] = [
    (0, "reads", Unit::Count, 1, false),
    (2, "read", Unit::Byte, SECTOR, false),
    (3, "read-time", Unit::NanoSecond, NS_PER_MS, false),
    (4, "writes", Unit::Count, 1, false),
    (6, "written", Unit::Byte, SECTOR, false),
    (7, "write-time", Unit::NanoSecond, NS_PER_MS, false),
    (8, "in-flight", Unit::Count, 1, true),
    (9, "busy", Unit::NanoSecond, NS_PER_MS, false),
    (10, "queued", Unit::NanoSecond, NS_PER_MS, false),
    (11, "discards", Unit::Count, 1, false),
    (13, "discarded", Unit::Byte, SECTOR, false),
    (15, "flushes", Unit::Count, 1, false),
    (16, "flush-time", Unit::NanoSecond, NS_PER_MS, false),
];

/// Counters of block devices.
#[derive(Debug)]
pub struct Diskstats {
    path: std::path::PathBuf,
    devices: Vec<String>,
    info: SensorInfo,
    /// One per domain; used for 32-bit counters.
    wide: Vec<Wide>,
}

impl Open for Diskstats {
    type Options = Options;

    fn open(roots: &Roots, options: &Options) -> Result<Self, Missing> {
        let path = roots.proc.join("diskstats");
        let text = files::text(&path).map_err(|error| Missing::file(NAME, &path, &error, HELP, HELP))?;
        let known: Vec<&str> = text.lines().filter_map(|line| line.split_whitespace().nth(2)).collect();
        let devices = match options.devices.as_slice() {
            [] => known.iter().filter(|device| is_disk(roots, device)).map(|&device| device.into()).collect(),
            configured => configured.to_vec(),
        };
        if let Some(unknown) = devices.iter().find(|device| !known.contains(&device.as_str())) {
            let what = format!("no block device {unknown}");
            return Err(Missing::new(NAME, Why::NotConfigured, what, format!("known: {}", known.join(", "))));
        }
        let of_device = |device: &String| {
            COLUMNS.map(|(_, name, unit, _, gauge)| {
                let name = format!("{device}/{name}");
                if gauge { Domain::gauge(name, unit) } else { Domain::counter(name, unit) }
            })
        };
        let domains: Vec<Domain> = devices.iter().flat_map(of_device).collect();
        let wide = vec![Wide::default(); domains.len()];
        Ok(Self { path, devices, info: SensorInfo::new(NAME, INTERVAL_NS, domains), wide })
    }
}

/// Whether this is not a partition, a loop device or a memory device.
fn is_disk(roots: &Roots, device: &str) -> bool {
    let is_virtual = ["loop", "ram", "zram"].iter().any(|prefix| device.starts_with(prefix));
    !is_virtual && roots.sys.join("block").join(device.replace('/', "!")).exists()
}

impl Sensor for Diskstats {
    fn info(&self) -> &SensorInfo {
        &self.info
    }

    fn read(&mut self, into: &mut Vec<Reading>) -> Result<(), ReadError> {
        let text = files::text(&self.path).map_err(|error| ReadError::io(self.path.display(), error))?;
        for (index, device) in self.devices.iter().enumerate() {
            let fields = text.lines().map(|line| line.split_whitespace().skip(2)).find_map(|mut fields| {
                (fields.next() == Some(device))
                    .then(|| fields.map_while(|field| field.parse().ok()).collect::<Vec<i64>>())
            });
            let fields = fields.ok_or_else(|| ReadError::Content(format!("block device {device} was removed")))?;
            for (column, (place, _, unit, factor, _)) in COLUMNS.iter().enumerate() {
                let domain = index * COLUMNS.len() + column;
                // Kernels before 4.18 have no discards, those before 5.5 no flushes.
                let Some(&raw) = fields.get(*place) else { break };
                let value = if *unit == Unit::NanoSecond { self.wide[domain].take(raw) } else { raw };
                into.push(Reading { domain, value: value.saturating_mul(*factor) });
            }
        }
        Ok(())
    }
}
