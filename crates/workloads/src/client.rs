//! A closed loop of operations as an application makes them: processor time, a cache, and work that writes leave behind. For simulated
//! machines only.
//!
//! *Problem.* Most operations of an application need no drive, its processor time limits it, and a database writes each record several
//! times, later and by other threads. fio has none of this. *Words.* A *client* is a thread with one operation at a time. A *mix* says what operations
//! are; a *background* is a kind of thread that works off a multiple of what finished writes leave. *Parameters* are numbers of the experiment:
//! nothing here is of one application. profiles/README.md says what they are for RocksDB.
//!
//! Nothing can be started: on a real machine the kind is refused, with the kinds that run the application itself.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::knob::{self, Knob};
use super::{Missing, Outcome, Point, Problem, Stage, Step, Value, Workload, problem};
use crate::record::{Record, Tool};

/// More processor time than any operation takes.
const MOST_US: f64 = 1e6;
/// More than any database writes of what it is given.
const MOST_TIMES: f64 = 1_000.0;
/// Most bytes of a request.
const MOST_BYTES: u32 = 1 << 24;

/// What clients do. In TOML: `kind = "client"`, and these keys. A key that says "one or several" is a knob.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Options {
    /// One or several numbers of clients; 1 where it is not given.
    #[serde(default = "Knob::one")]
    pub threads: Knob,
    /// One or several names of mixes; all of them, by name, where it is not given.
    #[serde(default)]
    pub mix: Option<Knob>,
    /// What operations are, by name.
    pub mixes: BTreeMap<String, Mix>,
    /// Threads that work off what writes leave, by name.
    #[serde(default)]
    pub background: BTreeMap<String, Background>,
    /// A write waits while any background is behind by more than so many bytes, as writes leave them; it never waits where it is not given.
    #[serde(default)]
    pub stall_bytes: u64,
}

/// What operations are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Mix {
    /// Share of reads, of 1.
    pub reads: f64,
    /// Processor time of a read.
    pub read_cpu_us: f64,
    /// Processor time of a write.
    pub write_cpu_us: f64,
    /// Share of reads that the cache has, of 1.
    pub hits: f64,
    /// Share of writes that need no request, of 1.
    pub write_hits: f64,
    /// What the request of any other write does.
    pub write_miss: Miss,
    /// Bytes of a request of a client.
    pub bytes: u32,
    /// Bytes that a finished write leaves to each background.
    pub leaves_bytes: u32,
    /// Backgrounds that do nothing in this mix.
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

/// What the request of a write does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Miss {
    /// It writes.
    Write,
    /// It reads what is changed; the background writes.
    Read,
}

/// Threads that work off what writes leave, in sequential requests, each of them an equal part.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Background {
    /// How many there are.
    #[serde(default = "one")]
    pub threads: u16,
    /// Bytes that they read for each byte that was left.
    #[serde(default)]
    pub reads: f64,
    /// Bytes that they write for each byte that was left.
    pub writes: f64,
    /// Bytes of a request.
    pub bytes: u32,
    /// Processor time of a request.
    #[serde(default)]
    pub cpu_us: f64,
}

fn one() -> u16 {
    1
}

impl Background {
    /// Bytes read and written for each byte that was left, of one thread.
    #[must_use]
    pub fn each(&self) -> f64 {
        (self.reads + self.writes) / f64::from(self.threads)
    }

    fn check(&self, at: &str) -> Result<(), Problem> {
        within(at, "reads", self.reads, MOST_TIMES)?;
        within(at, "writes", self.writes, MOST_TIMES)?;
        within(at, "cpu_us", self.cpu_us, MOST_US)?;
        size(at, self.bytes)?;
        if self.threads == 0 || self.threads > 1_000 {
            return Err(problem(format!("{at}.threads"), "has to be 1 to 1000"));
        }
        if self.each() < 1e-6 {
            return Err(problem(format!("{at}.writes"), "nothing is read or written: name it in the mixes' `without`"));
        }
        Ok(())
    }
}

impl Mix {
    fn check(&self, at: &str, background: &BTreeMap<String, Background>) -> Result<(), Problem> {
        for (key, share) in [("reads", self.reads), ("hits", self.hits), ("write_hits", self.write_hits)] {
            within(at, key, share, 1.0)?;
        }
        within(at, "read_cpu_us", self.read_cpu_us, MOST_US)?;
        within(at, "write_cpu_us", self.write_cpu_us, MOST_US)?;
        size(at, self.bytes)?;
        match self.without.iter().find(|name| !background.contains_key(*name)) {
            Some(name) => Err(problem(format!("{at}.without"), format!("there is no background {name}"))),
            None => Ok(()),
        }
    }
}

fn within(at: &str, key: &str, value: f64, most: f64) -> Result<(), Problem> {
    if (0.0..=most).contains(&value) {
        return Ok(());
    }
    Err(problem(format!("{at}.{key}"), format!("{value} is not within 0 and {most}")))
}

fn size(at: &str, bytes: u32) -> Result<(), Problem> {
    if (512..=MOST_BYTES).contains(&bytes) {
        return Ok(());
    }
    Err(problem(format!("{at}.bytes"), format!("{bytes} is not within 512 and {MOST_BYTES}")))
}

/// Clients of an application.
#[derive(Clone, Debug)]
pub struct Client {
    options: Options,
    mix: Knob,
}

impl Client {
    /// With these options.
    ///
    /// # Errors
    /// A key that says nothing, or a number that cannot be.
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
    /// The point names none.
    pub fn mix(&self, point: &Point) -> Result<&Mix, Problem> {
        mix_of(&self.options, knob::at(point, "mix")?)
    }

    /// Who works in the background in a mix.
    pub fn background<'a>(&'a self, mix: &'a Mix) -> impl Iterator<Item = &'a Background> {
        let works = |(name, _): &(&String, &Background)| !mix.without.contains(name);
        self.options.background.iter().filter(works).map(|(_, background)| background)
    }

    /// A write waits while any background is behind by more than so many bytes; 0 if it never does.
    #[must_use]
    pub fn stall_bytes(&self) -> u64 {
        self.options.stall_bytes
    }
}

fn mix_of<'a>(options: &'a Options, name: &Value) -> Result<&'a Mix, Problem> {
    options.mixes.get(&name.to_string()).ok_or_else(|| {
        let known: Vec<&str> = options.mixes.keys().map(String::as_str).collect();
        problem("workload.mix", format!("there is no mix {name}: {}", known.join(", ")))
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
            help: "Name one with --simulated profiles/NAME.toml, or measure the application itself: db-bench, ycsb, pgbench, filebench"
                .into(),
        })
    }

    fn command(&self, _: &Point, _: &Stage) -> Result<Step, Problem> {
        Err(nothing_runs())
    }

    fn parse(&self, _: &Point, _: &Stage, _: &Outcome) -> Result<Record, Problem> {
        Err(nothing_runs())
    }

    fn client(&self) -> Option<&Client> {
        Some(self)
    }
}

fn nothing_runs() -> Problem {
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
        assert_eq!((background.len(), background[0].threads, background[0].each()), (1, 4, 2.0));
        assert_eq!(client.background(client.mix(&points[0]).unwrap()).count(), 2);
        assert_eq!(client.stall_bytes(), 5_000);
    }

    #[test]
    fn what_is_wrong_is_named_by_its_key() {
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
    fn nothing_runs_on_a_real_machine() {
        let missing = client(TWO).unwrap().tool().unwrap_err().to_string();
        assert!(missing.contains("--simulated") && missing.contains("db-bench"), "{missing}");
    }
}
