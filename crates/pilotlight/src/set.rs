//! `pilotlight set`: changes how a running server decides.

mod goals;

use std::fmt::Write as _;

use anyhow::Context as _;
use clap::{Args, Subcommand};
use pilotlight_policy::pass::profile::Profile;
use pilotlight_policy::{NAMES, POLICIES};

use crate::admin::client::{self, SocketArgs};
use crate::admin::request::{BackgroundClass, BackgroundState, CapRequest, MinimumRequest, PriorityRequest, Request};
use crate::exit::Exit;
use crate::policies::{PolicyChoice, key_and_value};
use crate::status::caps::cap_of;
use crate::status::priorities::priorities;
use crate::status::report::{BackgroundReport, CapReport, PolicyReport, PrioritiesReport};
use goals::{BudgetArgs, ToleranceArgs};
pub(crate) use goals::{budget_set, tolerance_set};

const EXAMPLES: &str = "\
Examples:
  pilotlight set policy static
  pilotlight set budget 300W for 2h
  pilotlight set tolerance 0.2
  pilotlight set cap 100MB/s --namespace 1
  pilotlight set priority 5 --namespace 1
  pilotlight set minimum 100MB/s --priority 5
  pilotlight set scrub pause
  pilotlight set policy sandman window=64 spread=deviation
  pilotlight set policy sandman --socket /run/pilotlight/disks.sock

Exit codes:
  0  the policy is active, or the goal or cap is set; a budget: power is within it
  1  no server answers
  2  the server refused; nothing has been changed
  3  the budget is set, but power is not within it: unreachable, not measured, or not held";

const CAP_EXAMPLES: &str = "\
Examples:
  pilotlight set cap 100MB/s --namespace 1
  pilotlight set cap 500MB/s --host nqn.2014-08.org.nvmexpress:uuid:f81d4fae-7dec-11d0-a765-00a0c91e6bf6
  pilotlight set cap off --namespace 1

The cap applies until the server ends, or until its configuration changes
(max_bytes_per_s in [[subsystem.namespace]] and [[host]]).";

const PRIORITY_EXAMPLES: &str = "\
Examples:
  pilotlight set priority 5 --namespace 1
  pilotlight set priority 9 --host nqn.2014-08.org.nvmexpress:uuid:f81d4fae-7dec-11d0-a765-00a0c91e6bf6
  pilotlight set priority off --namespace 1         no priority of its own
  pilotlight set priority default --namespace 1     that of the configuration
  pilotlight set minimum 100MB/s --priority 5

A request has the lower priority of its host and its namespace; if neither has one, 0. Connections get an I/O thread of their priority when they are accepted.
These settings are kept and end as goals do; see docs/operate/limit-power.md.";

const FOREIGN_PROFILE: &str = "\
note: its profile is of another machine, so its models are wrong by what differs; `pilotlab profile` makes one of this machine,
and --budget-profile FILE has the server use it
";

const BACKGROUND_EXAMPLES: &str = "\
Examples:
  pilotlight set scrub pause
  pilotlight set scrub resume
  pilotlight set trim pause

A pause lasts until it is resumed or the server ends. While scrubbing is paused, a pass can miss its schedule (scrub_days).";

/// Options of `pilotlight set`.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = EXAMPLES, after_help = "Run with --help for examples and exit codes.")]
#[command(arg_required_else_help = true)]
pub(crate) struct SetArgs {
    #[command(subcommand)]
    command: SetCommand,

    #[command(flatten)]
    socket: SocketArgs,
}

#[derive(Clone, Debug, Subcommand)]
enum SetCommand {
    /// Set the policy and its parameters; under load too
    #[command(after_long_help = policy_help(), after_help = "Run with --help for policies, parameters and examples.")]
    Policy(PolicyArgs),
    /// Set the power budget; the policy enforces it, or one that wraps it
    #[command(after_long_help = goals::EXAMPLES, after_help = "Run with --help for examples.")]
    Budget(BudgetArgs),
    /// Set the latency tolerance: a share (0.2), or a limit (500us)
    #[command(after_long_help = goals::EXAMPLES, after_help = "Run with --help for examples.")]
    Tolerance(ToleranceArgs),
    /// Set the maximum bytes a second of a namespace, or of a host over all namespaces
    #[command(after_long_help = CAP_EXAMPLES, after_help = "Run with --help for examples.")]
    Cap(CapArgs),
    /// Set a priority: under a power budget the lowest priority loses bandwidth first
    #[command(after_long_help = PRIORITY_EXAMPLES, after_help = "Run with --help for examples.")]
    Priority(PriorityArgs),
    /// Pause scrubbing, or resume it
    #[command(after_long_help = BACKGROUND_EXAMPLES, after_help = "Run with --help for examples.")]
    Scrub(BackgroundArgs),
    /// Pause trimming of freed ranges, or resume it
    #[command(after_long_help = BACKGROUND_EXAMPLES, after_help = "Run with --help for examples.")]
    Trim(BackgroundArgs),
    /// Set the bandwidth that each namespace and host of a priority keeps under a power budget
    #[command(after_long_help = PRIORITY_EXAMPLES, after_help = "Run with --help for examples.")]
    Minimum(MinimumArgs),
}

#[derive(Args, Clone, Debug)]
struct CapArgs {
    /// Such as 100MB/s (1MB/s to 1TB/s), or off
    bandwidth: String,

    #[command(flatten)]
    of: TargetArgs,

    /// Print the cap as JSON
    #[arg(long)]
    json: bool,
}

/// A namespace or a host.
#[derive(Args, Clone, Debug)]
struct TargetArgs {
    /// The namespace
    #[arg(long, value_name = "NSID", required_unless_present = "host", conflicts_with = "host")]
    namespace: Option<i64>,

    /// Its subsystem, where the server has more than one
    #[arg(long, requires = "namespace")]
    nqn: Option<String>,

    /// The host, by its NQN
    #[arg(long, value_name = "NQN")]
    host: Option<String>,
}

#[derive(Args, Clone, Debug)]
struct PriorityArgs {
    /// 0 (the lowest) to 255; off for none; default for that of the configuration
    priority: String,

    #[command(flatten)]
    of: TargetArgs,

    /// Print all priorities as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Args, Clone, Debug)]
struct MinimumArgs {
    /// Such as 100MB/s (1MB/s to 1TB/s); off for none; default for that of the configuration
    bandwidth: String,

    /// The priority
    #[arg(long, value_name = "NUMBER")]
    priority: i64,

    /// Print all priorities as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Args, Clone, Debug)]
struct BackgroundArgs {
    /// The new state
    state: BackgroundState,

    /// Print background work as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Args, Clone, Debug)]
struct PolicyArgs {
    #[arg(help = format!("The policy: {}", NAMES.join(", ")))]
    name: String,

    /// Parameters, set in this order; what is not given has its default
    #[arg(value_name = "KEY=VALUE", value_parser = pair)]
    parameters: Vec<(String, String)>,

    /// Print the policy as JSON
    #[arg(long)]
    json: bool,
}

fn pair(text: &str) -> anyhow::Result<(String, String)> {
    key_and_value(text).context("write KEY=VALUE, such as window=64")
}

/// Every policy with its parameters.
fn policy_help() -> String {
    let mut help = "Policies:\n".to_owned();
    for policy in POLICIES {
        let _ = writeln!(help, "  {:12} {}", policy.name, policy.summary);
    }
    for policy in POLICIES {
        let parameters = (policy.parameters)(&[]);
        if !parameters.is_empty() {
            let _ = writeln!(help, "\nParameters of {}, with their defaults:", policy.name);
        }
        for setting in parameters {
            let _ = writeln!(
                help,
                "  {}={}\n      {}\n      ({})",
                setting.key, setting.value, setting.meaning, setting.allowed
            );
        }
    }
    format!("{help}\n{EXAMPLES}")
}

/// Sets what is to be set.
pub(crate) fn run(args: &SetArgs) -> anyhow::Result<Exit> {
    match &args.command {
        SetCommand::Policy(policy) => set_policy(args, policy),
        SetCommand::Budget(budget) => goals::set_budget(&args.socket, budget),
        SetCommand::Cap(cap) => set_cap(args, cap),
        SetCommand::Priority(PriorityArgs { priority, of, json }) => {
            let TargetArgs { namespace: nsid, nqn, host } = of.clone();
            let request = PriorityRequest { host, nsid, nqn, priority: priority.clone() };
            set_priorities(args, &Request::SetPriority(request), *json)
        }
        SetCommand::Minimum(MinimumArgs { bandwidth, priority, json }) => {
            let request = MinimumRequest { priority: *priority, min_bytes_per_s: bandwidth.clone() };
            set_priorities(args, &Request::SetMinimum(request), *json)
        }
        SetCommand::Scrub(background) => set_background(args, BackgroundClass::Scrub, background),
        SetCommand::Trim(background) => set_background(args, BackgroundClass::Trim, background),
        SetCommand::Tolerance(tolerance) => goals::set_tolerance(&args.socket, tolerance),
    }
}

fn set_cap(args: &SetArgs, cap: &CapArgs) -> anyhow::Result<Exit> {
    let TargetArgs { namespace: nsid, nqn, host } = cap.of.clone();
    let request = Request::SetCap(CapRequest { host, nsid, nqn, max_bytes_per_s: cap.bandwidth.clone() });
    client::run::<CapReport>(&args.socket, &request, cap.json, |report| format!("cap of {}\n", cap_of(report)))
}

fn set_priorities(args: &SetArgs, request: &Request, json: bool) -> anyhow::Result<Exit> {
    client::run::<PrioritiesReport>(&args.socket, request, json, |report| {
        let text = priorities(report);
        if text.is_empty() { "no priorities\n".to_owned() } else { text }
    })
}

fn set_background(args: &SetArgs, class: BackgroundClass, background: &BackgroundArgs) -> anyhow::Result<Exit> {
    let request = Request::SetBackground { class, state: background.state };
    client::run::<BackgroundReport>(&args.socket, &request, background.json, crate::status::background::text)
}

fn set_policy(args: &SetArgs, policy: &PolicyArgs) -> anyhow::Result<Exit> {
    let choice = PolicyChoice { name: policy.name.clone(), parameters: policy.parameters.clone() };
    client::run(&args.socket, &Request::SetPolicy(choice), policy.json, policy_set)
}

/// The message about the active policy.
pub(crate) fn policy_set(report: &PolicyReport) -> String {
    let foreign = if has_foreign_profile(report) { FOREIGN_PROFILE } else { "" };
    format!("policy {} is active{}\n{foreign}", report.name, changed(report))
}

/// Whether its models are of a machine that comes with the program.
fn has_foreign_profile(report: &PolicyReport) -> bool {
    let profile = report.parameters.iter().find(|parameter| parameter.key == "profile");
    profile.is_some_and(|profile| Profile::named(&profile.value).is_some())
}

fn changed(report: &PolicyReport) -> String {
    let set = report.parameters.iter().filter(|parameter| parameter.is_set);
    let set: Vec<_> = set.map(|parameter| format!("{}={}", parameter.key, parameter.value)).collect();
    match (report.parameters.is_empty(), set.is_empty()) {
        (true, _) => String::new(),
        (false, true) => ", every parameter at its default".to_owned(),
        (false, false) => format!(", with {}", set.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use pilotlight_plant::View;

    use super::*;
    use crate::status::measure;

    #[test]
    fn the_profile_of_another_machine_is_noted() {
        let own = include_str!("../../../profiles/pass-xeon-gold-6430.toml").replace("name = \"pass-", "name = \"own-");
        let notes = |name: &str, parameters: &[(&str, &str)]| {
            let pair = |&(key, value): &(&str, &str)| (key.to_owned(), value.to_owned());
            let choice = PolicyChoice { name: name.to_owned(), parameters: parameters.iter().map(pair).collect() };
            policy_set(&measure::policy(&choice, View::new())).contains("another machine")
        };
        assert!(notes("pass", &[]) && notes("adaptive", &[("profile", "pass-xeon-gold-6430")]));
        assert!(!notes("pass", &[("profile", &own)]) && !notes("adaptive", &[]) && !notes("sandman", &[]));
    }
}
