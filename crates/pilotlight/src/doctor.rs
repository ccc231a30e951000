//! `pilotlight doctor`: features of this machine that a server with sleeping cores uses; for each missing one the reason, the cost and the
//! remedy.
//!
//! Facts are gathered once ([`facts`], [`live`]); a section depends on them only, and the report is printed
//! as text ([`render`]) or JSON ([`report`]). Nothing on the machine is changed.

mod actuators;
mod cgroup;
mod cores;
mod cpu;
mod drives;
mod facts;
mod frequency;
mod idle;
mod interrupts;
mod limits;
mod lists;
mod live;
mod network;
mod render;
mod report;
mod sensors;
mod storage;
mod system;
mod topology;
mod tree;
mod wait;
mod wakeup;

/// Whether the kernel sets up an io_uring: for tests.
#[cfg(test)]
pub(crate) fn has_io_uring() -> bool {
    system::ring().is_ok()
}

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use pilotlight_nvmf_target::config::{Limits, ServerConfig};
use serde_json::json;

use crate::config::{self, ConfigError, Machine, ServeArgs, format_cores};
use crate::console;
use crate::exit::Exit;
use crate::log;
use facts::{Chosen, Facts};
use report::Report;

const ABOUT: &str = "\
Check whether cores of a server can sleep on this machine.

Checks cores and siblings, wait instructions, idle states, frequency control, CPUs of network packets, storage, \
sensors, actuators and limits. For each missing item: the reason, the cost, and the remedy. A wake-up by \
futex is measured, which takes less than a second of two cores; nothing is changed.";

const EXAMPLES: &str = "\
Examples:
  pilotlight doctor                                 every CPU that this process may use
  pilotlight doctor --cores 2-5                     on these cores; the first is the main core
  pilotlight doctor --config /etc/pilotlight.toml   for the server that this file describes
  pilotlight doctor --json | jq '.sections[].missing[]'

Exit codes:
  0  checked, whatever the result
  1  the report could not be printed
  2  the command line or the configuration was refused; nothing was checked";

/// Options of `pilotlight doctor`.
#[derive(Args, Clone, Debug, Default)]
#[command(long_about = ABOUT, after_long_help = EXAMPLES)]
#[command(after_help = "Run with --help for examples and exit codes.")]
pub(crate) struct DoctorArgs {
    /// Cores of the server, such as 0,1 or 0-3 [default: all that are allowed]
    #[arg(long, value_name = "LIST", conflicts_with = "config")]
    cores: Option<String>,

    /// Take cores, I/O threads and files from a server's configuration (TOML; see docs/configuration.md)
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

/// Examines the machine and prints the report.
pub(crate) fn run(args: &DoctorArgs) -> anyhow::Result<ExitCode> {
    let machine = Machine::this();
    let chosen = match choose(args, &machine) {
        Ok(chosen) => chosen,
        Err(refused) => {
            console::eprint(refused.render(log::colour()));
            return Ok(Exit::Refused.into());
        }
    };
    let report = examine(&live::facts(&machine.cores, &chosen), &chosen);
    if args.json {
        console::println(serde_json::to_string_pretty(&report.json())?)?;
    } else {
        console::print(render::render(&report, console::colour()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The server to check for: from a file or `--cores`, checked as by `serve`, or one on all cores.
fn choose(args: &DoctorArgs, machine: &Machine) -> Result<Chosen, ConfigError> {
    if args.cores.is_none() && args.config.is_none() {
        return Ok(on_all(machine));
    }
    let serve = ServeArgs { cores: args.cores.clone(), config: args.config.clone(), ..ServeArgs::default() };
    let config = config::load(&serve, machine)?.config;
    let by = if args.config.is_some() { "the configuration chooses" } else { "chosen by --cores" };
    let files = args.config.is_some().then(|| files(&config));
    Ok(Chosen {
        main: config.main_core,
        by,
        io_threads: config.io_threads,
        files,
        max_connections: config.limits.max_connections,
        cores: config.cores,
    })
}

fn on_all(machine: &Machine) -> Chosen {
    Chosen {
        cores: machine.cores.clone(),
        main: machine.cores.first().copied().unwrap_or(0),
        by: "all that this process may use; --cores chooses",
        io_threads: machine.cores.len() as u32,
        files: None,
        max_connections: Limits::default().max_connections,
    }
}

/// Number of namespaces in files or on drives.
fn files(config: &ServerConfig) -> u32 {
    let namespaces = config.subsystems.iter().flat_map(|subsystem| &subsystem.namespaces);
    namespaces.filter(|namespace| namespace.backend.path().is_some()).count() as u32
}

/// The whole report.
fn examine(facts: &Facts, chosen: &Chosen) -> Report {
    let kernel = facts.tree.text("/proc/sys/kernel/osrelease").unwrap_or_else(|| "unknown".to_owned());
    let under = facts.cpu.hypervisor.as_ref().map_or(String::new(), |name| format!(", under {name}"));
    Report {
        machine: format!("{}, Linux {kernel}{under}", facts.cpu.model),
        cores: format!("Cores {} ({}), main core {}", format_cores(&chosen.cores), chosen.by, chosen.main),
        value: json!({
            "cpu": facts.cpu.model,
            "vendor": facts.cpu.vendor,
            "kernel": kernel,
            "hypervisor": facts.cpu.hypervisor,
            "cores": chosen.cores,
            "main_core": chosen.main,
        }),
        sections: vec![
            cores::examine(facts, chosen),
            wait::examine(facts),
            idle::examine(facts, chosen),
            frequency::examine(facts, chosen),
            network::examine(facts, chosen),
            storage::examine(facts, chosen),
            sensors::examine(facts),
            actuators::examine(facts, chosen),
            limits::examine(facts, chosen),
        ],
    }
}

#[cfg(test)]
mod tests;
