//! The result of a run: a table ([`std::fmt::Display`]) and JSON with stable keys ([`serde::Serialize`]).
//!
//! Keys of quantities end in the unit: `_ns`, `_bytes`, `_iops`, `_bytes_per_s`. Keys are only added.

use std::fmt;

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::load::picker::Kind;
use crate::load::spec::LoadSpec;
use crate::load::stats::Stats;
use crate::schedule::Process;

/// A distribution of latencies, in nanoseconds; three significant digits.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Latency {
    /// Smallest.
    pub min_ns: u64,
    /// Mean.
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

impl Latency {
    /// Of a histogram.
    #[must_use]
    pub fn from_histogram(h: &Histogram<u64>) -> Self {
        let q = |q| h.value_at_quantile(q);
        Self {
            min_ns: h.min(),
            mean_ns: h.mean(),
            stddev_ns: h.stdev(),
            p50_ns: q(0.5),
            p90_ns: q(0.9),
            p99_ns: q(0.99),
            p99_9_ns: q(0.999),
            p99_99_ns: q(0.9999),
            max_ns: h.max(),
        }
    }
}

/// Results of one kind of command, or of all.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct OpReport {
    /// Commands that succeeded.
    pub ios: u64,
    /// Commands a second.
    pub rate_iops: f64,
    /// Bytes of data moved.
    pub data_bytes: u64,
    /// Bytes a second.
    pub data_bytes_per_s: f64,
    /// Commands that failed.
    pub errors: u64,
    /// Their latency.
    pub latency: Latency,
}

/// One phase of the schedule.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct PhaseReport {
    /// The scheduled rate.
    pub rate_iops: f64,
    /// Duration in each cycle.
    pub duration_ns: u64,
    /// Commands that were due in it and succeeded.
    pub ios: u64,
    /// Their latency.
    pub latency: Latency,
}

/// Results of an open loop.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct OpenReport {
    /// Scheduled mean rate of all connections.
    pub wanted_iops: f64,
    /// Sent requests.
    pub started: u64,
    /// Requests due before the end that had no free slot: if not 0, the worst latencies are missing.
    pub unstarted: u64,
    /// Requests sent more than 100 us after they were due.
    pub late: u64,
    /// Delay from due time to submission: the median.
    pub start_delay_p50_ns: u64,
    /// The 99th percentile.
    pub start_delay_p99_ns: u64,
    /// The maximum.
    pub start_delay_max_ns: u64,
}

/// Results of verification.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct VerifyReport {
    /// Correct blocks.
    pub blocks_checked: u64,
    /// Correct blocks of the final pass.
    pub blocks_read_back: u64,
    /// Wrong blocks.
    pub mismatches: u64,
    /// When an earlier run is checked: blocks with a durable generation in its ledger.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub durable_blocks: Option<u64>,
}

/// Settings of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Settings {
    /// Access pattern, named as in fio; `trace` for a replay, `verify` for the check of an earlier run.
    pub rw: &'static str,
    /// Bytes of each file, if whole files are read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_bytes: Option<u64>,
    /// Reads, in percent of reads and writes.
    pub read_percent: u8,
    /// Bytes per I/O.
    pub block_bytes: u32,
    /// Commands in flight per connection.
    pub iodepth: u16,
    /// Connections.
    pub numjobs: u16,
    /// Threads.
    pub threads: u16,
    /// `closed`, `linear`, `poisson` or `trace`.
    pub arrivals: &'static str,
    /// Seed.
    pub seed: u64,
}

/// The result of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Version of this structure.
    pub format: u32,
    /// Settings.
    pub settings: Settings,
    /// Start of the ramp and of the schedule, in this host's monotonic time (`CLOCK_MONOTONIC`).
    pub began_monotonic_ns: u64,
    /// From the start (after the ramp) to the last completion.
    pub elapsed_ns: u64,
    /// All commands together.
    pub total: OpReport,
    /// Reads, if there were any.
    pub read: Option<OpReport>,
    /// Writes.
    pub write: Option<OpReport>,
    /// Write Zeroes.
    pub write_zeroes: Option<OpReport>,
    /// Deallocations.
    pub deallocate: Option<OpReport>,
    /// Flushes.
    pub flush: Option<OpReport>,
    /// By phase, if the schedule has several.
    pub phases: Vec<PhaseReport>,
    /// Results of an open loop.
    pub open_loop: Option<OpenReport>,
    /// Results of verification.
    pub verify: Option<VerifyReport>,
    /// CPU time of this host's threads, ramp included.
    pub host_cpu_ns: u64,
    /// Descriptions of the first faults.
    pub faults: Vec<String>,
}

/// [`Report::format`].
pub const FORMAT: u32 = 1;

impl Report {
    pub(crate) fn new(
        spec: &LoadSpec,
        stats: &Stats,
        start_ns: u64,
        replay: bool,
        durable_blocks: Option<u64>,
    ) -> Self {
        let elapsed_ns = stats.last_ns.saturating_sub(start_ns + spec.ramp_ns);
        let op = |kind: Kind| {
            let k = &stats.kinds[kind as usize];
            (k.ios + k.errors > 0).then(|| op_report(k.ios, k.bytes, k.errors, &k.latency, elapsed_ns))
        };
        Self {
            format: FORMAT,
            settings: settings(spec, replay),
            began_monotonic_ns: start_ns,
            elapsed_ns,
            total: total(stats, elapsed_ns),
            read: op(Kind::Read),
            write: op(Kind::Write),
            write_zeroes: op(Kind::WriteZeroes),
            deallocate: op(Kind::Deallocate),
            flush: op(Kind::Flush),
            phases: phases(spec, stats),
            open_loop: wanted_iops(spec, stats, elapsed_ns, replay).map(|wanted_iops| open_loop(stats, wanted_iops)),
            verify: (spec.verify || spec.verify_only).then_some(VerifyReport {
                blocks_checked: stats.blocks_checked,
                blocks_read_back: stats.blocks_read_back,
                mismatches: stats.mismatches,
                durable_blocks,
            }),
            host_cpu_ns: stats.cpu_ns,
            faults: stats.samples.clone(),
        }
    }

    /// Whether all commands succeeded and all blocks were correct.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.total.errors == 0 && self.verify.is_none_or(|v| v.mismatches == 0)
    }
}

/// Scheduled rate of an open loop; for a trace, the mean rate of due requests.
fn wanted_iops(spec: &LoadSpec, stats: &Stats, elapsed_ns: u64, replay: bool) -> Option<f64> {
    if replay {
        let due = (stats.started + stats.unstarted) as f64;
        return Some(if elapsed_ns == 0 { 0.0 } else { due * 1e9 / elapsed_ns as f64 });
    }
    spec.open.as_ref().map(|open| open.schedule.mean_iops())
}

fn open_loop(stats: &Stats, wanted_iops: f64) -> OpenReport {
    OpenReport {
        wanted_iops,
        started: stats.started,
        unstarted: stats.unstarted,
        late: stats.late,
        start_delay_p50_ns: stats.start_delay.value_at_quantile(0.5),
        start_delay_p99_ns: stats.start_delay.value_at_quantile(0.99),
        start_delay_max_ns: stats.start_delay_max_ns,
    }
}

fn total(stats: &Stats, elapsed_ns: u64) -> OpReport {
    let mut all = stats.kinds[0].clone();
    for k in &stats.kinds[1..] {
        all.ios += k.ios;
        all.bytes += k.bytes;
        all.errors += k.errors;
        all.latency += &k.latency;
    }
    op_report(all.ios, all.bytes, all.errors, &all.latency, elapsed_ns)
}

fn op_report(ios: u64, bytes: u64, errors: u64, latency: &Histogram<u64>, elapsed_ns: u64) -> OpReport {
    let per_s = |n: u64| if elapsed_ns == 0 { 0.0 } else { n as f64 * 1e9 / elapsed_ns as f64 };
    OpReport {
        ios,
        rate_iops: per_s(ios),
        data_bytes: bytes,
        data_bytes_per_s: per_s(bytes),
        errors,
        latency: Latency::from_histogram(latency),
    }
}

fn phases(spec: &LoadSpec, stats: &Stats) -> Vec<PhaseReport> {
    let Some(open) = &spec.open else { return Vec::new() };
    let report = |(p, h): (&crate::schedule::Phase, &Histogram<u64>)| PhaseReport {
        rate_iops: p.rate_iops,
        duration_ns: p.duration_ns,
        ios: h.len(),
        latency: Latency::from_histogram(h),
    };
    open.schedule.phases().iter().zip(&stats.phases).map(report).collect()
}

fn settings(spec: &LoadSpec, replay: bool) -> Settings {
    let rw = match (spec.random, spec.read_percent) {
        _ if replay => "trace",
        _ if spec.verify_only => "verify",
        (true, 100) => "randread",
        (true, 0) => "randwrite",
        (true, _) => "randrw",
        (false, 100) => "read",
        (false, 0) => "write",
        (false, _) => "rw",
    };
    let arrivals = match spec.open.as_ref().map(|o| o.process) {
        _ if replay => "trace",
        None => "closed",
        Some(Process::Linear) => "linear",
        Some(Process::Poisson) => "poisson",
    };
    Settings {
        rw,
        file_bytes: spec.file_bytes,
        read_percent: spec.read_percent,
        block_bytes: spec.block_bytes,
        iodepth: spec.depth,
        numjobs: spec.jobs,
        threads: spec.threads,
        arrivals,
        seed: spec.seed,
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = &self.settings;
        writeln!(
            f,
            "{} {} B, iodepth {}, {} connection(s) on {} thread(s), {} loop, {:.3} s",
            s.rw,
            s.block_bytes,
            s.iodepth,
            s.numjobs,
            s.threads,
            if s.arrivals == "closed" { "closed".into() } else { format!("open ({})", s.arrivals) },
            self.elapsed_ns as f64 * 1e-9
        )?;
        writeln!(
            f,
            "{:<14}{:>12}{:>10}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}{:>8}",
            "", "IOPS", "MB/s", "mean us", "p50 us", "p90 us", "p99 us", "p99.9 us", "max us", "errors"
        )?;
        let ops = [
            ("read", &self.read),
            ("write", &self.write),
            ("write zeroes", &self.write_zeroes),
            ("deallocate", &self.deallocate),
            ("flush", &self.flush),
        ];
        let present: Vec<_> = ops.iter().filter_map(|(name, op)| op.as_ref().map(|op| (*name, op))).collect();
        for (name, op) in &present {
            row(f, name, op)?;
        }
        if present.len() != 1 {
            row(f, "total", &self.total)?;
        }
        self.write_phases(f)?;
        self.write_open_loop(f)?;
        self.write_verify_and_faults(f)
    }
}

fn row(f: &mut fmt::Formatter<'_>, name: &str, op: &OpReport) -> fmt::Result {
    let l = &op.latency;
    let us = |ns: u64| ns as f64 / 1000.0;
    writeln!(
        f,
        "{name:<14}{:>12.0}{:>10.1}{:>9.1}{:>9.1}{:>9.1}{:>9.1}{:>9.1}{:>9.1}{:>8}",
        op.rate_iops,
        op.data_bytes_per_s / 1e6,
        l.mean_ns / 1000.0,
        us(l.p50_ns),
        us(l.p90_ns),
        us(l.p99_ns),
        us(l.p99_9_ns),
        us(l.max_ns),
        op.errors
    )
}

impl Report {
    fn write_phases(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, p) in self.phases.iter().enumerate() {
            writeln!(
                f,
                "phase {i}: {:.0} IOPS for {:.3} s: {} I/Os, p50 {:.1} us, p99 {:.1} us, p99.9 {:.1} us, max {:.1} us",
                p.rate_iops,
                p.duration_ns as f64 * 1e-9,
                p.ios,
                p.latency.p50_ns as f64 / 1000.0,
                p.latency.p99_ns as f64 / 1000.0,
                p.latency.p99_9_ns as f64 / 1000.0,
                p.latency.max_ns as f64 / 1000.0
            )?;
        }
        Ok(())
    }

    fn write_open_loop(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(o) = &self.open_loop {
            writeln!(
                f,
                "open loop: {:.0} IOPS scheduled, {} sent, {} not sent, {} of the sent ones over 100 us late (p99 {:.1} us, max {:.1} us); \
                 latency counts from the due time",
                o.wanted_iops,
                o.started,
                o.unstarted,
                o.late,
                o.start_delay_p99_ns as f64 / 1000.0,
                o.start_delay_max_ns as f64 / 1000.0
            )?;
        }
        Ok(())
    }

    fn write_verify_and_faults(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(v) = &self.verify {
            writeln!(
                f,
                "verify: {} blocks correct ({} of them in the final pass), {} bad",
                v.blocks_checked, v.blocks_read_back, v.mismatches
            )?;
            if let Some(durable) = v.durable_blocks {
                writeln!(f, "verify: the ledger has {durable} durable blocks")?;
            }
        }
        let per_io = if self.total.ios == 0 { 0.0 } else { self.host_cpu_ns as f64 / self.total.ios as f64 };
        writeln!(f, "host CPU: {:.3} s, {:.0} ns per I/O", self.host_cpu_ns as f64 * 1e-9, per_io)?;
        for fault in &self.faults {
            writeln!(f, "fault: {fault}")?;
        }
        Ok(())
    }
}
