//! The command line of `pilotlab profile`.

use std::num::NonZeroU16;
use std::path::PathBuf;

use anyhow::anyhow;
use clap::{Args, Subcommand};
use pilotlight_host::units;
use pilotlight_input::quantity::{self, POWERS};

use super::drive::Specification;

const ABOUT: &str = "\
Build the power-performance models of policy `pass` for this machine, or for a simulated one.

It measures polling intervals and power of reactors for numbers of cores, CPU quotas and power limits (RAPL), then bandwidth and power of a \
drive. `pass` loads the file. `profile cpu` and `profile ssd` write one part each and keep the other. An interrupted profile can be continued. Settings of \
the machine are restored at the end; after `kill -9` by `pilotlab restore`.";

const EXAMPLES: &str = "\
Examples:
  pilotlab profile --out own.toml /dev/nvme0n1 --spec idle=5W,read=12W,write=15W --drives 10
  pilotlab profile --out own.toml /dev/nvme0n1 --drive-sensor powersensor3
  pilotlab profile --out own.toml /mnt/file --spec idle=5W,read=12W,write=15W --sensor modelled
                                                        on a machine without a power sensor

Exit codes: as of `pilotlab profile cpu`. docs/measure.md describes the measurements.";

const CPU_EXAMPLES: &str = "\
Examples:
  pilotlab profile cpu --out own.toml                               as `pilotlight serve` with all CPUs
  pilotlab profile cpu --out own.toml --cpus 0-7 --threads 16       as --cores 0-7 with 16 I/O threads
  pilotlab profile cpu --out own.toml --sensor modelled --each 2s   without a power sensor, shorter
  pilotlab profile cpu --out sim.toml --simulated profiles/sandman-epyc-9454p.toml --cores 8

Stop the server and other programs first: reactors need exclusive CPUs.

Exit codes:
  0  finished
1  failed; measurements are kept, and the same command continues
  2  the command line was refused
  129, 130, 143  ended by hang-up, Ctrl-C or SIGTERM; the same command continues";

const SSD_EXAMPLES: &str = "\
Examples:
  pilotlab profile ssd --out own.toml /dev/nvme0n1 --sensor powersensor3
  pilotlab profile ssd --out own.toml /dev/nvme0n1 --spec idle=5W,read=12W,write=15W --drives 10
  pilotlab profile ssd --out own.toml /mnt/file --write --spec idle=5W,read=12W,write=15W
  pilotlab profile ssd --out sim.toml --simulated profiles/sandman-epyc-9454p.toml --model profiles/ssd/pm1743.toml

Exit codes: as of `pilotlab profile cpu`";

/// Options of `pilotlab profile`.
#[derive(Args, Clone, Debug)]
#[command(long_about = ABOUT, after_long_help = EXAMPLES, after_help = "Run with --help for examples.")]
#[command(arg_required_else_help = true, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct ProfileArgs {
    /// Part to profile; without it, both
    #[command(subcommand)]
    pub(super) part: Option<Part>,

    #[command(flatten)]
    pub(super) whole: WholeArgs,
}

/// Options of a whole profile.
#[derive(Args, Clone, Debug)]
pub(super) struct WholeArgs {
    #[command(flatten)]
    pub(super) common: Common,

    #[command(flatten)]
    pub(super) cpu: CpuOptions,

    #[command(flatten)]
    pub(super) ssd: SsdOptions,

    /// Sensor of the CPU's power: one of `pilotlab sensors`, or modelled [default: the first available one]
    #[arg(long, value_name = "NAME", conflicts_with = "simulated")]
    pub(super) sensor: Option<String>,

    /// Sensor of the drive's power
    #[arg(long, value_name = "NAME", conflicts_with_all = ["simulated", "spec"])]
    pub(super) drive_sensor: Option<String>,
}

#[derive(Clone, Debug, Subcommand)]
pub(super) enum Part {
    /// Measure the CPU: cores, quotas, power limits
    #[command(after_long_help = CPU_EXAMPLES, after_help = "Run with --help for examples and exit codes.")]
    Cpu(CpuArgs),
    /// Measure an SSD: power over bandwidth
    #[command(after_long_help = SSD_EXAMPLES, after_help = "Run with --help for examples and exit codes.")]
    Ssd(SsdArgs),
}

/// Options of both parts.
#[derive(Args, Clone, Debug)]
pub(super) struct Common {
    /// Output profile; other parts in it are kept
    #[arg(long, value_name = "FILE", default_value = "profile.toml")]
    pub(super) out: PathBuf,

    /// Time of each measurement; the first fifth is not measured
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = each)]
    pub(super) each: u64,

    /// Discard earlier measurements
    #[arg(long)]
    pub(super) fresh: bool,

    /// Print the results as JSON
    #[arg(long)]
    pub(super) json: bool,

    /// Profile a simulated machine: its profile, in the folder of profiles/calibration
    #[arg(long, value_name = "FILE")]
    pub(super) simulated: Option<PathBuf>,
}

/// Options of `pilotlab profile cpu`.
#[derive(Args, Clone, Debug)]
pub(super) struct CpuArgs {
    #[command(flatten)]
    pub(super) common: Common,

    #[command(flatten)]
    pub(super) options: CpuOptions,

    /// Power sensor: one of `pilotlab sensors`, or modelled [default: the first available one]
    #[arg(long, value_name = "NAME", conflicts_with = "simulated")]
    pub(super) sensor: Option<String>,
}

/// Options of the CPU's part.
#[derive(Args, Clone, Debug)]
pub(super) struct CpuOptions {
    /// CPUs of the reactors, the main core first, such as 0-7 [default: all available to this process]
    #[arg(long, value_name = "LIST", conflicts_with = "simulated")]
    pub(super) cpus: Option<String>,

    /// Cores of the simulated machine
    #[arg(long, value_name = "COUNT", default_value = "8", requires = "simulated")]
    pub(super) cores: NonZeroU16,

    /// I/O threads [default: one per core]
    #[arg(long, value_name = "COUNT")]
    pub(super) threads: Option<NonZeroU16>,

    /// Step of budgets and power limits
    #[arg(long, value_name = "POWER", default_value = "10W", value_parser = power)]
    pub(super) step: u64,

    /// Seed of the deviations of --sensor modelled from the server's model (up to 20 %)
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub(super) seed: u64,
}

/// Options of `pilotlab profile ssd`.
#[derive(Args, Clone, Debug)]
pub(super) struct SsdArgs {
    #[command(flatten)]
    pub(super) common: Common,

    #[command(flatten)]
    pub(super) options: SsdOptions,

    /// Sensor of the drive's power
    #[arg(long, value_name = "NAME", conflicts_with_all = ["simulated", "spec"])]
    pub(super) sensor: Option<String>,
}

/// Options of the drive's part.
#[derive(Args, Clone, Debug)]
pub(super) struct SsdOptions {
    /// A block device, or a file on a file system with direct I/O
    #[arg(value_name = "DEVICE|FILE", required_unless_present = "simulated", conflicts_with = "simulated")]
    pub(super) path: Option<PathBuf>,

    /// Also write; all data on it is lost
    #[arg(long)]
    pub(super) write: bool,

    /// Power of the drive's specification: idle and at full bandwidth, such as idle=5W,read=12W,write=15W
    #[arg(long, value_name = "POWERS", value_parser = Specification::parse, conflicts_with = "simulated")]
    pub(super) spec: Option<Specification>,

    /// Number of such drives in the server
    #[arg(long, value_name = "COUNT", default_value = "1")]
    pub(super) drives: NonZeroU16,

    /// Threads, each with one request of 128 KiB in flight
    #[arg(long, value_name = "COUNT", default_value = "16")]
    pub(super) jobs: NonZeroU16,

    /// Profile of the simulated drive
    #[arg(long, value_name = "FILE", requires = "simulated", required_unless_present = "path")]
    pub(super) model: Option<PathBuf>,
}

/// The time of a measurement.
fn each(text: &str) -> anyhow::Result<u64> {
    let ns = units::duration_ns(text)?;
    anyhow::ensure!(ns >= 1_000_000, "give 1ms or more, such as 5s");
    Ok(ns)
}

fn power(text: &str) -> anyhow::Result<u64> {
    let uw = quantity::parse(text, POWERS).map_err(|error| anyhow!("{error}: give a power such as 10W"))?;
    anyhow::ensure!(uw >= 1_000_000, "give 1W or more");
    Ok(uw)
}
