//! Results as text ([`std::fmt::Display`]) and with stable keys as JSON ([`serde::Serialize`]).
//!
//! Keys of quantities end in the unit. Keys are only added.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::reader::Spec;
use crate::reader::part::Part;
use crate::reader::range::Place;

/// Version of the keys.
const FORMAT: u32 = 1;

/// Results of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Report {
    /// Version of the format; changes if keys change their meaning.
    pub(crate) format: u32,
    /// Parameters of the run.
    pub(crate) settings: Settings,
    /// Start of the measured window, in nanoseconds since 1970.
    pub(crate) began_wall_ns: u64,
    /// Duration of the window, in nanoseconds: from the first thread's start to the last one's end.
    pub(crate) elapsed_ns: u64,
    /// The reads in it.
    pub(crate) read: Reads,
    /// Context switches of the reading threads in it.
    pub(crate) context_switches: Switches,
    /// User CPU time of the reading threads, in nanoseconds.
    pub(crate) cpu_user_ns: u64,
    /// System CPU time of the reading threads, in nanoseconds; interrupts are included or not according to the kernel's configuration.
    pub(crate) cpu_system_ns: u64,
    /// Warnings about the results.
    pub(crate) warnings: Vec<String>,
}

/// Parameters of the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Settings {
    /// The device or file.
    pub(crate) path: String,
    /// System call and completion.
    pub(crate) calls: String,
    /// Bytes of a read.
    pub(crate) block_bytes: u64,
    /// Threads, each with one outstanding read.
    pub(crate) numjobs: u32,
    /// Measured time, in nanoseconds.
    pub(crate) runtime_ns: u64,
    /// Ramp, in nanoseconds.
    pub(crate) ramp_ns: u64,
    /// Start of the region, in bytes.
    pub(crate) offset_bytes: u64,
    /// Size of the region, in bytes.
    pub(crate) size_bytes: u64,
    /// Seed of the random offsets.
    pub(crate) seed: u64,
}

/// Reads of the window.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Reads {
    /// Number of reads.
    pub(crate) ios: u64,
    /// Reads per second.
    pub(crate) rate_iops: f64,
    /// Bytes read.
    pub(crate) data_bytes: u64,
    /// Bytes per second.
    pub(crate) data_bytes_per_s: f64,
    /// Latency.
    pub(crate) latency: Latency,
    /// Histogram of latencies with three significant digits: largest value of each bucket in nanoseconds, and count.
    pub(crate) histogram_ns: Vec<(u64, u64)>,
}

/// Latencies in nanoseconds. All but the mean come from the histogram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Latency {
    /// Minimum.
    pub(crate) min_ns: u64,
    /// Exact mean.
    pub(crate) mean_ns: f64,
    /// Standard deviation.
    pub(crate) stddev_ns: f64,
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
    /// Maximum.
    pub(crate) max_ns: u64,
}

/// Context switches counted by `getrusage`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Switches {
    /// Voluntary.
    pub(crate) voluntary_count: u64,
    /// Involuntary.
    pub(crate) involuntary_count: u64,
}

impl Switches {
    /// Sum of both.
    #[must_use]
    pub(crate) fn count(self) -> u64 {
        self.voluntary_count + self.involuntary_count
    }
}

/// Builds the report of all threads.
pub(crate) fn build(spec: &Spec, place: Place, all: &Part) -> Report {
    let elapsed = all.to - all.from;
    let (ios, seconds) = (all.latencies.len(), elapsed.as_secs_f64().max(1e-9));
    let data_bytes = ios * spec.bytes;
    Report {
        format: FORMAT,
        settings: Settings {
            path: spec.path.display().to_string(),
            calls: spec.method.to_string(),
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
        let (settings, read) = (&self.settings, &self.read);
        let jobs = if settings.numjobs == 1 { "1 thread".to_owned() } else { format!("{} threads", settings.numjobs) };
        writeln!(f, "{}: {} bytes at a time by {}, {jobs}", settings.path, settings.block_bytes, settings.calls)?;
        let (seconds, mb) = (self.elapsed_ns as f64 / 1e9, read.data_bytes_per_s / 1e6);
        writeln!(
            f,
            "reads             {} in {seconds:.2} s: {:.0} per second, {mb:.1} MB/s",
            read.ios, read.rate_iops
        )?;
        writeln!(f, "latency           {}", read.latency)?;
        let (ios, switches) = (read.ios.max(1) as f64, self.context_switches);
        let (each, given) = (switches.count() as f64 / ios, switches.voluntary_count as f64 / ios);
        writeln!(f, "context switches  {each:.2} per read, {given:.2} of them voluntary")?;
        let cpu_us = (self.cpu_user_ns + self.cpu_system_ns) as f64 / 1e3;
        let (each, system) = (cpu_us / ios, self.cpu_system_ns as f64 / 1e3 / ios);
        let cpus = cpu_us * 1e3 / (self.elapsed_ns.max(1) as f64);
        writeln!(f, "CPU time          {each:.1} us per read, {system:.1} of them in the kernel; {cpus:.2} CPUs")?;
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
