//! Visibility of namespaces by host. An immutable value: a change creates a new one, which each I/O thread gets by message.
//!
//! # The problem
//! A namespace can be attached to the controllers of some hosts only. For others it is inactive (Base 3.2.1): not listed in
//! Identify, without change events, and commands fail with Invalid Namespace or Format. A look-up of the host for each
//! command would be too expensive.
//!
//! # The algorithm
//! The request path uses a number, [`ViewId`], of the association. It identifies the table of the whole subsystem, or of a
//! view: the same table without hidden namespaces. A subsystem with hidden namespaces has one view per named host, and one
//! for all others.
//!
//! # The properties
//! - A view keeps its number for the server's lifetime.
//! - A new view has the previous visibility of its hosts ([`Views::prepared`]), so that associations can switch to it
//!   without a visible change.

use std::collections::BTreeSet;

/// A view, or a whole subsystem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ViewId(usize);

impl ViewId {
    /// All of this subsystem.
    #[must_use]
    pub fn whole(subsystem: usize) -> Self {
        Self(subsystem.wrapping_mul(2)) // there is no table for the discovery service, the highest index
    }

    fn view(index: usize) -> Self {
        Self(index * 2 + 1)
    }

    /// From [`ViewId::number`].
    pub(crate) fn from_number(number: usize) -> Self {
        Self(number)
    }

    /// A small unique number.
    pub(crate) fn number(self) -> usize {
        self.0
    }

    /// The index of the view; for a whole subsystem `Err` with its index.
    pub(crate) fn index(self) -> Result<usize, usize> {
        if self.0 % 2 == 1 { Ok(self.0 / 2) } else { Err(self.0 / 2) }
    }
}

/// A view of a subsystem.
#[derive(Clone, Debug, PartialEq, Eq)]
struct View {
    subsystem: usize,
    /// Its host; `None`: all hosts without their own view.
    host: Option<String>,
    /// Hidden namespaces.
    hidden: BTreeSet<u32>,
}

/// The views of every subsystem.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Views(Vec<View>);

/// A namespace visible to some hosts only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restricted {
    /// The namespace.
    pub nsid: u32,
    /// Those hosts; not empty.
    pub hosts: Vec<String>,
}

impl Views {
    /// The view of a host.
    #[must_use]
    pub fn of(&self, subsystem: usize, hostnqn: &str) -> ViewId {
        let find = |host: Option<&str>| {
            self.0.iter().position(|view| view.subsystem == subsystem && view.host.as_deref() == host)
        };
        let own = if hostnqn.is_empty() { None } else { find(Some(hostnqn)) };
        own.or_else(|| find(None)).map_or(ViewId::whole(subsystem), ViewId::view)
    }

    /// All views of a subsystem.
    pub fn of_subsystem(&self, subsystem: usize) -> impl Iterator<Item = ViewId> + '_ {
        let found = self.0.iter().enumerate().filter(move |(_, view)| view.subsystem == subsystem);
        found.map(|(index, _)| ViewId::view(index))
    }

    /// The subsystem of each view.
    pub(crate) fn subsystems(&self) -> impl Iterator<Item = (ViewId, usize)> + '_ {
        self.0.iter().enumerate().map(|(index, view)| (ViewId::view(index), view.subsystem))
    }

    /// Whether a namespace is visible in a view, if it exists.
    #[must_use]
    pub fn contains(&self, view: ViewId, nsid: u32) -> bool {
        view.index().ok().and_then(|index| self.0.get(index)).is_none_or(|view| !view.hidden.contains(&nsid))
    }

    /// With all views needed for `restricted`; new ones have the previous visibility of their hosts.
    #[must_use]
    pub fn prepared(&self, subsystem: usize, restricted: &[Restricted]) -> Self {
        let mut views = self.clone();
        let hosts = restricted.iter().flat_map(|one| &one.hosts);
        let needed: BTreeSet<Option<&String>> =
            hosts.map(Some).chain((!restricted.is_empty()).then_some(None)).collect();
        for host in needed {
            let exists = views.0.iter().any(|view| view.subsystem == subsystem && view.host.as_ref() == host);
            if exists {
                continue;
            }
            let seen = self.of(subsystem, "").index().ok().map(|index| self.0[index].hidden.clone());
            views.0.push(View { subsystem, host: host.cloned(), hidden: seen.unwrap_or_default() });
        }
        views
    }

    /// With the new visibility; to be called on the result of [`Views::prepared`].
    #[must_use]
    pub fn restricted_to(&self, subsystem: usize, restricted: &[Restricted]) -> Self {
        let mut views = self.clone();
        for view in views.0.iter_mut().filter(|view| view.subsystem == subsystem) {
            let sees = |one: &Restricted| view.host.as_ref().is_some_and(|host| one.hosts.contains(host));
            view.hidden = restricted.iter().filter(|one| !sees(one)).map(|one| one.nsid).collect();
        }
        views
    }

    /// Views in which the visibility of a namespace differs from `other`.
    pub(crate) fn changed(&self, other: &Self, nsid: u32) -> Vec<ViewId> {
        let all = (0..self.0.len()).map(ViewId::view);
        all.filter(|&view| self.contains(view, nsid) != other.contains(view, nsid)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn restricted(nsid: u32, hosts: &[&str]) -> Restricted {
        Restricted { nsid, hosts: hosts.iter().map(ToString::to_string).collect() }
    }

    fn seen(views: &Views, host: &str) -> Vec<u32> {
        (1..=3).filter(|&nsid| views.contains(views.of(0, host), nsid)).collect()
    }

    #[test]
    fn restricted_namespaces_are_visible_to_their_hosts() {
        let all = [restricted(2, &["a"]), restricted(3, &["a", "b"])];
        let views = Views::default().prepared(0, &all).restricted_to(0, &all);
        assert_eq!([seen(&views, "a"), seen(&views, "b"), seen(&views, "c")], [vec![1, 2, 3], vec![1, 3], vec![1]]);
        assert_eq!(seen(&views, ""), [1], "a host without a name");
        assert_eq!(views.of(1, "a"), ViewId::whole(1), "another subsystem is whole");
    }

    #[test]
    fn new_views_keep_the_visibility_and_old_ones_their_numbers() {
        let first = [restricted(2, &["a"])];
        let views = Views::default().prepared(0, &first);
        assert_eq!(seen(&views, "c"), [1, 2, 3], "unchanged");
        let views = views.restricted_to(0, &first);
        let of_a = views.of(0, "a");
        let then = [restricted(2, &["a", "b"])];
        let prepared = views.prepared(0, &then);
        assert_eq!((seen(&prepared, "b"), prepared.of(0, "a")), (vec![1, 3], of_a));
        let next = prepared.restricted_to(0, &then);
        assert_eq!(seen(&next, "b"), [1, 2, 3]);
        assert_eq!(prepared.changed(&next, 2), [next.of(0, "b")]);
        let open = next.prepared(0, &[]).restricted_to(0, &[]);
        assert_eq!((seen(&open, "c"), open.of(0, "a")), (vec![1, 2, 3], of_a));
    }
}
