//! Actuators: interfaces by which this process can change the power of the machine.

use serde_json::json;

use super::cgroup;
use super::facts::{Chosen, Facts};
use super::lists;
use super::report::{Reason, Section};
use super::sensors::zones;
use super::tree::Tree;

const CPUS: &str = "/sys/devices/system/cpu";
const AS_ROOT: &str = "run as root, or give the server's user the files at boot (`chgrp`, `chmod g+w`, tmpfiles.d)";

const QUOTA_COSTS: &str = "policies that limit CPU time (PASS's CPU bandwidth, Thunderbolt) are refused";
const DELEGATE: &str = "start the server in a group of its own: `systemd-run --scope -p Delegate=cpu pilotlight serve ...`, or \
                        `Delegate=cpu` in its unit";
const MOUNT: &str = "`mount -t cgroup2 none /sys/fs/cgroup`";

pub(super) fn examine(facts: &Facts, chosen: &Chosen) -> Section {
    let mut section = Section::new("actuators", "Actuators");
    let has_limits = power_limits(&mut section, facts);
    let has_quota = quota(&mut section, facts, chosen);
    budget(&mut section, has_limits, has_quota);
    hotplug(&mut section, facts, chosen);
    resume_latency(&mut section, &facts.tree, chosen);
    section
}

/// What holds a budget without a profile of this machine, as `serve::holder` chooses it.
fn budget(section: &mut Section, has_limits: bool, has_quota: bool) {
    let item = "budget";
    let (policy, found) = match (has_limits, has_quota) {
        (true, _) => (
            "rapl-only",
            "held by the RAPL limits (rapl-only), the best mechanism without a profile, unless firmware locks them",
        ),
        (false, true) => ("cpu-bandwidth", "held by the CPU quota (cpu-bandwidth), as no RAPL limit can be set"),
        (false, false) => {
            let reason = Reason {
                why: "neither a RAPL limit nor a CPU quota can be set",
                costs: "`pass` with another machine's profile holds a budget of the whole server, nothing one of the CPU packages",
                remedy: &["see RAPL limits and CPU quota; or `pilotlab profile` and --budget-profile"],
            };
            return section.limited(item, "no mechanism of the CPU".to_owned(), json!({ "policy": null }), reason);
        }
    };
    section.ok(item, found, json!({ "policy": policy }));
}

/// RAPL's limits, long and short term, in uW; whether they can be set.
fn power_limits(section: &mut Section, facts: &Facts) -> bool {
    let item = "RAPL limits";
    let tree = &facts.tree;
    let limits: Vec<(String, String, u64)> = zones(tree)
        .into_iter()
        .filter_map(|zone| {
            let file = format!("{}/constraint_0_power_limit_uw", zone.dir);
            Some((zone.name, file.clone(), tree.number(&file)?))
        })
        .collect();
    let writable = !limits.is_empty() && limits.iter().all(|(_, file, _)| tree.writable(file));
    let of = |(name, _, uw): &(String, String, u64)| json!({ "zone": name, "limit_uw": uw });
    let value = json!({ "limits": limits.iter().map(of).collect::<Vec<_>>(), "writable": writable });
    let costs = "policies that hold a power budget by RAPL are refused";
    if limits.is_empty() {
        let why = match &facts.cpu.hypervisor {
            Some(name) => format!("{name} does not pass RAPL's registers to a guest"),
            None if !zones(tree).is_empty() => "this processor's RAPL measures and has no limits (AMD)".to_owned(),
            None => "no RAPL zones (see Sensors)".to_owned(),
        };
        let remedy = &["limit the package from outside (the management controller), or use frequencies and CPU quotas"];
        section.missing(item, "none", value, Reason { why: &why, costs, remedy });
        return false;
    }
    let list: Vec<String> = limits.iter().map(|(name, _, uw)| format!("{name} {} W", *uw as f64 / 1e6)).collect();
    if writable {
        section.ok(item, list.join(", ") + "; only a server that starts can tell whether firmware locks them", value);
        return true;
    }
    let reason = Reason { why: "the limits are root's to write", costs, remedy: &[AS_ROOT] };
    section.limited(item, format!("{}; not writable", list.join(", ")), value, reason);
    false
}

/// A quota of CPU time for the worker cores, in a cgroup below the server's; whether it can be set.
fn quota(section: &mut Section, facts: &Facts, chosen: &Chosen) -> bool {
    let item = "CPU quota";
    let tree = &facts.tree;
    let groups = cgroup::groups(tree);
    let (version, folder) = match (groups.cpu_v1.first(), groups.unified.first()) {
        (Some(folder), _) => (1, folder),
        (None, Some(folder)) => (2, folder),
        (None, None) => return no_quota(section, item, "no cgroup file system is mounted", MOUNT),
    };
    let controllers = tree.text(&format!("{folder}/cgroup.controllers")).unwrap_or_default();
    if version == 2 && !controllers.split_whitespace().any(|name| name == "cpu") {
        let why = format!("the group above does not hand the controller `cpu` down to {folder}");
        return no_quota(section, item, &why, DELEGATE);
    }
    // moving threads between cgroups v2 needs write access to `cgroup.procs` of their common parent
    let writable = tree.writable(folder) && (version == 1 || tree.writable(&format!("{folder}/cgroup.procs")));
    let value = json!({ "folder": folder, "version": version, "writable": writable });
    let found = format!("{folder} (version {version})");
    if writable && chosen.workers().is_empty() {
        let why = "there is one core, the main core, which must not be held up";
        let reason = Reason { why, costs: QUOTA_COSTS, remedy: &["choose more --cores"] };
        section.limited(item, format!("{found}, no worker core"), value, reason);
        return false;
    }
    if writable {
        section.ok(item, found, value);
        return true;
    }
    let remedy = [DELEGATE, "in a container: a writable cgroup mount"];
    let why = "the group belongs to another user, or the file system is mounted read-only";
    section.limited(item, format!("{found}, not writable"), value, Reason { why, costs: QUOTA_COSTS, remedy: &remedy });
    false
}

fn no_quota(section: &mut Section, item: &str, why: &str, remedy: &str) -> bool {
    let value = json!({ "folder": null, "version": null, "writable": false });
    section.missing(item, "none", value, Reason { why, costs: QUOTA_COSTS, remedy: &[remedy] });
    false
}

/// CPU hotplug: `offline`, the deepest sleep.
fn hotplug(section: &mut Section, facts: &Facts, chosen: &Chosen) {
    let item = "hotplug";
    let workers = chosen.workers();
    let looked_at = if workers.is_empty() { &chosen.cores } else { &workers };
    let file = |core: u32| format!("{CPUS}/cpu{core}/online");
    let can: Vec<u32> = looked_at.iter().copied().filter(|&core| facts.tree.has(&file(core))).collect();
    let may: Vec<u32> = can.iter().copied().filter(|&core| facts.tree.writable(&file(core))).collect();
    let value = json!({ "cores_with_switch": can, "writable": may });
    if may.len() == looked_at.len() {
        return section.ok(item, format!("{} can be taken offline", lists::cores(&may)), value);
    }
    let (why, remedy) = if can.len() < looked_at.len() {
        let without = lists::cores(&lists::without(looked_at, &can));
        let why =
            format!("no switch for {without}: the boot CPU has none, nor has a kernel without CONFIG_HOTPLUG_CPU");
        (why, "omit them from --cores, or accept it: all other depths of sleep work")
    } else {
        ("the switches are root's to write".to_owned(), AS_ROOT)
    };
    let reason = Reason { why: &why, costs: "policies that take cores offline are refused", remedy: &[remedy] };
    section.limited(item, writable_for(&may), value, reason);
}

/// A limit on the depth of idle states.
fn resume_latency(section: &mut Section, tree: &Tree, chosen: &Chosen) {
    let item = "wake-up bounds";
    let file = |core: u32| format!("{CPUS}/cpu{core}/power/pm_qos_resume_latency_us");
    let may: Vec<u32> = chosen.cores.iter().copied().filter(|&core| tree.writable(&file(core))).collect();
    let value = json!({ "writable": may });
    if may.len() == chosen.cores.len() {
        return section.ok(item, format!("pm_qos_resume_latency_us of {}, writable", lists::cores(&may)), value);
    }
    let there = chosen.cores.iter().all(|&core| tree.has(&file(core)));
    let reason = Reason {
        why: if there { "the files are root's to write" } else { "this kernel has no such file (CONFIG_PM is off)" },
        costs: "a policy cannot limit the exit latency: the kernel chooses the idle state",
        remedy: &[if there { AS_ROOT } else { "a kernel with CONFIG_PM" }],
    };
    section.limited(item, writable_for(&may), value, reason);
}

fn writable_for(cores: &[u32]) -> String {
    if cores.is_empty() { "not writable".to_owned() } else { format!("writable for {} only", lists::cores(cores)) }
}
