//! Power during a measurement: of the CPU packages, or of the whole machine if nothing else is available.

use anyhow::Context as _;
use pilotlight_plant::PowerProfile;
use pilotlight_sensors::live::{Live, Value};
use pilotlight_sensors::{Config, Domain, Kind, Origin, Part, Roots, Sensor, clock, modelled};
use pilotlight_sim::rng::{Purpose, Stream};

/// Default sensors, in order of preference.
const DEFAULT_SENSORS: [&str; 4] = ["rapl", "rapl-perf", "ipmi", "hwmon"];
/// Default power profile of `pilotlight serve --sensor modelled`.
const PROFILE: &str = include_str!("../../../../profiles/sandman-epyc-9454p.toml");
/// Maximum relative deviation of a modelled sensor from that of the server.
const OFF: f64 = 0.2;

/// The measured part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    /// All CPU packages.
    Cpu,
    /// The whole machine.
    System,
    /// A drive.
    Drive,
}

/// A power sensor.
pub(super) struct Meter {
    live: Live,
    /// The summed domains.
    domains: Vec<usize>,
    /// The measured part.
    pub(super) scope: Scope,
    /// Its name, with the profile if modelled.
    pub(super) name: String,
    pub(super) modelled: Option<String>,
    /// Resolution over a window of a second, in watts.
    pub(super) step_w: f64,
}

impl Meter {
    /// The named or first available sensor. `modelled` has constants that deviate from the server's by up to 20 %, by `seed`.
    pub(super) fn of_cpu(name: Option<&str>, seed: u64, roots: &Roots) -> anyhow::Result<Self> {
        let rank = |part: &Part| match part {
            Part::Cpu => Some((0, Scope::Cpu)),
            Part::Package(_) => Some((1, Scope::Cpu)),
            Part::Die(..) => Some((2, Scope::Cpu)),
            Part::System => Some((3, Scope::System)),
            Part::Platform => Some((4, Scope::System)),
            _ => None,
        };
        Self::open(name, seed, roots, "power of the CPU or of the machine", &rank)
    }

    /// The sensor of a drive's power.
    pub(super) fn of_drive(name: &str, roots: &Roots) -> anyhow::Result<Self> {
        let rank = |part: &Part| matches!(part, Part::Drive(_)).then_some((0, Scope::Drive));
        Self::open(Some(name), 0, roots, "the power of a drive", &rank)
    }

    fn open(
        name: Option<&str>,
        seed: u64,
        roots: &Roots,
        what: &str,
        rank: &dyn Fn(&Part) -> Option<(u32, Scope)>,
    ) -> anyhow::Result<Self> {
        if let Some(name) = name {
            let sensor = config(name, seed)?.open(roots)?;
            return Self::from_sensor(sensor, rank).with_context(|| format!("sensor {name} does not measure {what}"));
        }
        let mut missing = Vec::new();
        for name in DEFAULT_SENSORS {
            let Some(config) = Config::by_name(name) else { continue };
            match config.open(roots) {
                Ok(sensor) if !sensor.failed().is_empty() => missing.push(format!("{name}: a part cannot be read")),
                Ok(sensor) => match Self::from_sensor(sensor, rank) {
                    Some(meter) => return Ok(meter),
                    None => missing.push(format!("{name}: it does not measure {what}")),
                },
                Err(why) => missing.push(why.to_string()),
            }
        }
        anyhow::bail!(
            "no sensor of this machine measures {what}:\n  {}\nName one with --sensor (pilotlab sensors lists them), or take watts of a model with \
             --sensor modelled",
            missing.join("\n  ")
        )
    }

    fn from_sensor(sensor: Box<dyn Sensor>, rank: &dyn Fn(&Part) -> Option<(u32, Scope)>) -> Option<Self> {
        let is_power = |domain: &Domain| matches!(domain.kind, Kind::Power | Kind::EnergyCounter(_));
        let domains = sensor.domains().iter().enumerate().filter(|(_, domain)| is_power(domain));
        let ranked: Vec<(usize, (u32, Scope))> =
            domains.filter_map(|(index, domain)| Some((index, rank(&domain.part)?))).collect();
        let (first, scope) = ranked.iter().map(|(_, rank)| *rank).min_by_key(|(rank, _)| *rank)?;
        let chosen: Vec<usize> =
            ranked.iter().filter(|(_, (rank, _))| *rank == first).map(|(index, _)| *index).collect();
        let of_chosen = || chosen.iter().map(|&index| &sensor.domains()[index]);
        let modelled = of_chosen().find_map(|domain| match &domain.origin {
            Origin::Modelled { profile } => Some(profile.clone()),
            Origin::Measured => None,
        });
        let step_w = of_chosen().map(|domain| domain.timing.quantum.unwrap_or(1_000) as f64 / 1e6).sum();
        let name = sensor.name().to_owned();
        Some(Self { live: Live::of(vec![sensor]), domains: chosen, scope, name, modelled, step_w })
    }

    /// Mean power since the last reading, or current power, in watts; `None` at the first reading of a counter.
    pub(super) fn watts(&mut self) -> anyhow::Result<Option<f64>> {
        let mut all = self.live.read(clock::now_ns);
        let values = all.pop().context("there is no sensor")?.values.map_err(anyhow::Error::msg)?;
        let watts = |&domain: &usize| match values.get(domain)?.1? {
            Value::Watts(watts) => Some(watts),
            _ => None,
        };
        Ok(self.domains.iter().map(watts).sum())
    }
}

/// A sensor by name; a model has the cores of the server's, with deviating constants.
fn config(name: &str, seed: u64) -> anyhow::Result<Config> {
    if name != "modelled" {
        return Config::by_name(name).with_context(|| {
            format!("there is no sensor {name}: `pilotlab sensors` lists those that there are, and there is `modelled`")
        });
    }
    let profile = PowerProfile::parse(PROFILE).context("the power profile that is built in")?;
    Ok(Config::Modelled(inexact_model(&profile, seed)))
}

/// The constants of the server's modelled sensor with deviations of up to 20 %, because a profile of identical constants would be exact by
/// construction.
fn inexact_model(profile: &PowerProfile, seed: u64) -> modelled::Options {
    let stream = Stream::new(seed, Purpose::Sensors, 0);
    let times = |index: u64, uw: u64| {
        let share = stream.at(index) as f64 / u64::MAX as f64; // 0 to 1
        (uw as f64 * (1.0 + OFF * (2.0 * share - 1.0))) as u64
    };
    let core_uw = |all_uw: u64| (all_uw - profile.cpu_uw.deep) / u64::from(profile.cores);
    modelled::Options {
        profile: format!("{}, constants off by up to 20 % (seed {seed})", profile.name),
        base_uw: times(0, profile.cpu_uw.deep),
        idle_core_uw: times(1, core_uw(profile.cpu_uw.shallow)),
        busy_core_uw: times(2, core_uw(profile.cpu_uw.poll)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_deviate_by_at_most_20_percent_by_seed() {
        let profile = PowerProfile::parse(PROFILE).unwrap();
        let exact = profile.cpu_uw.deep as f64;
        let offs: Vec<f64> = (0..50).map(|seed| inexact_model(&profile, seed).base_uw as f64 / exact).collect();
        assert!(offs.iter().all(|off| (0.799..=1.2).contains(off)), "{offs:?}");
        assert!(offs.iter().any(|off| *off < 0.9) && offs.iter().any(|off| *off > 1.1), "{offs:?}");
        assert_eq!(inexact_model(&profile, 7), inexact_model(&profile, 7));
    }

    #[test]
    fn the_error_without_a_sensor_names_remedies() {
        let folder = tempfile::tempdir().unwrap();
        let roots = Roots::below(folder.path());
        let error = Meter::of_cpu(None, 1, &roots).err().unwrap().to_string();
        assert!(error.contains("--sensor modelled") && error.contains("rapl"), "{error}");
        assert!(Meter::of_cpu(Some("rapls"), 1, &roots).is_err());
    }
}
