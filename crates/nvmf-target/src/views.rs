//! Which namespaces each host sees, where not every host sees all of them. A value that never changes: a change makes a new one, and each
//! I/O thread gets it by message.
//!
//! # The problem
//! A namespace can be attached to the controllers of some hosts only. For all other controllers it is inactive (Base 3.2.1): they do not
//! find it in Identify, hear of no change of it, and commands fail with Invalid Namespace or Format. Looking a host up in a list for each
//! command would cost every host, also where all see everything.
//!
//! # The algorithm
//! Look-ups on the request path go by a number, [`ViewId`], that an association carries. It names the table of the whole subsystem, or of a
//! view: the same table without what is hidden. A subsystem in which something is hidden has one view for each host that a namespace names,
//! and one for all others.
//!
//! # The properties
//! - A view keeps its number for the server's life.
//! - A view that is new shows what its hosts saw before ([`Views::prepared`]), so that associations can change over unnoticed.

use std::collections::BTreeSet;

/// The namespaces of a subsystem as some hosts see them: whole, or a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ViewId(usize);

impl ViewId {
    /// All of this subsystem.
    #[must_use]
    pub fn whole(subsystem: usize) -> Self {
        Self(subsystem.wrapping_mul(2)) // of the discovery service, whose number is the highest, there is no table
    }

    fn view(index: usize) -> Self {
        Self(index * 2 + 1)
    }

    /// From a number that [`ViewId::number`] gave.
    pub(crate) fn from_number(number: usize) -> Self {
        Self(number)
    }

    /// A small number, different for each.
    pub(crate) fn number(self) -> usize {
        self.0
    }

    /// The index of the view; of a whole subsystem the error is its index.
    pub(crate) fn index(self) -> Result<usize, usize> {
        if self.0 % 2 == 1 { Ok(self.0 / 2) } else { Err(self.0 / 2) }
    }
}

/// What some hosts see of a subsystem.
#[derive(Clone, Debug, PartialEq, Eq)]
struct View {
    subsystem: usize,
    /// Whose; `None`: that of every host that has no view of its own.
    host: Option<String>,
    /// Namespaces that it does not show.
    hidden: BTreeSet<u32>,
}

/// The views of every subsystem.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Views(Vec<View>);

/// A namespace that only some hosts see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restricted {
    /// The namespace.
    pub nsid: u32,
    /// Those hosts, of which there is at least one.
    pub hosts: Vec<String>,
}

impl Views {
    /// What this host sees of this subsystem.
    #[must_use]
    pub fn of(&self, subsystem: usize, hostnqn: &str) -> ViewId {
        let find = |host: Option<&str>| {
            self.0.iter().position(|view| view.subsystem == subsystem && view.host.as_deref() == host)
        };
        let own = if hostnqn.is_empty() { None } else { find(Some(hostnqn)) };
        own.or_else(|| find(None)).map_or(ViewId::whole(subsystem), ViewId::view)
    }

    /// Every view of this subsystem.
    pub fn of_subsystem(&self, subsystem: usize) -> impl Iterator<Item = ViewId> + '_ {
        let found = self.0.iter().enumerate().filter(move |(_, view)| view.subsystem == subsystem);
        found.map(|(index, _)| ViewId::view(index))
    }

    /// The subsystem of each view.
    pub(crate) fn subsystems(&self) -> impl Iterator<Item = (ViewId, usize)> + '_ {
        self.0.iter().enumerate().map(|(index, view)| (ViewId::view(index), view.subsystem))
    }

    /// Whether a view shows this namespace, if it exists.
    #[must_use]
    pub fn shows(&self, view: ViewId, nsid: u32) -> bool {
        view.index().ok().and_then(|index| self.0.get(index)).is_none_or(|view| !view.hidden.contains(&nsid))
    }

    /// With every view that `restricted` needs; those that are new show what their hosts have seen so far.
    #[must_use]
    pub fn prepared(&self, subsystem: usize, restricted: &[Restricted]) -> Self {
        let mut views = self.clone();
        let hosts = restricted.iter().flat_map(|one| &one.hosts);
        let needed: BTreeSet<Option<&String>> =
            hosts.map(Some).chain((!restricted.is_empty()).then_some(None)).collect();
        for host in needed {
            let is_there = views.0.iter().any(|view| view.subsystem == subsystem && view.host.as_ref() == host);
            if is_there {
                continue;
            }
            let seen = self.of(subsystem, "").index().ok().map(|index| self.0[index].hidden.clone());
            views.0.push(View { subsystem, host: host.cloned(), hidden: seen.unwrap_or_default() });
        }
        views
    }

    /// With what these views show of this subsystem from now on; for the result of [`Views::prepared`].
    #[must_use]
    pub fn restricted_to(&self, subsystem: usize, restricted: &[Restricted]) -> Self {
        let mut views = self.clone();
        for view in views.0.iter_mut().filter(|view| view.subsystem == subsystem) {
            let sees = |one: &Restricted| view.host.as_ref().is_some_and(|host| one.hosts.contains(host));
            view.hidden = restricted.iter().filter(|one| !sees(one)).map(|one| one.nsid).collect();
        }
        views
    }

    /// Views that show something else of this namespace in `other`.
    pub(crate) fn changed(&self, other: &Self, nsid: u32) -> Vec<ViewId> {
        let all = (0..self.0.len()).map(ViewId::view);
        all.filter(|&view| self.shows(view, nsid) != other.shows(view, nsid)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn restricted(nsid: u32, hosts: &[&str]) -> Restricted {
        Restricted { nsid, hosts: hosts.iter().map(ToString::to_string).collect() }
    }

    fn seen(views: &Views, host: &str) -> Vec<u32> {
        (1..=3).filter(|&nsid| views.shows(views.of(0, host), nsid)).collect()
    }

    #[test]
    fn hosts_see_what_names_them_and_what_names_nobody() {
        let all = [restricted(2, &["a"]), restricted(3, &["a", "b"])];
        let views = Views::default().prepared(0, &all).restricted_to(0, &all);
        assert_eq!([seen(&views, "a"), seen(&views, "b"), seen(&views, "c")], [vec![1, 2, 3], vec![1, 3], vec![1]]);
        assert_eq!(seen(&views, ""), [1], "a host without a name is on no list");
        assert_eq!(views.of(1, "a"), ViewId::whole(1), "another subsystem is whole");
    }

    #[test]
    fn new_views_show_what_their_hosts_saw_and_old_ones_keep_their_numbers() {
        let first = [restricted(2, &["a"])];
        let views = Views::default().prepared(0, &first);
        assert_eq!(seen(&views, "c"), [1, 2, 3], "nothing has changed yet");
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
