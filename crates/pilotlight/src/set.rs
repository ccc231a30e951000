//! `pilotlight set`: changes how a running server decides.

use std::fmt::Write as _;

use clap::{Args, Subcommand};
use pilotlight_policy::POLICIES;

use crate::admin::client::{Client, SocketArgs};
use crate::admin::request::Request;
use crate::exit::Exit;
use crate::policies::{PolicyChoice, key_and_value};
use crate::status::report::PolicyReport;

const EXAMPLES: &str = "\
Examples:
  pilotlight set policy static
  pilotlight set policy sandman window=64 spread=deviation
  pilotlight set policy sandman --socket /run/pilotlight/disks.sock

Exit codes:
  0  the policy is in charge
  1  no server answers
  2  the server refused; nothing has been changed";

/// Options of `pilotlight set`.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = EXAMPLES, after_help = "Run with --help for examples and exit codes.")]
#[command(arg_required_else_help = true)]
pub(crate) struct SetArgs {
    #[command(subcommand)]
    what: What,

    #[command(flatten)]
    socket: SocketArgs,
}

#[derive(Clone, Debug, Subcommand)]
enum What {
    /// Let another policy decide, or the same one with other parameters; under load too
    #[command(after_long_help = policy_help(), after_help = "Run with --help for policies, parameters and examples.")]
    Policy(PolicyArgs),
}

#[derive(Args, Clone, Debug)]
struct PolicyArgs {
    /// The policy: static, interrupt, governor, dynamic, hybrid-poll, sandman, rapl-only or cpu-bandwidth
    name: String,

    /// Parameters, set in this order; what is not given has its default
    #[arg(value_name = "KEY=VALUE", value_parser = pair)]
    parameters: Vec<(String, String)>,

    /// Print the policy as JSON
    #[arg(long)]
    json: bool,
}

fn pair(text: &str) -> Result<(String, String), String> {
    key_and_value(text).ok_or_else(|| "write KEY=VALUE, such as window=64".to_owned())
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
    let What::Policy(policy) = &args.what;
    let choice = PolicyChoice { name: policy.name.clone(), parameters: policy.parameters.clone() };
    let answer = Client::connect(&args.socket)?.ask::<PolicyReport>(&Request::SetPolicy(choice));
    crate::admin::client::tell(answer, |report| {
        if policy.json {
            return Ok(serde_json::to_string(report)? + "\n");
        }
        Ok(format!("policy {} is in charge{}\n", report.name, changed(report)))
    })
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
