//! The metrics of a measurement: values, or reasons why there are none.
//!
//! Keys are columns of `results.csv` and end in their unit: `iops`, `read_latency_p99_us`, `ssd_power_w`, `io_per_j_ssd_cpu`. Keys of
//! modelled metrics contain the model: `cpu_modelled_generic_power_w`, `io_per_j_cpu_modelled_generic`.

pub mod efficiency;
pub mod power;
pub mod scope;
mod system;

use crate::record::{Baseline, Run, Sensed};
use crate::stored::metric;
use crate::study::count;
use pilotlight_sensors::energy::Overlap;
use pilotlight_workloads::latency::{self, LatencyError};
use pilotlight_workloads::record::{Class, Latency, OperationKind, Record};
use power::PowerDomains;
use scope::Scope;

/// A metric.
#[derive(Clone, Debug, PartialEq)]
pub struct Metric {
    /// Its key.
    pub key: String,
    /// Its title.
    pub title: String,
    /// The unit.
    pub unit: String,
    /// Whether it is modelled.
    pub modelled: bool,
    /// The value, or the reason why there is none.
    pub value: Result<f64, NoValue>,
}

/// Why a metric has no value.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages document the variants")]
pub enum NoValue {
    #[error("no sensor reads the power of the {0}")]
    NoSensor(&'static str),
    #[error("{0} was not read")]
    NotRead(String),
    #[error("{0}")]
    Recorded(String),
    #[error(transparent)]
    Latency(#[from] LatencyError),
    #[error("idle baseline: {0}")]
    Baseline(Box<Self>),
    #[error(transparent)]
    Overlap(#[from] Overlap),
    #[error("the power is {0:.3} W, not above zero")]
    NoPower(f64),
    #[error("no operation completed")]
    NoOperation,
    #[error("not a number")]
    NotFinite,
}

impl Metric {
    fn new(key: impl Into<String>, title: impl Into<String>, value: Result<f64, NoValue>) -> Self {
        let value = value.and_then(|value| if value.is_finite() { Ok(value) } else { Err(NoValue::NotFinite) });
        let key = key.into();
        let unit = Some(metric::unit(&key)).filter(|unit| *unit != "1").unwrap_or_default().to_owned();
        Self { key, title: title.into(), unit, modelled: false, value }
    }
}

/// All metrics of a run. `baseline` is the idle machine at the same settings.
#[must_use]
pub fn of_run(run: &Run, power_domains: &PowerDomains, baseline: Option<&Baseline>) -> Vec<Metric> {
    let mut metrics = Vec::new();
    let families = families(&run.record);
    for family in &families {
        metrics.extend(family.work_metrics());
    }
    for class in run.record.classes.iter().filter(|class| class.may_have_occurred()) {
        metrics.extend(of_class(class));
    }
    let scopes = scope::scopes(&run.sensed, power_domains, run.window.length_ns(), baseline);
    for scope in &scopes {
        metrics.extend(scope.metrics());
        families.iter().for_each(|family| metrics.extend(family.efficiency(scope)));
    }
    metrics.extend(scope::domains(&run.sensed, run.window.length_ns()));
    let operations_per_s = families.first().and_then(Family::per_s);
    metrics.extend(system::metrics(&run.sensed, operations_per_s));
    metrics.extend(completion(run));
    if let Some(bytes_per_s) = families.first().and_then(Family::bytes_per_s) {
        metrics.extend(system::per_cpu_time(&run.sensed, bytes_per_s, operations_per_s));
    }
    metrics.extend(run.record.extra.iter().map(|(key, value)| of_tool(key, *value)));
    metrics.extend(scope::shares(&scopes));
    metrics
}

/// Metrics of the whole machine.
#[must_use]
pub fn of_machine(sensed: &Sensed) -> Vec<Metric> {
    system::metrics(sensed, None)
}

/// CPUs that other programs than a measured server keep busy, and the number of CPUs; `None` if CPU time was not read.
#[must_use]
pub fn busy_cpus(sensed: &Sensed) -> Option<(f64, usize)> {
    system::busy_cpus(sensed)
}

/// Metrics that distinguish completion mechanisms, if one was requested.
fn completion(run: &Run) -> Vec<Metric> {
    if run.completion.is_none() {
        return Vec::new();
    }
    let counted = count::counted(run);
    let of = |key: &str, title: &str, value: Option<f64>| value.map(|value| Metric::new(key, title, Ok(value)));
    let interrupts = of("drive_interrupts_per_io", "interrupts of the drive per I/O", counted.interrupts);
    let switches =
        of("job_context_switches_per_io", "context switches of the workload's threads per I/O", counted.switches);
    interrupts.into_iter().chain(switches).collect()
}

/// An additional value of a tool; the unit is the suffix of its key.
fn of_tool(key: &str, value: f64) -> Metric {
    Metric::new(key, metric::title(key), Ok(value))
}

/// Classes with a common sum: I/Os, transactions, or operations of an application.
struct Family<'a> {
    /// Name in keys.
    name: &'static str,
    /// Name in titles.
    title: &'static str,
    classes: Vec<&'a Class>,
}

fn families(record: &Record) -> Vec<Family<'_>> {
    let of = |name, title, fits: fn(&OperationKind) -> bool| {
        let classes = record.classes.iter().filter(|class| fits(&class.kind)).collect();
        Family { name, title, classes }
    };
    let all = [
        of("io", "I/Os", |what| matches!(what, OperationKind::Read | OperationKind::Write | OperationKind::Trim)),
        of("transaction", "transactions", |what| {
            matches!(what, OperationKind::Transaction | OperationKind::TransactionKind(_))
        }),
        of("operation", "operations", |what| matches!(what, OperationKind::Operation(_))),
    ];
    all.into_iter().filter(|family| !family.classes.is_empty()).collect()
}

impl Family<'_> {
    /// `None` if the operations of a class are not counted.
    fn per_s(&self) -> Option<f64> {
        self.classes.iter().map(|class| Some(per_s(class.operations?, class.runtime_ns))).sum()
    }

    /// `None` if the bytes of a class are not counted.
    fn bytes_per_s(&self) -> Option<f64> {
        self.classes.iter().map(|class| Some(per_s(class.bytes?, class.runtime_ns))).sum()
    }

    fn work_metrics(&self) -> Vec<Metric> {
        let Self { name, title, .. } = self;
        let rate = |rate| Metric::new(metric::rate(name), format!("{title} per second"), Ok(rate));
        let mut metrics: Vec<Metric> = self.per_s().map(rate).into_iter().collect();
        if let Some(bytes) = self.bytes_per_s() {
            let key = if *name == "io" { "bytes_per_s".to_owned() } else { format!("{name}_bytes_per_s") };
            metrics.push(Metric::new(key, format!("bytes of {title} per second"), Ok(bytes)));
        }
        metrics.extend(latencies(name, title, &self.classes));
        metrics
    }

    fn efficiency(&self, scope: &Scope) -> Vec<Metric> {
        let (Self { name, title, .. }, of, words) = (self, scope.key(), scope.title());
        let watts = || scope.watts.clone();
        let per_joule = |per_s: f64| watts().and_then(|watts| efficiency::per_joule(per_s, watts));
        let key = format!("{name}_per_j_{of}");
        let each = |rate| Metric::new(key, format!("{title} per joule, {words}"), per_joule(rate));
        let mut metrics: Vec<Metric> = self.per_s().map(each).into_iter().collect();
        if let Some(bytes) = self.bytes_per_s() {
            let key = if *name == "io" { format!("bytes_per_j_{of}") } else { format!("{name}_bytes_per_j_{of}") };
            metrics.push(Metric::new(key, format!("bytes of {title} per joule, {words}"), per_joule(bytes)));
        }
        metrics.extend(self.products(scope));
        metrics.iter_mut().for_each(|metric| metric.modelled = scope.is_modelled());
        metrics
    }

    /// Energy-delay and power-delay products.
    fn products(&self, scope: &Scope) -> Vec<Metric> {
        let (Self { name, title, .. }, of, words) = (self, scope.key(), scope.title());
        let mut metrics = Vec::new();
        if !self.classes.iter().any(|class| has_latency(class)) {
            return metrics;
        }
        let p99 = latency::quantile_ns(&self.classes, 990_000);
        for (which, latency) in [("mean", latency::mean_ns(&self.classes)), ("p99", p99)] {
            let both = || Ok((scope.watts.clone()?, latency?));
            if let Some(rate) = self.per_s() {
                let edp = both().and_then(|(w, ns)| efficiency::energy_delay_js(w, rate, ns));
                let title = format!("energy-delay product of {title}, {which}, {words}");
                metrics.push(Metric::new(format!("{name}_edp_{which}_js_{of}"), title, edp));
            }
            let pdp = both().and_then(|(w, ns)| efficiency::power_delay_ws(w, ns));
            let title = format!("power times {which} latency of {}, {words}", self.title);
            metrics.push(Metric::new(format!("{name}_power_delay_{which}_ws_{of}"), title, pdp));
        }
        metrics
    }
}

fn per_s(count: u64, runtime_ns: u64) -> f64 {
    count as f64 / (runtime_ns.max(1) as f64 / 1e9)
}

/// Whether a class has latencies or counted operations.
fn has_latency(class: &Class) -> bool {
    class.operations.is_some() || class.latency != Latency::default()
}

fn latencies(name: &str, title: &str, classes: &[&Class]) -> Vec<Metric> {
    if !classes.iter().any(|class| has_latency(class)) {
        return Vec::new();
    }
    let us = |ns: Result<f64, LatencyError>| Ok(ns? / 1e3);
    let mean =
        Metric::new(metric::latency(name, "mean"), format!("mean latency of {title}"), us(latency::mean_ns(classes)));
    let quantile = |(which, ppm): (&str, u32)| {
        let value = us(latency::quantile_ns(classes, ppm));
        Metric::new(metric::latency(name, which), format!("{which} latency of {title}"), value)
    };
    [mean].into_iter().chain(latency::QUANTILES.map(quantile)).collect()
}

fn of_class(class: &Class) -> Vec<Metric> {
    let (key, title) = match &class.kind {
        OperationKind::Read => ("read".to_owned(), "reads".to_owned()),
        OperationKind::Write => ("write".to_owned(), "writes".to_owned()),
        OperationKind::Trim => ("trim".to_owned(), "deallocations".to_owned()),
        // The only class of its family, so redundant.
        OperationKind::Transaction => return Vec::new(),
        OperationKind::TransactionKind(name) => {
            (format!("transaction_{}", tidy(name)), format!("transactions, {name}"))
        }
        OperationKind::Operation(name) => (format!("operation_{}", tidy(name)), name.clone()),
    };
    let rate = |count| {
        let rate = per_s(count, class.runtime_ns);
        Metric::new(metric::rate(&key), format!("{title} per second"), Ok(rate))
    };
    let mut metrics: Vec<Metric> = class.operations.map(rate).into_iter().collect();
    if let Some(bytes) = class.bytes {
        let rate = per_s(bytes, class.runtime_ns);
        metrics.push(Metric::new(format!("{key}_bytes_per_s"), format!("bytes of {title} per second"), Ok(rate)));
    }
    metrics.extend(latencies(&key, &title, &[class]));
    metrics
}

/// A name as part of a key.
pub(crate) fn tidy(name: &str) -> String {
    let word = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' };
    name.chars().map(word).collect()
}

#[cfg(test)]
mod tests;
