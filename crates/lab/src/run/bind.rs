//! CPUs and memory of the workload: `taskset` and `numactl` as prefixes of its command line, visible in the plan.

use std::ffi::OsString;

use crate::experiment::schema::Bind;
use pilotlight_workloads::{Missing, Step};

/// The step with its prefixes.
#[must_use]
pub(super) fn bound(step: Step, bind: &Bind) -> Step {
    let mut argv: Vec<OsString> = Vec::new();
    if let Some(node) = bind.numa_node {
        argv.extend(["numactl".into(), format!("--cpunodebind={node}").into(), format!("--membind={node}").into()]);
    }
    if let Some(cpus) = &bind.cpus {
        argv.extend(["taskset".into(), "-c".into(), cpus.into()]);
    }
    argv.extend(step.argv);
    Step { argv, ..step }
}

/// Checks that the programs are installed.
///
/// # Errors
/// The missing program and its package.
pub(super) fn check(bind: &Bind) -> Result<(), Missing> {
    let needed = [
        (bind.numa_node.is_some(), "numactl", "needed by bind.numa_node: `apt install numactl`"),
        (bind.cpus.is_some(), "taskset", "needed by bind.cpus: `apt install util-linux`"),
    ];
    let missing = needed.into_iter().find(|(needed, tool, _)| *needed && super::find(tool).is_none());
    missing.map_or(Ok(()), |(_, tool, help)| {
        Err(Missing { tool: tool.into(), why: "not found in PATH".into(), help: help.into() })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_are_prefixes_of_the_command() {
        let step = Step { argv: vec!["fio".into(), "job".into()], ..Step::default() };
        let bind = Bind { cpus: Some("0-3".into()), numa_node: Some(1) };
        let argv = bound(step.clone(), &bind).argv;
        assert_eq!(argv, ["numactl", "--cpunodebind=1", "--membind=1", "taskset", "-c", "0-3", "fio", "job"]);
        assert_eq!(bound(step.clone(), &Bind::default()), step);
    }
}
