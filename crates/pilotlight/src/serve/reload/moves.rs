//! Storage that gets another number, or another subsystem: which namespaces can be moved while they run.
//!
//! # The problem
//! A file or device is open, and locked, once in a server. A namespace of it that is removed and added again under another
//! number finds it locked by this server for as long as a request is in progress, and hosts are left without it.
//!
//! # The rule
//! Storage that runs as one namespace and is configured as another is moved, open as it is. What cannot be moved stays, and
//! is logged: it is never removed alone. A number that runs with other storage is never given to this one
//! (hosts cache blocks under the number): so two namespaces do not swap their numbers.

use std::path::Path;

use pilotlight_nvmf_target::config::{NamespaceConfig, ServerConfig};
use pilotlight_storage::BackendSpec;

use crate::config::is_same_medium;

/// A namespace and its subsystem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place<'a> {
    pub(super) nqn: &'a str,
    pub(super) namespace: &'a NamespaceConfig,
}

impl Place<'_> {
    /// Whether this is namespace `nsid` of subsystem `nqn`.
    pub(super) fn is(&self, nqn: &str, nsid: u32) -> bool {
        self.nqn == nqn && self.namespace.nsid == nsid
    }
}

/// Storage that runs at one place and is configured at another.
#[derive(Debug)]
pub(super) struct Move<'a> {
    /// The running namespace.
    pub(super) from: Place<'a>,
    /// The configured namespace.
    pub(super) to: Place<'a>,
    /// Why it cannot be moved now.
    pub(super) obstacle: Option<String>,
}

impl Move<'_> {
    /// The message if it cannot be moved.
    pub(super) fn refusal(&self) -> Option<String> {
        let (from, to) = (&self.from, &self.to);
        let obstacle = self.obstacle.as_ref()?;
        Some(format!(
            "namespace {} of {} stays: its storage is configured as namespace {} of {}, but {obstacle}; it takes effect at a restart",
            from.namespace.nsid, from.nqn, to.namespace.nsid, to.nqn
        ))
    }
}

/// Every file or device that runs at one place and is configured at another.
pub(super) fn find<'a>(running: &'a ServerConfig, wanted: &'a ServerConfig) -> Vec<Move<'a>> {
    let moves = places(wanted).filter_map(|to| {
        let from = places(running).find(|from| shares_medium(from, &to) && !from.is(to.nqn, to.namespace.nsid))?;
        Some(Move { from, to, obstacle: obstacle(&from, &to, running, wanted) })
    });
    moves.collect()
}

fn places(config: &ServerConfig) -> impl Iterator<Item = Place<'_>> {
    let place = |nqn, namespace| Place { nqn, namespace };
    config.subsystems.iter().flat_map(move |subsystem| {
        subsystem.namespaces.iter().map(move |namespace| place(subsystem.nqn.as_str(), namespace))
    })
}

fn shares_medium(a: &Place, b: &Place) -> bool {
    let path = |place: &Place| place.namespace.backend.path().map(Path::to_owned);
    path(a).zip(path(b)).is_some_and(|(a, b)| is_same_medium(&a, &b))
}

/// The reason why storage cannot be moved.
fn obstacle(from: &Place, to: &Place, running: &ServerConfig, wanted: &ServerConfig) -> Option<String> {
    let has = |config, place: &Place| places(config).any(|other| other.is(place.nqn, place.namespace.nsid));
    if has(running, to) {
        return Some("that number is in use".to_owned());
    }
    if has(wanted, from) {
        return Some("its own number stays in use".to_owned());
    }
    if from.namespace.block_size != to.namespace.block_size {
        return Some("with another block size".to_owned());
    }
    (!is_wrapped_alike(&from.namespace.backend, &to.namespace.backend))
        .then(|| "with other delays, checksums or trimming".to_owned())
}

/// Whether two backends on one medium do the same to its requests.
fn is_wrapped_alike(a: &BackendSpec, b: &BackendSpec) -> bool {
    match (a, b) {
        (BackendSpec::Delay { delays: a, inner: x }, BackendSpec::Delay { delays: b, inner: y }) => {
            a == b && is_wrapped_alike(x, y)
        }
        (BackendSpec::Tracked { tracking: a, .. }, BackendSpec::Tracked { tracking: b, .. }) => a == b,
        (BackendSpec::Tracked { .. }, _) | (_, BackendSpec::Tracked { .. }) => false,
        (BackendSpec::Delay { .. }, _) | (_, BackendSpec::Delay { .. }) => false,
        _ => true,
    }
}
