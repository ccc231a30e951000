//! Statistics over the runs of a command: each value with its interval, or the reason why there is none.
//!
//! *Above idle* is the power of a run minus that of its own idle baseline, so its interval includes the variation of the baseline.

use pilotlight_sensors::{Missing, Origin};
use serde::Serialize;

use super::{Options, Round, Span, title};
use crate::metrics::power::{self, Group, PowerDomains};
use crate::metrics::{self, Metric};
use crate::record::DomainEnergy;
use crate::results::idle::not_idle;
use crate::results::summary::Spread;
use crate::sensor_set::SensorSet;

/// Statistics over the runs of a command.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// The command in shell syntax.
    pub command: String,
    /// Measured runs.
    pub runs: usize,
    /// Failed runs.
    pub failed: usize,
    /// Time and counters of the command, then of the machine.
    pub lines: Vec<Line>,
    /// Energy of every domain, then sums without double counting.
    pub energy: Vec<EnergyLine>,
    /// Whether an idle baseline was measured before each run.
    pub idle_baseline: bool,
    /// The reason why the machine was not idle in the baselines, so that power above idle says nothing about the command.
    pub not_idle: Option<String>,
    /// What users should know of the sensors' values.
    pub notes: Vec<String>,
    /// If no power is measured: power sensors that cannot be read, with the reason.
    pub missing: Vec<Missing>,
    /// If no power is measured: available power sensors that were not requested.
    pub unused: Vec<String>,
    /// Whether the power of any part of the machine is measured, not modelled.
    pub has_measured_power: bool,
}

/// A value over the runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Line {
    /// Name with its unit, such as `time_s`.
    pub key: String,
    /// Its title.
    pub title: String,
    /// Its unit.
    pub unit: String,
    /// Whether it is of the whole machine, not only of the command.
    pub of_machine: bool,
    /// Mean, interval and the value of each run.
    pub spread: Spread,
}

/// Energy and power of a domain, or of a sum of domains, over the runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EnergyLine {
    /// Sensor and domain, such as `rapl/package-0`; or `cpu`, `ssd` or `system`.
    pub name: String,
    /// The part of the machine, or the domains of a sum.
    pub of: String,
    /// Whether it is modelled.
    pub modelled: bool,
    /// Joules of a run.
    pub energy_j: Option<Spread>,
    /// Mean watts of a run.
    pub power_w: Option<Spread>,
    /// Mean watts of a run above its idle baseline.
    pub above_idle_w: Option<Spread>,
    /// Joules of a run above its idle baseline.
    pub above_idle_j: Option<Spread>,
    /// The reason for missing values.
    pub missing: Option<String>,
}

impl Summary {
    /// The statistics of these runs.
    #[must_use]
    pub fn new(options: &Options, sensors: &SensorSet, rounds: &[Round]) -> Self {
        let has_measured_power = sensors.has_measured_power();
        Self {
            command: title(&options.argv),
            runs: rounds.len(),
            failed: rounds.iter().filter(|round| !round.success).count(),
            lines: lines(rounds),
            energy: energy(rounds),
            idle_baseline: !rounds.is_empty() && rounds.iter().all(|round| round.idle.is_some()),
            not_idle: not_idle(rounds.iter().filter_map(|round| Some(&round.idle.as_ref()?.sensed))),
            notes: sensors.notes.clone(),
            missing: sensors.survey.clone(),
            unused: sensors.unused.clone(),
            has_measured_power,
        }
    }
}

fn lines(rounds: &[Round]) -> Vec<Line> {
    type Scope = fn(&Round) -> f64;
    let own: [(&str, &str, &str, Scope); 6] = [
        ("time_s", "time", "s", |round| round.run.seconds()),
        ("user_s", "CPU time, user", "s", |round| round.usage.user_ns as f64 / 1e9),
        ("system_s", "CPU time, system", "s", |round| round.usage.system_ns as f64 / 1e9),
        ("cpus_used", "CPUs used", "", |round| {
            (round.usage.user_ns + round.usage.system_ns) as f64 / 1e9 / round.run.seconds().max(1e-9)
        }),
        ("context_switches_count", "context switches", "", |round| round.usage.context_switches as f64),
        ("page_faults_count", "page faults", "", |round| round.usage.page_faults as f64),
    ];
    let of_command = own.into_iter().filter_map(|(key, title, unit, of)| {
        let values: Vec<f64> = rounds.iter().map(of).collect();
        let spread = Spread::new(&values)?;
        Some(Line { key: key.into(), title: title.into(), unit: unit.into(), of_machine: false, spread })
    });
    of_command.chain(of_machine(rounds)).collect()
}

/// Counters of the whole machine, which reveal other load during the command.
fn of_machine(rounds: &[Round]) -> Vec<Line> {
    const COUNTERS: [(&str, &str); 3] = [
        ("cpu_busy_cores", "CPUs busy"),
        ("cpu_frequency_ghz", "CPU frequency, mean"),
        ("sampling_cost_percent", "sampling, of one CPU"),
    ];
    let each: Vec<Vec<Metric>> = rounds.iter().map(|round| metrics::of_machine(&round.run.sensed)).collect();
    let Some(first) = each.first() else { return Vec::new() };
    let line = |(key, title): (&str, &str)| {
        let unit = first.iter().find(|metric| metric.key == key)?.unit.clone();
        let of = |metrics: &Vec<Metric>| metrics.iter().find(|metric| metric.key == key)?.value.clone().ok();
        let values: Vec<f64> = each.iter().filter_map(of).collect();
        Some(Line { key: key.into(), title: title.into(), unit, of_machine: true, spread: Spread::new(&values)? })
    };
    COUNTERS.into_iter().filter_map(line).collect()
}

fn energy(rounds: &[Round]) -> Vec<EnergyLine> {
    let Some(first) = rounds.first() else { return Vec::new() };
    let domains = &first.run.sensed.energies;
    let of_domain = |domain: &DomainEnergy| {
        let uj = |span: &Span| {
            let found = span.sensed.energies.iter().find(|other| other.name == domain.name);
            found.ok_or_else(|| "not read".to_owned())?.uj.clone()
        };
        let modelled = domain.origin != Origin::Measured;
        line(&domain.name, &domain.part.to_string(), modelled, rounds, uj)
    };
    let power_domains = PowerDomains::from_domains(domains, None);
    let of_group = |group: Group| {
        let names = power_domains.names(group);
        if names.len() < 2 {
            return None;
        }
        let modelled = domains.iter().any(|domain| domain.origin != Origin::Measured && names.contains(&domain.name));
        let uj = |span: &Span| {
            power::join(&span.sensed, &power_domains, group).map(|joined| joined.uj).map_err(|why| why.to_string())
        };
        Some(line(group.name(), &names.join(" + "), modelled, rounds, uj))
    };
    domains.iter().map(of_domain).chain(Group::ALL.into_iter().filter_map(of_group)).collect()
}

/// The values of one domain or sum; `uj` returns its energy in a span, in microjoules.
fn line(
    name: &str,
    of: &str,
    modelled: bool,
    rounds: &[Round],
    uj: impl Fn(&Span) -> Result<i64, String>,
) -> EnergyLine {
    let joules = |span: &Span| uj(span).map(|uj| uj as f64 / 1e6);
    let watts = |span: &Span| joules(span).map(|joules| joules / span.seconds().max(1e-9));
    let mut missing = None;
    let mut spread = |values: Vec<Result<f64, String>>| {
        let failed = values.iter().filter_map(|value| value.as_ref().err()).next().cloned();
        let known: Vec<f64> = values.iter().filter_map(|value| value.as_ref().ok().copied()).collect();
        if let (Some(why), None) = (failed, &missing) {
            missing = Some(if known.is_empty() {
                why
            } else {
                format!("{} of {} runs: {why}", values.len() - known.len(), values.len())
            });
        }
        Spread::new(&known)
    };
    let paired = |round: &Round| {
        let idle = round.idle.as_ref()?;
        let idle_w = watts(idle).map_err(|why| format!("idle machine: {why}"));
        Some(idle_w.and_then(|idle_w| Ok(watts(&round.run)? - idle_w)))
    };
    let above_w: Vec<Result<f64, String>> = rounds.iter().filter_map(paired).collect();
    let with_idle = rounds.iter().filter(|round| round.idle.is_some());
    let above_j = with_idle.zip(&above_w).map(|(round, watts)| watts.clone().map(|watts| watts * round.run.seconds()));
    let above_j = above_j.collect();
    let energy_j = spread(rounds.iter().map(|round| joules(&round.run)).collect());
    let power_w = spread(rounds.iter().map(|round| watts(&round.run)).collect());
    let (above_idle_w, above_idle_j) = (spread(above_w), spread(above_j));
    EnergyLine {
        name: name.to_owned(),
        of: of.to_owned(),
        modelled,
        energy_j,
        power_w,
        above_idle_w,
        above_idle_j,
        missing,
    }
}

impl Span {
    /// Its length in seconds.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.window.length_ns() as f64 / 1e9
    }
}
