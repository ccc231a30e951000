//! Any command as a workload. Its knobs and its place stand in its arguments as `{depth}`, `{file}` and the like; numbers are
//! picked out of what it prints, each with a unit.

use std::collections::BTreeMap;
use std::path::Path;

use pilotlight_input::Time;
use regex::Regex;
use serde::{Deserialize, Serialize};

use super::{Missing, Outcome, Place, Point, Problem, Stage, Step, Value, Workload, problem};
use crate::record::{Class, Latency, Record, Tool, What};

const NAME: &str = "command";

/// The keys of `[workload]` with `kind = "command"`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Options {
    /// The program and its arguments. No shell is involved; `{KNOB}`, `{file}`, `{size}`, `{folder}`, `{device}`, `{scratch}`,
    /// `{ramp_s}`, `{duration_s}` and `{seed}` are replaced.
    pub argv: Vec<String>,
    /// Variables beside those of the environment; values are replaced as arguments are.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Commands to run once, before the first point.
    #[serde(default)]
    pub prepare: Vec<Vec<String>>,
    /// Commands to run before each measurement.
    #[serde(default)]
    pub before: Vec<Vec<String>>,
    /// Commands to run at the end, whatever has happened.
    #[serde(default)]
    pub clean_up: Vec<Vec<String>>,
    /// What is varied.
    #[serde(default)]
    pub knobs: BTreeMap<String, Vec<Value>>,
    /// What is picked out of what it prints.
    #[serde(default)]
    pub metric: Vec<Metric>,
    /// After so long the command has timed out and is ended.
    #[serde(default)]
    pub limit: Option<Time>,
}

/// A number in what a command prints.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Metric {
    /// What it is called.
    pub name: String,
    /// What it is counted in; the column is `NAME_UNIT`.
    pub unit: String,
    /// The first group of the first match of a regular expression; or else `pointer`.
    #[serde(default)]
    pub regex: Option<String>,
    /// A pointer (RFC 6901) into JSON, such as `/jobs/0/read/iops`.
    #[serde(default)]
    pub pointer: Option<String>,
    /// The class of operations that it is about: `read`, `write`, `trim`, `transaction`, or another name. With `field`.
    #[serde(default)]
    pub class: Option<String>,
    /// What it says of that class; so I/Os a joule and the like can be told.
    #[serde(default)]
    pub field: Option<Field>,
}

/// What a number says of a class of operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Field {
    /// How many there were.
    Operations,
    /// How many bytes they moved.
    Bytes,
    /// Their mean latency; the unit is ns, us, ms or s.
    LatencyMean,
    /// The latency of half of them.
    LatencyP50,
    /// The latency of 99 % of them.
    LatencyP99,
}

/// Where a number is.
#[derive(Clone, Debug)]
enum Pick {
    Regex(Regex),
    Pointer(String),
}

/// A metric whose way of picking is sound.
#[derive(Clone, Debug)]
struct Picked {
    metric: Metric,
    pick: Pick,
}

/// Any command.
#[derive(Clone, Debug)]
pub struct Command {
    options: Options,
    metrics: Vec<Picked>,
}

impl Command {
    /// Checks what can be checked before anything runs.
    ///
    /// # Errors
    /// If there is no program, or a metric cannot be picked; the key is named.
    pub fn new(options: Options) -> Result<Self, Problem> {
        if options.argv.is_empty() {
            return Err(problem("workload.argv", "give a program and its arguments"));
        }
        if let Some((knob, _)) = options.knobs.iter().find(|(_, values)| values.is_empty()) {
            return Err(problem(format!("workload.knobs.{knob}"), "give at least one value"));
        }
        let sound = |(at, metric): (usize, &Metric)| {
            let pick = pick(metric).map_err(|why| problem(format!("workload.metric[{at}]"), why))?;
            Ok(Picked { metric: metric.clone(), pick })
        };
        let metrics = options.metric.iter().enumerate().map(sound).collect::<Result<_, _>>()?;
        check_names(&options)?;
        Ok(Self { options, metrics })
    }

    fn step(&self, argv: &[String], why: String, place: (&Point, &Stage)) -> Result<Step, Problem> {
        let argv = argv.iter().map(|word| Ok(replaced(word, place.0, place.1)?.into()));
        let env =
            self.options.env.iter().map(|(key, value)| Ok((key.into(), replaced(value, place.0, place.1)?.into())));
        let limit_s = self.options.limit.map_or(0.0, Time::seconds);
        Ok(Step {
            argv: argv.collect::<Result<_, Problem>>()?,
            env: env.collect::<Result<_, Problem>>()?,
            limit_s,
            why,
            ..Step::default()
        })
    }

    fn steps(&self, commands: &[Vec<String>], point: &Point, stage: &Stage) -> Result<Vec<Step>, Problem> {
        commands.iter().map(|argv| self.step(argv, argv.join(" "), (point, stage))).collect()
    }
}

/// Every name in braces has to be a knob's or one that is always known, whatever the place is. What runs once, before the first point or
/// after the last, has no knobs.
fn check_names(options: &Options) -> Result<(), Problem> {
    let own: Point =
        options.knobs.iter().filter_map(|(name, values)| Some((name.clone(), values.first()?.clone()))).collect();
    let none = Point::new();
    let once = [("workload.prepare", &options.prepare), ("workload.clean_up", &options.clean_up)];
    let words = |lines: &Vec<Vec<String>>| lines.iter().flatten().cloned().collect::<Vec<_>>();
    let mut all = vec![
        ("workload.argv", &own, options.argv.clone()),
        ("workload.before", &own, words(&options.before)),
        // Variables are set for what runs once too.
        (
            "workload.env",
            if options.prepare.is_empty() && options.clean_up.is_empty() { &own } else { &none },
            options.env.values().cloned().collect(),
        ),
    ];
    all.extend(once.map(|(at, lines)| (at, &none, words(lines))));
    for (at, point, texts) in all {
        for text in texts {
            let known = |name: &str| (PLACES.contains(&name) || point.contains_key(name)).then(String::new);
            filled(&text, known).map_err(|name| Problem { at: at.into(), why: unknown(&name, &text, point).why })?;
        }
    }
    Ok(())
}

fn pick(metric: &Metric) -> Result<Pick, String> {
    if metric.class.is_some() != metric.field.is_some() {
        return Err("class and field go together".into());
    }
    if metric.field.is_some_and(Field::is_time) && nanoseconds(&metric.unit).is_none() {
        return Err(format!("a latency is in ns, us, ms or s, not in {:?}", metric.unit));
    }
    match (&metric.regex, &metric.pointer) {
        (Some(regex), None) => match Regex::new(regex) {
            Ok(regex) if regex.captures_len() > 1 => Ok(Pick::Regex(regex)),
            Ok(_) => Err("the regular expression needs a group around the number".into()),
            Err(error) => Err(error.to_string()),
        },
        (None, Some(pointer)) => Ok(Pick::Pointer(pointer.clone())),
        _ => Err("give either regex or pointer".into()),
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

/// Names that are no knobs.
const PLACES: [&str; 8] = ["file", "size", "folder", "device", "scratch", "ramp_s", "duration_s", "seed"];

/// The text with what stands in braces replaced.
fn replaced(text: &str, point: &Point, stage: &Stage) -> Result<String, Problem> {
    filled(text, |name| value(name, point, stage)).map_err(|name| unknown(&name, text, point))
}

/// The text with what stands in braces replaced by its value, or the first name that has none; `{{` and `}}` are braces.
fn filled(text: &str, value: impl Fn(&str) -> Option<String>) -> Result<String, String> {
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
        "{{{name}}} in {text:?} has no value: there are the knobs ({}), and where the place has them {}; write {{{{ for a brace",
        if knobs.is_empty() { "none".into() } else { knobs.join(", ") },
        PLACES.join(", ")
    );
    Problem { at: "workload".into(), why }
}

fn value(name: &str, point: &Point, stage: &Stage) -> Option<String> {
    let path = |path: &Path| Some(path.display().to_string());
    match (name, &stage.place) {
        ("file", Place::File(file, _)) => path(file),
        ("size", Place::File(_, size)) => Some(size.to_string()),
        ("folder", Place::Folder(folder)) => path(folder),
        ("device", Place::Device(device)) => path(device),
        ("scratch", _) => path(&stage.scratch),
        ("ramp_s", _) => Some(stage.ramp_s.to_string()),
        ("duration_s", _) => Some(stage.duration_s.to_string()),
        ("seed", _) => Some(stage.seed.to_string()),
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
                why: "there is no such program".into(),
                help: "Install it, or give its whole path in workload.argv".into(),
            });
        }
        Ok(Tool { name: program.clone(), version: String::new(), known: true })
    }

    fn prepare(&self, stage: &Stage) -> Result<Vec<Step>, Problem> {
        self.steps(&self.options.prepare, &Point::new(), stage)
    }

    fn before(&self, point: &Point, stage: &Stage) -> Result<Vec<Step>, Problem> {
        self.steps(&self.options.before, point, stage)
    }

    fn command(&self, point: &Point, stage: &Stage) -> Result<Step, Problem> {
        self.step(&self.options.argv, String::new(), (point, stage))
    }

    fn parse(&self, _: &Point, _: &Stage, outcome: &Outcome) -> Result<Record, Problem> {
        if outcome.status != Some(0) {
            return Err(failed(outcome));
        }
        let mut record = Record { tool: self.tool().unwrap_or_default(), ..Record::default() };
        let text = String::from_utf8_lossy(&outcome.stdout);
        for Picked { metric, pick } in &self.metrics {
            let value = number(pick, &text).map_err(|why| Problem {
                at: format!("metric {}", metric.name),
                why: format!("{why}. It printed: {}", tail(&outcome.stdout)),
            })?;
            keep(&mut record, metric, value, outcome.span_ns.1 - outcome.span_ns.0);
        }
        Ok(record)
    }

    fn clean_up(&self, stage: &Stage) -> Vec<Step> {
        self.steps(&self.options.clean_up, &Point::new(), stage).unwrap_or_default()
    }
}

fn failed(outcome: &Outcome) -> Problem {
    let how = outcome.status.map_or("was ended by a signal".to_owned(), |status| format!("ended with status {status}"));
    let said = if outcome.stderr.is_empty() { &outcome.stdout } else { &outcome.stderr };
    Problem { at: NAME.into(), why: format!("it {how} and said: {}", tail(said)) }
}

/// The end of what a program said, for messages.
fn tail(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(400)..]);
    if text.trim().is_empty() { "nothing".to_owned() } else { text.trim().to_owned() }
}

fn number(pick: &Pick, text: &str) -> Result<f64, String> {
    let found = match pick {
        Pick::Regex(regex) => {
            let group = regex.captures(text).and_then(|groups| groups.get(1));
            group.ok_or_else(|| format!("nothing matches {:?}", regex.as_str()))?.as_str().to_owned()
        }
        Pick::Pointer(pointer) => {
            let json: serde_json::Value = serde_json::from_str(text).map_err(|error| format!("not JSON: {error}"))?;
            let found = json.pointer(pointer).ok_or_else(|| format!("there is nothing at {pointer}"))?;
            found.as_str().map_or_else(|| found.to_string(), str::to_owned)
        }
    };
    let value: Result<f64, _> = found.trim().replace(',', "").parse();
    value.ok().filter(|value| value.is_finite()).ok_or_else(|| format!("{found:?} is not a number"))
}

fn keep(record: &mut Record, metric: &Metric, value: f64, runtime_ns: u64) {
    record.extra.insert(format!("{}_{}", metric.name, metric.unit), value);
    let (Some(class), Some(field)) = (&metric.class, metric.field) else { return };
    let what = what(class);
    let at = record.classes.iter().position(|class| class.what == what).unwrap_or_else(|| {
        let latency = Latency::default();
        record.classes.push(Class { what, operations: None, bytes: None, runtime_ns, latency });
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

fn what(class: &str) -> What {
    match class {
        "read" => What::Read,
        "write" => What::Write,
        "trim" => What::Trim,
        "transaction" => What::Transaction,
        other => What::Operation(other.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(text: &str) -> Result<Command, Problem> {
        Command::new(toml::from_str(text).unwrap())
    }

    fn stage() -> Stage {
        let place = Place::File("/tmp/f".into(), 4_096);
        Stage { scratch: "/tmp/s".into(), place, ramp_s: 0.5, duration_s: 2.0, seed: 9 }
    }

    fn printed(stdout: &str) -> Outcome {
        let span_ns = (0, 2_000_000_000);
        Outcome { status: Some(0), stdout: stdout.into(), stderr: Vec::new(), span_ns, began_wall_ns: 0 }
    }

    #[test]
    fn knobs_and_place_are_replaced() {
        let command =
            command("argv = ['x', '{depth}:{file}:{size}:{seed}:{duration_s}', '{{a}}']\nknobs = { depth = [4] }")
                .unwrap();
        let point = Point::from([("depth".to_owned(), Value::Integer(4))]);
        let step = command.command(&point, &stage()).unwrap();
        assert_eq!(step.argv, ["x", "4:/tmp/f:4096:9:2", "{a}"]);
        let problem = command.command(&Point::new(), &stage()).unwrap_err();
        assert!(problem.why.contains("{depth}"), "{problem}");
    }

    #[test]
    fn names_that_are_nothing_are_found_before_anything_runs() {
        for (keys, at) in [
            ("argv = ['x', '{zzz}']", "workload.argv"),
            ("argv = ['x', '{zzz}']\nknobs = { depth = [1] }", "workload.argv"),
            ("argv = ['x']\nenv = { A = '{zzz}' }", "workload.env"),
            ("argv = ['x']\nbefore = [['y', '{zzz}']]", "workload.before"),
            ("argv = ['x']\nprepare = [['y', '{depth}']]\nknobs = { depth = [1] }", "workload.prepare"),
            ("argv = ['x']\nclean_up = [['y', '{zzz}']]", "workload.clean_up"),
        ] {
            let problem = command(keys).unwrap_err();
            assert_eq!(problem.at, at, "{problem}");
        }
        let fine = "argv = ['x', '{depth} {file} {{zzz}}']\nbefore = [['y', '{depth}']]\nknobs = { depth = [1] }";
        assert!(command(fine).is_ok());
    }

    #[test]
    fn numbers_are_picked_and_counted() {
        let command = command(
            "argv = ['x']\n\
             [[metric]]\nname = 'done'\nunit = 'count'\nregex = 'did ([0-9,]+)'\nclass = 'read'\nfield = 'operations'\n\
             [[metric]]\nname = 'mean'\nunit = 'ms'\nregex = 'mean ([0-9.]+)'\nclass = 'read'\nfield = 'latency-mean'\n\
             [[metric]]\nname = 'score'\nunit = 'points'\nregex = 'score=([0-9.]+)'",
        );
        let record =
            command.unwrap().parse(&Point::new(), &stage(), &printed("did 1,200 mean 0.25 score=7.5")).unwrap();
        assert_eq!(record.extra["score_points"], 7.5);
        assert_eq!((record.classes[0].counted(), record.classes[0].runtime_ns), (1_200, 2_000_000_000));
        assert_eq!(record.classes[0].latency.mean_ns, Some(250_000.0));
    }

    #[test]
    fn json_is_pointed_into() {
        let command = command("argv = ['x']\n[[metric]]\nname = 'v'\nunit = 'count'\npointer = '/a/1'").unwrap();
        let record = command.parse(&Point::new(), &stage(), &printed("{\"a\": [1, 2.5]}")).unwrap();
        assert_eq!(record.extra["v_count"], 2.5);
        let problem = command.parse(&Point::new(), &stage(), &printed("{}")).unwrap_err();
        assert_eq!(problem.at, "metric v");
        assert!(problem.why.contains("nothing at /a/1"), "{problem}");
    }

    #[test]
    fn a_command_that_fails_says_what_it_said() {
        let outcome = Outcome { status: Some(3), stderr: b"no such disk".to_vec(), ..printed("") };
        let problem = command("argv = ['x']").unwrap().parse(&Point::new(), &stage(), &outcome).unwrap_err();
        assert!(problem.why.contains("status 3") && problem.why.contains("no such disk"), "{problem}");
    }

    #[test]
    fn mistakes_are_found_before_anything_runs() {
        let metric =
            |keys: &str| command(&format!("argv = ['x']\n[[metric]]\nname = 'a'\n{keys}")).unwrap_err().to_string();
        assert!(metric("unit = 's'").contains("either regex or pointer"));
        assert!(metric("unit = 's'\nregex = 'x'").contains("needs a group"));
        assert!(metric("unit = 'W'\nregex = '(x)'\nclass = 'read'\nfield = 'latency-p99'").contains("ns, us, ms or s"));
        assert!(metric("unit = 's'\nregex = '(x)'\nclass = 'read'").contains("go together"));
        assert_eq!(command("argv = []").unwrap_err().at, "workload.argv");
    }
}
