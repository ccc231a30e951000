//! Selection of the core for a surging I/O thread (SANDMAN section 4.4.2, "Core selection").
//!
//! An unused core: first one whose sibling is awake, so that no further physical core leaves its sleep; of equals the lowest number. If there is
//! none the thread stays, and the main core serves active threads as a last resort.

use pilotlight_plant::{CoreId, Topology};

/// State of the cores to choose from.
pub trait Cores {
    /// Whether it polls.
    fn is_awake(&self, core: CoreId) -> bool;
    /// Whether it owns no I/O thread.
    fn is_empty(&self, core: CoreId) -> bool;
}

/// Criteria of the selection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Selection {
    /// Whether cores that are awake and empty come first, as they need no wake-up. The paper uses sleeping cores only.
    pub reuse_awake: bool,
    /// Whether a core whose sibling is awake comes first (4.4.2; without: Figure 11(b) before "+SS").
    pub siblings: bool,
}

/// A worker core for one thread alone.
#[must_use]
pub fn whole_core(topology: &Topology, cores: &impl Cores, selection: Selection) -> Option<CoreId> {
    let Selection { reuse_awake, siblings } = selection;
    let rank = |core: CoreId| {
        let beside_awake = siblings && topology.sibling(core).is_some_and(|sibling| cores.is_awake(sibling));
        match (cores.is_awake(core), beside_awake) {
            (true, _) => 0,
            (false, true) => 1,
            (false, false) => 2,
        }
    };
    let usable = |&core: &CoreId| cores.is_empty(core) && (reuse_awake || !cores.is_awake(core));
    topology.workers().filter(usable).min_by_key(|&core| rank(core))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Cores by letter: `a`wake and empty, `t` awake with threads, `s`leeping.
    struct Row(&'static str);

    impl Cores for Row {
        fn is_awake(&self, core: CoreId) -> bool {
            self.0.as_bytes()[core.index()] != b's'
        }
        fn is_empty(&self, core: CoreId) -> bool {
            self.0.as_bytes()[core.index()] != b't'
        }
    }

    fn choose(row: &'static str, reuse_awake: bool) -> Option<u16> {
        let topology = Topology::paired(row.len() as u16).unwrap();
        whole_core(&topology, &Row(row), Selection { reuse_awake, siblings: true }).map(|core| core.0)
    }

    #[test]
    fn without_siblings_the_lowest_number_comes_first() {
        let lowest = |row| {
            let topology = Topology::paired(6).unwrap();
            whole_core(&topology, &Row(row), Selection { reuse_awake: false, siblings: false }).map(|core| core.0)
        };
        assert_eq!(lowest("ttssts"), Some(2));
        assert_eq!(choose("ttssts", false), Some(5));
    }

    #[test]
    fn a_sleeping_sibling_of_an_awake_core_comes_first() {
        // Pairs are 0 and 1, 2 and 3, 4 and 5; 0 is the main core.
        assert_eq!(choose("tsssss", false), Some(1));
        assert_eq!(choose("ttssts", false), Some(5));
        assert_eq!(choose("ttssss", false), Some(2));
        assert_eq!(choose("ttasss", false), Some(3));
    }

    #[test]
    fn awake_and_empty_cores_only_with_reuse_awake() {
        assert_eq!(choose("ttssta", false), Some(2));
        assert_eq!(choose("ttssta", true), Some(5));
        assert_eq!(choose("ttttta", false), None);
    }

    #[test]
    fn neither_the_main_core_nor_a_core_with_threads() {
        assert_eq!(choose("atttt", true), None);
        assert_eq!(choose("a", true), None);
    }
}
