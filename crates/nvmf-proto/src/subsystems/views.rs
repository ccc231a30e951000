//! Visibility of namespaces by host. An immutable value: a change creates a new one, which each I/O thread gets by message.
//!
//! # The problem
//! A namespace can be attached to the controllers of some hosts only. For others it is inactive (Base 3.2.1): not listed in
//! Identify, without change events, and commands fail with Invalid Namespace or Format. A look-up of the host for each
//! command would be too expensive.
//!
//! # The algorithm
//! The request path uses a number, [`ViewId`], of the association. It identifies the whole subsystem, or a view, which hides some of
//! its namespaces: a bit for each. A subsystem with hidden namespaces has one view per named host, and one for all others.
//!
//! # The properties
//! - The cost of a look-up, and of the replacement of the views on an I/O thread, depends on neither their number nor that of the
//!   namespaces.
//! - A new view has the previous visibility of its hosts ([`Views::prepared`]), so that associations can switch to it
//!   without a visible change.
//! - A view that is not needed is removed ([`Views::pruned`]) after its associations have switched to another with the same visibility;
//!   its number is used again. A view that does not exist shows nothing.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use crate::subsystems::config::MAX_NSID;

/// A view, or a whole subsystem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ViewId(usize);

impl ViewId {
    /// All of this subsystem.
    #[inline]
    #[must_use]
    pub fn whole(subsystem: usize) -> Self {
        Self(subsystem.wrapping_mul(2)) // there is no table for the discovery service, the highest index
    }

    fn view(index: usize) -> Self {
        Self(index * 2 + 1)
    }

    /// From [`ViewId::number`].
    pub fn from_number(number: usize) -> Self {
        Self(number)
    }

    /// A small unique number.
    pub fn number(self) -> usize {
        self.0
    }

    /// The index of the view; for a whole subsystem `Err` with its index.
    #[inline]
    pub fn index(self) -> Result<usize, usize> {
        if self.0 % 2 == 1 { Ok(self.0 / 2) } else { Err(self.0 / 2) }
    }
}

/// A bit for each NSID.
type Bits = [u64; MAX_NSID as usize / 64 + 1];

/// A view of a subsystem.
#[derive(Clone, Debug, PartialEq, Eq)]
struct View {
    subsystem: usize,
    /// Its host; empty: all hosts without their own view.
    host: String,
    /// Hidden namespaces.
    hidden: Bits,
}

impl View {
    #[inline]
    fn hides(&self, nsid: u32) -> bool {
        self.hidden.get(nsid as usize / 64).is_some_and(|bits| bits & (1 << (nsid % 64)) != 0)
    }
}

/// The views of every subsystem.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Views {
    /// By number; `None` for a free one.
    all: Vec<Option<Arc<View>>>,
    /// Their numbers by subsystem and host.
    numbers: HashMap<(usize, String), usize>,
}

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
    pub fn view_of(&self, subsystem: usize, hostnqn: &str) -> ViewId {
        let find = |host: &str| self.numbers.get(&(subsystem, host.to_owned()));
        find(hostnqn).or_else(|| find("")).map_or(ViewId::whole(subsystem), |&number| ViewId::view(number))
    }

    /// Whether a namespace is visible in a view, if it exists.
    #[inline]
    #[must_use]
    pub fn contains(&self, view: ViewId, nsid: u32) -> bool {
        self.subsystem_showing(view, nsid).is_some()
    }

    /// The subsystem of a view that shows this namespace.
    #[inline]
    pub fn subsystem_showing(&self, view: ViewId, nsid: u32) -> Option<usize> {
        match view.index() {
            Err(subsystem) => Some(subsystem),
            Ok(number) => self.view(number).filter(|view| !view.hides(nsid)).map(|view| view.subsystem),
        }
    }

    /// The subsystem of a view.
    pub fn subsystem_of(&self, view: ViewId) -> Option<usize> {
        view.index().map_or_else(Some, |number| self.view(number).map(|view| view.subsystem))
    }

    #[inline]
    fn view(&self, number: usize) -> Option<&View> {
        self.all.get(number)?.as_deref()
    }

    /// With all views needed for `restricted`; new ones have the previous visibility of their hosts.
    #[must_use]
    pub fn prepared(&self, subsystem: usize, restricted: &[Restricted]) -> Self {
        let mut views = self.clone();
        let seen = self.view_of(subsystem, "").index().ok().and_then(|number| self.view(number));
        let hidden = seen.map_or([0; _], |view| view.hidden);
        for host in needed(restricted) {
            views.insert(View { subsystem, host: host.to_owned(), hidden });
        }
        views
    }

    /// Adds a view unless its host has one.
    fn insert(&mut self, view: View) {
        let key = (view.subsystem, view.host.clone());
        if self.numbers.contains_key(&key) {
            return;
        }
        let number = self.all.iter().position(Option::is_none).unwrap_or(self.all.len());
        if number == self.all.len() {
            self.all.push(None);
        }
        self.all[number] = Some(Arc::new(view));
        self.numbers.insert(key, number);
    }

    /// With the new visibility; to be called on the result of [`Views::prepared`].
    #[must_use]
    pub fn restricted_to(&self, subsystem: usize, restricted: &[Restricted]) -> Self {
        let mut views = self.clone();
        let mut hidden: Bits = [0; _];
        for one in restricted {
            hidden[one.nsid as usize / 64] |= 1 << (one.nsid % 64);
        }
        let mut by_host = HashMap::<&str, Bits>::new();
        for (one, host) in restricted.iter().flat_map(|one| one.hosts.iter().map(move |host| (one, host))) {
            by_host.entry(host).or_insert(hidden)[one.nsid as usize / 64] &= !(1 << (one.nsid % 64));
        }
        for view in views.all.iter_mut().flatten().filter(|view| view.subsystem == subsystem) {
            let hidden = by_host.get(view.host.as_str()).copied().unwrap_or(hidden);
            if view.hidden != hidden {
                *view = Arc::new(View { hidden, ..View::clone(view) });
            }
        }
        views
    }

    /// Without the views of the subsystem that are not needed: their hosts see as much without them.
    #[must_use]
    pub fn pruned(&self, subsystem: usize, restricted: &[Restricted]) -> Self {
        let mut views = self.clone();
        let needed: BTreeSet<&str> = needed(restricted).collect();
        views.numbers.retain(|(at, host), _| *at != subsystem || needed.contains(host.as_str()));
        for view in &mut views.all {
            view.take_if(|view| view.subsystem == subsystem && !needed.contains(view.host.as_str()));
        }
        views.all.truncate(views.all.iter().rposition(Option::is_some).map_or(0, |last| last + 1));
        views
    }

    /// Whether the visibility of a namespace differs from `other` in any view of both.
    pub fn differs(&self, other: &Self, nsid: u32) -> bool {
        (0..self.all.len()).map(ViewId::view).any(|view| self.contains(view, nsid) != other.contains(view, nsid))
    }

    /// The number of views, with free numbers: for tests.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.all.len()
    }
}

/// The hosts that need a view; the empty name is all others.
fn needed(restricted: &[Restricted]) -> impl Iterator<Item = &str> {
    restricted.iter().flat_map(|one| &one.hosts).map(String::as_str).chain((!restricted.is_empty()).then_some(""))
}

/// A namespace of whose change hosts are notified.
#[derive(Clone, Debug)]
pub struct ChangedNamespace {
    /// Index of the subsystem.
    pub subsystem: usize,
    /// The namespace.
    pub nsid: u32,
    /// The previous views, if only its visibility has changed.
    pub before: Option<Arc<Views>>,
}

impl ChangedNamespace {
    /// Whether the change concerns hosts with this view, now one of `views`.
    #[must_use]
    pub fn affects(&self, view: ViewId, views: &Views) -> bool {
        let is_visible = views.contains(view, self.nsid);
        self.before.as_ref().map_or(is_visible, |before| before.contains(view, self.nsid) != is_visible)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn restricted(nsid: u32, hosts: &[&str]) -> Restricted {
        Restricted { nsid, hosts: hosts.iter().map(ToString::to_string).collect() }
    }

    fn seen(views: &Views, host: &str) -> Vec<u32> {
        (1..=3).filter(|&nsid| views.contains(views.view_of(0, host), nsid)).collect()
    }

    #[test]
    fn restricted_namespaces_are_visible_to_their_hosts() {
        let all = [restricted(2, &["a"]), restricted(3, &["a", "b"])];
        let views = Views::default().prepared(0, &all).restricted_to(0, &all);
        assert_eq!([seen(&views, "a"), seen(&views, "b"), seen(&views, "c")], [vec![1, 2, 3], vec![1, 3], vec![1]]);
        assert_eq!(seen(&views, ""), [1], "a host without a name");
        assert_eq!(views.view_of(1, "a"), ViewId::whole(1), "another subsystem is whole");
    }

    #[test]
    fn new_views_keep_the_visibility_and_old_ones_their_numbers() {
        let first = [restricted(2, &["a"])];
        let views = Views::default().prepared(0, &first);
        assert_eq!(seen(&views, "c"), [1, 2, 3], "unchanged");
        let views = views.restricted_to(0, &first);
        let of_a = views.view_of(0, "a");
        let then = [restricted(2, &["a", "b"])];
        let prepared = views.prepared(0, &then);
        assert_eq!((seen(&prepared, "b"), prepared.view_of(0, "a")), (vec![1, 3], of_a));
        let next = prepared.restricted_to(0, &then);
        assert_eq!(seen(&next, "b"), [1, 2, 3]);
        let changed = |host| prepared.contains(prepared.view_of(0, host), 2) != next.contains(next.view_of(0, host), 2);
        assert_eq!((["a", "b", "c"].map(changed), prepared.differs(&next, 2)), ([false, true, false], true));
        let open = next.prepared(0, &[]).restricted_to(0, &[]);
        assert_eq!((seen(&open, "c"), open.view_of(0, "a")), (vec![1, 2, 3], of_a));
    }

    #[test]
    fn views_that_are_not_needed_are_removed_and_their_numbers_used_again() {
        let mut views = Views::default();
        for round in 0..1000 {
            let (other, host) = ([restricted(1, &["fixed"])], format!("host {round}"));
            views = views.prepared(1, &other).restricted_to(1, &other);
            let own = [restricted(2, &[&host])];
            views = views.prepared(0, &own).restricted_to(0, &own).pruned(0, &own);
            assert_eq!([seen(&views, &host), seen(&views, "c")], [vec![1, 2, 3], vec![1, 3]]);
            assert!(views.len() <= 5, "{}", views.len());
        }
        let gone = views.view_of(0, "c");
        views = views.restricted_to(0, &[]).pruned(0, &[]);
        assert_eq!(views.view_of(0, "c"), ViewId::whole(0));
        assert!(!views.contains(gone, 1), "a view that does not exist shows nothing");
    }
}
