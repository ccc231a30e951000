//! Model of an application for simulated machines: a closed loop of operations with CPU time, a cache and background I/O.
//!
//! Most operations of an application need no drive, CPU time limits it, and a database writes each record several times, later and from
//! other threads. fio models none of this. A *client* is a thread with one outstanding operation. A *mix* defines the operations. A
//! *background* is a group of threads that read and write a multiple of the bytes of finished writes. The parameters come from the
//! experiment; profiles/README.md derives those of RocksDB.
//!
//! On a real machine the kind is refused.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::knob::{self, Knob};
use super::{Missing, Outcome, Point, Problem, RunContext, Step, Value, Workload, problem};
use crate::record::{Record, Tool};

/// Upper limit of an operation's CPU time.
const MAX_US: f64 = 1e6;
/// Upper limit of a background's read and write amplification.
const MAX_TIMES: f64 = 1_000.0;
/// Largest request.
const MAX_BYTES: u32 = 1 << 24;

/// Keys of `[workload]` with `kind = "client"`. A key that takes one or more values is a knob.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Options {
    /// One or more numbers of clients; default: 1.
    #[serde(default = "Knob::one")]
    pub threads: Knob,
    /// One or more names of mixes; default: all of them, by name.
    #[serde(default)]
    pub mix: Option<Knob>,
    /// Definitions of the mixes, by name.
    pub mixes: BTreeMap<String, Mix>,
    /// Background threads, by name.
    #[serde(default)]
    pub background: BTreeMap<String, Background>,
    /// A write waits while the backlog of any background exceeds this many bytes; default: it never waits.
    #[serde(default)]
    pub stall_bytes: u64,
}

/// Operations of a client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Mix {
    /// Fraction of operations that are reads.
    pub reads: f64,
    /// CPU time of a read, in microseconds.
    pub read_cpu_us: f64,
    /// CPU time of a write, in microseconds.
    pub write_cpu_us: f64,
    /// Fraction of reads that hit the cache.
    pub hits: f64,
    /// Fraction of writes that need no request.
    pub write_hits: f64,
    /// The request of any other write.
    pub write_miss: Miss,
    /// Bytes of a request of a client.
    pub bytes: u32,
    /// Bytes that a finished write adds to the backlog of each background.
    pub leaves_bytes: u32,
    /// Backgrounds that are idle in this mix.
    pub without: Vec<String>,
}

impl Default for Mix {
    /// Reads of 4 KiB from a drive.
    fn default() -> Self {
        Self {
            reads: 1.0,
            read_cpu_us: 0.0,
            write_cpu_us: 0.0,
            hits: 0.0,
            write_hits: 1.0,
            write_miss: Miss::Write,
            bytes: 4_096,
            leaves_bytes: 0,
            without: Vec::new(),
        }
    }
}

/// The request of a write that needs one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Miss {
    /// A write.
    Write,
    /// A read of the data to be changed; the background writes.
    Read,
}

/// Threads that process the backlog in sequential requests, an equal part each.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Background {
    /// Number of threads.
    #[serde(default = "one")]
    pub threads: u16,
    /// Bytes read for each byte of backlog.
    #[serde(default)]
    pub reads: f64,
    /// Bytes written for each byte of backlog.
    pub writes: f64,
    /// Bytes of a request.
    pub bytes: u32,
    /// CPU time of a request, in microseconds.
    #[serde(default)]
    pub cpu_us: f64,
}

fn one() -> u16 {
    1
}

impl Background {
    /// Bytes that one thread reads and writes for each byte of backlog.
    #[must_use]
    pub fn bytes_per_backlog_byte(&self) -> f64 {
        (self.reads + self.writes) / f64::from(self.threads)
    }

    fn check(&self, at: &str) -> Result<(), Problem> {
        within(at, "reads", self.reads, MAX_TIMES)?;
        within(at, "writes", self.writes, MAX_TIMES)?;
        within(at, "cpu_us", self.cpu_us, MAX_US)?;
        size(at, self.bytes)?;
        if self.threads == 0 || self.threads > 1_000 {
            return Err(problem(format!("{at}.threads"), "must be 1 to 1000"));
        }
        if self.bytes_per_backlog_byte() < 1e-6 {
            return Err(problem(
                format!("{at}.writes"),
                "reads and writes nothing; to disable a background, list it under `without` of the mix",
            ));
        }
        Ok(())
    }
}

impl Mix {
    fn check(&self, at: &str, background: &BTreeMap<String, Background>) -> Result<(), Problem> {
        for (key, share) in [("reads", self.reads), ("hits", self.hits), ("write_hits", self.write_hits)] {
            within(at, key, share, 1.0)?;
        }
        within(at, "read_cpu_us", self.read_cpu_us, MAX_US)?;
        within(at, "write_cpu_us", self.write_cpu_us, MAX_US)?;
        size(at, self.bytes)?;
        match self.without.iter().find(|name| !background.contains_key(*name)) {
            Some(name) => Err(problem(format!("{at}.without"), format!("unknown background {name}"))),
            None => Ok(()),
        }
    }
}

fn within(at: &str, key: &str, value: f64, most: f64) -> Result<(), Problem> {
    if (0.0..=most).contains(&value) {
        return Ok(());
    }
    Err(problem(format!("{at}.{key}"), format!("{value} is not between 0 and {most}")))
}

fn size(at: &str, bytes: u32) -> Result<(), Problem> {
    if (512..=MAX_BYTES).contains(&bytes) {
        return Ok(());
    }
    Err(problem(format!("{at}.bytes"), format!("{bytes} is not between 512 and {MAX_BYTES}")))
}

/// Clients of an application.
#[derive(Clone, Debug)]
pub struct Client {
    options: Options,
    mix: Knob,
}

impl Client {
    /// Checks the options.
    ///
    /// # Errors
    /// A key without values, or a number out of range.
    pub fn new(options: Options) -> Result<Self, Problem> {
        options.threads.check("workload.threads")?;
        for (name, background) in &options.background {
            background.check(&format!("workload.background.{name}"))?;
        }
        for (name, mix) in &options.mixes {
            mix.check(&format!("workload.mixes.{name}"), &options.background)?;
        }
        let all = || Knob::Several(options.mixes.keys().cloned().map(Value::Word).collect());
        let mix = options.mix.clone().unwrap_or_else(all);
        let key = if options.mix.is_some() { "workload.mix" } else { "workload.mixes" };
        mix.check(key)?;
        for name in mix.values() {
            mix_of(&options, name)?;
        }
        Ok(Self { options, mix })
    }

    /// The mix of a point.
    ///
    /// # Errors
    /// The point has no known mix.
    pub fn mix(&self, point: &Point) -> Result<&Mix, Problem> {
        mix_of(&self.options, knob::at(point, "mix")?)
    }

    /// The backgrounds that are active in a mix.
    pub fn background<'a>(&'a self, mix: &'a Mix) -> impl Iterator<Item = &'a Background> {
        let active = |(name, _): &(&String, &Background)| !mix.without.contains(name);
        self.options.background.iter().filter(active).map(|(_, background)| background)
    }

    /// A write waits while the backlog of any background exceeds this; 0 if it never waits.
    #[must_use]
    pub fn stall_bytes(&self) -> u64 {
        self.options.stall_bytes
    }
}

fn mix_of<'a>(options: &'a Options, name: &Value) -> Result<&'a Mix, Problem> {
    options.mixes.get(&name.to_string()).ok_or_else(|| {
        let known: Vec<&str> = options.mixes.keys().map(String::as_str).collect();
        problem("workload.mix", format!("unknown mix {name}; known: {}", known.join(", ")))
    })
}

impl Workload for Client {
    fn name(&self) -> &str {
        "client"
    }

    fn knobs(&self) -> Vec<(String, Vec<Value>)> {
        knob::listed([("mix", &self.mix), ("threads", &self.options.threads)], &[])
    }

    fn tool(&self) -> Result<Tool, Missing> {
        Err(Missing {
            tool: "client".into(),
            why: "it is a model of an application, for simulated machines only".into(),
            help: "Use --simulated profiles/NAME.toml, or measure an application: db-bench, pgbench, command".into(),
        })
    }

    fn command(&self, _: &Point, _: &RunContext) -> Result<Step, Problem> {
        Err(simulated_only())
    }

    fn parse(&self, _: &Point, _: &RunContext, _: &Outcome) -> Result<Record, Problem> {
        Err(simulated_only())
    }

    fn client(&self) -> Option<&Client> {
        Some(self)
    }
}

fn simulated_only() -> Problem {
    problem("workload.kind", "a client runs on simulated machines only (--simulated profiles/NAME.toml)")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::points;

    const TWO: &str = "threads = [1, 80]\nstall_bytes = 5000\n\
        [mixes.read]\nhits = 0.5\nread_cpu_us = 40\n\
        [mixes.write]\nreads = 0\nwrite_cpu_us = 2.5\nleaves_bytes = 1000\nwithout = ['log']\nwrite_miss = 'read'\n\
        [background.log]\nwrites = 1\nbytes = 4096\n\
        [background.compaction]\nthreads = 4\nreads = 3\nwrites = 5\nbytes = 524288\ncpu_us = 1000\n";

    fn client(text: &str) -> Result<Client, Problem> {
        Client::new(toml::from_str(text).unwrap())
    }

    #[test]
    fn mixes_and_threads_are_knobs() {
        let client = client(TWO).unwrap();
        let points = points(&client);
        assert_eq!(points.len(), 4);
        let write = client.mix(&points[3]).unwrap();
        assert_eq!((write.leaves_bytes, write.write_miss, write.bytes, write.hits), (1_000, Miss::Read, 4_096, 0.0));
        let background: Vec<&Background> = client.background(write).collect();
        assert_eq!((background.len(), background[0].threads, background[0].bytes_per_backlog_byte()), (1, 4, 2.0));
        assert_eq!(client.background(client.mix(&points[0]).unwrap()).count(), 2);
        assert_eq!(client.stall_bytes(), 5_000);
    }

    #[test]
    fn errors_name_the_key() {
        let at = |from: &str, to: &str| client(&TWO.replacen(from, to, 1)).unwrap_err().at;
        assert_eq!(at("hits = 0.5", "hits = 1.5"), "workload.mixes.read.hits");
        assert_eq!(at("reads = 0\n", "reads = -1\n"), "workload.mixes.write.reads");
        assert_eq!(at("write_cpu_us = 2.5", "write_cpu_us = nan"), "workload.mixes.write.write_cpu_us");
        assert_eq!(at("['log']", "['logs']"), "workload.mixes.write.without");
        assert_eq!(at("bytes = 4096", "bytes = 1"), "workload.background.log.bytes");
        assert_eq!(at("threads = 4", "threads = 0"), "workload.background.compaction.threads");
        assert_eq!(at("writes = 1\n", "writes = 0\n"), "workload.background.log.writes");
        assert_eq!(at("threads = [1, 80]", "threads = [1, 1]"), "workload.threads");
        assert_eq!(at("threads = [1, 80]", "mix = ['read', 'raed']"), "workload.mix");
        assert_eq!(client("mixes = {}").unwrap_err().at, "workload.mixes");
        let unknown = toml::from_str::<Options>(&TWO.replace("hits = 0.5", "hit = 0.5")).unwrap_err();
        assert!(unknown.to_string().contains("unknown field `hit`"), "{unknown}");
    }

    #[test]
    fn a_real_machine_is_refused() {
        let missing = client(TWO).unwrap().tool().unwrap_err().to_string();
        assert!(missing.contains("--simulated") && missing.contains("db-bench"), "{missing}");
    }
}
