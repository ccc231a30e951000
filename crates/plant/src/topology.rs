//! Cores, their siblings and sleep depths.

use std::fmt;
use std::str::FromStr;

/// A core of a plant: a reactor, or a simulated logical core. Numbered from 0 without gaps, independently of the CPU number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CoreId(pub u16);

impl CoreId {
    /// As an index.
    #[must_use]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// An I/O thread. Numbered from 0 without gaps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ThreadId(pub u16);

impl ThreadId {
    /// As an index.
    #[must_use]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// Sleep depth of a core, from shallow to deep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Depth {
    /// Awake and polling.
    Poll,
    /// In a wait instruction that a store to the next slot of its event ring ends: `umwait`, `mwaitx`, `wfet`, `wfe`.
    MonitorWait,
    /// In the kernel, on a futex, an eventfd or its sockets.
    SoftwareWait,
    /// In the kernel together with every other core, the main core included.
    ServerSleep,
    /// Taken offline.
    Offline,
}

impl Depth {
    /// Every depth, from shallow to deep.
    pub const ALL: [Self; 5] = [Self::Poll, Self::MonitorWait, Self::SoftwareWait, Self::ServerSleep, Self::Offline];

    /// The name in configuration and output.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Poll => "poll",
            Self::MonitorWait => "monitor-wait",
            Self::SoftwareWait => "software-wait",
            Self::ServerSleep => "server-sleep",
            Self::Offline => "offline",
        }
    }
}

impl fmt::Display for Depth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Depth {
    type Err = ();
    fn from_str(text: &str) -> Result<Self, ()> {
        Self::ALL.into_iter().find(|depth| depth.name() == text).ok_or(())
    }
}

/// The cores of a plant. One is the main core, which a policy cannot put to sleep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    main: CoreId,
    /// The other logical core of the same physical core, by core.
    siblings: Vec<Option<CoreId>>,
}

/// An invalid topology.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TopologyError {
    /// There is no core.
    #[error("a plant needs at least one core")]
    Empty,
    /// The main core does not exist.
    #[error("the main core {0} is not one of the cores")]
    Main(usize),
    /// The sibling relation is not symmetric, or a core is its own sibling.
    #[error("core {0} and its sibling do not refer to each other")]
    Sibling(usize),
}

impl Topology {
    /// Creates a topology from the sibling of each core.
    ///
    /// # Errors
    /// If there is no core, the main core does not exist, or the sibling relation is not symmetric.
    pub fn new(main: CoreId, siblings: Vec<Option<CoreId>>) -> Result<Self, TopologyError> {
        if siblings.is_empty() {
            return Err(TopologyError::Empty);
        }
        if main.index() >= siblings.len() {
            return Err(TopologyError::Main(main.index()));
        }
        for (core, sibling) in siblings.iter().enumerate() {
            let Some(sibling) = sibling else { continue };
            let back = siblings.get(sibling.index()).copied().flatten();
            if sibling.index() == core || back.is_none_or(|back| back.index() != core) {
                return Err(TopologyError::Sibling(core));
            }
        }
        Ok(Self { main, siblings })
    }

    /// `cores` cores without siblings; the first is the main core.
    ///
    /// # Errors
    /// If `cores` is 0.
    pub fn flat(cores: u16) -> Result<Self, TopologyError> {
        Self::new(CoreId(0), vec![None; usize::from(cores)])
    }

    /// `cores` cores in sibling pairs (0 and 1, 2 and 3, ...); the first is the main core.
    ///
    /// # Errors
    /// If `cores` is 0.
    pub fn paired(cores: u16) -> Result<Self, TopologyError> {
        let sibling = |core: u16| Some(core ^ 1).filter(|&other| other < cores).map(CoreId);
        Self::new(CoreId(0), (0..cores).map(sibling).collect())
    }

    /// `cores` cores in sibling pairs, numbered as Linux does: the first halves of all physical cores, then the second (0 and `cores / 2`);
    /// the first is the main core.
    ///
    /// # Errors
    /// If `cores` is 0 or odd.
    pub fn split(cores: u16) -> Result<Self, TopologyError> {
        let half = cores / 2;
        if cores % 2 == 1 {
            return Err(TopologyError::Sibling(usize::from(half)));
        }
        let sibling = |core: u16| Some(CoreId((core + half) % cores));
        Self::new(CoreId(0), (0..cores).map(sibling).collect())
    }

    /// The main core.
    #[must_use]
    pub fn main(&self) -> CoreId {
        self.main
    }

    /// Number of cores.
    #[must_use]
    pub fn len(&self) -> usize {
        self.siblings.len()
    }

    /// Always false: a plant has at least one core.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Every core.
    pub fn cores(&self) -> impl DoubleEndedIterator<Item = CoreId> + ExactSizeIterator + use<> {
        (0..self.siblings.len() as u16).map(CoreId)
    }

    /// Every core but the main core.
    pub fn workers(&self) -> impl DoubleEndedIterator<Item = CoreId> + use<> {
        let main = self.main;
        self.cores().filter(move |&core| core != main)
    }

    /// The other logical core of the same physical core.
    #[must_use]
    pub fn sibling(&self, core: CoreId) -> Option<CoreId> {
        self.siblings[core.index()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn siblings_are_symmetric() {
        let paired = Topology::paired(5).unwrap();
        assert_eq!(paired.sibling(CoreId(2)), Some(CoreId(3)));
        assert_eq!(paired.sibling(CoreId(3)), Some(CoreId(2)));
        assert_eq!(paired.sibling(CoreId(4)), None);
        assert_eq!(paired.workers().count(), 4);
        let one_sided = vec![Some(CoreId(1)), None];
        assert_eq!(Topology::new(CoreId(0), one_sided), Err(TopologyError::Sibling(0)));
        assert_eq!(Topology::new(CoreId(0), vec![Some(CoreId(0))]), Err(TopologyError::Sibling(0)));
        assert_eq!(Topology::new(CoreId(2), vec![None; 2]), Err(TopologyError::Main(2)));
        assert_eq!(Topology::flat(0), Err(TopologyError::Empty));
        let split = Topology::split(6).unwrap();
        let siblings: Vec<_> = split.cores().map(|core| split.sibling(core)).collect();
        assert_eq!(siblings, [3, 4, 5, 0, 1, 2].map(|core| Some(CoreId(core))));
        assert!(Topology::split(5).is_err() && Topology::split(0).is_err());
    }

    #[test]
    fn depth_names_parse_back() {
        for depth in Depth::ALL {
            assert_eq!(depth.name().parse(), Ok(depth));
        }
    }
}
