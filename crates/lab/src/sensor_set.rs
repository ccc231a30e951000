//! The sensors of an experiment: listed ones, and power sensors found on this machine.

use pilotlight_sensors::{
    Config, Domain, Failed, Found, Missing, Part, Planned, ReadError, Reading, Roots, Sensor, SensorInfo, nvme, survey,
};
use serde::{Deserialize, Serialize};

use crate::experiment::Experiment;
use crate::experiment::schema::{PowerSensors, SensorSpec};

/// Counters read if an experiment lists no sensor.
const COUNTERS: [&str; 4] = ["cputime", "kernel", "diskstats", "frequency"];

/// The sensors of an experiment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SensorSet {
    /// Sensors that are read.
    pub specs: Vec<SensorSpec>,
    /// Their unique names.
    pub names: Vec<String>,
    /// Their domains, with the name of the sensor.
    pub domains: Vec<(String, Domain)>,
    /// Optional sensors that cannot be read, with the reason.
    pub missing: Vec<Missing>,
    /// What users should know of the sensors' values, with the name of the sensor.
    #[serde(default)]
    pub notes: Vec<String>,
    /// If no power is read: all power sensors of other machines, with the reason why each is unavailable.
    pub survey: Vec<Missing>,
    /// If no power is read: available power sensors that the experiment does not use.
    #[serde(default)]
    pub unused: Vec<String>,
}

impl SensorSet {
    /// Finds the sensors of an experiment, opening each once.
    ///
    /// # Errors
    /// A required sensor that cannot be read.
    pub fn find(experiment: &Experiment, roots: &Roots) -> Result<Self, Missing> {
        Self::new(&experiment.sensors, experiment.power_sensors == PowerSensors::Found, roots)
    }

    /// Opens these sensors once and, with `found`, all power sensors.
    ///
    /// # Errors
    /// A required sensor that cannot be read.
    pub fn new(specs: &[SensorSpec], found: bool, roots: &Roots) -> Result<Self, Missing> {
        let mut sensors = Self::default();
        for spec in specs {
            sensors.add(spec.clone(), roots)?;
        }
        if found && sensors.specs.is_empty() && sensors.missing.is_empty() {
            sensors.add_counters(roots)?;
        }
        if found || !sensors.has_measured_power() {
            sensors.add_survey(survey(roots), found, roots)?;
        }
        Ok(sensors)
    }

    /// Adds the counters of the kernel that are available.
    fn add_counters(&mut self, roots: &Roots) -> Result<(), Missing> {
        let configs = COUNTERS.iter().filter_map(|name| Config::by_name(name));
        configs
            .into_iter()
            .try_for_each(|config| self.add(SensorSpec { config, interval: None, optional: true }, roots))
    }

    /// Adds power sensors of the survey if `found`; if no power is measured, keeps the reasons.
    fn add_survey(&mut self, survey: Vec<Result<Found, Missing>>, found: bool, roots: &Roots) -> Result<(), Missing> {
        let (mut missing, mut unused) = (Vec::new(), Vec::new());
        for sensor in survey {
            match sensor {
                Ok(sensor) if found && sensor.is_power() => self.add_found(&sensor, roots)?,
                Ok(sensor) if sensor.is_power() => unused.push(sensor.sensor),
                Ok(_) => {}
                Err(reason) => missing.push(reason),
            }
        }
        if !self.has_measured_power() {
            self.survey = missing.into_iter().filter(is_power).collect();
            self.unused = unused;
        }
        Ok(())
    }

    fn add(&mut self, spec: SensorSpec, roots: &Roots) -> Result<(), Missing> {
        match spec.config.open(roots) {
            Ok(sensor) => {
                let name = self.free_name(&spec.config);
                self.notes.extend(sensor.info().notes.iter().map(|note| format!("{name}: {note}")));
                self.domains.extend(sensor.domains().iter().map(|domain| (name.clone(), domain.clone())));
                self.names.push(name);
                self.specs.push(spec);
            }
            Err(missing) if spec.optional => self.missing.push(missing),
            Err(missing) => return Err(missing),
        }
        Ok(())
    }

    fn add_found(&mut self, found: &Found, roots: &Roots) -> Result<(), Missing> {
        let Some(config) = config_of(found) else { return Ok(()) };
        if self.specs.iter().any(|spec| base_name(&spec.config) == base_name(&config)) {
            return Ok(());
        }
        self.add(SensorSpec { config, interval: None, optional: true }, roots)
    }

    /// Its name, with a number if it is in use.
    fn free_name(&self, config: &Config) -> String {
        let base = base_name(config);
        let numbered = (2..).map(|number| format!("{base}-{number}"));
        let free = |name: &String| !self.names.contains(name);
        std::iter::once(base.to_owned()).chain(numbered).find(free).unwrap_or_default()
    }

    /// Whether the power of any part of the machine is measured, not modelled.
    #[must_use]
    pub fn has_measured_power(&self) -> bool {
        use pilotlight_sensors::{Kind, Origin};
        let is_power = |domain: &Domain| matches!(domain.kind, Kind::Power | Kind::EnergyCounter(_));
        self.domains.iter().any(|(_, domain)| is_power(domain) && domain.origin == Origin::Measured)
    }

    /// Whether the energy of any part of the machine is known, measured or modelled.
    #[must_use]
    pub fn has_energy(&self) -> bool {
        self.domains.iter().any(|(_, domain)| crate::observed::is_energy(domain))
    }

    /// Domains of power and energy for which a window of this length is too short, with the reason.
    #[must_use]
    pub fn too_short(&self, window_ns: u64) -> Vec<String> {
        let interval_ns = |sensor: &String| {
            let at = self.names.iter().position(|name| name == sensor)?;
            Some(self.specs.get(at)?.interval?.0)
        };
        let energy = self.domains.iter().filter(|(_, domain)| crate::observed::is_energy(domain));
        let short = energy.filter_map(|(sensor, domain)| {
            let why = domain.timing.too_short(window_ns, interval_ns(sensor).unwrap_or(0))?;
            Some(format!("{sensor}/{}: {why}", domain.name))
        });
        short.collect()
    }

    /// Opens the sensors for one measurement, without optional ones that fail.
    ///
    /// # Errors
    /// A required sensor that cannot be read.
    pub fn open(&self, roots: &Roots) -> Result<Vec<Planned>, Missing> {
        self.open_those(roots, |_| true)
    }

    /// Opens the sensors for the idle machine: without those of servers that the workload starts.
    ///
    /// # Errors
    /// As [`SensorSet::open`].
    pub fn open_idle(&self, roots: &Roots) -> Result<Vec<Planned>, Missing> {
        self.open_those(roots, |config| !config.with_workload())
    }

    fn open_those(&self, roots: &Roots, wanted: impl Fn(&Config) -> bool) -> Result<Vec<Planned>, Missing> {
        let mut planned = Vec::new();
        for (spec, name) in self.specs.iter().zip(&self.names).filter(|(spec, _)| wanted(&spec.config)) {
            // It was read when the run began: one failure, as of a BMC, does not end it, and a gap is enough where it is optional.
            let open = || spec.config.open(roots);
            let again = |missing| if spec.optional { Err(missing) } else { open() };
            match open().or_else(again).or_else(again) {
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

/// The name of the drive, otherwise of the sensor.
fn base_name(config: &Config) -> &str {
    if let Config::Nvme(options) = config { &options.drive } else { config.name() }
}

/// The configuration of a found sensor, with default options.
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

/// A sensor with its unique name.
struct Named {
    info: SensorInfo,
    sensor: Box<dyn Sensor>,
}

impl Named {
    fn new(name: &str, sensor: Box<dyn Sensor>) -> Self {
        Self { info: SensorInfo { name: name.into(), ..sensor.info().clone() }, sensor }
    }
}

impl Sensor for Named {
    fn info(&self) -> &SensorInfo {
        &self.info
    }

    fn read(&mut self, into: &mut Vec<Reading>) -> Result<(), ReadError> {
        self.sensor.read(into)
    }

    fn failed(&self) -> &[Failed] {
        self.sensor.failed()
    }

    fn helpers_cpu_ns(&self) -> u64 {
        self.sensor.helpers_cpu_ns()
    }
}

/// Whether a missing sensor is one of power, not of the kernel's counters.
#[must_use]
pub fn is_power(missing: &Missing) -> bool {
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
        let mut sensors = SensorSet::default();
        for _ in 0..3 {
            sensors.add(meter(&file), &Roots::default()).unwrap();
        }
        assert_eq!(sensors.names, ["meter", "meter-2", "meter-3"]);
        let opened = sensors.open(&Roots::default()).unwrap();
        assert_eq!(opened[2].sensor.name(), "meter-3");
        std::fs::remove_file(&file).unwrap();
        assert!(sensors.open(&Roots::default()).is_err(), "it is required");
    }

    #[test]
    fn a_sensor_that_fails_once_is_opened_again() {
        let folder = tempfile::tempdir().unwrap();
        let fails = folder.path().join("fails");
        let script = format!("rm '{}' 2> /dev/null && exit 1; echo 5", fails.display());
        let text = format!("name = 'meter'\nfrom = {{ command = ['/bin/sh', '-c', \"{script}\"] }}\nunit = 'W'");
        let config = Config::Command(toml::from_str(&text).unwrap());
        let mut sensors = SensorSet::default();
        sensors.add(SensorSpec { config, interval: None, optional: false }, &Roots::default()).unwrap();
        std::fs::write(&fails, "").unwrap();
        assert_eq!(sensors.open(&Roots::default()).unwrap().len(), 1);
        assert!(!fails.exists(), "it failed once");
    }

    #[test]
    fn a_server_of_the_workload_is_not_read_while_the_machine_is_idle() {
        let text = "sensor = 'target'\nsocket = '/nowhere/control.sock'\nwith_workload = true";
        let spec = SensorSpec { config: toml::from_str(text).unwrap(), interval: None, optional: false };
        let mut sensors = SensorSet::default();
        sensors.add(spec, &Roots::default()).unwrap();
        assert_eq!(sensors.open(&Roots::default()).unwrap().len(), 1);
        assert!(sensors.open_idle(&Roots::default()).unwrap().is_empty());
    }

    /// A machine with counters of the kernel and RAPL.
    fn machine() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("proc/stat", "cpu  1 2 3 4 5 6 7 8 9 0\ncpu0 1 2 3 4 5 6 7 8 9 0\nctxt 5\nintr 5\nprocesses 5\n");
        write("sys/class/powercap/intel-rapl:0/name", "package-0\n");
        write("sys/class/powercap/intel-rapl:0/energy_uj", "77\n");
        write("sys/class/powercap/intel-rapl:0/max_energy_range_uj", "262143328850\n");
        root
    }

    fn names(text: &str, root: &std::path::Path) -> Vec<String> {
        let text = format!("title = 't'\n{text}\n[workload]\nkind = 'command'\nargv = ['true']\n");
        let experiment: Experiment = toml::from_str(&text).unwrap();
        SensorSet::find(&experiment, &Roots::below(root)).unwrap().names
    }

    #[test]
    fn without_a_list_counters_and_power_sensors_are_found() {
        let root = machine();
        assert_eq!(names("", root.path()), ["cputime", "rapl"]);
        assert_eq!(names("power_sensors = 'listed'", root.path()), [""; 0]);
        let cputime = SensorSpec { config: Config::by_name("cputime").unwrap(), interval: None, optional: false };
        let sensors =
            |found| SensorSet::new(std::slice::from_ref(&cputime), found, &Roots::below(root.path())).unwrap();
        assert_eq!((sensors(false).unused, sensors(true).unused), (vec!["rapl".to_owned()], Vec::new()));
        assert_eq!(names("sensor = [{ sensor = 'rapl', interval = '5ms' }]", root.path()), ["rapl"], "once");
        assert_eq!(
            names("sensor = [{ sensor = 'idle', optional = true }]", root.path()),
            ["rapl"],
            "no counters beside a list"
        );
    }

    #[test]
    fn a_found_drive_is_read_by_its_name() {
        let domains = vec![Domain::power("interval-power", Part::Drive("nvme3".into()))];
        let found = Found { sensor: "nvme".into(), domains, native_interval_ns: 1 };
        let config = config_of(&found).unwrap();
        assert_eq!(base_name(&config), "nvme3");
    }
}
