//! Scopes of energy: SSD, CPU, both, and system; each in total and above idle.

use pilotlight_sensors::Origin;

use super::power::{self, Group, GroupEnergy, PowerDomains};
use super::{Metric, NoValue, tidy};
use crate::record::{Baseline, Sensed};

/// A scope of energy.
#[derive(Clone, Debug, PartialEq)]
pub struct Scope {
    /// `ssd`, `cpu`, `ssd_cpu` or `system`.
    name: &'static str,
    /// Whether the idle baseline is subtracted.
    above_idle: bool,
    /// The profiles of modelled parts.
    profiles: Vec<String>,
    /// Energy over the window, in joules.
    pub joules: Result<f64, NoValue>,
    /// Mean power over the window, in watts.
    pub watts: Result<f64, NoValue>,
}

const SCOPES: [(&str, &[Group]); 4] = [
    ("ssd", &[Group::Ssd]),
    ("cpu", &[Group::Cpu]),
    ("ssd_cpu", &[Group::Ssd, Group::Cpu]),
    ("system", &[Group::System]),
];

/// All scopes; those above idle only with a baseline.
#[must_use]
pub fn scopes(
    sensed: &Sensed,
    power_domains: &PowerDomains,
    window_ns: u64,
    baseline: Option<&Baseline>,
) -> Vec<Scope> {
    let one = |(name, groups): (&'static str, &[Group])| {
        let all = joined(sensed, power_domains, groups).map(|joined| joined.uj as f64);
        let scope = |above_idle, uj: Result<f64, NoValue>| Scope {
            name,
            above_idle,
            profiles: profiles(sensed, power_domains, groups),
            joules: uj.clone().map(|uj| uj / 1e6),
            watts: uj.map(|uj| uj * 1e3 / window_ns.max(1) as f64),
        };
        let above = baseline.map(|baseline| {
            let idle_uw = idle_uw(baseline, power_domains, groups).map_err(|why| NoValue::Baseline(Box::new(why)));
            scope(true, all.clone().and_then(|uj| Ok(uj - idle_uw? * window_ns as f64 / 1e9)))
        });
        [Some(scope(false, all)), above].into_iter().flatten()
    };
    SCOPES.into_iter().flat_map(one).collect()
}

fn joined(sensed: &Sensed, power_domains: &PowerDomains, groups: &[Group]) -> Result<GroupEnergy, NoValue> {
    let mut sum = GroupEnergy { uj: 0, profiles: Vec::new() };
    for group in groups {
        sum = sum.and(&power::join(sensed, power_domains, *group)?);
    }
    Ok(sum)
}

fn idle_uw(baseline: &Baseline, power_domains: &PowerDomains, groups: &[Group]) -> Result<f64, NoValue> {
    let uj = joined(&baseline.sensed, power_domains, groups)?.uj;
    Ok(uj as f64 * 1e9 / baseline.window.length_ns().max(1) as f64)
}

/// The profiles of the selected domains, also of those with unknown energy, so that keys are stable.
fn profiles(sensed: &Sensed, power_domains: &PowerDomains, groups: &[Group]) -> Vec<String> {
    let names: Vec<&String> = groups.iter().flat_map(|group| power_domains.names(*group)).collect();
    let of_model = sensed.energies.iter().filter(|domain| names.contains(&&domain.name)).filter_map(|domain| {
        if let Origin::Modelled { profile } = &domain.origin { Some(profile.clone()) } else { None }
    });
    let mut profiles: Vec<String> = of_model.collect();
    profiles.sort();
    profiles.dedup();
    profiles
}

impl Scope {
    /// Name in keys: `ssd_cpu`, `cpu_modelled_generic_above_idle`.
    #[must_use]
    pub fn key(&self) -> String {
        let idle = if self.above_idle { "_above_idle" } else { "" };
        format!("{}{idle}", self.subject())
    }

    fn subject(&self) -> String {
        let model: String = self.profiles.iter().map(|profile| format!("_{}", tidy(profile))).collect();
        if self.is_modelled() { format!("{}_modelled{model}", self.name) } else { self.name.to_owned() }
    }

    /// Name in titles.
    #[must_use]
    pub fn title(&self) -> String {
        let name = match self.name {
            "ssd" => "SSD",
            "cpu" => "CPU",
            "ssd_cpu" => "SSD + CPU",
            _ => "system",
        };
        let model =
            if self.is_modelled() { format!(", modelled ({})", self.profiles.join(", ")) } else { String::new() };
        let idle = if self.above_idle { ", above idle" } else { "" };
        format!("{name}{model}{idle}")
    }

    /// Whether any part is modelled.
    #[must_use]
    pub fn is_modelled(&self) -> bool {
        !self.profiles.is_empty()
    }

    /// Power and energy.
    #[must_use]
    pub fn metrics(&self) -> Vec<Metric> {
        let (subject, words) = (self.subject(), self.title());
        let idle = if self.above_idle { "_above_idle" } else { "" };
        let metric = |quantity: &str, suffix: &str, value: &Result<f64, NoValue>| {
            let key = format!("{subject}_{quantity}{idle}_{suffix}");
            let metric = Metric::new(key, format!("{quantity}, {words}"), value.clone());
            Metric { modelled: self.is_modelled(), ..metric }
        };
        vec![metric("power", "w", &self.watts), metric("energy", "j", &self.joules)]
    }
}

/// The shares of CPU and SSD in the system's power, if known.
#[must_use]
pub fn shares(scopes: &[Scope]) -> Vec<Metric> {
    let whole = |name: &str| scopes.iter().find(|scope| scope.name == name && !scope.above_idle);
    let Some((system, system_w)) = whole("system").and_then(|scope| Some((scope, scope.watts.as_ref().ok()?))) else {
        return Vec::new();
    };
    let share = |name: &str| {
        let scope = whole(name)?;
        let share = Ok(100.0 * scope.watts.as_ref().ok()? / system_w);
        let metric = Metric::new(
            format!("{}_share_percent", scope.subject()),
            format!("share of the system's power, {}", scope.title()),
            share,
        );
        Some(Metric { modelled: scope.is_modelled() || system.is_modelled(), ..metric })
    };
    ["cpu", "ssd"].into_iter().filter_map(share).collect()
}

/// Power and energy of every domain.
#[must_use]
pub fn domains(sensed: &Sensed, window_ns: u64) -> Vec<Metric> {
    let one = |domain: &crate::record::DomainEnergy| {
        let (name, modelled) = (tidy(&domain.name), domain.origin != Origin::Measured);
        let uj = domain.uj.clone().map(|uj| uj as f64).map_err(NoValue::Recorded);
        let words = format!("{} ({})", domain.name, domain.part);
        let watts = uj.clone().map(|uj| uj * 1e3 / window_ns.max(1) as f64);
        let power = Metric::new(format!("domain_{name}_power_w"), format!("power, {words}"), watts);
        let energy = Metric::new(format!("domain_{name}_energy_j"), format!("energy, {words}"), uj.map(|uj| uj / 1e6));
        [power, energy].map(|metric| Metric { modelled, ..metric })
    };
    sensed.energies.iter().flat_map(one).collect()
}
