//! `pilotlight load`: drives a target over NVMe/TCP and prints the results. Options are named as in fio.

mod pattern;
mod replay;
mod target;

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use pattern::{Pattern, Training, Work};
use pilotlight_host::load::{self, LoadSpec, OpenLoop, Progress, Report};
use pilotlight_host::schedule::{Process, Schedule};
use pilotlight_host::units;
use pilotlight_trace::read::OpenError;
use replay::{Replay, ReplayArgs, TraceStats};
use serde::Serialize;
use signal_hook::consts::{SIGINT, SIGTERM};
use target::only_subsystem;

use crate::config::nqn;
use crate::console;

const FAILED: u8 = 1;
const USAGE: u8 = 2;
/// Default commands in flight per connection in an open loop.
const OPEN_LOOP_DEPTH: u16 = 128;
/// Bytes per command, and the maximum in a replay.
const BLOCK: u64 = 4 << 10;
const REPLAY_BLOCK: u64 = 128 << 10;

const ABOUT: &str = "\
Send a load to an NVMe/TCP target and measure latency.

Options are named as in fio. Sizes: 4k and 4KiB are 4096 bytes, 4kB is 4000; rates are powers of 1000. Without --rate_iops a \
connection keeps --iodepth commands in flight (closed loop). With it, commands have scheduled times and latency \
counts from those times (open loop). With --trace the commands and times are those of a block trace.

With --verify --ledger FILE the run records in FILE, before it sends a write, which generation of which blocks it writes, and \
after a successful flush or FUA write which generations are durable. --verify-only --ledger FILE checks them later, after the \
target or this program was killed: a block is wrong if it has an older generation than the durable one, part of one, another block's content or \
zeroes that were not written; a newer generation that was not flushed may be present or not.";

const EXAMPLES: &str = "\
Examples:
  pilotlight load --runtime 10 --iodepth 128                    4 KiB random reads, at full speed
  pilotlight load --rw randrw --rwmixread 70 --bs 16k --numjobs 4 --iodepth 32 --runtime 30
  pilotlight load --pattern rand_rw --numjobs 3 --iodepth 100 --runtime 30
                                                                vdbench's mix: 8 KiB, 70 % reads
  pilotlight load --pattern unet3d --numjobs 16 --runtime 60    16 accelerators that train 3D-UNET
  pilotlight load --rw randrw --verify --size 256m --runtime 20 check every block
  pilotlight load --rw randwrite --verify --fsync 32 --ledger /var/tmp/ledger --size 1g --runtime 60
  pilotlight load --verify-only --ledger /var/tmp/ledger        after the server was killed
  pilotlight load --rate_iops 50k --rate_process poisson --runtime 30 --json
  pilotlight load --rate_iops 400k --schedule 5%:1s,100%:200ms --runtime 12
                                                                bursts of 400 k for 200 ms
  pilotlight load --trace usr_0.csv.gz --speed 10               a trace, ten times as fast
  pilotlight load --trace t.csv.zst --spread 1s --numjobs 4     one with timestamps in seconds
  pilotlight load --hostnqn nqn.2024-05.com.example:host-1 --secrets-file secrets --runtime 10
  pilotlight load --target 192.0.2.7:4421 --secrets-file secrets --tls --hostnqn HOSTNQN
                                                                authenticated (DH-HMAC-CHAP)

Exit codes:
  0  all commands succeeded and all blocks were verified
  1  a command failed, a block was wrong, or the connection was lost
  2  the command line was refused, or is not supported by the target";

/// Access pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[expect(clippy::enum_variant_names, reason = "fio's names")]
pub(crate) enum Rw {
    /// Sequential reads
    Read,
    /// Sequential writes
    Write,
    /// Sequential reads and writes
    Rw,
    /// Random reads
    Randread,
    /// Random writes
    Randwrite,
    /// Random reads and writes
    Randrw,
}

/// How arrivals are spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RateProcess {
    /// Fixed gaps
    Linear,
    /// Exponential gaps
    Poisson,
}

/// Options of `pilotlight load`.
#[derive(Args, Clone, Debug)]
#[command(long_about = ABOUT, after_long_help = EXAMPLES)]
#[command(after_help = "Run with --help for examples and exit codes.")]
pub(crate) struct LoadArgs {
    /// Address of the target
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:4420", help_heading = "Target")]
    target: String,

    /// NQN of the subsystem [default: the only one that the target's discovery service reports]
    #[arg(long, value_name = "NQN", help_heading = "Target")]
    nqn: Option<String>,

    /// The namespace
    #[arg(long, value_name = "ID", default_value_t = 1, help_heading = "Target")]
    nsid: u32,

    /// The host's NQN
    #[arg(long, value_name = "NQN", value_parser = host_nqn, help_heading = "Target")]
    hostnqn: Option<String>,

    /// File with this host's secrets, closed to other users, in the format of the server's: `HOSTNQN dhchap_key SECRET`, and to
    /// authenticate the target too `HOSTNQN dhchap_ctrl_key SECRET`
    #[arg(long, value_name = "FILE", help_heading = "Target")]
    secrets_file: Option<PathBuf>,

    /// Connect with TLS, with the key of `HOSTNQN tls_key KEY` in --secrets-file
    #[arg(long, requires = "secrets_file", help_heading = "Target")]
    tls: bool,

    /// Authenticate, and connect with TLS and the key that this generates, at an address of concat_listen
    #[arg(long, requires_all = ["secrets_file", "nqn"], conflicts_with = "tls", help_heading = "Target")]
    concat: bool,

    /// Request header digests
    #[arg(long, help_heading = "Target")]
    hdr_digest: bool,

    /// Request data digests
    #[arg(long, help_heading = "Target")]
    data_digest: bool,

    /// Maximum of outstanding R2Ts of a write
    #[arg(long, value_name = "COUNT", default_value_t = 1, help_heading = "Target")]
    max_r2t: u32,

    /// Keep SQ flow control on: every read then ends with its own response
    #[arg(long, help_heading = "Target")]
    sq_flow: bool,

    /// Keep-alive timeout, at least 1ms; 0 for none
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = keep_alive, help_heading = "Target")]
    keep_alive_tmo: u64,

    /// The command
    #[arg(long, alias = "readwrite", value_enum, default_value = "randread", help_heading = "Work")]
    rw: Rw,

    /// A published workload; --bs, --iodepth and --rate_iops have precedence
    #[arg(long, value_name = "NAME", value_enum, help_heading = "Work")]
    #[arg(conflicts_with_all = ["rw", "rwmixread", "trace", "verify_only"])]
    pattern: Option<Pattern>,

    /// Reads in a mixed pattern, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 50, value_parser = percent(), help_heading = "Work")]
    rwmixread: u8,

    /// Bytes per command; in a replay the maximum [default: 4k, replay: 128k, or the pattern's]
    #[arg(long, alias = "blocksize", value_name = "SIZE", value_parser = units::bytes, help_heading = "Work")]
    bs: Option<u64>,

    /// Commands in flight per connection; in an open loop the maximum [default: 1, open loop: 128, or the pattern's]
    #[arg(long, value_name = "COUNT", help_heading = "Work")]
    iodepth: Option<u16>,

    /// Connections, each an I/O queue
    #[arg(long, value_name = "COUNT", default_value_t = 1, help_heading = "Work")]
    numjobs: u16,

    /// Start of the used range of the namespace
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = units::bytes, help_heading = "Work")]
    offset: u64,

    /// Size of the used range of the namespace [default: to its end]
    #[arg(long, value_name = "SIZE", value_parser = units::bytes, help_heading = "Work")]
    size: Option<u64>,

    /// Duration of the run [default: until --number_ios, or until --size is moved once]
    #[arg(long, value_name = "TIME", value_parser = units::duration_ns, help_heading = "Work")]
    runtime: Option<u64>,

    /// Number of commands per connection
    #[arg(long = "number_ios", alias = "number-ios", value_name = "COUNT", help_heading = "Work")]
    number_ios: Option<u64>,

    /// Warm-up time that is not counted
    #[arg(long = "ramp_time", alias = "ramp-time", value_name = "TIME", default_value = "0")]
    #[arg(value_parser = units::duration_ns, help_heading = "Work")]
    ramp_time: u64,

    /// Flush after this many writes of a connection; 0 for none
    #[arg(long, value_name = "COUNT", default_value_t = 0, help_heading = "Work")]
    fsync: u32,

    /// Force Unit Access on every write
    #[arg(long, help_heading = "Work")]
    fua: bool,

    /// Alternate Write Zeroes and deallocations, in percent of the writes
    #[arg(long, value_name = "PERCENT", default_value_t = 0, value_parser = percent(), help_heading = "Work")]
    trim_mix: u8,

    /// Seed of all randomness
    #[arg(long, alias = "seed", value_name = "NUMBER", default_value_t = 1, help_heading = "Work")]
    randseed: u64,

    /// Open loop: commands per second and connection
    #[arg(long = "rate_iops", alias = "rate-iops", value_name = "RATE", value_parser = units::rate)]
    #[arg(help_heading = "Rate")]
    rate_iops: Option<f64>,

    /// Open loop: how commands are spread
    #[arg(long = "rate_process", alias = "rate-process", value_enum, default_value = "linear", help_heading = "Rate")]
    rate_process: RateProcess,

    /// Open loop: phases in sequence, RATE:TIME each; a rate may be a percentage of --rate_iops
    #[arg(long, value_name = "PHASES", help_heading = "Rate")]
    schedule: Option<String>,

    #[command(flatten)]
    replay: ReplayArgs,

    /// Write blocks that carry address, generation and checksum; check every read, and everything at the end
    #[arg(long, help_heading = "Checks")]
    verify: bool,

    /// Record all writes in a new file, so that --verify-only can check them after a crash; needs --fsync or --fua
    #[arg(long, value_name = "FILE", help_heading = "Checks")]
    ledger: Option<PathBuf>,

    /// Write nothing: read all blocks that an earlier run recorded in --ledger, and list those with wrong contents
    #[arg(long, requires = "ledger", help_heading = "Checks")]
    #[arg(conflicts_with_all = ["verify", "trace", "rw", "rwmixread", "offset", "size", "runtime", "number_ios", "ramp_time"])]
    #[arg(conflicts_with_all = ["fsync", "fua", "trim_mix", "randseed", "rate_iops", "rate_process", "schedule", "threads"])]
    verify_only: bool,

    /// Continue after a failed command or a wrong block
    #[arg(long = "continue_on_error", alias = "continue-on-error", help_heading = "Checks")]
    continue_on_error: bool,

    /// Timeout of a command; the run is aborted after it
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = timeout, help_heading = "Checks")]
    timeout: u64,

    /// CPUs to pin the threads to, one thread each, such as 1 or 1,2 [default: one thread, not pinned]
    #[arg(long, alias = "cpus_allowed", value_name = "LIST", value_delimiter = ',', help_heading = "This host")]
    cpu: Vec<usize>,

    /// Number of threads that share the connections [default: one for each of --cpu]
    #[arg(long, value_name = "COUNT", help_heading = "This host")]
    threads: Option<u16>,

    /// Yield the CPU when idle: for fewer CPUs than polling threads
    #[arg(long, help_heading = "This host")]
    r#yield: bool,

    /// Print the result as JSON instead of a table
    #[arg(long, help_heading = "This host")]
    json: bool,
}

/// Runs the load and prints the results.
///
/// # Errors
/// If the connection is lost or the target is unreachable. Usage errors are printed, with exit code 2.
pub(crate) fn run(args: &LoadArgs) -> anyhow::Result<ExitCode> {
    let prepared = args.spec().and_then(|spec| Ok((spec, args.connect_options()?)));
    let (spec, mut options) = match prepared {
        Ok(prepared) => prepared,
        Err(e) => return Ok(refuse(&e)),
    };
    let replay = match args.open_trace() {
        Ok(replay) => replay,
        Err(e @ (OpenError::Io { .. } | OpenError::NoRequest { .. })) => return Err(e.into()),
        Err(e) => return Ok(refuse(&e.into())),
    };
    match &args.nqn {
        Some(nqn) => options.subnqn.clone_from(nqn),
        None => match only_subsystem(&options)? {
            Ok(nqn) => options.subnqn = nqn,
            Err(e) => return Ok(refuse(&e)),
        },
    }
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, stop.clone())?;
        signal_hook::flag::register(signal, stop.clone())?;
    }
    let bar = progress_bar(spec.runtime_ns.map(|ns| ns + spec.ramp_ns));
    let mut watch = |p| tell(&bar, &p);
    let stats = replay.as_ref().map(Replay::stats);
    let result = match replay {
        None => load::run(&options, &spec, &stop, &mut watch),
        Some(replay) => load::replay(&options, &spec, Box::new(|space| replay.commands(space)), &stop, &mut watch),
    };
    bar.finish_and_clear();
    let stats = stats.map(|stats| stats.lock().unwrap_or_else(PoisonError::into_inner).clone());
    match result {
        Ok(report) => print(&report, stats.as_ref(), args.json),
        Err(e) if e.is_usage() => Ok(refuse(&e.into())),
        Err(e) => Err(e).with_context(|| format!("load on {} at {}", options.subnqn, options.addr)),
    }
}

fn refuse(error: &anyhow::Error) -> ExitCode {
    console::eprintln(format_args!("error: {error:#}"));
    ExitCode::from(USAGE)
}

/// The results; for a replay also statistics of the trace, under the key `trace`.
#[derive(Serialize)]
struct Printed<'a> {
    #[serde(flatten)]
    report: &'a Report,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace: Option<&'a TraceStats>,
}

fn print(report: &Report, trace: Option<&TraceStats>, json: bool) -> anyhow::Result<ExitCode> {
    if json {
        console::println(serde_json::to_string_pretty(&Printed { report, trace })?)?;
    } else {
        console::print(format_args!("{report}{}", trace.map_or(String::new(), TraceStats::text)))?;
    }
    Ok(if report.is_clean() && trace.is_none_or(TraceStats::is_whole) {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(FAILED)
    })
}

impl LoadArgs {
    fn spec(&self) -> anyhow::Result<LoadSpec> {
        self.replay.check()?;
        let is_replay = self.replay.trace.is_some();
        let work = self.pattern.map_or_else(|| self.work(), Pattern::work);
        let block = self.bs.unwrap_or(work.block_bytes);
        let training = work.training;
        let rate_iops = self.rate_iops.or(training.map(|t: Training| t.bytes_per_s / block.max(1) as f64));
        let open = self.open_loop(rate_iops)?;
        let depth = match training {
            Some(training) => training.reader_threads,
            None if open.is_some() || is_replay => OPEN_LOOP_DEPTH,
            None => 1,
        };
        let cpus = u16::try_from(self.cpu.len()).context("--cpu names too many")?;
        let spec = LoadSpec {
            nsid: self.nsid,
            random: matches!(work.rw, Rw::Randread | Rw::Randwrite | Rw::Randrw),
            file_bytes: training.map(|t| t.file_bytes),
            read_percent: work.read_percent,
            trim_percent: self.trim_mix,
            block_bytes: u32::try_from(block).context("--bs is too large; most targets take up to 128k or 1m")?,
            depth: self.iodepth.unwrap_or(depth),
            jobs: self.numjobs,
            hosts: 1,
            threads: self.threads.unwrap_or(if self.verify_only { 1 } else { cpus.min(self.numjobs).max(1) }),
            cpus: self.cpu.clone(),
            offset_bytes: self.offset,
            size_bytes: self.size,
            runtime_ns: self.runtime,
            ios: self.number_ios,
            ramp_ns: self.ramp_time,
            open,
            verify: self.verify,
            ledger: self.ledger.clone(),
            verify_only: self.verify_only,
            fua: self.fua,
            flush_every: self.fsync,
            seed: self.randseed,
            // a check counts all wrong blocks
            continue_on_error: self.continue_on_error || self.verify_only,
            timeout_ms: self.timeout / 1_000_000,
            yield_when_idle: self.r#yield,
        };
        spec.check()?;
        Ok(spec)
    }

    fn open_trace(&self) -> Result<Option<Replay>, OpenError> {
        self.replay.trace.as_ref().map(|file| self.replay.open(file, self.randseed)).transpose()
    }

    /// The workload of the options, without a pattern.
    fn work(&self) -> Work {
        let read_percent = match self.rw {
            Rw::Read | Rw::Randread => 100,
            Rw::Write | Rw::Randwrite => 0,
            Rw::Rw | Rw::Randrw => self.rwmixread,
        };
        let block_bytes = if self.replay.trace.is_some() { REPLAY_BLOCK } else { BLOCK };
        Work { rw: self.rw, read_percent, block_bytes, training: None }
    }

    /// Rates are per connection, as in fio.
    fn open_loop(&self, rate_iops: Option<f64>) -> anyhow::Result<Option<OpenLoop>> {
        let schedule = match (&self.schedule, rate_iops) {
            (None, None) => return Ok(None),
            (None, Some(rate)) => Schedule::constant(rate).context("--rate_iops")?,
            (Some(text), full) => Schedule::new(units::phases(text, full)?).context("--schedule")?,
        };
        let process = match self.rate_process {
            RateProcess::Linear => Process::Linear,
            RateProcess::Poisson => Process::Poisson,
        };
        Ok(Some(OpenLoop { schedule: schedule.scaled(f64::from(self.numjobs)), process }))
    }
}

fn percent() -> clap::builder::RangedI64ValueParser<u8> {
    clap::value_parser!(u8).range(0..=100)
}

fn host_nqn(text: &str) -> anyhow::Result<String> {
    nqn::check(text).map_err(|why| anyhow!("{why}; {}", nqn::FORMS))?;
    Ok(text.to_owned())
}

/// In nanoseconds; the target counts it in milliseconds.
fn keep_alive(text: &str) -> anyhow::Result<u64> {
    match units::duration_ns(text)? {
        1..1_000_000 => bail!("this is less than a millisecond: give 0 for none, or 1ms or more"),
        ns => Ok(ns),
    }
}

/// In nanoseconds; counted in milliseconds.
fn timeout(text: &str) -> anyhow::Result<u64> {
    match units::duration_ns(text)? {
        0..1_000_000 => bail!("give 1ms or more"),
        ns => Ok(ns),
    }
}

/// Prints a progress line if standard error is a terminal.
fn progress_bar(total_ns: Option<u64>) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let (bar, template) = match total_ns {
        Some(ns) => (ProgressBar::new(ns / 1_000_000), "{wide_bar} {msg}"),
        None => (ProgressBar::new_spinner(), "{spinner} {msg}"),
    };
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    bar.with_style(style)
}

fn tell(bar: &ProgressBar, p: &Progress) {
    let elapsed = Duration::from_nanos(p.elapsed_ns);
    let per_s = p.ios as f64 / elapsed.as_secs_f64().max(1e-3);
    let errors = if p.errors > 0 { format!(", {} errors", p.errors) } else { String::new() };
    bar.set_message(format!("{:.1} s, {:.0} I/Os a second{errors}", elapsed.as_secs_f64(), per_s));
    bar.set_position(p.elapsed_ns / 1_000_000);
}

#[cfg(test)]
mod tests;
