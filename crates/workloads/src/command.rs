//! Any command as a workload. Placeholders in its arguments, such as `{depth}` and `{file}`, are replaced by the point's knobs and the
//! target; metrics are extracted from its output.

use std::collections::BTreeMap;
use std::path::Path;

use pilotlight_input::Time;
use regex::Regex;
use serde::{Deserialize, Serialize};

use super::{Missing, Outcome, Point, Problem, RunContext, Step, Target, Value, Workload, problem};
use crate::record::{Class, Latency, OperationKind, Record, Tool};

const NAME: &str = "command";

/// Keys of `[workload]` with `kind = "command"`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Options {
    /// The program and its arguments, without a shell. `{KNOB}`, `{file}`, `{size}`, `{folder}`, `{device}`, `{scratch}`, `{ramp_s}`,
    /// `{duration_s}` and `{seed}` are replaced.
    pub argv: Vec<String>,
    /// Variables added to the environment, with the same placeholders.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Commands to run once, before the first point.
    #[serde(default)]
    pub prepare: Vec<Vec<String>>,
    /// Commands to run before each measurement.
    #[serde(default)]
    pub before: Vec<Vec<String>>,
    /// Commands to run at the end, also after an error.
    #[serde(default)]
    pub clean_up: Vec<Vec<String>>,
    /// Knobs and their values.
    #[serde(default)]
    pub knobs: BTreeMap<String, Vec<Value>>,
    /// Metrics extracted from standard output.
    #[serde(default)]
    pub metric: Vec<Metric>,
    /// Timeout after which the command is ended; default: none.
    #[serde(default)]
    pub limit: Option<Time>,
}

/// A number in the output of a command.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Metric {
    /// Name of the metric.
    pub name: String,
    /// Unit of the metric; the column is `NAME_UNIT`.
    pub unit: String,
    /// A regular expression; the number is the first group of its first match. Either this or `pointer`.
    #[serde(default)]
    pub regex: Option<String>,
    /// A pointer (RFC 6901) into JSON, such as `/jobs/0/read/iops`.
    #[serde(default)]
    pub pointer: Option<String>,
    /// The class of operations: `read`, `write`, `trim`, `transaction`, or another name. Requires `field`.
    #[serde(default)]
    pub class: Option<String>,
    /// The property of the class that the number is, from which operations per joule follow.
    #[serde(default)]
    pub field: Option<Field>,
}

/// A property of a class of operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Field {
    /// Number of operations.
    Operations,
    /// Bytes transferred.
    Bytes,
    /// Mean latency; the unit is ns, us, ms or s.
    LatencyMean,
    /// Median latency.
    LatencyP50,
    /// 99th percentile of latency.
    LatencyP99,
}

/// Locates a number in the output.
#[derive(Clone, Debug)]
enum Locator {
    Regex(Regex),
    Pointer(String),
}

/// A validated metric.
#[derive(Clone, Debug)]
struct LocatedMetric {
    metric: Metric,
    locator: Locator,
}

/// Any command.
#[derive(Clone, Debug)]
pub struct Command {
    options: Options,
    metrics: Vec<LocatedMetric>,
}

impl Command {
    /// Checks the options.
    ///
    /// # Errors
    /// There is no program, or a metric is invalid; the key is named.
    pub fn new(options: Options) -> Result<Self, Problem> {
        if options.argv.is_empty() {
            return Err(problem("workload.argv", "give a program and its arguments"));
        }
        if let Some((knob, _)) = options.knobs.iter().find(|(_, values)| values.is_empty()) {
            return Err(problem(format!("workload.knobs.{knob}"), "give at least one value"));
        }
        let located = |(at, metric): (usize, &Metric)| {
            Ok(LocatedMetric { metric: metric.clone(), locator: locator(at, metric)? })
        };
        let metrics = options.metric.iter().enumerate().map(located).collect::<Result<_, _>>()?;
        check_names(&options)?;
        Ok(Self { options, metrics })
    }

    fn step(&self, argv: &[String], why: String, point: &Point, context: &RunContext) -> Result<Step, Problem> {
        let argv = argv.iter().map(|word| Ok(replaced(word, point, context)?.into()));
        let env = self.options.env.iter().map(|(key, value)| Ok((key.into(), replaced(value, point, context)?.into())));
        let limit_s = self.options.limit.map_or(0.0, Time::seconds);
        Ok(Step {
            argv: argv.collect::<Result<_, Problem>>()?,
            env: env.collect::<Result<_, Problem>>()?,
            limit_s,
            why,
            ..Step::default()
        })
    }

    fn steps(&self, commands: &[Vec<String>], point: &Point, context: &RunContext) -> Result<Vec<Step>, Problem> {
        commands.iter().map(|argv| self.step(argv, argv.join(" "), point, context)).collect()
    }
}

/// Every name in braces must be a knob or a placeholder. Commands that run once, before the first point or after the last, have no
/// knobs.
fn check_names(options: &Options) -> Result<(), Problem> {
    let own: Point =
        options.knobs.iter().filter_map(|(name, values)| Some((name.clone(), values.first()?.clone()))).collect();
    let none = Point::new();
    let once = [("workload.prepare", &options.prepare), ("workload.clean_up", &options.clean_up)];
    let words = |lines: &Vec<Vec<String>>| lines.iter().flatten().cloned().collect::<Vec<_>>();
    let mut all = vec![
        ("workload.argv", &own, options.argv.clone()),
        ("workload.before", &own, words(&options.before)),
        // Commands that run once get the variables too.
        (
            "workload.env",
            if options.prepare.is_empty() && options.clean_up.is_empty() { &own } else { &none },
            options.env.values().cloned().collect(),
        ),
    ];
    all.extend(once.map(|(at, lines)| (at, &none, words(lines))));
    for (at, point, texts) in all {
        for text in texts {
            let known = |name: &str| (PLACEHOLDERS.contains(&name) || point.contains_key(name)).then(String::new);
            filled(&text, known).map_err(|name| Problem { at: at.into(), why: unknown(name, &text, point).why })?;
        }
    }
    Ok(())
}

fn locator(at: usize, metric: &Metric) -> Result<Locator, Problem> {
    let wrong = |why: &str| Err(problem(format!("workload.metric[{at}]"), why));
    if metric.class.is_some() != metric.field.is_some() {
        return wrong("class and field require each other");
    }
    if metric.field.is_some_and(Field::is_time) && nanoseconds(&metric.unit).is_none() {
        return wrong(&format!("the unit of a latency is ns, us, ms or s, not {:?}", metric.unit));
    }
    match (&metric.regex, &metric.pointer) {
        (Some(regex), None) => match Regex::new(regex) {
            Ok(regex) if regex.captures_len() > 1 => Ok(Locator::Regex(regex)),
            Ok(_) => wrong("the regular expression needs a group around the number"),
            Err(error) => wrong(&error.to_string()),
        },
        (None, Some(pointer)) => Ok(Locator::Pointer(pointer.clone())),
        _ => wrong("give either regex or pointer"),
    }
}

impl Field {
    fn is_time(self) -> bool {
        !matches!(self, Self::Operations | Self::Bytes)
    }
}

fn nanoseconds(unit: &str) -> Option<f64> {
    let units = [("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)];
    units.into_iter().find(|(name, _)| *name == unit).map(|(_, factor)| factor)
}

/// Placeholders that are not knobs.
const PLACEHOLDERS: [&str; 8] = ["file", "size", "folder", "device", "scratch", "ramp_s", "duration_s", "seed"];

/// The text with its placeholders replaced.
fn replaced(text: &str, point: &Point, context: &RunContext) -> Result<String, Problem> {
    filled(text, |name| value(name, point, context)).map_err(|name| unknown(name, text, point))
}

/// The text with each placeholder replaced by its value, or the first name without a value; `{{` and `}}` are literal braces.
fn filled(text: &str, value: impl Fn(&str) -> Option<String>) -> Result<String, &str> {
    let (mut out, mut rest) = (String::new(), text);
    while let Some(at) = rest.find(['{', '}']) {
        out += &rest[..at];
        let brace = &rest[at..=at];
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix(brace) {
            out += brace;
            rest = after;
        } else if let Some((name, after)) = rest.split_once('}').filter(|_| brace == "{") {
            out += &value(name).ok_or(name)?;
            rest = after;
        } else {
            out += brace;
        }
    }
    Ok(out + rest)
}

fn unknown(name: &str, text: &str, point: &Point) -> Problem {
    let knobs: Vec<&str> = point.keys().map(String::as_str).collect();
    let why = format!(
        "{{{name}}} in {text:?} has no value; knobs: {}; placeholders, some of them only with a matching target: {}; write {{{{ for a brace",
        if knobs.is_empty() { "none".into() } else { knobs.join(", ") },
        PLACEHOLDERS.join(", ")
    );
    Problem { at: "workload".into(), why }
}

fn value(name: &str, point: &Point, context: &RunContext) -> Option<String> {
    let path = |path: &Path| Some(path.display().to_string());
    match (name, &context.target) {
        ("file", Target::File(file, _)) => path(file),
        ("size", Target::File(_, size)) => Some(size.to_string()),
        ("folder", Target::Folder(folder)) => path(folder),
        ("device", Target::Device(device)) => path(device),
        ("scratch", _) => path(&context.scratch),
        ("ramp_s", _) => Some(context.ramp_s.to_string()),
        ("duration_s", _) => Some(context.duration_s.to_string()),
        ("seed", _) => Some(context.seed.to_string()),
        _ => point.get(name).map(Value::to_string),
    }
}

impl Workload for Command {
    fn name(&self) -> &str {
        NAME
    }

    fn knobs(&self) -> Vec<(String, Vec<Value>)> {
        self.options.knobs.iter().map(|(name, values)| (name.clone(), values.clone())).collect()
    }

    fn tool(&self) -> Result<Tool, Missing> {
        let program = &self.options.argv[0];
        let found =
            if program.contains('/') { Path::new(program).exists() } else { crate::program::find(program).is_some() };
        if !found && !program.contains('{') {
            return Err(Missing {
                tool: program.clone(),
                why: "program not found".into(),
                help: "Install it, or write its absolute path in workload.argv".into(),
            });
        }
        Ok(Tool { name: program.clone(), version: String::new(), known: true })
    }

    fn prepare(&self, context: &RunContext) -> Result<Vec<Step>, Problem> {
        self.steps(&self.options.prepare, &Point::new(), context)
    }

    fn before(&self, point: &Point, context: &RunContext) -> Result<Vec<Step>, Problem> {
        self.steps(&self.options.before, point, context)
    }

    fn command(&self, point: &Point, context: &RunContext) -> Result<Step, Problem> {
        self.step(&self.options.argv, String::new(), point, context)
    }

    fn parse(&self, _: &Point, _: &RunContext, outcome: &Outcome) -> Result<Record, Problem> {
        if outcome.status != Some(0) {
            return Err(failed(outcome));
        }
        let mut record = Record { tool: self.tool().unwrap_or_default(), ..Record::default() };
        let text = String::from_utf8_lossy(&outcome.stdout);
        for LocatedMetric { metric, locator } in &self.metrics {
            let value = number(locator, &text).map_err(|why| Problem {
                at: format!("metric {}", metric.name),
                why: format!("{why}; output: {}", tail(&outcome.stdout)),
            })?;
            keep(&mut record, metric, value, outcome.span_ns.1 - outcome.span_ns.0);
        }
        Ok(record)
    }

    fn clean_up(&self, context: &RunContext) -> Vec<Step> {
        self.steps(&self.options.clean_up, &Point::new(), context).unwrap_or_default()
    }
}

fn failed(outcome: &Outcome) -> Problem {
    let output = if outcome.stderr.is_empty() { &outcome.stdout } else { &outcome.stderr };
    Problem { at: NAME.into(), why: format!("{}; output: {}", outcome.status_text(), tail(output)) }
}

/// The end of a program's output, for messages.
fn tail(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(400)..]);
    if text.trim().is_empty() { "nothing".to_owned() } else { text.trim().to_owned() }
}

/// Output without the number of a metric.
#[derive(Debug, thiserror::Error)]
enum NoNumber {
    #[error("no match of {0:?}")]
    Match(String),
    #[error("not JSON: {0}")]
    Json(serde_json::Error),
    #[error("nothing at {0}")]
    Nothing(String),
    #[error("{0:?} is not a number")]
    Text(String),
}

fn number(locator: &Locator, text: &str) -> Result<f64, NoNumber> {
    let found = match locator {
        Locator::Regex(regex) => {
            let group = regex.captures(text).and_then(|groups| groups.get(1));
            group.ok_or_else(|| NoNumber::Match(regex.as_str().to_owned()))?.as_str().to_owned()
        }
        Locator::Pointer(pointer) => {
            let json: serde_json::Value = serde_json::from_str(text).map_err(NoNumber::Json)?;
            let found = json.pointer(pointer).ok_or_else(|| NoNumber::Nothing(pointer.clone()))?;
            found.as_str().map_or_else(|| found.to_string(), str::to_owned)
        }
    };
    let value: Result<f64, _> = found.trim().replace(',', "").parse();
    value.ok().filter(|value| value.is_finite()).ok_or(NoNumber::Text(found))
}

fn keep(record: &mut Record, metric: &Metric, value: f64, runtime_ns: u64) {
    record.extra.insert(format!("{}_{}", metric.name, metric.unit), value);
    let (Some(class), Some(field)) = (&metric.class, metric.field) else { return };
    let kind = operation_kind(class);
    let at = record.classes.iter().position(|class| class.kind == kind).unwrap_or_else(|| {
        let latency = Latency::default();
        record.classes.push(Class { kind, operations: None, bytes: None, runtime_ns, latency });
        record.classes.len() - 1
    });
    let class = &mut record.classes[at];
    let ns = value * nanoseconds(&metric.unit).unwrap_or(1.0);
    match field {
        Field::Operations => class.operations = Some(value.round() as u64),
        Field::Bytes => class.bytes = Some(value.round() as u64),
        Field::LatencyMean => class.latency.mean_ns = Some(ns),
        Field::LatencyP50 => class.latency.printed.push((500_000, ns.round() as u64)),
        Field::LatencyP99 => class.latency.printed.push((990_000, ns.round() as u64)),
    }
}

fn operation_kind(class: &str) -> OperationKind {
    match class {
        "read" => OperationKind::Read,
        "write" => OperationKind::Write,
        "trim" => OperationKind::Trim,
        "transaction" => OperationKind::Transaction,
        other => OperationKind::Operation(other.to_owned()),
    }
}

#[cfg(test)]
mod tests;
