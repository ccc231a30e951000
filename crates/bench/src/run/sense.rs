//! The sensors of an experiment: those that are listed, and the power sensors that are found.

use pilotlight_sensors::{Config, Domain, Missing, Planned, Roots, survey};
use serde::{Deserialize, Serialize};

use crate::experiment::Experiment;
use crate::experiment::schema::{PowerSensors, SensorSpec};

/// What is read, and what is not and why.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Senses {
    /// What is read.
    pub specs: Vec<SensorSpec>,
    /// Domains of all of them, with the sensor's name.
    pub domains: Vec<(String, Domain)>,
    /// Optional sensors that cannot be read.
    pub missing: Vec<Missing>,
    /// Every power sensor that this machine might have, where none is read: why each cannot be.
    pub survey: Vec<Missing>,
}

impl Senses {
    /// Opens every sensor once.
    ///
    /// # Errors
    /// A sensor that is needed and cannot be read.
    pub fn find(experiment: &Experiment, roots: &Roots) -> Result<Self, Missing> {
        let mut senses = Self::default();
        for spec in &experiment.sensors {
            senses.add(spec.clone(), roots)?;
        }
        if experiment.power_sensors == PowerSensors::Found {
            senses.add_found(roots)?;
        }
        if !senses.has_measured_power() {
            senses.survey = survey(roots).into_iter().filter_map(Result::err).filter(is_power).collect();
        }
        Ok(senses)
    }

    fn add(&mut self, spec: SensorSpec, roots: &Roots) -> Result<(), Missing> {
        match spec.config.open(roots) {
            Ok(sensor) => {
                self.domains.extend(sensor.domains().iter().map(|domain| (sensor.name().to_owned(), domain.clone())));
                self.specs.push(spec);
            }
            Err(missing) if spec.optional => self.missing.push(missing),
            Err(missing) => return Err(missing),
        }
        Ok(())
    }

    fn add_found(&mut self, roots: &Roots) -> Result<(), Missing> {
        let listed: Vec<String> = self.specs.iter().map(|spec| spec.config.name().to_owned()).collect();
        for found in survey(roots).into_iter().flatten().filter(pilotlight_sensors::Found::is_power) {
            let config = Config::by_name(&found.sensor).filter(|_| !listed.contains(&found.sensor));
            if let Some(config) = config {
                self.add(SensorSpec { config, interval: None, optional: true }, roots)?;
            }
        }
        Ok(())
    }

    /// Whether the power of some part of the machine is measured, not modelled.
    #[must_use]
    pub fn has_measured_power(&self) -> bool {
        use pilotlight_sensors::{Kind, Origin};
        let is_power = |domain: &Domain| matches!(domain.kind, Kind::Power | Kind::EnergyCounter(_));
        self.domains.iter().any(|(_, domain)| is_power(domain) && domain.origin == Origin::Measured)
    }

    /// Sensors for one measurement.
    ///
    /// # Errors
    /// A needed one that cannot be read any more. An optional one is left out of this measurement.
    pub fn open(&self, roots: &Roots) -> Result<Vec<Planned>, Missing> {
        let mut planned = Vec::new();
        for spec in &self.specs {
            match spec.config.open(roots) {
                Ok(sensor) => {
                    let interval_ns = spec.interval.map(|interval| interval.0);
                    planned.push(Planned { sensor, interval_ns, optional: spec.optional });
                }
                Err(missing) if !spec.optional => return Err(missing),
                Err(_) => {}
            }
        }
        Ok(planned)
    }
}

/// Whether a sensor that is missing would tell watts. Sensors of the kernel's counters do not.
fn is_power(missing: &Missing) -> bool {
    !["diskstats", "frequency", "idle", "cputime", "kernel"].contains(&missing.sensor.as_str())
}
