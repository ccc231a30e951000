//! YCSB, as go-ycsb or as the original in Java, on any database that it knows.
//!
//! **Untested against the tools.** Neither could be installed where this was written; the output is read by the formats that others have
//! published: go-ycsb's `READ - Takes(s): ...` and YCSB's `[READ], AverageLatency(us), ...`. Every record says so.
//!
//! The ramp is an unmeasured run before; the window ends with the program and is as long as it says.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::knob::{self, Knob};
use super::{Missing, Outcome, Place, Point, Problem, Stage, Step, Value, Workload, problem, program};
use crate::record::{Class, Latency, Record, Tool, What};

const HELP: &str = "go install github.com/pingcap/go-ycsb/cmd/go-ycsb@latest, or unpack a release of YCSB, and name it with \
                    workload.program";
/// More operations than there is time for.
const ENDLESS: u64 = 1 << 40;
/// What the adapter says itself.
const OWN: [&str; 4] = ["recordcount", "operationcount", "threadcount", "maxexecutiontime"];

/// What is asked of YCSB. In TOML: `kind = "ycsb"`, and these keys. A key that says "one or several" is a knob.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Options {
    /// The program; `go-ycsb` where it is not given. One whose name holds `go-ycsb` is that, any other is YCSB's own script.
    #[serde(default = "default_program")]
    pub program: PathBuf,
    /// The database by YCSB's name, such as `rocksdb` or `sqlite`.
    pub db: String,
    /// One or several files of workloads, such as `/opt/ycsb/workloads/workloada`. The database is loaded with the first.
    pub workload: Knob,
    /// One or several numbers of threads; 1 where it is not given.
    #[serde(default = "Knob::one")]
    pub threads: Knob,
    /// Records in the database.
    pub records: u64,
    /// Properties (`-p`), one value or several; `{folder}` stands for the experiment's folder:
    /// `properties = { "rocksdb.dir" = "{folder}/db" }`. Those with one value hold for the loading too.
    #[serde(default)]
    pub properties: BTreeMap<String, Knob>,
}

fn default_program() -> PathBuf {
    "go-ycsb".into()
}

/// YCSB.
#[derive(Clone, Debug)]
pub struct Ycsb {
    options: Options,
}

impl Ycsb {
    /// With these options.
    ///
    /// # Errors
    /// A key that says nothing, or a property that the adapter has to say itself.
    pub fn new(options: Options) -> Result<Self, Problem> {
        options.workload.check("workload.workload")?;
        options.threads.check("workload.threads")?;
        for (key, values) in &options.properties {
            let at = format!("workload.properties.{key}");
            values.check(&at)?;
            if OWN.contains(&key.as_str()) {
                return Err(problem(at, "this is set for every run"));
            }
        }
        Ok(Self { options })
    }

    fn step(&self, command: &str, workload: &str, properties: Vec<String>, why: &str) -> Result<Step, Problem> {
        let absolute = std::path::absolute(workload);
        let file = absolute.map_err(|error| problem("workload.workload", format!("{workload}: {error}")))?;
        let own = [command.to_owned(), self.options.db.clone(), "-P".into(), file.display().to_string()];
        let records = format!("recordcount={}", self.options.records);
        let properties = std::iter::once(records).chain(properties).flat_map(|property| ["-p".to_owned(), property]);
        let argv = program::argv(&self.options.program, own.into_iter().chain(properties));
        Ok(Step { argv, why: why.into(), ..Step::default() })
    }

    fn run(&self, point: &Point, stage: &Stage, seconds: f64, why: &str) -> Result<Step, Problem> {
        let mut properties = vec![
            format!("operationcount={ENDLESS}"),
            format!("maxexecutiontime={:.0}", seconds.ceil().max(1.0)),
            format!("threadcount={}", knob::count(point, "threads")?),
        ];
        for key in self.options.properties.keys() {
            properties.push(format!("{key}={}", in_folder(&knob::at(point, key)?.to_string(), stage)?));
        }
        let step = self.step("run", &knob::argument(point, "workload")?, properties, why)?;
        Ok(Step { limit_s: seconds + 600.0, ..step })
    }
}

fn in_folder(value: &str, stage: &Stage) -> Result<String, Problem> {
    match &stage.place {
        Place::Folder(folder) => Ok(value.replace("{folder}", &folder.display().to_string())),
        _ if value.contains("{folder}") => Err(problem("target", format!("{value} needs a folder"))),
        _ => Ok(value.to_owned()),
    }
}

fn is_go(program: &Path) -> bool {
    program.file_name().is_some_and(|name| name.to_string_lossy().contains("go-ycsb"))
}

impl Workload for Ycsb {
    fn name(&self) -> &str {
        "ycsb"
    }

    fn knobs(&self) -> Vec<(String, Vec<Value>)> {
        let main = [("workload", &self.options.workload), ("threads", &self.options.threads)];
        knob::listed(main, &[&self.options.properties])
    }

    fn tool(&self) -> Result<Tool, Missing> {
        program::ask(&self.options.program, &["--help"], HELP)?;
        Ok(tool(is_go(&self.options.program)))
    }

    fn prepare(&self, stage: &Stage) -> Result<Vec<Step>, Problem> {
        let fixed = self.options.properties.iter().filter_map(|(key, knob)| match knob.values() {
            [value] => Some((key, value)),
            _ => None,
        });
        let property = |(key, value): (&String, &Value)| Ok(format!("{key}={}", in_folder(&value.to_string(), stage)?));
        let properties = fixed.map(property).collect::<Result<_, Problem>>()?;
        let first = self.options.workload.values().first().map(ToString::to_string).unwrap_or_default();
        Ok(vec![self.step("load", &first, properties, "loading the database")?])
    }

    fn before(&self, point: &Point, stage: &Stage) -> Result<Vec<Step>, Problem> {
        let ramp = (stage.ramp_s > 0.0).then(|| self.run(point, stage, stage.ramp_s, "warming up"));
        ramp.into_iter().collect()
    }

    fn command(&self, point: &Point, stage: &Stage) -> Result<Step, Problem> {
        if stage.duration_s <= 0.0 {
            return Err(problem("duration", "YCSB would run without end: it needs a time above 0"));
        }
        self.run(point, stage, stage.duration_s, "YCSB")
    }

    fn parse(&self, _: &Point, _: &Stage, outcome: &Outcome) -> Result<Record, Problem> {
        record(outcome, is_go(&self.options.program))
    }
}

fn tool(go: bool) -> Tool {
    // Neither says its version.
    Tool { name: if go { "go-ycsb" } else { "YCSB" }.into(), version: "unknown".into(), known: false }
}

/// What came of a run.
fn record(outcome: &Outcome, go: bool) -> Result<Record, Problem> {
    let (stdout, stderr) = (String::from_utf8_lossy(&outcome.stdout), String::from_utf8_lossy(&outcome.stderr));
    if outcome.status != Some(0) {
        let status = outcome.status.map_or("a signal ended it".into(), |status| format!("its exit status is {status}"));
        let last: Vec<&str> = stderr.lines().chain(stdout.lines()).filter(|line| !line.is_empty()).collect();
        let said = last[last.len().saturating_sub(3)..].join("; ");
        return Err(problem("YCSB", format!("{status}; it said: {said}")));
    }
    let tool = tool(go);
    let (runtime_ns, parts) = if go { of_go(&stdout)? } else { of_java(&stdout)? };
    let mut warnings: Vec<String> = program::unknown(&tool, &[]).into_iter().collect();
    let (mut classes, mut extra) = (Vec::new(), BTreeMap::new());
    for (name, numbers) in parts {
        let operations = numbers.get("count").copied().unwrap_or(0.0) as u64;
        if name.ends_with("_ERROR") || name.ends_with("-FAILED") {
            extra.insert(format!("{}_count", name.to_lowercase().replace('-', "_")), operations as f64);
            warnings.push(format!("{operations} operations failed: {name}"));
        } else if operations > 0 {
            let (what, latency) = (What::Operation(name.to_lowercase()), latency(&name, &numbers)?);
            classes.push(Class { what, operations: Some(operations), bytes: None, runtime_ns, latency });
        }
    }
    if classes.is_empty() {
        return Err(problem("YCSB's output", "tells of no operation"));
    }
    let lasted = outcome.span_ns.1.saturating_sub(outcome.span_ns.0);
    let window_ns = lasted.checked_sub(runtime_ns).map(|from| (from, lasted));
    Ok(Record { tool, classes, window_ns, extra, warnings })
}

/// By operation, `count`, `mean`, `min`, `max`, and percentiles by their number; times in microseconds.
type Parts = BTreeMap<String, BTreeMap<String, f64>>;

/// `Run finished, takes 10.02s`, and behind it `READ - Takes(s): 10.0, Count: 5, OPS: 0.5, Avg(us): 8, 99th(us): 9` for each.
fn of_go(text: &str) -> Result<(u64, Parts), Problem> {
    let missing = || problem("YCSB's output, Run finished, takes", "is not there or no time");
    let (_, end) = text.split_once("Run finished, takes ").ok_or_else(missing)?;
    let runtime_ns = end.split_whitespace().next().and_then(go_duration_ns).ok_or_else(missing)?;
    let mut parts = Parts::new();
    for line in end.lines() {
        let Some((name, fields)) = line.split_once(" - ").map(|(name, fields)| (name.trim(), fields)) else { continue };
        if name == "TOTAL" {
            continue;
        }
        let pairs = fields.split(", ").filter_map(|field| field.split_once(": "));
        let read = |(key, value): (&str, &str)| {
            let key = match key {
                "Count" => "count",
                "Avg(us)" => "mean",
                "Min(us)" => "min",
                "Max(us)" => "max",
                other => other.strip_suffix("th(us)")?,
            };
            Some((key.to_owned(), value.trim().parse().ok()?))
        };
        parts.insert(name.to_owned(), pairs.filter_map(read).collect());
    }
    Ok((runtime_ns, parts))
}

/// A duration as Go prints it, such as `1m2.5s` or `350ms`.
fn go_duration_ns(text: &str) -> Option<u64> {
    let (mut rest, mut ns) = (text, 0.0);
    while !rest.is_empty() {
        let unit_at = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, unit) = rest.split_at(unit_at);
        let ends = unit.find(|c: char| c.is_ascii_digit()).unwrap_or(unit.len());
        let factor = match &unit[..ends] {
            "h" => 3_600e9,
            "m" => 60e9,
            "s" => 1e9,
            "ms" => 1e6,
            "us" | "µs" => 1e3,
            "ns" => 1.0,
            _ => return None,
        };
        ns += number.parse::<f64>().ok()? * factor;
        rest = &unit[ends..];
    }
    Some(ns.round() as u64)
}

/// `[OVERALL], RunTime(ms), 50098`, and `[READ], Operations, 5059` and its like.
fn of_java(text: &str) -> Result<(u64, Parts), Problem> {
    let (mut runtime_ms, mut parts) = (None, Parts::new());
    for line in text.lines() {
        let words: Vec<&str> = line.trim().split(", ").collect();
        let [name, key, value] = words[..] else { continue };
        let Some(name) = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')) else { continue };
        let Ok(value) = value.parse::<f64>() else { continue };
        if name == "OVERALL" {
            runtime_ms = runtime_ms.or((key == "RunTime(ms)").then_some(value));
        }
        if name == "OVERALL" || name == "CLEANUP" || name.starts_with("TOTAL_") {
            continue;
        }
        let key = match key {
            "Operations" => "count",
            "AverageLatency(us)" => "mean",
            "MinLatency(us)" => "min",
            "MaxLatency(us)" => "max",
            other => match other.strip_suffix("PercentileLatency(us)") {
                Some(percent) => percent.trim_end_matches(char::is_alphabetic),
                None => continue,
            },
        };
        parts.entry(name.to_owned()).or_default().insert(key.to_owned(), value);
    }
    let missing = || problem("YCSB's output, [OVERALL], RunTime(ms)", "is not there or no number");
    Ok(((runtime_ms.ok_or_else(missing)? * 1e6) as u64, parts))
}

fn latency(name: &str, us: &BTreeMap<String, f64>) -> Result<Latency, Problem> {
    let mean = us.get("mean").ok_or_else(|| problem(format!("YCSB's output, {name}"), "has no mean latency"))?;
    let ns = |us: f64| (us * 1e3).round() as u64;
    let percentile =
        |(key, us_at): (&String, &f64)| Some(((key.parse::<f64>().ok()? * 1e4).round() as u32, ns(*us_at)));
    let mut printed: Vec<(u32, u64)> = us.iter().filter_map(percentile).collect();
    printed.sort_unstable();
    Ok(Latency {
        mean_ns: Some(mean * 1e3),
        deviation_ns: None,
        least_ns: us.get("min").map(|us| ns(*us)),
        greatest_ns: us.get("max").map(|us| ns(*us)),
        histogram: Vec::new(),
        printed,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{outcome, points, stage, words};

    /// In the form that go-ycsb's documentation and users show; the numbers are made up.
    const GO: &str = "\
***************** properties *****************
READ   - Takes(s): 9.7, Count: 100, OPS: 10.3, Avg(us): 3822, Min(us): 236, Max(us): 342821, 99th(us): 51000
**********************************************
Run finished, takes 1m10.25s
READ   - Takes(s): 70.2, Count: 1000, OPS: 14.2, Avg(us): 2628, Min(us): 328, Max(us): 174433, 50th(us): 900, 99th(us): 15000, 99.9th(us): 175000
UPDATE - Takes(s): 70.0, Count: 508, OPS: 7.2, Avg(us): 83150, Min(us): 12893, Max(us): 217830, 50th(us): 80000, 99th(us): 206000, 99.9th(us): 218000
UPDATE_ERROR - Takes(s): 70.0, Count: 3, OPS: 0.0, Avg(us): 1, Min(us): 1, Max(us): 1, 99th(us): 1
TOTAL  - Takes(s): 70.2, Count: 1508, OPS: 21.4, Avg(us): 1, Min(us): 1, Max(us): 1, 99th(us): 1
";
    /// Likewise of YCSB.
    const JAVA: &str = "\
[OVERALL], RunTime(ms), 50098
[OVERALL], Throughput(ops/sec), 199.6087668170386
[TOTAL_GCs], Count, 6
[READ], Operations, 5059
[READ], AverageLatency(us), 456.82506424194503
[READ], MinLatency(us), 254
[READ], MaxLatency(us), 3397
[READ], 95thPercentileLatency(us), 604
[READ], 99thPercentileLatency(us), 767
[READ], Return=OK, 5059
[CLEANUP], Operations, 1
[UPDATE-FAILED], Operations, 7
";

    fn configured(keys: &str) -> Ycsb {
        Ycsb::new(toml::from_str(keys).unwrap()).unwrap()
    }

    #[test]
    fn go_ycsb_s_summary_is_read_and_what_was_printed_before_is_not() {
        let record = record(&outcome(GO, 0), true).unwrap();
        let [read, update] = &record.classes[..] else { panic!("{record:?}") };
        assert_eq!(
            (&read.what, read.counted(), read.runtime_ns),
            (&What::Operation("read".into()), 1000, 70_250_000_000)
        );
        assert_eq!((read.latency.mean_ns, read.latency.least_ns), (Some(2_628_000.0), Some(328_000)));
        assert_eq!(read.latency.printed, [(500_000, 900_000), (990_000, 15_000_000), (999_000, 175_000_000)]);
        assert_eq!((update.counted(), update.latency.greatest_ns), (508, Some(217_830_000)));
        assert_eq!(record.extra["update_error_count"], 3.0);
        assert_eq!(record.window_ns, Some((29_750_000_000, 100_000_000_000)));
        assert!(!record.tool.known && record.warnings[0].contains("not tried"), "{:?}", record.warnings);
    }

    #[test]
    fn ycsb_s_summary_is_read() {
        let record = record(&outcome(JAVA, 0), false).unwrap();
        let [read] = &record.classes[..] else { panic!("{record:?}") };
        assert_eq!((read.counted(), read.runtime_ns), (5059, 50_098_000_000));
        assert!((read.latency.mean_ns.unwrap() - 456_825.064).abs() < 0.001);
        assert_eq!(read.latency.printed, [(950_000, 604_000), (990_000, 767_000)]);
        assert_eq!(record.extra["update_failed_count"], 7.0);
    }

    #[test]
    fn durations_are_go_s() {
        for (text, ns) in [("3.164680955s", 3_164_680_955), ("1h2m3s", 3_723_000_000_000), ("350ms", 350_000_000)] {
            assert_eq!(go_duration_ns(text), Some(ns));
        }
        assert_eq!((go_duration_ns("soon"), go_duration_ns("5")), (None, None));
    }

    #[test]
    fn commands_are_ycsb_s_own() {
        let ycsb = configured(
            "db = 'rocksdb'\nworkload = ['/w/a', '/w/b']\nthreads = 4\nrecords = 1000\nproperties = { 'rocksdb.dir' = '{folder}/db' }",
        );
        let stage = stage(Path::new("/s"), Place::Folder("/f".into()), 1.0, 10.0);
        let load = words(&ycsb.prepare(&stage).unwrap()[0]).join(" ");
        assert_eq!(load, "go-ycsb load rocksdb -P /w/a -p recordcount=1000 -p rocksdb.dir=/f/db");
        let run = words(&ycsb.command(&points(&ycsb)[1], &stage).unwrap()).join(" ");
        let expected = "go-ycsb run rocksdb -P /w/b -p recordcount=1000 -p operationcount=1099511627776 -p maxexecutiontime=10 \
            -p threadcount=4 -p rocksdb.dir=/f/db";
        assert_eq!(run, expected);
        let nowhere = Stage { place: Place::Nothing, ..stage };
        assert_eq!(ycsb.prepare(&nowhere).unwrap_err().at, "target");
    }

    #[test]
    fn what_is_missing_is_named() {
        let read = |text: &str, go| record(&outcome(text, 0), go).unwrap_err();
        assert!(read("", true).at.contains("Run finished"));
        assert!(read(&JAVA.replace("RunTime", "Time"), false).at.contains("RunTime"));
        assert!(read(&JAVA.replace("[READ], AverageLatency", "[READ], Average"), false).why.contains("mean"));
        assert!(read("[OVERALL], RunTime(ms), 5\n", false).why.contains("no operation"));
        let owned = Ycsb::new(
            toml::from_str("db = 'x'\nworkload = 'a'\nrecords = 1\nproperties = { threadcount = 1 }").unwrap(),
        );
        assert_eq!(owned.unwrap_err().at, "workload.properties.threadcount");
        let missing =
            configured("program = '/nowhere/go-ycsb'\ndb = 'x'\nworkload = 'a'\nrecords = 1").tool().unwrap_err();
        assert!(missing.help.contains("go install"));
    }
}
