//! `pilotlab trace`: statistics of a block trace, and surrogates of unpublished traces.

mod analyse;
mod generate;
mod packed;
mod render;
mod segments;
mod with_unit;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use pilotlight_cli::trace::ReadingArgs;
use pilotlight_host::units;
use pilotlight_trace::stats::BurstRule;

use crate::console;
use crate::exit::Exit;

const ABOUT: &str = "\
Print statistics of a block trace: requests, rates and their peaks, bursts, sizes, dispersion, working set, volumes.

The trace is read once, in bounded memory. Compression (none, gzip, zstd) is detected by the first bytes, \
the format by the first lines: alibaba, tencent, msr, mqsim, vscsi (CloudPhysics), blkparse, \
spc, systor, fio (iolog), csv. docs/traces.md describes the columns of each format and the statistics.

With -o the requests are written as CSV. With --generate a surrogate is generated instead: it has the published read share, size \
quartiles and bursts of a vendor's traces, and random values for the rest.";

const EXAMPLES: &str = "\
Examples:
  pilotlab trace io_traces.csv.gz                 statistics
  pilotlab trace usr_0.csv.gz --json              statistics as JSON
  tar -xzOf 2018100101.tgz | pilotlab trace - --format tencent
  blkparse -i sda | pilotlab trace - --blkparse-action issued
  pilotlab trace disksim.txt --format mqsim --time-unit ms
  pilotlab trace web.trace -o web.csv.zst         as plain CSV
  pilotlab trace --generate alibaba --seed 7 --hours 2 -o surrogate.csv.zst
  pilotlight load --trace surrogate.csv.zst --speed 10
                                                    replay it against a target
  pilotlab run --replay web.csv.zst               energy of a day of it under each policy
  pilotlab trace web.csv.zst --pressure papers/pacer/pressure.toml
                                                    its pressure on PACER's server, by 20 minutes

Exit codes:
  0  read to its end; malformed lines, if any, are counted
  1  the trace could not be read to its end or has no request, or --strict found a malformed line
  2  the command line was refused, or the format is unknown";

/// Options of `pilotlab trace`.
#[derive(Args, Clone, Debug)]
#[command(long_about = ABOUT, after_long_help = EXAMPLES)]
#[command(after_help = "Run with --help for examples and exit codes.")]
pub(crate) struct TraceArgs {
    /// The trace; - for standard input
    #[arg(value_name = "FILE", conflicts_with = "generate")]
    pub(crate) file: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) reading: ReadingArgs,

    /// Write the requests as CSV to a file, compressed if it ends in .gz or .zst. A FIFO or /dev/stdout is never compressed
    #[arg(short, long, value_name = "FILE", value_parser = output_path)]
    pub(crate) output: Option<PathBuf>,

    /// Print the statistics as JSON instead of tables
    #[arg(long)]
    pub(crate) json: bool,

    /// Segments of this length, each with its rate, shares and sizes [default with --pressure: 20min]
    #[arg(long, value_name = "TIME", value_parser = bin_ns, help_heading = "Segments (PACER, section III-A3)")]
    pub(crate) segments: Option<u64>,

    /// Pressure of the segments on the simulated machine of an experiment: requested rate over the machine's maximum rate
    #[arg(long, value_name = "EXPERIMENT", help_heading = "Segments (PACER, section III-A3)")]
    pub(crate) pressure: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) bursts: BurstArgs,

    #[command(flatten)]
    pub(crate) surrogate: SurrogateArgs,
}

/// The definition of a burst.
#[derive(Args, Clone, Debug)]
pub(crate) struct BurstArgs {
    /// Width of a bin, at least 1us
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = bin_ns)]
    #[arg(help_heading = "Bursts: runs of bins that hold at least --burst-factor times the mean of the bins before")]
    pub(crate) burst_bin: u64,

    /// Multiple of the mean of the bins before
    #[arg(long, value_name = "FACTOR", default_value_t = 2.0, value_parser = factor)]
    #[arg(help_heading = "Bursts: runs of bins that hold at least --burst-factor times the mean of the bins before")]
    pub(crate) burst_factor: f64,

    /// Number of bins before that the mean covers
    #[arg(long, value_name = "BINS", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    #[arg(help_heading = "Bursts: runs of bins that hold at least --burst-factor times the mean of the bins before")]
    pub(crate) burst_background: u32,

    /// Minimum number of requests of a bin in a burst
    #[arg(long, value_name = "COUNT", default_value_t = 100)]
    #[arg(help_heading = "Bursts: runs of bins that hold at least --burst-factor times the mean of the bins before")]
    pub(crate) burst_min_requests: u64,
}

/// Parses a width in nanoseconds.
fn bin_ns(text: &str) -> anyhow::Result<u64> {
    let ns = units::duration_ns(text)?;
    anyhow::ensure!(ns >= 1_000, "give at least 1us, such as 1s");
    Ok(ns)
}

fn factor(text: &str) -> anyhow::Result<f64> {
    let factor = text.parse().ok().filter(|factor: &f64| factor.is_finite() && *factor > 0.0);
    factor.context("give a number above 0, such as 2")
}

/// Extensions of compressed formats that are not written.
const NOT_WRITTEN: [&str; 12] = ["bz2", "xz", "lz4", "lzma", "lzo", "br", "z", "zip", "7z", "tgz", "tar", "parquet"];

/// Parses the path of an output; refuses unsupported compressed formats.
fn output_path(text: &str) -> anyhow::Result<PathBuf> {
    let path = PathBuf::from(text);
    let end = path.extension().and_then(|end| end.to_str()).unwrap_or_default().to_ascii_lowercase();
    anyhow::ensure!(
        !NOT_WRITTEN.contains(&end.as_str()),
        ".{end} is not supported; names that end in .gz or .zst are compressed, others are plain CSV"
    );
    Ok(path)
}

impl BurstArgs {
    fn rule(&self) -> BurstRule {
        BurstRule {
            bin_ns: self.burst_bin,
            background_bins: self.burst_background,
            factor: self.burst_factor,
            min_requests: self.burst_min_requests,
            ..BurstRule::default()
        }
    }
}

/// The surrogate.
#[derive(Args, Clone, Debug)]
pub(crate) struct SurrogateArgs {
    /// Generate a surrogate of a vendor's traces
    #[arg(long, value_enum, value_name = "VENDOR", help_heading = "Surrogates")]
    pub(crate) generate: Option<Vendor>,

    /// Seed of the unpublished parameters and the requests
    #[arg(long, value_name = "NUMBER", default_value_t = 1, help_heading = "Surrogates")]
    pub(crate) seed: u64,

    /// Length of the surrogate in hours, such as 0.5
    #[arg(long, value_name = "HOURS", default_value_t = 1.0, help_heading = "Surrogates")]
    pub(crate) hours: f64,

    /// Requests per second of all volumes together, without bursts
    #[arg(long, value_name = "RATE", default_value = "10k", value_parser = units::rate, help_heading = "Surrogates")]
    pub(crate) rate_iops: f64,

    /// Volumes of the surrogate
    #[arg(long, value_name = "COUNT", default_value_t = 128, help_heading = "Surrogates")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) volumes: u32,

    /// Bytes of each volume [default: 480 GB]
    #[arg(long, value_name = "SIZE", value_parser = units::bytes, help_heading = "Surrogates")]
    pub(crate) volume_size: Option<u64>,
}

/// Vendors with published statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Vendor {
    /// Alibaba block traces
    Alibaba,
    /// Tencent CBS
    Tencent,
}

/// Reads or generates a trace and prints its statistics.
///
/// # Errors
/// If a trace cannot be read or a file cannot be written.
pub(crate) fn run(args: &TraceArgs) -> anyhow::Result<ExitCode> {
    match (&args.file, args.surrogate.generate) {
        (Some(file), None) => analyse::run(args, file),
        (_, Some(vendor)) => generate::run(args, vendor),
        (None, None) => Ok(refuse("name a trace, or generate one with --generate")),
    }
}

/// Prints an error of the command line.
pub(crate) fn refuse(message: &str) -> ExitCode {
    console::eprintln(format_args!("error: {message}"));
    Exit::Refused.into()
}
