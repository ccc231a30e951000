//! What came of it: a table for people ([`std::fmt::Display`]) and stable keys for programs ([`serde::Serialize`]).
//!
//! Every key that is a quantity ends in its unit. Keys are only ever added.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::Spec;
use crate::job::Part;
use crate::place::Place;

/// The form of the keys.
const FORMAT: u32 = 1;

/// What came of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The form of this; another number if keys should ever change their meaning.
    pub format: u32,
    /// What was asked for.
    pub settings: Settings,
    /// When the measured window began, in nanoseconds since 1970.
    pub began_wall_ns: u64,
    /// How long it was, in nanoseconds: from the first thread's begin to the last one's end.
    pub elapsed_ns: u64,
    /// The reads in it.
    pub read: Reads,
    /// How often the reading threads left their CPU in it.
    pub context_switches: Switches,
    /// CPU time of the reading threads outside of the kernel, in nanoseconds.
    pub cpu_user_ns: u64,
    /// CPU time of the reading threads in the kernel, in nanoseconds; that of interrupts is counted as the kernel was built to.
    pub cpu_system_ns: u64,
    /// What a reader of the figures has to know.
    pub warnings: Vec<String>,
}

/// What was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Settings {
    /// What was read.
    pub path: String,
    /// By which calls.
    pub calls: String,
    /// Bytes of a read.
    pub block_bytes: u64,
    /// Threads, each with one read in flight.
    pub numjobs: u32,
    /// Measured time, in nanoseconds.
    pub runtime_ns: u64,
    /// Time before it, in nanoseconds.
    pub ramp_ns: u64,
    /// Where reading began, in bytes.
    pub offset_bytes: u64,
    /// How many bytes from there on were read from.
    pub size_bytes: u64,
    /// Of the places.
    pub seed: u64,
}

/// Reads of the window.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Reads {
    /// How many.
    pub ios: u64,
    /// How many a second.
    pub rate_iops: f64,
    /// What they brought, in bytes.
    pub data_bytes: u64,
    /// The same a second.
    pub data_bytes_per_s: f64,
    /// How long they took.
    pub latency: Latency,
    /// How long they took: nanoseconds and how many; three significant digits, the greatest value of each bucket.
    pub histogram_ns: Vec<(u64, u64)>,
}

/// How long reads took, in nanoseconds. All but the mean are those of the histogram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Latency {
    /// Smallest.
    pub min_ns: u64,
    /// Mean, exactly.
    pub mean_ns: f64,
    /// Standard deviation.
    pub stddev_ns: f64,
    /// Median.
    pub p50_ns: u64,
    /// 90th percentile.
    pub p90_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// 99.9th percentile.
    pub p99_9_ns: u64,
    /// 99.99th percentile.
    pub p99_99_ns: u64,
    /// Largest.
    pub max_ns: u64,
}

/// Context switches, as `getrusage` counts them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Switches {
    /// A thread left its CPU to wait for something.
    pub voluntary_count: u64,
    /// Another thread took its CPU.
    pub involuntary_count: u64,
}

impl Switches {
    /// Both.
    #[must_use]
    pub fn count(self) -> u64 {
        self.voluntary_count + self.involuntary_count
    }
}

/// The report of all threads together.
pub(crate) fn of(spec: &Spec, place: Place, all: &Part) -> Report {
    let elapsed = all.to - all.from;
    let (ios, seconds) = (all.latencies.len(), elapsed.as_secs_f64().max(1e-9));
    let data_bytes = ios * spec.bytes;
    Report {
        format: FORMAT,
        settings: Settings {
            path: spec.path.display().to_string(),
            calls: spec.way.to_string(),
            block_bytes: spec.bytes,
            numjobs: spec.jobs,
            runtime_ns: spec.runtime_ns,
            ramp_ns: spec.ramp_ns,
            offset_bytes: place.offset,
            size_bytes: place.size,
            seed: spec.seed,
        },
        began_wall_ns: since_1970_ns(all.from_wall),
        elapsed_ns: elapsed.as_nanos() as u64,
        read: Reads {
            ios,
            rate_iops: ios as f64 / seconds,
            data_bytes,
            data_bytes_per_s: data_bytes as f64 / seconds,
            latency: latency(&all.latencies, all.total_ns),
            histogram_ns: histogram(&all.latencies),
        },
        context_switches: Switches { voluntary_count: all.usage.voluntary, involuntary_count: all.usage.involuntary },
        cpu_user_ns: all.usage.user_ns,
        cpu_system_ns: all.usage.system_ns,
        warnings: place.warnings,
    }
}

fn since_1970_ns(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

fn latency(all: &Histogram<u64>, total_ns: u128) -> Latency {
    if all.is_empty() {
        return Latency::default();
    }
    let q = |q| all.value_at_quantile(q);
    Latency {
        min_ns: all.min(),
        mean_ns: total_ns as f64 / all.len() as f64,
        stddev_ns: all.stdev(),
        p50_ns: q(0.5),
        p90_ns: q(0.9),
        p99_ns: q(0.99),
        p99_9_ns: q(0.999),
        p99_99_ns: q(0.9999),
        max_ns: all.max(),
    }
}

fn histogram(all: &Histogram<u64>) -> Vec<(u64, u64)> {
    all.iter_recorded().map(|bucket| (bucket.value_iterated_to(), bucket.count_at_value())).collect()
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (asked, read) = (&self.settings, &self.read);
        let jobs = if asked.numjobs == 1 { "1 thread".to_owned() } else { format!("{} threads", asked.numjobs) };
        writeln!(f, "{}: {} bytes at a time by {}, {jobs}", asked.path, asked.block_bytes, asked.calls)?;
        let (seconds, mb) = (self.elapsed_ns as f64 / 1e9, read.data_bytes_per_s / 1e6);
        writeln!(f, "reads             {} in {seconds:.2} s: {:.0} a second, {mb:.1} MB/s", read.ios, read.rate_iops)?;
        writeln!(f, "latency           {}", read.latency)?;
        let (ios, switches) = (read.ios.max(1) as f64, self.context_switches);
        let (each, given) = (switches.count() as f64 / ios, switches.voluntary_count as f64 / ios);
        writeln!(f, "context switches  {each:.2} a read, of these {given:.2} to wait")?;
        let cpu_us = (self.cpu_user_ns + self.cpu_system_ns) as f64 / 1e3;
        let (each, system) = (cpu_us / ios, self.cpu_system_ns as f64 / 1e3 / ios);
        let cpus = cpu_us * 1e3 / (self.elapsed_ns.max(1) as f64);
        writeln!(f, "CPU time          {each:.1} us a read, of these {system:.1} in the kernel; {cpus:.2} CPUs")?;
        self.warnings.iter().try_for_each(|warning| writeln!(f, "warning: {warning}"))
    }
}

impl fmt::Display for Latency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let us = |ns: u64| ns as f64 / 1e3;
        write!(f, "mean {:.1} us, least {:.1}, p50 {:.1}", self.mean_ns / 1e3, us(self.min_ns), us(self.p50_ns))?;
        write!(f, ", p99 {:.1}, p99.9 {:.1}, most {:.1}", us(self.p99_ns), us(self.p99_9_ns), us(self.max_ns))
    }
}
