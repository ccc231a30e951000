//! Reading a sensor with the checks that all sensors have in common: each domain has a value, or a reason.

use crate::plausible;
use crate::sensor::{Failed, Kind, ReadError, Reading, Sensor};

/// Reads a sensor into an empty list. Returns the domains that have no value because of an error, or because their power cannot be true
/// ([`plausible::power`]).
///
/// # Errors
/// No domain has a value. The contents of `into` are then invalid.
pub fn read(sensor: &mut (impl Sensor + ?Sized), into: &mut Vec<Reading>) -> Result<Vec<Failed>, ReadError> {
    sensor.read(into)?;
    let (mut failed, domains) = (sensor.failed().to_vec(), sensor.domains());
    into.retain(|reading| {
        let Some(domain) = domains.get(reading.domain).filter(|domain| domain.kind == Kind::Power) else { return true };
        let why = plausible::power(&domain.part, reading.value).err();
        failed.extend(why.map(|why| Failed { domain: reading.domain, why: why.to_string() }));
        why.is_none()
    });
    match failed.first() {
        Some(Failed { domain, why }) if into.is_empty() => {
            Err(ReadError::Content(format!("{}: {why}", domains[*domain].name)))
        }
        _ => Ok(failed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sensor::{Domain, Part, SensorInfo};

    /// Powers of the system and of a rail.
    struct Fixed(SensorInfo, [i64; 2]);

    impl Sensor for Fixed {
        fn info(&self) -> &SensorInfo {
            &self.0
        }

        fn read(&mut self, into: &mut Vec<Reading>) -> Result<(), ReadError> {
            into.extend((0..).zip(self.1).map(|(domain, value)| Reading { domain, value }));
            Ok(())
        }
    }

    #[test]
    fn a_power_that_cannot_be_true_is_a_reason() {
        const W: i64 = 1_000_000;
        let rail = Part::Unknown("rail".into());
        let read = |values| {
            let domains = vec![Domain::power("system", Part::System), Domain::power("rail", rail.clone())];
            let mut readings = Vec::new();
            let failed = read(&mut Fixed(SensorInfo::new("fixed", 1, domains), values), &mut readings);
            (readings, failed)
        };
        for (values, kept, why) in [
            ([300 * W, 0], 2, ""),
            ([300 * W, -W], 2, ""), // current can flow back on a rail
            ([0, W], 1, "it reads 0 W"),
            ([-W, W], 1, "error code"),
            ([4_294_967_295_000, W], 1, "4294967.3 W is an error code"), // lm-sensors 460
            ([W, 65_535 * W], 1, "error code"),
            ([W, i64::from(u32::MAX)], 1, "error code"),
            ([W, i64::from(i32::MAX)], 1, "error code"),
        ] {
            let (readings, failed) = read(values);
            let failed = failed.unwrap();
            assert_eq!((readings.len(), failed.len()), (kept, 2 - kept), "{values:?}");
            assert!(failed.iter().all(|failed| failed.why.contains(why)), "{failed:?}");
        }
        let none = read([0, 65_535 * W]).1.unwrap_err().to_string();
        assert_eq!(none, "system: it reads 0 W");
    }
}
