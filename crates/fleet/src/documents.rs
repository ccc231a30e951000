//! What etcd holds of a rack: keys and JSON values, and all of it at one revision.
//!
//! | key below `/pilotlight/RACK/` | written by | content |
//! |---|---|---|
//! | `budget` | operator | [`Budget`] |
//! | `members/NAME` | leader, once | [`Member`]: the floor that is reserved, also while the member is off |
//! | `status/NAME` | member, under its lease | [`Status`] |
//! | `grants/NAME` | leader | [`GrantDocument`] |
//! | `sequence` | leader, with each write | nothing: its revision says whether something was written since |
//! | `leader/…` | etcd's election | the name of the leader |
//!
//! Unknown fields are ignored, so that later versions can add some.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Version of the values.
pub const FORMAT: u32 = 1;

/// The budget of the rack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budget {
    /// [`FORMAT`].
    pub format: u32,
    /// In microwatts.
    pub power_uw: u64,
}

/// A known member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// [`FORMAT`].
    pub format: u32,
    /// Its reserved floor in microwatts.
    pub floor_uw: u64,
}

/// What a member needs and does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// [`FORMAT`].
    pub format: u32,
    /// Its lease.
    pub session: i64,
    /// Its floor in microwatts.
    pub floor_uw: u64,
    /// Power above which it gains nothing, in microwatts.
    pub full_uw: u64,
    /// Its power in microwatts, if it is known.
    pub measured_uw: Option<u64>,
    /// The sensor, or that power is modelled and with which profile.
    pub source: String,
    /// Higher ones come first.
    pub priority: u8,
    /// The component that limits throughput, if it is known.
    pub bottleneck: Option<String>,
    /// What it delivers of what its hosts ask, by power: microwatts, and bytes per second.
    pub curve: Vec<(u64, u64)>,
    /// Number of the last grant within which its power is; 0 for none.
    pub applied: u64,
    /// The budget in force, in microwatts.
    pub in_force_uw: u64,
}

/// A grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrantDocument {
    /// [`FORMAT`].
    pub format: u32,
    /// Higher for later grants of all members.
    pub number: u64,
    /// In microwatts.
    pub power_uw: u64,
    /// The highest power that may be in force, in microwatts.
    pub bound_uw: u64,
    /// The session for which it is good.
    pub session: i64,
}

/// A key of a rack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Key {
    /// The budget.
    Budget,
    /// A known member.
    Member(String),
    /// A status.
    Status(String),
    /// A grant.
    Grant(String),
    /// The counter of writes.
    Sequence,
    /// A candidate of the election.
    Leader,
}

/// Whether a text can name a rack or a member: 1 to 64 letters, digits, and `-`, `_` or `.`.
#[must_use]
pub fn is_name(text: &str) -> bool {
    (1..=64).contains(&text.len()) && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
}

/// Prefix of the keys of a rack.
#[must_use]
pub fn prefix(rack: &str) -> String {
    format!("/pilotlight/{rack}/")
}

impl Key {
    /// In etcd.
    #[must_use]
    pub fn path(&self, rack: &str) -> String {
        let prefix = prefix(rack);
        match self {
            Self::Budget => format!("{prefix}budget"),
            Self::Member(name) => format!("{prefix}members/{name}"),
            Self::Status(name) => format!("{prefix}status/{name}"),
            Self::Grant(name) => format!("{prefix}grants/{name}"),
            Self::Sequence => format!("{prefix}sequence"),
            Self::Leader => format!("{prefix}leader"),
        }
    }

    fn parse(path: &str) -> Option<Self> {
        Some(match path.split_once('/') {
            None if path == "budget" => Self::Budget,
            None if path == "sequence" => Self::Sequence,
            Some(("members", member)) => Self::Member(member.to_owned()),
            Some(("status", member)) => Self::Status(member.to_owned()),
            Some(("grants", member)) => Self::Grant(member.to_owned()),
            Some(("leader", _)) => Self::Leader,
            _ => return None,
        })
    }
}

/// All of a rack at one revision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Documents {
    /// The budget in microwatts; `None` if the operator has set none.
    pub budget_uw: Option<u64>,
    /// Revision of its last change; 0 without a budget.
    pub budget_revision: i64,
    /// Reserved floors in microwatts.
    pub members: BTreeMap<String, u64>,
    /// Statuses of running members.
    pub statuses: BTreeMap<String, Status>,
    /// Grants.
    pub grants: BTreeMap<String, GrantDocument>,
    /// Candidates of the election, with the revision since which each waits; the first leads.
    pub candidates: BTreeMap<String, (i64, String)>,
    /// Revision of the last write of a leader; 0 for none.
    pub sequence: i64,
    /// The revision.
    pub revision: i64,
    /// Values that cannot be read: key and reason.
    pub unreadable: BTreeMap<String, String>,
}

/// A key's new value; `None` if it was deleted.
#[derive(Clone, Debug)]
pub struct Change {
    /// Below the prefix.
    pub path: String,
    /// The value.
    pub value: Option<Vec<u8>>,
    /// Revisions of the key's creation and of this change.
    pub revisions: (i64, i64),
}

impl Documents {
    /// Takes a change.
    pub fn apply(&mut self, change: &Change) {
        let Change { path, value, revisions: (created, changed) } = change;
        self.revision = self.revision.max(*changed);
        self.unreadable.remove(path);
        let read = match Key::parse(path) {
            Some(Key::Budget) => {
                self.budget_revision = if value.is_some() { *changed } else { 0 };
                read::<Budget>(value.as_deref()).map(|budget| self.budget_uw = budget.map(|one| one.power_uw))
            }
            Some(Key::Member(name)) => read::<Member>(value.as_deref())
                .map(|member| set(&mut self.members, name, member.map(|one| one.floor_uw))),
            Some(Key::Status(name)) => read(value.as_deref()).map(|status| set(&mut self.statuses, name, status)),
            Some(Key::Grant(name)) => read(value.as_deref()).map(|grant| set(&mut self.grants, name, grant)),
            Some(Key::Sequence) => {
                self.sequence = if value.is_some() { *changed } else { 0 };
                Ok(())
            }
            Some(Key::Leader) => {
                let name = value.as_deref().map(|name| (*created, String::from_utf8_lossy(name).into_owned()));
                set(&mut self.candidates, path.clone(), name);
                Ok(())
            }
            None => Ok(()),
        };
        if let Err(why) = read {
            self.unreadable.insert(path.clone(), why.to_string());
        }
    }

    /// Whether a member's status cannot be read: it runs, and what it has is not known.
    #[must_use]
    pub fn is_unknown(&self, name: &str) -> bool {
        self.unreadable.contains_key(&format!("status/{name}"))
    }

    /// All that may be in force, as it is written, in microwatts.
    #[must_use]
    pub fn bounds_uw(&self) -> u64 {
        let bound = |(name, floor_uw): (&String, &u64)| {
            self.grants.get(name).map_or(*floor_uw, |grant| grant.bound_uw.max(*floor_uw))
        };
        self.members.iter().map(bound).fold(0, u64::saturating_add)
    }

    /// The leader's name.
    #[must_use]
    pub fn leader(&self) -> Option<&str> {
        self.candidates.values().min().map(|(_, name)| name.as_str())
    }
}

fn set<V>(map: &mut BTreeMap<String, V>, key: String, value: Option<V>) {
    match value {
        Some(value) => map.insert(key, value),
        None => map.remove(&key),
    };
}

/// A value that is not of [`FORMAT`].
#[derive(Debug, thiserror::Error)]
enum ValueError {
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    #[error("it has format {0}: all servers and pilotlab must know it; update them")]
    Format(u32),
}

/// A value of [`FORMAT`].
fn read<T: DeserializeOwned>(value: Option<&[u8]>) -> Result<Option<T>, ValueError> {
    #[derive(Deserialize)]
    struct Format {
        format: u32,
    }
    let Some(value) = value else { return Ok(None) };
    match serde_json::from_slice(value)? {
        Format { format: FORMAT } => Ok(serde_json::from_slice(value)?),
        Format { format } => Err(ValueError::Format(format)),
    }
}

/// A value for etcd.
pub(crate) fn write<T: Serialize>(value: &T) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_else(|_| unreachable!("plain structures have a JSON form"))
}
