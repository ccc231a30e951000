//! Idle states: their depth and exit latency.
//!
//! They determine the savings and cost of `software-wait` and `server-sleep`; the kernel does not count a core in `umwait` or `mwaitx` as
//! idle.

use std::collections::BTreeMap;

use serde_json::json;

use super::facts::{Architecture, Chosen, Facts};
use super::lists;
use super::report::{Reason, Section};
use super::tree::Tree;

const CPUS: &str = "/sys/devices/system/cpu";
/// Exit latency in us from which a state is reported: the design's example of a policy's limit ("at most 50 us
/// to wake").
const DEEP_US: u64 = 50;

/// Remedy for a guest without idle states.
const CPU_PM: &str = "on the host: `-overcommit cpu-pm=on` (QEMU) gives the guest mwait and its own idle states, and takes the \
                      core from other guests";
const HALTPOLL: &str = "in the guest: `modprobe cpuidle_haltpoll` polls for a moment before it halts";
const HOST: &str = "choose the idle states on the host, or run on the machine itself";

/// A state as a driver describes it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct State {
    index: u32,
    name: String,
    /// Exit latency.
    exit_us: u64,
    /// Target residency: the minimum stay that saves energy.
    residency_us: u64,
}

/// Cores with equal states.
struct Group {
    states: Vec<State>,
    cores: Vec<u32>,
}

pub(super) fn examine(facts: &Facts, chosen: &Chosen) -> Section {
    let mut section = Section::new("idle", "Idle states");
    let tree = &facts.tree;
    let groups = groups(tree, &chosen.cores);
    let driver = tree.non_empty_text(&format!("{CPUS}/cpuidle/current_driver")).filter(|name| name != "none");
    if groups.is_empty() {
        none(&mut section, facts);
        return section;
    }
    let governor = ["current_governor", "current_governor_ro"]
        .iter()
        .find_map(|name| tree.non_empty_text(&format!("{CPUS}/cpuidle/{name}")))
        .unwrap_or_else(|| "unknown".to_owned());
    let name = driver.unwrap_or_else(|| "unknown".to_owned());
    let value = json!({ "driver": name, "governor": governor });
    let several = groups.len() > 1;
    if name == "haltpoll" {
        haltpoll(&mut section, &governor, value);
        groups.iter().for_each(|group| list(&mut section, tree, group, several));
    } else {
        section.ok("driver", format!("{name}, governor {governor}"), value);
        groups.iter().for_each(|group| list(&mut section, tree, group, several));
        bound(&mut section, facts, &groups);
    }
    section
}

fn groups(tree: &Tree, cores: &[u32]) -> Vec<Group> {
    let mut groups: BTreeMap<Vec<State>, Vec<u32>> = BTreeMap::new();
    for &core in cores {
        groups.entry(states(tree, core)).or_default().push(core);
    }
    let groups = groups.into_iter().filter(|(states, _)| !states.is_empty());
    groups.map(|(states, cores)| Group { states, cores }).collect()
}

fn states(tree: &Tree, core: u32) -> Vec<State> {
    let dir = format!("{CPUS}/cpu{core}/cpuidle");
    let state = |(name, index): (String, u32)| State {
        index,
        name: tree.non_empty_text(&format!("{dir}/{name}/name")).unwrap_or_else(|| name.clone()),
        exit_us: tree.number(&format!("{dir}/{name}/latency")).unwrap_or(0),
        residency_us: tree.number(&format!("{dir}/{name}/residency")).unwrap_or(0),
    };
    tree.numbered(&dir, "state").into_iter().map(state).collect()
}

/// Cores on which the state is switched off.
fn disabled(tree: &Tree, state: &State, cores: &[u32]) -> Vec<u32> {
    let off =
        |core: u32| tree.number(&format!("{CPUS}/cpu{core}/cpuidle/state{}/disable", state.index)).unwrap_or(0_u64);
    cores.iter().copied().filter(|&core| off(core) != 0).collect()
}

fn list(section: &mut Section, tree: &Tree, group: &Group, several: bool) {
    for state in &group.states {
        let off = disabled(tree, state, &group.cores);
        let switched = match off.len() {
            0 => String::new(),
            all if all == group.cores.len() => "; disabled".to_owned(),
            _ => format!("; disabled on {}", lists::cores(&off)),
        };
        let whose = if several { format!(" ({})", lists::cores(&group.cores)) } else { String::new() };
        let found = format!("exit {} us, efficient from {} us{switched}", state.exit_us, state.residency_us);
        let value = json!({
            "exit_us": state.exit_us,
            "residency_us": state.residency_us,
            "cores": group.cores,
            "disabled_on": off,
        });
        section.ok(format!("{}{whose}", state.name), found, value);
    }
}

/// Whether a sleeping core can enter a state with a long exit latency, and its limit.
fn bound(section: &mut Section, facts: &Facts, groups: &[Group]) {
    let item = "wake-up bound";
    let each = |group: &Group| group.cores.iter().map(|&core| (core, deepest(&facts.tree, group, core))).collect();
    let exits: Vec<(u32, u64)> = groups.iter().flat_map(|group| -> Vec<_> { each(group) }).collect();
    let worst = exits.iter().map(|(_, exit)| *exit).max().unwrap_or(0);
    let deep: Vec<u32> = exits.iter().filter(|(_, exit)| *exit >= DEEP_US).map(|(core, _)| *core).collect();
    let value = json!({ "deepest_exit_us": worst, "cores_over_50_us": deep });
    if deep.is_empty() {
        return section.ok(item, format!("no state that takes longer than {worst} us to leave"), value);
    }
    let why = format!("the governor may choose a state that takes {worst} us to leave, on {}", lists::cores(&deep));
    let remedy = format!(
        "bound it for a core while it serves: `echo {DEEP_US} > {CPUS}/cpuN/power/pm_qos_resume_latency_us` (0 is no \
         bound); deep sleep saves most when the server is quiet for long, so do not switch the state off for good"
    );
    let instruction = facts.cpu.waitpkg || facts.cpu.monitorx || facts.cpu.architecture == Architecture::Arm;
    let costs = if instruction {
        "cores that wait by instruction do not come so deep; the first I/O after `server-sleep` waits that long on top of \
         the wake-up"
    } else {
        "a burst that finds a core in it waits that long on top of the wake-up"
    };
    section.limited(item, format!("up to {worst} us"), value, Reason { why: &why, costs, remedy: &[&remedy] });
}

/// The longest exit latency in us of the states that the governor may choose on a core.
fn deepest(tree: &Tree, group: &Group, core: u32) -> u64 {
    let limit = limit_us(tree, core);
    let open = |state: &&State| state.exit_us <= limit && disabled(tree, state, &[core]).is_empty();
    group.states.iter().filter(open).map(|state| state.exit_us).max().unwrap_or(0)
}

/// The resume latency limit of a CPU, in us: `0` means no limit, `n/a` a limit of 0.
fn limit_us(tree: &Tree, core: u32) -> u64 {
    let file = format!("{CPUS}/cpu{core}/power/pm_qos_resume_latency_us");
    match tree.text(&file).as_deref() {
        Some("n/a") => 0,
        Some(text) => text.parse().ok().filter(|&us| us > 0).unwrap_or(u64::MAX),
        None => u64::MAX,
    }
}

/// The guest's only state: it polls briefly and then halts, which the host handles.
fn haltpoll(section: &mut Section, governor: &str, value: serde_json::Value) {
    let reason = Reason {
        why: "under a hypervisor an idle CPU halts into the host, which chooses how deep the core really sleeps",
        costs: "the exit latencies below are the driver's placeholders; what a wake-up takes is measured under \"futex \
                wake-up\"",
        remedy: &[CPU_PM],
    };
    section.limited("driver", format!("haltpoll, governor {governor}"), value, reason);
}

fn none(section: &mut Section, facts: &Facts) {
    let line = facts.tree.text("/proc/cmdline").unwrap_or_default();
    let culprit = ["idle=", "cpuidle.off=1", "intel_idle.max_cstate=0", "processor.max_cstate=0", "nohlt"]
        .iter()
        .find_map(|wanted| line.split_whitespace().find(|word| word.starts_with(wanted)));
    let (why, costs, remedy) = match (culprit, &facts.cpu.hypervisor) {
        (Some(word), _) => {
            let why = format!("`{word}` is on the kernel's command line");
            (
                why,
                "a core that sleeps in the kernel saves little or nothing",
                vec!["take it off the kernel's command line"],
            )
        }
        (None, Some(name)) => {
            let why = format!("{name} shows this guest no idle states: an idle CPU halts into the host, which chooses");
            let costs = "exit latencies are unknown, and each sleep in the kernel is a way out of the guest and back: see \
                         \"futex wake-up\" for its duration";
            (why, costs, if name == "KVM" { vec![HALTPOLL, CPU_PM] } else { vec![HOST] })
        }
        (None, None) => {
            let why =
                "no cpuidle driver: C-states are switched off in the firmware, or the kernel has none for this CPU";
            let costs = "an idle core only halts (C1): back at once, and saving the least";
            (
                why.to_owned(),
                costs,
                vec!["switch C-states on in the firmware's settings; kernels need intel_idle or acpi_idle"],
            )
        }
    };
    section.missing("idle states", "none", json!({ "driver": null }), Reason { why: &why, costs, remedy: &remedy });
}

#[cfg(test)]
mod tests {
    use super::super::tests::fixture::Fixture;
    use super::*;

    #[test]
    fn the_resume_latency_that_users_allow() {
        let file =
            |text: &str| Fixture::default().file("/sys/devices/system/cpu/cpu0/power/pm_qos_resume_latency_us", text);
        assert_eq!(limit_us(&file("0").tree(), 0), u64::MAX);
        assert_eq!(limit_us(&file("n/a").tree(), 0), 0);
        assert_eq!(limit_us(&file("20").tree(), 0), 20);
        assert_eq!(limit_us(&Fixture::default().tree(), 0), u64::MAX);
    }
}
