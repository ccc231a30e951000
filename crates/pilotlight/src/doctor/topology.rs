//! CPUs, and the cores, packages and memory nodes that they share.

use std::collections::BTreeSet;

use super::lists;
use super::tree::Tree;

const CPUS: &str = "/sys/devices/system/cpu";

/// A logical CPU (hyper-thread), by the kernel's number.
#[derive(Clone, Debug)]
pub(super) struct Processor {
    pub(super) cpu: u32,
    pub(super) package: u32,
    /// CPUs of the same core, itself among them, ascending.
    pub(super) siblings: Vec<u32>,
}

/// The CPUs that are online.
#[derive(Clone, Debug)]
pub(super) struct Topology {
    pub(super) processors: Vec<Processor>,
    /// Memory nodes and their CPUs.
    pub(super) nodes: Vec<(u32, Vec<u32>)>,
}

impl Topology {
    pub(super) fn read(tree: &Tree) -> Self {
        let online = lists::parse(&tree.text(&format!("{CPUS}/online")).unwrap_or_default());
        let nodes = tree.numbered("/sys/devices/system/node", "node").into_iter();
        let node = |(name, id): (String, u32)| {
            let list = tree.text(&format!("/sys/devices/system/node/{name}/cpulist")).unwrap_or_default();
            (id, lists::parse(&list))
        };
        Self {
            processors: online.into_iter().map(|cpu| processor(tree, cpu)).collect(),
            nodes: nodes.map(node).filter(|(_, cpus)| !cpus.is_empty()).collect(),
        }
    }

    /// All CPUs that are online.
    pub(super) fn online(&self) -> Vec<u32> {
        self.processors.iter().map(|processor| processor.cpu).collect()
    }

    /// CPUs of the same core, itself among them.
    pub(super) fn siblings(&self, cpu: u32) -> Vec<u32> {
        let found = self.processors.iter().find(|processor| processor.cpu == cpu);
        found.map_or_else(|| vec![cpu], |processor| processor.siblings.clone())
    }

    /// Whether any core has more than one CPU.
    pub(super) fn has_siblings(&self) -> bool {
        self.processors.iter().any(|processor| processor.siblings.len() > 1)
    }

    /// The packages of `cpus`.
    pub(super) fn packages(&self, cpus: &[u32]) -> BTreeSet<u32> {
        let among = self.processors.iter().filter(|processor| cpus.contains(&processor.cpu));
        among.map(|processor| processor.package).collect()
    }

    /// The memory nodes of `cpus`.
    pub(super) fn nodes_of(&self, cpus: &[u32]) -> Vec<u32> {
        let near = self.nodes.iter().filter(|(_, theirs)| cpus.iter().any(|cpu| theirs.contains(cpu)));
        near.map(|(node, _)| *node).collect()
    }
}

fn processor(tree: &Tree, cpu: u32) -> Processor {
    let file = |name: &str| tree.text(&format!("{CPUS}/cpu{cpu}/topology/{name}"));
    let list = file("core_cpus_list").or_else(|| file("thread_siblings_list")).unwrap_or_default();
    let mut siblings = lists::parse(&list);
    if !siblings.contains(&cpu) {
        siblings = vec![cpu];
    }
    Processor { cpu, package: file("physical_package_id").and_then(|id| id.parse().ok()).unwrap_or(0), siblings }
}
