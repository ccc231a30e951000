//! Current values of sensors: powers and gauges as read, counters as rates since the previous reading.

use crate::checked;
use crate::energy::{self, Law, Point, Window};
use crate::sensor::{Domain, Failed, Kind, Sensor};

/// Sensors that are read repeatedly.
pub struct Live {
    sensors: Vec<Monitored>,
}

struct Monitored {
    sensor: Box<dyn Sensor>,
    /// The last reading of each domain.
    last: Vec<Option<Point>>,
}

/// Values of a sensor.
#[derive(Clone, Debug, PartialEq)]
pub struct LiveReading {
    /// Its name.
    pub sensor: String,
    /// Update interval in nanoseconds.
    pub interval_ns: u64,
    /// What users should know of its values.
    pub notes: Vec<String>,
    /// Domains without a value because of an error.
    pub failed: Vec<Failed>,
    /// Its domains with their values, or the error.
    pub values: Result<Vec<(Domain, Option<Value>)>, String>,
}

/// The value of a domain.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// Power in watts, as read or from an energy counter.
    Watts(f64),
    /// A gauge in the domain's unit.
    Gauge(f64),
    /// Rate of a counter, in the domain's unit per second.
    PerSecond(f64),
}

impl Live {
    /// Reads these sensors.
    #[must_use]
    pub fn of(sensors: Vec<Box<dyn Sensor>>) -> Self {
        let watched = |sensor: Box<dyn Sensor>| Monitored { last: vec![None; sensor.domains().len()], sensor };
        Self { sensors: sensors.into_iter().map(watched).collect() }
    }

    /// Reads all sensors. `now_ns` returns the monotonic clock.
    pub fn read(&mut self, now_ns: impl Fn() -> u64) -> Vec<LiveReading> {
        self.sensors.iter_mut().map(|watched| watched.read(&now_ns)).collect()
    }
}

impl Monitored {
    fn read(&mut self, now_ns: &impl Fn() -> u64) -> LiveReading {
        let mut readings = Vec::new();
        let result = checked::read(&mut *self.sensor, &mut readings);
        let at_ns = now_ns();
        let info = self.sensor.info();
        let (sensor, interval_ns, notes) = (info.name.clone(), info.native_interval_ns, info.notes.clone());
        let failed = match result {
            Ok(failed) => failed,
            Err(error) => {
                let failed = self.sensor.failed().to_vec();
                return LiveReading { sensor, interval_ns, notes, failed, values: Err(error.to_string()) };
            }
        };
        let mut values: Vec<(Domain, Option<Value>)> =
            info.domains.iter().map(|domain| (domain.clone(), None)).collect();
        for reading in readings {
            if let (Some((domain, entry)), Some(last)) =
                (values.get_mut(reading.domain), self.last.get_mut(reading.domain))
            {
                let now = Point { at_ns, value: reading.value };
                *entry = value(domain, *last, now);
                *last = Some(now);
            }
        }
        LiveReading { sensor, interval_ns, notes, failed, values: Ok(values) }
    }
}

/// The value of a domain at a reading; `None` for a counter without a previous reading or with an unknown increment.
#[must_use]
pub fn value(domain: &Domain, before: Option<Point>, now: Point) -> Option<Value> {
    let grown = || {
        let before = before.filter(|before| before.at_ns < now.at_ns)?;
        Some((before, (now.at_ns - before.at_ns) as f64 / 1e9))
    };
    match domain.kind {
        Kind::Power => Some(Value::Watts(now.value as f64 / 1e6)),
        Kind::Gauge => Some(Value::Gauge(now.value as f64)),
        Kind::Counter => {
            let (before, seconds) = grown()?;
            let grown = now.value.checked_sub(before.value).filter(|grown| *grown >= 0)?;
            Some(Value::PerSecond(grown as f64 / seconds))
        }
        Kind::EnergyCounter(counts) => {
            let (before, seconds) = grown()?;
            let window = Window { from_ns: before.at_ns, to_ns: now.at_ns };
            let energy = energy::energy(&[before, now], window, Law::Counter(counts)).ok()?;
            Some(Value::Watts(energy.uj as f64 / 1e6 / seconds))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::sensor::{Counts, Part, ReadError, Reading, SensorInfo, Unit};

    const S: u64 = 1_000_000_000;

    /// An energy counter that wraps at 1000 J, a power, a gauge and a counter, with one row of values per reading; then it fails.
    struct FakeSensor {
        info: SensorInfo,
        rows: std::vec::IntoIter<[i64; 4]>,
    }

    impl Sensor for FakeSensor {
        fn info(&self) -> &SensorInfo {
            &self.info
        }

        fn read(&mut self, into: &mut Vec<Reading>) -> Result<(), ReadError> {
            let row = self.rows.next().ok_or_else(|| ReadError::Content("unplugged".into()))?;
            into.extend(row.into_iter().enumerate().map(|(domain, value)| Reading { domain, value }));
            Ok(())
        }
    }

    fn made(rows: Vec<[i64; 4]>) -> Live {
        let counts = Counts { modulus_uj: Some(1_000_000_000), max_uw: 500_000_000, ..Counts::endless() };
        let domains = vec![
            Domain::new("package-0", Kind::EnergyCounter(counts), Unit::MicroJoule, Part::Package(0)),
            Domain::power("socket", Part::System),
            Domain::gauge("cpu0", Unit::KiloHertz),
            Domain::counter("switches", Unit::Count),
        ];
        let info = SensorInfo::new("made", 7, domains);
        Live::of(vec![Box::new(FakeSensor { info, rows: rows.into_iter() })])
    }

    fn values(said: &[LiveReading]) -> Vec<Option<Value>> {
        said[0].values.as_ref().unwrap().iter().map(|(_, value)| *value).collect()
    }

    #[test]
    fn counters_are_reported_as_increments_and_wrap() {
        let mut live = made(vec![
            [999_000_000, 5_000_000, 2_000_000, 100],
            [39_000_000, 6_500_000, 3_000_000, 160],
            [49_000_000, 7_000_000, 3_000_000, 200],
        ]);
        let now = Cell::new(3 * S);
        let first = live.read(|| now.get());
        assert_eq!((first[0].sensor.as_str(), first[0].interval_ns), ("made", 7));
        assert_eq!(values(&first), [None, Some(Value::Watts(5.0)), Some(Value::Gauge(2e6)), None]);
        now.set(5 * S);
        // 40 J over the wrap, and 60 switches, in two seconds
        let expected = [Value::Watts(20.0), Value::Watts(6.5), Value::Gauge(3e6), Value::PerSecond(30.0)];
        assert_eq!(values(&live.read(|| now.get())), expected.map(Some));
        now.set(6 * S);
        // 10 J and 40 switches in the second since then
        let expected = [Value::Watts(10.0), Value::Watts(7.0), Value::Gauge(3e6), Value::PerSecond(40.0)];
        assert_eq!(values(&live.read(|| now.get())), expected.map(Some));
        assert_eq!(live.read(|| now.get())[0].values, Err("unplugged".into()));
    }

    #[test]
    fn what_cannot_be_known_is_no_number() {
        let mut live = made(vec![[1_000, 1, 1, 100], [1_000, 1, 1, 90], [1_000, 1, 1, 95]]);
        live.read(|| S);
        assert_eq!(values(&live.read(|| 2 * S))[3], None, "the counter has fallen");
        assert_eq!(values(&live.read(|| 2 * S))[0], None, "no time has passed");
    }
}
