//! The asymmetric namespace access log page (Base 5.1.12.1.13) and its states (Base 8.1).

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::le::{U16, U32, U64};

/// Access to a group of namespaces by one controller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum AnaState {
    /// Best performance.
    #[default]
    Optimized = 1,
    /// Hosts use it when no path is optimized.
    NonOptimized = 2,
    /// I/O commands fail, for a time.
    Inaccessible = 3,
    /// I/O commands fail, for ever.
    PersistentLoss = 4,
    /// The state is changing; hosts wait up to ANATT seconds.
    Change = 15,
}

impl AnaState {
    /// All states.
    pub const ALL: [Self; 5] =
        [Self::Optimized, Self::NonOptimized, Self::Inaccessible, Self::PersistentLoss, Self::Change];

    /// The state with this number.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|state| *state as u8 == number)
    }

    /// Its name, as Linux writes it in sysfs (`ana_state`).
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Optimized => "optimized",
            Self::NonOptimized => "non-optimized",
            Self::Inaccessible => "inaccessible",
            Self::PersistentLoss => "persistent-loss",
            Self::Change => "change",
        }
    }
}

/// The header of the log page.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct AnaHeader {
    /// Number of changes.
    pub change_count: U64,
    /// Number of group descriptors.
    pub groups: U16,
    /// Reserved.
    pub reserved10: [u8; 6],
}

/// A group; the NSIDs of its namespaces follow in ascending order.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct AnaGroup {
    /// Its number.
    pub id: U32,
    /// Number of NSIDs.
    pub nsids: U32,
    /// Number of changes; 0: not reported.
    pub change_count: U64,
    /// [`AnaState`].
    pub state: u8,
    /// Reserved.
    pub reserved17: [u8; 15],
}

const _: () = {
    assert!(size_of::<AnaHeader>() == 16);
    assert!(size_of::<AnaGroup>() == 32);
};

/// Return Groups Only: the log page without NSIDs (LSP, bit 0).
pub const RETURN_GROUPS_ONLY: u8 = 1;
/// ANACAP: all five states are reported, and the group of a namespace does not change while it is attached.
pub const ANACAP: u8 = 0x5f;

/// The log page of these groups, each with its NSIDs.
#[must_use]
pub fn page(change_count: u64, groups: &[(u32, AnaState, Vec<u32>)], groups_only: bool) -> Vec<u8> {
    let header = AnaHeader {
        change_count: U64::new(change_count),
        groups: U16::new(groups.len() as u16),
        ..AnaHeader::default()
    };
    let mut page = header.as_bytes().to_vec();
    for (id, state, nsids) in groups {
        let nsids: &[u32] = if groups_only { &[] } else { nsids };
        let group = AnaGroup {
            id: U32::new(*id),
            nsids: U32::new(nsids.len() as u32),
            state: *state as u8,
            ..AnaGroup::default()
        };
        page.extend_from_slice(group.as_bytes());
        nsids.iter().for_each(|nsid| page.extend_from_slice(&nsid.to_le_bytes()));
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Literal offsets from the specification.
    #[test]
    fn offsets_of_the_page() {
        let groups = [(1, AnaState::NonOptimized, vec![1, 7]), (3, AnaState::Change, vec![2])];
        let page = page(5, &groups, false);
        assert_eq!(page.len(), 16 + 32 + 8 + 32 + 4);
        assert_eq!((page[0], page[8], page[9]), (5, 2, 0));
        assert_eq!((page[16], page[20], page[32], page[48], page[52]), (1, 2, 2, 1, 7));
        assert_eq!((page[56], page[60], page[72], page[88]), (3, 1, 15, 2));
        let short = super::page(5, &groups, true);
        assert_eq!((short.len(), short[20], short[48], short[64]), (80, 0, 3, 15));
    }

    #[test]
    fn states_have_the_numbers_of_the_specification() {
        let numbers = [1, 2, 3, 4, 15];
        assert_eq!(numbers.map(AnaState::from_number), AnaState::ALL.map(Some));
        assert_eq!((0..=255).filter(|number| AnaState::from_number(*number).is_some()).count(), numbers.len());
    }
}
