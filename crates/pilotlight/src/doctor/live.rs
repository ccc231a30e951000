//! This machine's facts.

use std::collections::BTreeMap;

use anyhow::bail;
use rustix::process::{Resource, getrlimit};
use rustix::thread::CapabilitySet;

use super::facts::{Chosen, Facts, Limit, WakeUp};
use super::tree::Tree;
use super::{cpu, drives, network, system, wakeup};

/// Gathers the facts of this machine, and measures a wake-up from the main core to another.
pub(super) fn facts(allowed: &[u32], chosen: &Chosen) -> Facts {
    let tree = Tree::live();
    let coalescing =
        network::interfaces_up(&tree).into_iter().filter_map(|name| Some((name.clone(), system::coalescing(&name)?)));
    let coalescing = coalescing.collect();
    let power_states = power_states(&tree);
    Facts {
        cpu: cpu::this(&tree),
        allowed: allowed.to_vec(),
        raises_limits: rustix::thread::capabilities(None)
            .is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_RESOURCE)),
        open_files: limit(Resource::Nofile),
        locked_memory: limit(Resource::Memlock),
        wake_up: wake_up(&tree, allowed, chosen),
        ring: system::ring(),
        coalescing,
        power_states,
        tree,
    }
}

fn limit(resource: Resource) -> Limit {
    let limit = getrlimit(resource);
    Limit { soft: limit.current, hard: limit.maximum }
}

/// Wakes a worker from the main core; without a worker, any other allowed CPU.
fn wake_up(tree: &Tree, allowed: &[u32], chosen: &Chosen) -> anyhow::Result<WakeUp> {
    let other = |cpus: &[u32]| cpus.iter().copied().find(|&cpu| cpu != chosen.main);
    match other(&chosen.cores).or_else(|| other(allowed)) {
        Some(sleeper) => wakeup::measure(tree, chosen.main, sleeper),
        None => bail!("it takes two CPUs, and this process has one"),
    }
}

/// Local drives only: remote ones may be slow to respond.
fn power_states(tree: &Tree) -> BTreeMap<String, Vec<super::facts::PowerState>> {
    let states = |name: String| {
        let data = system::identify(&format!("/dev/{name}"))?;
        Some((name, drives::power_states(&data)))
    };
    drives::local(tree).into_iter().filter_map(states).collect()
}
