//! Results of experiments: reads files in long format, one number per line.
//!
//! ```text
//! # schema=2
//! # profile=sandman-epyc-9454p hash=0123abcd
//! experiment,point,variant,policy,replication,seed,metric,unit,value
//! sandman/fig3,rate_kiops=5120,default,static,0,1,system_power_w,W,715.2
//! ```
//!
//! Latencies of saturated runs are infinite here ([`super::saturated`]).

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::point::{Pattern, Point};
use super::saturated::grows;
use pilotlight_lab::simulated::variant::{MEMBER, WITHOUT};
use pilotlight_lab::stored::metric::SATURATED;

/// The unchanged variant.
pub const DEFAULT: &str = "default";

/// Values by replication.
pub type Series = BTreeMap<u32, f64>;

type ByPoint = BTreeMap<Point, Series>;
/// By metric, policy, variant.
type Experiment = BTreeMap<String, BTreeMap<String, BTreeMap<String, ByPoint>>>;

/// All results.
#[derive(Clone, Debug, Default)]
pub struct Store {
    experiments: BTreeMap<String, Experiment>,
    units: BTreeMap<(String, String), String>,
    stamps: Vec<Stamp>,
    /// Values of folded parameters.
    folded: BTreeSet<String>,
}

/// The profile of a results file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Stamp {
    /// The results file.
    pub file: String,
    /// The profile's name.
    pub profile: String,
    /// Its hash.
    pub hash: String,
}

/// What is wrong with a line.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages document the variants")]
pub enum LineProblem {
    #[error("{0}; columns are experiment,point,variant,policy,replication,seed,metric,unit,value")]
    Value(csv::DeserializeError),
    #[error(transparent)]
    Csv(csv::Error),
    #[error("point {0:?} is no list of key=value")]
    Point(String),
    #[error("{metric} of {experiment} is in {unit} here and in {known} above")]
    Unit { metric: String, experiment: String, unit: String, known: String },
    #[error("replication {0} is a duplicate")]
    Duplicate(u32),
}

/// Invalid results.
#[derive(Debug, thiserror::Error)]
#[error("{file}, line {line}: {problem}")]
pub struct ResultsError {
    /// The file.
    pub file: String,
    /// The line, from 1.
    pub line: u64,
    /// The problem.
    pub problem: Box<LineProblem>,
}

#[derive(Deserialize)]
struct Line {
    experiment: String,
    point: String,
    variant: String,
    policy: String,
    replication: u32,
    metric: String,
    unit: String,
    value: f64,
}

impl Store {
    /// Adds a results file.
    ///
    /// # Errors
    /// If a line is malformed or a duplicate, or a metric changes its unit.
    pub fn add(&mut self, file: &str, text: &str) -> Result<(), ResultsError> {
        self.stamps.extend(text.lines().filter_map(|line| stamp(file, line)));
        let mut reader = csv::ReaderBuilder::new().comment(Some(b'#')).from_reader(text.as_bytes());
        let header = reader.headers().map_err(|error| csv_error(file, 1, error))?.clone();
        let mut record = csv::StringRecord::new();
        let mut touched = BTreeSet::<String>::new();
        loop {
            let line = reader.position().line();
            let more = reader.read_record(&mut record).map_err(|error| csv_error(file, line, error))?;
            if !more {
                touched.iter().for_each(|experiment| self.unbind(experiment));
                return Ok(());
            }
            let line = record.position().map_or(line, csv::Position::line);
            let cell: Line = record.deserialize(Some(&header)).map_err(|error| csv_error(file, line, error))?;
            if !touched.contains(&cell.experiment) {
                touched.insert(cell.experiment.clone());
            }
            self.add_line(cell).map_err(|problem| ResultsError {
                file: file.to_owned(),
                line,
                problem: Box::new(problem),
            })?;
        }
    }

    /// Turns the values of a parameter into members of a family: its points become variants `family:VALUE`, or `family:VALUE, MEMBER` with a
    /// power model. The value `default` gets no name, and other variants are kept for it only.
    pub fn fold(&mut self, parameter: &str, default: &str) {
        for by_variant in self.experiments.values_mut().flat_map(BTreeMap::values_mut).flat_map(BTreeMap::values_mut) {
            let mut folded: BTreeMap<String, ByPoint> = BTreeMap::new();
            for (variant, by_point) in std::mem::take(by_variant) {
                for (point, series) in by_point {
                    let (point, variant) = match point.without(parameter) {
                        None => (point, Some(variant.clone())),
                        Some((rest, value)) if value == default => (rest, Some(variant.clone())),
                        Some((rest, value)) => {
                            self.folded.insert(format!("{MEMBER}{value}"));
                            (rest, member(value, &variant))
                        }
                    };
                    if let Some(variant) = variant {
                        folded.entry(variant).or_default().insert(point, series);
                    }
                }
            }
            *by_variant = folded;
        }
    }

    /// Sets latencies of saturated runs to infinity.
    fn unbind(&mut self, experiment: &str) {
        let runs: Vec<(String, String, Point, u32)> = self.saturated_runs(experiment);
        let metrics = self.experiments.get_mut(experiment).into_iter().flatten();
        for (_, by_policy) in metrics.filter(|(metric, _)| grows(metric)) {
            for (policy, variant, point, replication) in &runs {
                let by_point = by_policy.get_mut(policy).and_then(|variants| variants.get_mut(variant));
                let value = by_point.and_then(|points| points.get_mut(point)?.get_mut(replication));
                value.into_iter().for_each(|value| *value = f64::INFINITY);
            }
        }
    }

    fn saturated_runs(&self, experiment: &str) -> Vec<(String, String, Point, u32)> {
        let mut runs = Vec::new();
        let flags = self.experiments.get(experiment).and_then(|metrics| metrics.get(SATURATED));
        for (policy, variants) in flags.into_iter().flatten() {
            for (variant, points) in variants {
                for (point, series) in points {
                    let full = series.iter().filter(|(_, flag)| **flag == 1.0);
                    runs.extend(full.map(|(at, _)| (policy.clone(), variant.clone(), point.clone(), *at)));
                }
            }
        }
        runs
    }

    /// Number of saturated runs at a point, and of all runs.
    #[must_use]
    pub fn saturated(&self, from: &Column<'_>, point: &Point) -> (usize, usize) {
        let flags = self.series(&Column { metric: SATURATED, ..*from }, point);
        flags.map_or((0, 0), |flags| (flags.values().filter(|flag| **flag == 1.0).count(), flags.len()))
    }

    fn add_line(&mut self, line: Line) -> Result<(), LineProblem> {
        let Line { experiment, point, variant, policy, replication, metric, unit, value } = line;
        let point = Point::parse(&point).ok_or(LineProblem::Point(point))?;
        let known = self.units.entry((experiment.clone(), metric.clone())).or_insert_with(|| unit.clone());
        if *known != unit {
            return Err(LineProblem::Unit { metric, experiment, unit, known: known.clone() });
        }
        let by_variant = self.experiments.entry(experiment).or_default().entry(metric).or_default();
        let by_point = by_variant.entry(policy).or_default().entry(variant).or_default();
        let before = by_point.entry(point).or_default().insert(replication, value);
        before.map_or(Ok(()), |_| Err(LineProblem::Duplicate(replication)))
    }

    /// Profiles of the results.
    #[must_use]
    pub fn stamps(&self) -> &[Stamp] {
        &self.stamps
    }

    /// Whether there are no results at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.experiments.is_empty()
    }

    /// Whether there are results of this experiment.
    #[must_use]
    pub fn has(&self, experiment: &str) -> bool {
        self.experiments.contains_key(experiment)
    }

    /// The unit of a metric.
    #[must_use]
    pub fn unit(&self, experiment: &str, metric: &str) -> Option<&str> {
        self.units.get(&(experiment.to_owned(), metric.to_owned())).map(String::as_str)
    }

    /// The points that match, in their order, with the values there.
    pub fn points<'a>(
        &'a self,
        from: &Column<'_>,
        pattern: &'a Pattern,
    ) -> impl Iterator<Item = (&'a Point, &'a Series)> {
        let by_point = self.column(from).into_iter().flatten();
        by_point.filter(|(point, _)| pattern.matches(point))
    }

    /// The values at a point.
    #[must_use]
    pub fn series(&self, from: &Column<'_>, point: &Point) -> Option<&Series> {
        self.column(from)?.get(point)
    }

    fn column(&self, from: &Column<'_>) -> Option<&ByPoint> {
        let variants = self.experiments.get(from.experiment)?.get(from.metric)?.get(from.policy)?;
        let parts = from.variant.split_once(SEPARATOR);
        let of_value = || variants.get(parts?.0);
        let of_power = || variants.get(&format!("{MEMBER}{}", parts?.1)); // where the parameter is not one of the experiment's
        let of_default = || variants.get(DEFAULT).filter(|_| self.differs_in_power_only(from));
        variants.get(from.variant).or_else(of_value).or_else(of_power).or_else(of_default)
    }

    /// Whether a variant differs from the default in power only: its other metrics are the default's.
    fn differs_in_power_only(&self, from: &Column<'_>) -> bool {
        let flags = || self.experiments.get(from.experiment)?.get(SATURATED)?.get(from.policy);
        let was_run = || flags().is_some_and(|variants| variants.contains_key(from.variant));
        let moved = from.variant.starts_with("perturb:") || from.variant.starts_with(WITHOUT);
        from.variant.starts_with(MEMBER) || (moved && was_run())
    }

    /// The policies with this metric in an experiment.
    pub fn policies(&self, experiment: &str, metric: &str) -> impl Iterator<Item = &str> {
        let by_policy = self.experiments.get(experiment).and_then(|metrics| metrics.get(metric));
        by_policy.into_iter().flat_map(BTreeMap::keys).map(String::as_str)
    }

    /// Whether a variant is a value of a folded parameter, with the default power model.
    #[must_use]
    pub fn is_folded(&self, variant: &str) -> bool {
        self.folded.contains(variant)
    }

    /// Members of the power family that some experiments lack, with those experiments.
    #[must_use]
    pub fn missing_members(&self) -> BTreeMap<String, Vec<String>> {
        let is_folded = |name: &str| self.folded.contains(name.split(SEPARATOR).next().unwrap_or(name));
        let mut all = self.variants(MEMBER, None);
        all.retain(|name| !is_folded(name));
        let mut missing: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for name in self.experiments.keys() {
            let own = self.variants(MEMBER, Some(name));
            for member in all.iter().filter(|member| !own.is_empty() && !own.contains(*member)) {
                missing.entry((*member).to_owned()).or_default().push(name.clone());
            }
        }
        missing
    }

    /// Variants with this prefix, of one experiment or of all (`None`).
    #[must_use]
    pub fn variants(&self, beginning: &str, experiment: Option<&str>) -> Vec<&str> {
        let experiments = self.experiments.iter().filter(|(name, _)| experiment.is_none_or(|wanted| wanted == *name));
        let columns = experiments.flat_map(|(_, metrics)| metrics.values()).flat_map(BTreeMap::values);
        let mut names: Vec<&str> = columns.flat_map(BTreeMap::keys).map(String::as_str).collect();
        names.retain(|name| name.starts_with(beginning));
        names.sort_by(|a, b| a.len().cmp(&b.len()).then(a.cmp(b))); // so that lhs:10 comes after lhs:9
        names.dedup();
        names
    }
}

/// Separates the value of a parameter from a power model.
const SEPARATOR: &str = ", ";

/// The variant of a folded parameter's value; `None` for variants that are kept for the default only.
fn member(value: &str, variant: &str) -> Option<String> {
    match variant.strip_prefix(MEMBER) {
        _ if variant == DEFAULT => Some(format!("{MEMBER}{value}")),
        Some(power) => Some(format!("{MEMBER}{value}{SEPARATOR}{power}")),
        None => None,
    }
}

/// A column of values, by point.
#[derive(Clone, Copy, Debug)]
pub struct Column<'a> {
    /// The experiment.
    pub experiment: &'a str,
    /// The output.
    pub metric: &'a str,
    /// The policy.
    pub policy: &'a str,
    /// The member of the model family or the draw.
    pub variant: &'a str,
}

fn csv_error(file: &str, line: u64, error: csv::Error) -> ResultsError {
    let problem = match error.kind() {
        csv::ErrorKind::Deserialize { err, .. } => LineProblem::Value(err.clone()),
        _ => LineProblem::Csv(error),
    };
    ResultsError { file: file.to_owned(), line, problem: Box::new(problem) }
}

/// `# profile=NAME hash=...`
fn stamp(file: &str, line: &str) -> Option<Stamp> {
    let rest = line.strip_prefix('#')?.trim().strip_prefix("profile=")?;
    let (profile, rest) = rest.split_once(' ')?;
    let hash = rest.trim().strip_prefix("hash=")?;
    Some(Stamp { file: file.to_owned(), profile: profile.to_owned(), hash: hash.to_owned() })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A store of lines `experiment,point,variant,policy,metric,unit,values...`, a replication a value.
    pub(crate) fn store(lines: &[&str]) -> Store {
        let mut text = "experiment,point,variant,policy,replication,seed,metric,unit,value\n".to_owned();
        for line in lines {
            let cells: Vec<&str> = line.split(',').collect();
            let [experiment, point, variant, policy, metric, unit] = cells[..6] else { panic!("{line}") };
            for (i, value) in cells[6..].iter().enumerate() {
                text += &format!("{experiment},{point},{variant},{policy},{i},1,{metric},{unit},{value}\n");
            }
        }
        let mut store = Store::default();
        store.add("results.csv", &text).unwrap();
        store
    }

    #[test]
    fn added_lines_are_found() {
        let store =
            store(&["e,rate=5,default,static,w,W,1,2", "e,rate=5,lhs:10,static,w,W,3", "e,,lhs:9,static,w,W,4"]);
        let column = Column { experiment: "e", metric: "w", policy: "static", variant: "default" };
        let point = Point::parse("rate=5").unwrap();
        assert_eq!(store.series(&column, &point), Some(&Series::from([(0, 1.0), (1, 2.0)])));
        let of = |variant| store.series(&Column { variant, ..column }, &point);
        assert_eq!(of("family:f"), of("default"), "what a member does not have is the default's");
        assert_eq!(of("lhs:9"), None);
        assert_eq!(store.variants("lhs:", None), ["lhs:9", "lhs:10"]);
        assert_eq!(store.variants("lhs:", Some("f")), [""; 0]);
        assert_eq!(store.unit("e", "w"), Some("W"));
    }

    #[test]
    fn values_of_a_folded_parameter_are_members_of_a_family() {
        let mut store = store(&[
            "e,at=4;rate=5,default,static,w,W,1",
            "e,at=8;rate=5,default,static,w,W,2",
            "e,at=4;rate=5,family:deep,static,w,W,3",
            "e,at=8;rate=5,family:deep,static,w,W,4",
            "e,at=4;rate=5,lhs:1/9,static,w,W,5",
            "e,at=8;rate=5,lhs:1/9,static,w,W,6",
            "e,at=4;rate=5,default,static,iops,1/s,7",
            "e,at=8;rate=5,default,static,iops,1/s,8",
            "f,rate=5,default,static,w,W,9",
            "f,rate=5,family:deep,static,w,W,10",
        ]);
        store.fold("at", "4");
        let value = |experiment, metric, variant| {
            let column = Column { experiment, metric, policy: "static", variant };
            store.series(&column, &Point::parse("rate=5").unwrap()).map(|series| series[&0])
        };
        assert_eq!(store.variants("", Some("e")), ["default", "lhs:1/9", "family:8", "family:deep", "family:8, deep"]);
        let watts = ["default", "family:8", "family:deep", "family:8, deep", "lhs:1/9"].map(|v| value("e", "w", v));
        assert_eq!(watts, [1.0, 2.0, 3.0, 4.0, 5.0].map(Some));
        let iops = ["family:deep", "family:8, deep"].map(|variant| value("e", "iops", variant));
        assert_eq!(iops, [7.0, 8.0].map(Some), "what power does not change is the value's");
        let watts = ["default", "family:deep", "family:8, deep"].map(|variant| value("f", "w", variant));
        assert_eq!(watts, [9.0, 10.0, 10.0].map(Some), "an experiment without the parameter has the power model alone");
    }

    #[test]
    fn missing_family_members_are_listed() {
        let line = |experiment: &str, variant: &str| format!("{experiment},,{variant},static,w,W,1");
        let lines = [line("e", "family:a"), line("e", "family:b"), line("f", "family:a"), line("g", "default")];
        let store = store(&lines.each_ref().map(String::as_str));
        let expected = BTreeMap::from([("family:b".to_owned(), vec!["f".to_owned()])]);
        assert_eq!(store.missing_members(), expected, "g has no member at all");
    }

    #[test]
    fn a_power_variant_has_the_latency_of_the_default() {
        let store = store(&[
            "e,,default,static,latency_p99_us,us,7",
            "e,,default,static,saturated,1,0",
            "e,,perturb:power.x:+20,static,saturated,1,0",
        ]);
        let of = |variant| {
            let column = Column { experiment: "e", metric: "latency_p99_us", policy: "static", variant };
            store.series(&column, &Point::default()).is_some()
        };
        assert!(of("perturb:power.x:+20"));
        assert!(!of("perturb:poll.y:+20") && !of("without:sandman/Fig 3"), "not run");
    }

    #[test]
    fn saturated_runs_have_infinite_latency_and_measured_power() {
        let store = store(&[
            "e,rate=5,default,static,b.latency_p99_us,us,7,8,9",
            "e,rate=5,default,static,w,W,1,2,3",
            "e,rate=5,default,static,saturated,1,0,1,0",
            "e,rate=6,default,static,b.latency_p99_us,us,7,8,9",
            "e,rate=5,default,other,b.latency_p99_us,us,7,8,9",
        ]);
        let column = |policy, metric| Column { experiment: "e", metric, policy, variant: "default" };
        let point = |text: &str| Point::parse(text).unwrap();
        let series = |policy, metric, at: &str| store.series(&column(policy, metric), &point(at)).unwrap().clone();
        let latency = "b.latency_p99_us";
        assert_eq!(series("static", latency, "rate=5"), Series::from([(0, 7.0), (1, f64::INFINITY), (2, 9.0)]));
        for (policy, metric, at) in
            [("static", "w", "rate=5"), ("static", latency, "rate=6"), ("other", latency, "rate=5")]
        {
            assert!(series(policy, metric, at).values().all(|value| value.is_finite()), "{policy} {metric} {at}");
        }
        assert_eq!(store.saturated(&column("static", "w"), &point("rate=5")), (1, 3));
        assert_eq!(store.saturated(&column("other", "w"), &point("rate=5")), (0, 0));
    }

    #[test]
    fn errors_contain_the_line() {
        let header = "experiment,point,variant,policy,replication,seed,metric,unit,value\n";
        let refused = |lines: &str| Store::default().add("r.csv", &format!("{header}{lines}")).unwrap_err().to_string();
        let good = "e,,default,static,0,1,w,W,1\n";
        assert!(refused(&format!("{good}e,,default,static,0,1,w,W,many\n")).starts_with("r.csv, line 3: "));
        assert!(refused(&format!("{good}{good}")).contains("line 3: replication 0 is a duplicate"));
        assert!(refused(&format!("{good}e,,default,static,1,1,w,mW,1\n")).contains("in mW here and in W above"));
        assert!(refused("e,rate,default,static,0,1,w,W,1\n").contains("line 2: point \"rate\""));
        assert!(refused("e,,default\n").contains("line 2"));
    }

    #[test]
    fn the_profile_is_read() {
        let mut store = Store::default();
        let text = "# profile=epyc hash=12ab\nexperiment,point,variant,policy,replication,seed,metric,unit,value\n";
        store.add("r.csv", text).unwrap();
        let expected = Stamp { file: "r.csv".into(), profile: "epyc".into(), hash: "12ab".into() };
        assert_eq!(store.stamps(), [expected]);
    }
}
