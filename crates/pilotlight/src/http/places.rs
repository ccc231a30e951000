//! Open connections, and which one makes room for the next.
//!
//! A connection costs its peer nothing, so a full server that refused new ones could be kept full by anybody who reaches it. Instead
//! the connection closes that made no progress for longest: of the same source, where that has its share of the places, and else of all.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::task::AbortHandle;

/// Marks a connection as in use.
#[derive(Clone, Debug, Default)]
pub(crate) struct Progress {
    /// The number of its last step; the numbers of all connections are one sequence.
    last: Arc<AtomicU64>,
    next: Arc<AtomicU64>,
}

impl Progress {
    /// A request arrived or was answered, or a part was sent.
    pub(crate) fn note(&self) {
        self.last.store(self.next.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Another value after each step.
    pub(super) fn last(&self) -> u64 {
        self.last.load(Ordering::Relaxed)
    }
}

/// An open connection.
pub(super) struct Place {
    pub(super) name: Arc<str>,
    source: Arc<str>,
    progress: Progress,
    task: AbortHandle,
}

/// The open connections of a service.
pub(super) struct Places {
    open: Vec<Place>,
    most: usize,
    most_of_source: usize,
    next: Arc<AtomicU64>,
}

impl Places {
    /// For so many connections, at least one; half of them for each source.
    pub(super) fn new(most: usize) -> Self {
        Self { open: Vec::new(), most, most_of_source: most.div_ceil(2), next: Arc::default() }
    }

    /// Of a new connection.
    pub(super) fn progress(&self) -> Progress {
        let progress = Progress { last: Arc::default(), next: Arc::clone(&self.next) };
        progress.note();
        progress
    }

    /// Ends a connection, which is returned, if one of this source would be too many.
    pub(super) fn make_room(&mut self, source: &str) -> Option<Place> {
        self.open.retain(|place| !place.task.is_finished());
        let is_full = self.open.len() >= self.most;
        let has_share = self.open.iter().filter(|place| *place.source == *source).count() >= self.most_of_source;
        let may_end = |place: &Place| if has_share { *place.source == *source } else { is_full };
        let candidates = self.open.iter().enumerate().filter(|(_, place)| may_end(place));
        let (at, _) = candidates.min_by_key(|(_, place)| place.progress.last())?;
        let ended = self.open.swap_remove(at);
        ended.task.abort();
        Some(ended)
    }

    /// Adds a connection.
    pub(super) fn add(&mut self, name: Arc<str>, source: Arc<str>, progress: Progress, task: AbortHandle) {
        self.open.push(Place { name, source, progress, task });
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    /// Connects, and returns which connection ended for it.
    fn connect(places: &mut Places, name: &str, source: &str) -> (Progress, Option<String>) {
        let ended = places.make_room(source).map(|place| place.name.to_string());
        let progress = places.progress();
        places.add(name.into(), source.into(), progress.clone(), tokio::spawn(pending::<()>()).abort_handle());
        (progress, ended)
    }

    #[tokio::test(flavor = "current_thread")]
    async fn the_idlest_connection_of_a_source_makes_room_for_its_next() {
        let mut places = Places::new(4);
        let (first, _) = connect(&mut places, "a1", "a");
        let (_, ended) = connect(&mut places, "a2", "a");
        assert_eq!(ended, None);
        first.note();
        assert_eq!(connect(&mut places, "a3", "a").1.as_deref(), Some("a2"), "a1 made progress since");
        assert_eq!(connect(&mut places, "b1", "b").1, None, "half of the places is left to others");
        assert_eq!(connect(&mut places, "c1", "c").1, None);
        first.note();
        assert_eq!(connect(&mut places, "d1", "d").1.as_deref(), Some("a3"), "all places are used: the idlest of all");
        assert_eq!(places.open.len(), 4);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_connection_that_has_ended_needs_no_place() {
        let mut places = Places::new(1);
        let task = tokio::spawn(async {});
        let handle = task.abort_handle();
        task.await.unwrap();
        places.add("a".into(), "a".into(), Progress::default(), handle);
        assert!(places.make_room("b").is_none());
        assert_eq!(connect(&mut places, "b", "b").1, None);
        assert_eq!(connect(&mut places, "c", "c").1.as_deref(), Some("b"));
    }
}
