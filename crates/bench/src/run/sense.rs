//! The sensors of an experiment: those that are listed, and the power sensors that are found.

use pilotlight_sensors::{
    About, Config, Domain, Found, Missing, Part, Planned, ReadError, Reading, Roots, Sensor, nvme, survey,
};
use serde::{Deserialize, Serialize};

use crate::experiment::Experiment;
use crate::experiment::schema::{PowerSensors, SensorSpec};

/// What is read, and what is not and why.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Senses {
    /// What is read.
    pub specs: Vec<SensorSpec>,
    /// What each is called here: no two alike.
    pub names: Vec<String>,
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
                let name = self.free_name(&spec.config);
                self.domains.extend(sensor.domains().iter().map(|domain| (name.clone(), domain.clone())));
                self.names.push(name);
                self.specs.push(spec);
            }
            Err(missing) if spec.optional => self.missing.push(missing),
            Err(missing) => return Err(missing),
        }
        Ok(())
    }

    fn add_found(&mut self, roots: &Roots) -> Result<(), Missing> {
        for found in survey(roots).into_iter().flatten().filter(Found::is_power) {
            let Some(config) = config_of(&found) else { continue };
            if !self.specs.iter().any(|spec| base_name(&spec.config) == base_name(&config)) {
                self.add(SensorSpec { config, interval: None, optional: true }, roots)?;
            }
        }
        Ok(())
    }

    /// Its name, with a number where that is taken.
    fn free_name(&self, config: &Config) -> String {
        let base = base_name(config);
        let numbered = (2..).map(|number| format!("{base}-{number}"));
        let free = |name: &String| !self.names.contains(name);
        std::iter::once(base.to_owned()).chain(numbered).find(free).unwrap_or_default()
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
        self.open_those(roots, |_| true)
    }

    /// Sensors for the idle machine: without those of what the workload starts.
    ///
    /// # Errors
    /// As [`Senses::open`].
    pub fn open_idle(&self, roots: &Roots) -> Result<Vec<Planned>, Missing> {
        self.open_those(roots, |config| !config.with_workload())
    }

    fn open_those(&self, roots: &Roots, wanted: impl Fn(&Config) -> bool) -> Result<Vec<Planned>, Missing> {
        let mut planned = Vec::new();
        for (spec, name) in self.specs.iter().zip(&self.names).filter(|(spec, _)| wanted(&spec.config)) {
            match spec.config.open(roots) {
                Ok(sensor) => {
                    let sensor = Box::new(Named::new(name, sensor));
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

/// A drive's name, or else the sensor's.
fn base_name(config: &Config) -> &str {
    if let Config::Nvme(options) = config { &options.drive } else { config.name() }
}

/// The sensor that was found, with its default options; of a drive, on that drive.
fn config_of(found: &Found) -> Option<Config> {
    let drive = found.domains.iter().find_map(|domain| match &domain.part {
        Part::Drive(drive) => Some(drive.clone()),
        _ => None,
    });
    match (Config::by_name(&found.sensor)?, drive) {
        (Config::Nvme(options), Some(drive)) => Some(Config::Nvme(nvme::Options { drive, ..options })),
        (config, _) => Some(config),
    }
}

/// A sensor under the name that it has in this experiment.
struct Named {
    about: About,
    sensor: Box<dyn Sensor>,
}

impl Named {
    fn new(name: &str, sensor: Box<dyn Sensor>) -> Self {
        Self { about: About { name: name.into(), ..sensor.about().clone() }, sensor }
    }
}

impl Sensor for Named {
    fn about(&self) -> &About {
        &self.about
    }

    fn read(&mut self, into: &mut Vec<Reading>) -> Result<(), ReadError> {
        self.sensor.read(into)
    }

    fn helpers_cpu_ns(&self) -> u64 {
        self.sensor.helpers_cpu_ns()
    }
}

/// Whether a sensor that is missing would tell watts. Sensors of the kernel's counters do not.
fn is_power(missing: &Missing) -> bool {
    !["diskstats", "frequency", "idle", "cputime", "kernel", "target"].contains(&missing.sensor.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meter(path: &std::path::Path) -> SensorSpec {
        let text = format!("name = 'meter'\nfrom = {{ file = '{}' }}\nunit = 'W'", path.display());
        let config = Config::Command(toml::from_str(&text).unwrap());
        SensorSpec { config, interval: None, optional: false }
    }

    #[test]
    fn no_two_sensors_have_the_same_name() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("watts");
        std::fs::write(&file, "5").unwrap();
        let mut senses = Senses::default();
        for _ in 0..3 {
            senses.add(meter(&file), &Roots::default()).unwrap();
        }
        assert_eq!(senses.names, ["meter", "meter-2", "meter-3"]);
        let opened = senses.open(&Roots::default()).unwrap();
        assert_eq!(opened[2].sensor.name(), "meter-3");
        std::fs::remove_file(&file).unwrap();
        assert!(senses.open(&Roots::default()).is_err(), "it is needed");
    }

    #[test]
    fn a_target_that_the_workload_starts_is_not_asked_while_the_machine_is_idle() {
        let text = "sensor = 'target'\nsocket = '/nowhere/control.sock'\nwith_workload = true";
        let spec = SensorSpec { config: toml::from_str(text).unwrap(), interval: None, optional: false };
        let mut senses = Senses::default();
        senses.add(spec, &Roots::default()).unwrap();
        assert_eq!(senses.open(&Roots::default()).unwrap().len(), 1);
        assert!(senses.open_idle(&Roots::default()).unwrap().is_empty());
    }

    #[test]
    fn a_drive_that_is_found_is_read_itself() {
        let domains = vec![Domain::power("interval-power", Part::Drive("nvme3".into()))];
        let found = Found { sensor: "nvme".into(), domains, native_interval_ns: 1 };
        let config = config_of(&found).unwrap();
        assert_eq!(base_name(&config), "nvme3");
    }
}
