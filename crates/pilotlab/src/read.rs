//! `pilotlab read`: measures random reads of a drive or a file with any completion mechanism of Linux. It changes neither data nor settings.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::reader::{Method, Report, Spec};
use clap::Args;
use pilotlight_drive::Roots;
use pilotlight_host::units;
use pilotlight_lab::study::device::setting;
use pilotlight_workloads::Mechanism;
use pilotlight_workloads::mechanism::{Api, Kind};
use serde::Serialize;
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::console;
use crate::exit::Exit;

pub(crate) const ABOUT: &str = "\
Read a drive or a file at random offsets, and measure it.

Each thread has one read in flight, past the page cache (O_DIRECT). --mechanism selects the completion mechanism: an interrupt, \
polling (classic), or sleeping and then polling (hybrid), through preadv2 or io_uring. Nothing is written, and no setting is \
changed: preadv2 polls only if the queue's io_poll is 1, and sleeps before as set by its io_poll_delay (pilotlab measure --set sets them); io_uring's \
hybrid polling needs Linux 6.13. Kernels accept mechanisms that they do not carry out: an experiment (pilotlab run, kind = \"read\") \
sets the required settings and reports the actual mechanism.

Options are named as in fio. Sizes: 4k and 4KiB are 4096 bytes, 4kB is 4000.";

const EXAMPLES: &str = "\
Examples:
  pilotlab read /dev/nvme0n1                                  4 KiB by interrupt, one thread, 10 s
  pilotlab read /dev/nvme0n1 --mechanism \"uring hybrid\"       io_uring's hybrid polling
  pilotlab read /dev/nvme0n1 --mechanism \"uring classic\" --bs 16k --numjobs 4 --runtime 30s --json
  pilotlab read /var/tmp/file --ramp_time 1s --size 1g        a file, its first GiB

Exit codes:
  0  measured
  1  it cannot be opened, or a read failed; the message has a remedy
  2  the command line was refused, or needs something that this machine does not have";

/// Options of `pilotlab read`.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = EXAMPLES)]
#[command(after_help = "Run with --help for examples and exit codes.")]
pub(crate) struct ReadArgs {
    /// A block device, or a file on a file system with direct I/O
    #[arg(value_name = "DEVICE|FILE")]
    path: PathBuf,

    /// Completion mechanism: interrupt, classic or hybrid (preadv2); "uring interrupt", "uring classic", "uring hybrid"
    #[arg(long, value_name = "MECHANISM", default_value = "interrupt", value_parser = Mechanism::read)]
    mechanism: Mechanism,

    /// Size of a read in bytes, a multiple of the logical block size
    #[arg(long, alias = "blocksize", value_name = "SIZE", default_value = "4k", value_parser = units::bytes)]
    bs: u64,

    /// Threads, each with one read in flight
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    numjobs: u32,

    /// Measured time
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = units::duration_ns)]
    runtime: u64,

    /// Unmeasured time before that
    #[arg(long = "ramp_time", alias = "ramp-time", value_name = "TIME", default_value = "0")]
    #[arg(value_parser = units::duration_ns)]
    ramp_time: u64,

    /// Start of the range
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = units::bytes)]
    offset: u64,

    /// Size of the range in bytes [default: up to the end]
    #[arg(long, value_name = "SIZE", value_parser = units::bytes)]
    size: Option<u64>,

    /// Seed of the addresses
    #[arg(long, alias = "seed", value_name = "NUMBER", default_value_t = 1)]
    randseed: u64,

    /// Print the result as JSON instead of a table
    #[arg(long)]
    json: bool,
}

/// The result, with the options and the settings of the queue.
#[derive(Serialize)]
struct Printed {
    mechanism: String,
    queue: Queue,
    #[serde(flatten)]
    report: Report,
}

/// Settings of the device's queue, if available.
#[derive(Serialize)]
struct Queue {
    io_poll: Option<i64>,
    io_poll_delay: Option<i64>,
}

/// Runs the command.
///
/// # Errors
/// If the file cannot be opened or read. Usage errors are printed, with exit code 2.
pub(crate) fn run(args: &ReadArgs) -> anyhow::Result<ExitCode> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, stop.clone())?;
        signal_hook::flag::register(signal, stop.clone())?;
    }
    let report = match crate::reader::run(&args.spec(), &stop) {
        Err(error) if error.is_invalid_request() => {
            console::eprintln(format_args!("error: {error}"));
            return Ok(Exit::Refused.into());
        }
        report => report?,
    };
    let printed = Printed { mechanism: args.mechanism.to_string(), queue: queue(&args.path), report };
    if args.json {
        console::println(serde_json::to_string(&printed)?)?;
    } else {
        console::print(printed.text())?;
    }
    Ok(ExitCode::SUCCESS)
}

impl ReadArgs {
    fn spec(&self) -> Spec {
        Spec {
            path: self.path.clone(),
            method: method(self.mechanism),
            bytes: self.bs,
            jobs: self.numjobs,
            runtime_ns: self.runtime,
            ramp_ns: self.ramp_time,
            seed: self.randseed,
            offset: self.offset,
            size: self.size,
        }
    }
}

/// The system calls. Whether `preadv2` sleeps before polling is a setting of the queue.
fn method(mechanism: Mechanism) -> Method {
    match (mechanism.api, mechanism.kind) {
        (Api::Sync, Kind::Interrupt) => Method::Preadv2,
        (Api::Sync, Kind::Classic | Kind::Hybrid(_)) => Method::Preadv2Polled,
        (Api::Uring, Kind::Interrupt) => Method::Uring,
        (Api::Uring, Kind::Classic) => Method::UringPolled,
        (Api::Uring, Kind::Hybrid(_)) => Method::UringHybrid,
    }
}

fn queue(path: &Path) -> Queue {
    let read = |name| setting(&Roots::default(), Some(path), name);
    Queue { io_poll: read("io_poll"), io_poll_delay: read("io_poll_delay") }
}

impl Printed {
    fn text(&self) -> String {
        let word = |value: Option<i64>| value.map_or_else(|| "not there".to_owned(), |value| value.to_string());
        let (poll, delay) = (word(self.queue.io_poll), word(self.queue.io_poll_delay));
        format!(
            "{}mechanism         requested {}; the queue's io_poll is {poll}, io_poll_delay {delay}\n",
            self.report, self.mechanism
        )
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use pilotlight_workloads::mechanism;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        read: ReadArgs,
    }

    fn spec(args: &[&str]) -> Result<Spec, clap::Error> {
        Cli::try_parse_from([&["read", "/dev/x"], args].concat()).map(|cli| cli.read.spec())
    }

    #[test]
    fn names_of_fio_have_their_meaning_in_fio() {
        let args = "--bs 16k --numjobs 4 --runtime 30 --ramp_time 250ms --randseed 9 --offset 1m --size 1g";
        let s = spec(&args.split(' ').collect::<Vec<_>>()).unwrap();
        assert_eq!((s.bytes, s.jobs, s.seed, s.offset, s.size), (16 << 10, 4, 9, 1 << 20, Some(1 << 30)));
        assert_eq!((s.runtime_ns, s.ramp_ns), (30_000_000_000, 250_000_000));
        let s = spec(&[]).unwrap();
        assert_eq!((s.method, s.bytes, s.jobs, s.runtime_ns, s.ramp_ns), (Method::Preadv2, 4096, 1, 10_000_000_000, 0));
    }

    #[test]
    fn mechanisms_are_those_of_experiments() {
        for (words, expected) in [
            ("interrupt", Method::Preadv2),
            ("classic", Method::Preadv2Polled),
            ("hybrid", Method::Preadv2Polled),
            ("hybrid 4us", Method::Preadv2Polled),
            ("uring interrupt", Method::Uring),
            ("uring classic", Method::UringPolled),
            ("uring hybrid", Method::UringHybrid),
        ] {
            assert_eq!(spec(&["--mechanism", words]).unwrap().method, expected);
        }
        let refused = spec(&["--mechanism", "poll"]).unwrap_err().to_string();
        assert!(refused.contains(mechanism::WORDS), "{refused}");
    }
}
