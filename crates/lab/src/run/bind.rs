//! Where the workload may run: `taskset` and `numactl` before its command line, so that the plan shows it.

use std::ffi::OsString;

use crate::experiment::schema::Bind;
use pilotlight_workloads::{Missing, Step};

/// The step, bound.
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

/// Looks for what it takes.
///
/// # Errors
/// It is not there, and how to get it.
pub(super) fn check(bind: &Bind) -> Result<(), Missing> {
    let needed = [
        (bind.numa_node.is_some(), "numactl", "bind.numa_node needs it: `apt install numactl`"),
        (bind.cpus.is_some(), "taskset", "bind.cpus needs it: `apt install util-linux`"),
    ];
    let missing = needed.into_iter().find(|(needed, tool, _)| *needed && super::find(tool).is_none());
    missing.map_or(Ok(()), |(_, tool, help)| {
        Err(Missing { tool: tool.into(), why: "there is no such program".into(), help: help.into() })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_stand_before_the_program() {
        let step = Step { argv: vec!["fio".into(), "job".into()], ..Step::default() };
        let bind = Bind { cpus: Some("0-3".into()), numa_node: Some(1) };
        let argv = bound(step.clone(), &bind).argv;
        assert_eq!(argv, ["numactl", "--cpunodebind=1", "--membind=1", "taskset", "-c", "0-3", "fio", "job"]);
        assert_eq!(bound(step.clone(), &Bind::default()), step);
    }
}
