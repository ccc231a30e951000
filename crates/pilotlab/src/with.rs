//! `pilotlab with`: the settings of `[machine]` while a command runs, and back again.

use std::fs;
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use pilotlight_actuators::changes::{Changes, fresh};
use pilotlight_actuators::{Machine, Roots};
use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;
use signal_hook::consts::{SIGINT, SIGTERM};

const ABOUT: &str = "\
Run a command with settings of the machine, and put them back when it ends.

The settings are the section [machine] of a file (docs/changes.md): schedulers, frequencies, power limits, power states of a \
drive, a cgroup for the command, any file of /sys. They are put back when the command ends, on Ctrl-C and on SIGTERM; after \
`kill -9` by `pilotlab restore`.";

const EXAMPLES: &str = "\
Examples:
  pilotlab with quick.toml --device /dev/nvme0n1 -- fio job.fio
  pilotlab with quick.toml -- sleep 60

  # quick.toml
  [machine]
  governor = \"performance\"
  scheduler = \"none\"
  power_state = 1
  transitions = false

Exit codes:
  that of the command; 128 and the signal's number if a signal has ended it
  1  a setting could not be made or put back, or the command could not be started";

/// Options of `pilotlab with`.
#[derive(Args, Clone, Debug)]
#[command(long_about = ABOUT, after_long_help = EXAMPLES, after_help = "Run with --help for examples and exit codes.")]
pub(crate) struct WithArgs {
    /// A file (TOML) with a section [machine]; other sections are not looked at
    file: PathBuf,

    /// The block device, or a file on one, that `scheduler`, `power_state` and limits of I/O are about
    #[arg(long, value_name = "PATH")]
    device: Option<PathBuf>,

    /// The command and its arguments
    #[arg(required = true, last = true)]
    command: Vec<String>,
}

/// What is looked at in the file.
#[derive(Deserialize)]
struct File {
    machine: Machine,
}

/// Runs the command.
pub(crate) fn run(args: &WithArgs) -> anyhow::Result<ExitCode> {
    let end = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, end.clone()).context("cannot wait for signals")?;
    }
    let roots = Roots::default();
    let wanted = read(&args.file)?.changes(&roots, args.device.as_deref(), &std::process::id().to_string())?;
    let mut changes = Changes::begin(&fresh(), roots)?;
    for change in &wanted {
        changes.make(change)?;
    }
    let status = start(&args.command, changes.cgroup()).and_then(|child| wait(child, &end));
    let back = changes.put_back();
    let status = status.with_context(|| format!("cannot run {}", args.command.join(" ")))?;
    for back in back? {
        tracing::debug!("{back}");
    }
    let code = status.code().or(status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    Ok(u8::try_from(code).unwrap_or(1).into())
}

fn read(path: &Path) -> anyhow::Result<Machine> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let file: File = toml::from_str(&text).with_context(|| path.display().to_string())?;
    Ok(file.machine)
}

/// A shell goes into the cgroup and becomes the command, so that nothing of it runs outside.
fn start(command: &[String], cgroup: Option<&Path>) -> io::Result<Child> {
    const INTO: &str = "echo $$ >\"$0/cgroup.procs\" && exec \"$@\"";
    let Some((program, arguments)) = command.split_first() else { return Err(io::ErrorKind::InvalidInput.into()) };
    match cgroup {
        Some(cgroup) => Command::new("/bin/sh").args(["-c", INTO]).arg(cgroup).arg(program).args(arguments).spawn(),
        None => Command::new(program).args(arguments).spawn(),
    }
}

/// Until it has ended; it is asked to when we are.
fn wait(mut child: Child, end: &AtomicBool) -> io::Result<ExitStatus> {
    const LOOK: Duration = Duration::from_millis(20);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if end.swap(false, Ordering::Relaxed) {
            kill_process(Pid::from_child(&child), Signal::TERM)?;
        }
        thread::sleep(LOOK);
    }
}
