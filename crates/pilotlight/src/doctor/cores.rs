//! Cores: affinity, quota and topology of this process.

use serde_json::json;

use super::cgroup;
use super::facts::{Chosen, Facts};
use super::lists::{self, count, cpus};
use super::report::{Reason, Section};
use super::topology::Topology;

const CPUS: &str = "/sys/devices/system/cpu";
const PAIRS: &str = "sibling pairs";

pub(super) fn examine(facts: &Facts, chosen: &Chosen) -> Section {
    let mut section = Section::new("cores", "Cores");
    let topology = Topology::read(&facts.tree);
    allowed(&mut section, facts, &topology);
    quota(&mut section, facts, chosen);
    places(&mut section, &topology, chosen);
    pairs(&mut section, facts, &topology, chosen);
    isolated(&mut section, facts, chosen);
    section
}

fn allowed(section: &mut Section, facts: &Facts, topology: &Topology) {
    let online = topology.online();
    let denied = lists::without(&online, &facts.allowed);
    let value = json!({ "allowed": facts.allowed, "online": online });
    let list = lists::format(&facts.allowed);
    if denied.is_empty() {
        return section.ok("allowed", format!("{list}, all that are online"), value);
    }
    let isolated = lists::intersection(&denied, &cpu_list(facts, "isolated"));
    let by_hand = format!("`taskset -c {} pilotlight serve ...`", lists::format(&online));
    let (why, remedy) = if isolated.is_empty() {
        let why = "the CPU affinity that this process inherited, or its control group's cpuset, excludes the others";
        let unit =
            "`taskset -cp $$` shows the mask; in a unit: `AllowedCPUs=` and `CPUAffinity=`; in a container: its cpuset";
        (why, unit)
    } else {
        let why = "some are isolated (isolcpus), and no process gets those unless its mask is set manually";
        (why, by_hand.as_str())
    };
    let reason = Reason { why, costs: "the server cannot use them", remedy: &[remedy] };
    section.limited("allowed", format!("{list} of {} online", lists::format(&online)), value, reason);
}

fn quota(section: &mut Section, facts: &Facts, chosen: &Chosen) {
    let item = "CPU time";
    let Some(quota) = cgroup::quota(&cgroup::groups(&facts.tree), &facts.tree) else {
        return section.ok(item, "no quota", json!({ "quota_cpus": null }));
    };
    let found = format!("{:.2} CPUs in each {} us ({})", quota.cpus, quota.period_us, quota.file);
    let value = json!({ "quota_cpus": quota.cpus, "period_us": quota.period_us, "file": quota.file });
    if quota.cpus >= chosen.cores.len() as f64 {
        return section.ok(item, found, value);
    }
    let why = format!("the control group grants {:.2} CPUs to {} polling cores", quota.cpus, chosen.cores.len());
    let costs = format!(
        "a core that polls uses a whole CPU; when the quota is used up, all stop for the rest of the period, up to {} ms",
        quota.period_us / 1000
    );
    let remedy = [
        "raise it: `CPUQuota=` in a unit, `--cpus` of a container; or lift it with `max` in cpu.max",
        "or give the server fewer --cores",
    ];
    section.limited(item, found, value, Reason { why: &why, costs: &costs, remedy: &remedy });
}

fn places(section: &mut Section, topology: &Topology, chosen: &Chosen) {
    let packages = topology.packages(&topology.online()).len();
    let used = topology.packages(&chosen.cores).len();
    let nodes = topology.nodes_of(&chosen.cores);
    let of = |(node, theirs): &(u32, Vec<u32>)| format!("node {node}: {}", cpus(theirs));
    let all = topology.nodes.iter().map(of).collect::<Vec<_>>().join(", ");
    let found = format!(
        "{}; {}",
        count(packages, "package", "packages"),
        if all.is_empty() { "no NUMA nodes listed" } else { &all }
    );
    let value = json!({
        "packages": packages,
        "packages_used": used,
        "nodes": topology.nodes.iter().map(|(node, cpus)| json!({ "node": node, "cpus": cpus })).collect::<Vec<_>>(),
        "nodes_used": nodes,
    });
    if nodes.len() <= 1 {
        return section.ok("packages", found, value);
    }
    let why = format!("the cores lie on {} NUMA nodes ({})", nodes.len(), lists::format(&nodes));
    let reason = Reason {
        why: &why,
        costs: "an I/O thread that moves to another node leaves its memory behind, and each package with an awake core \
                keeps its caches and memory controller powered",
        remedy: &["choose --cores of one node: the one that the network interface and the drives are on"],
    };
    section.limited("packages", found, value, reason);
}

fn pairs(section: &mut Section, facts: &Facts, topology: &Topology, chosen: &Chosen) {
    if !topology.has_siblings() {
        return no_siblings(section, facts);
    }
    let mut whole: Vec<Vec<u32>> = Vec::new();
    let (mut single, mut absent): (Vec<u32>, Vec<u32>) = (Vec::new(), Vec::new());
    for &core in &chosen.cores {
        let siblings = topology.siblings(core);
        let others = lists::without(&siblings, &chosen.cores);
        if !others.is_empty() {
            single.push(core);
            absent.extend(lists::without(&others, &absent));
        } else if siblings.len() > 1 && !whole.contains(&siblings) {
            whole.push(siblings);
        }
    }
    absent.sort_unstable();
    let pairs: Vec<String> = whole.iter().map(|pair| plus(pair)).collect();
    let value = json!({ "whole": whole, "without_sibling": single, "siblings_not_chosen": absent });
    let listed = if pairs.is_empty() { "none whole".to_owned() } else { pairs.join(", ") };
    if single.is_empty() {
        return section.ok(PAIRS, listed, value);
    }
    let found = format!("{listed}; {} without the siblings {}", lists::cores(&single), lists::format(&absent));
    half_pairs(section, facts, &single, &absent, found, value);
}

/// Cores of the server that share a physical core with CPUs that are not the server's.
fn half_pairs(
    section: &mut Section,
    facts: &Facts,
    single: &[u32],
    absent: &[u32],
    found: String,
    value: serde_json::Value,
) {
    let absent_list = lists::format(absent);
    let why = format!("{absent_list}, the hyper-threads beside {}, are not among the cores", lists::format(single));
    let take = if lists::without(absent, &facts.allowed).is_empty() {
        format!("take them as well: --cores with {absent_list} added")
    } else {
        format!("let this process use {absent_list}, and add them to --cores")
    };
    let leave = format!("or keep them idle: `isolcpus={absent_list}` on the kernel's command line");
    let reason = Reason {
        why: &why,
        costs: "a physical core rests only when both of its hyper-threads do (SANDMAN, 4.1, guideline D3): what Linux runs \
                there keeps it awake, and slows the reactor beside it",
        remedy: &[&take, &leave],
    };
    section.limited(PAIRS, found, value, reason);
}

fn no_siblings(section: &mut Section, facts: &Facts) {
    let control = facts.tree.text(&format!("{CPUS}/smt/control")).unwrap_or_default();
    let value = json!({ "whole": [], "smt": control });
    if matches!(control.as_str(), "off" | "forceoff") {
        return section.ok(PAIRS, "none: hyper-threading is switched off, every core rests by itself", value);
    }
    let Some(hypervisor) = &facts.cpu.hypervisor else {
        return section.ok(PAIRS, "none: one hyper-thread a core, every core rests by itself", value);
    };
    let why =
        format!("{hypervisor} shows each virtual CPU as a separate core; on the host, two of them may share a core");
    let reason = Reason {
        why: &why,
        costs: "pairs cannot be put to sleep together: a physical core may stay awake for one of its two virtual CPUs, and \
                two that share a core slow each other unseen",
        remedy: &["on the host: pin each virtual CPU to a hyper-thread and show the pairs to the guest (QEMU: `-smp \
             N,cores=N/2,threads=2` with `-cpu host`)"],
    };
    section.missing(PAIRS, "none are shown", value, reason);
}

fn isolated(section: &mut Section, facts: &Facts, chosen: &Chosen) {
    let (isolated, tickless) = (cpu_list(facts, "isolated"), cpu_list(facts, "nohz_full"));
    let shared = lists::without(&chosen.workers(), &lists::intersection(&isolated, &tickless));
    let found =
        format!("isolated: {}; without timer tick (nohz_full): {}", lists::format(&isolated), lists::format(&tickless));
    let value = json!({ "isolated": isolated, "nohz_full": tickless, "workers_not_isolated": shared });
    if shared.is_empty() {
        return section.ok("isolation", found, value);
    }
    let why =
        format!("worker {}: open to every task, to the scheduler's timer tick, or to both", lists::cores(&shared));
    let all = lists::format(&lists::union(&[&isolated, &tickless, &shared]));
    let kernel =
        format!("on the kernel's command line: `isolcpus=managed_irq,domain,{all} nohz_full={all} rcu_nocbs={all}`");
    let start = format!(
        "then start the server by `taskset -c {} pilotlight serve ...`: masks exclude isolated CPUs unless they are set",
        lists::format(&chosen.cores)
    );
    let reason = Reason {
        why: &why,
        costs: "other tasks delay requests, and every tick or task ends a wait: worth changing on a machine that does \
                nothing else, not on a shared one",
        remedy: &[&kernel, &start],
    };
    section.limited("isolation", found, value, reason);
}

/// A list of CPUs in a file of the CPUs' directory.
fn cpu_list(facts: &Facts, name: &str) -> Vec<u32> {
    lists::parse(&facts.tree.text(&format!("{CPUS}/{name}")).unwrap_or_default())
}

/// `0+4`.
fn plus(cpus: &[u32]) -> String {
    cpus.iter().map(ToString::to_string).collect::<Vec<_>>().join("+")
}
