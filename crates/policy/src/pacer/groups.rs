//! Core groups (PACER IV-E): cores that share a kind of work, each group sized separately.
//!
//! The paper's are "normal" (network and protocol), "KV" (address translation) and "RV" (device I/O). Without reported groups all I/O threads are in
//! one ([`pilotlight_plant::Capabilities::groups`]). A group gets a share of the cores equal to its share of the I/O threads, at least one; with more
//! groups than cores there is one group.

use pilotlight_plant::{Capabilities, CoreId, Topology};

/// The cores and the I/O threads of each group.
#[derive(Debug)]
pub(super) struct Groups {
    /// Cores of each group, in the order of use: siblings together, so that both can sleep.
    pub(super) cores: Vec<Vec<CoreId>>,
    /// The group of each I/O thread.
    pub(super) of: Vec<usize>,
}

impl Groups {
    pub(super) fn new(topology: &Topology, capabilities: &Capabilities, threads: usize) -> Self {
        let reported = |thread: usize| capabilities.groups.get(thread).copied().unwrap_or(0);
        let mut names: Vec<u16> = (0..threads).map(reported).collect();
        names.sort_unstable();
        names.dedup();
        let cores = in_order(topology);
        if names.len() < 2 || names.len() > cores.len() {
            return Self { cores: vec![cores], of: vec![0; threads] };
        }
        let of: Vec<_> = (0..threads).map(|thread| names.binary_search(&reported(thread)).unwrap_or(0)).collect();
        let mut left = &cores[..];
        let mut parts = Vec::with_capacity(names.len());
        for group in 0..names.len() {
            let own = of.iter().filter(|&&one| one == group).count();
            let others = of.iter().filter(|&&one| one > group).count();
            let most = left.len() - (names.len() - 1 - group);
            let part = ((left.len() * own + (own + others) / 2) / (own + others)).clamp(1, most);
            let (these, rest) = left.split_at(part);
            parts.push(these.to_vec());
            left = rest;
        }
        Self { cores: parts, of }
    }
}

/// All cores, the main core and its sibling first, siblings next to each other.
fn in_order(topology: &Topology) -> Vec<CoreId> {
    let mut cores = Vec::with_capacity(topology.len());
    for core in [topology.main()].into_iter().chain(topology.workers()) {
        for one in [Some(core), topology.sibling(core)].into_iter().flatten() {
            if !cores.contains(&one) {
                cores.push(one);
            }
        }
    }
    cores
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_are_divided_by_io_threads_and_siblings_stay_together() {
        let topology =
            Topology::new(CoreId(1), [4, 5, 6, 7, 0, 1, 2, 3].map(|core| Some(CoreId(core))).to_vec()).unwrap();
        let one = Groups::new(&topology, &Capabilities::default(), 3);
        assert_eq!((one.cores, one.of), (vec![[1, 5, 0, 4, 2, 6, 3, 7].map(CoreId).to_vec()], vec![0; 3]));
        let reported = Capabilities { groups: vec![0, 0, 0, 0, 9, 9, 4, 4], ..Capabilities::default() };
        let three = Groups::new(&topology, &reported, 8);
        assert_eq!(three.of, [0, 0, 0, 0, 2, 2, 1, 1]);
        assert_eq!(
            three.cores,
            [&[1, 5, 0, 4][..], &[2, 6], &[3, 7]].map(|part| part.iter().copied().map(CoreId).collect::<Vec<_>>())
        );
        let small = Groups::new(&Topology::flat(2).unwrap(), &reported, 8);
        assert_eq!(small.cores.len(), 1, "more groups than cores");
    }

    #[test]
    fn every_group_has_a_core() {
        let reported = Capabilities { groups: [&[1; 30][..], &[2], &[3]].concat(), ..Capabilities::default() };
        let groups = Groups::new(&Topology::flat(4).unwrap(), &reported, 32);
        assert_eq!(groups.cores.iter().map(Vec::len).collect::<Vec<_>>(), [2, 1, 1]);
    }
}
