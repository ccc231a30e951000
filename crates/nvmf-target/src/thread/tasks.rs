//! The background work of one I/O thread: a [`Scrubber`] for each of its namespaces.

use std::collections::HashSet;
use std::sync::Arc;

use pilotlight_nvmf_proto::queue_pair::connection_of;
use pilotlight_nvmf_proto::services::NamespaceTable as _;
use pilotlight_storage::background::control::Background;
use pilotlight_storage::background::pace::Round;
use pilotlight_storage::background::scrub::{Cx, Scrubber};
use pilotlight_storage::{Completion, Tag};

use crate::namespaces::Namespaces;

/// Connection number in the tags of background requests.
const CONNECTION: u32 = u32::MAX;

/// A namespace, by its index.
struct Task {
    namespace: u32,
    scrubber: Scrubber,
    /// The namespace was removed; the task stays until its request completes.
    is_removed: bool,
}

/// The tasks of an I/O thread.
#[derive(Default)]
pub(super) struct Tasks {
    tasks: Vec<Option<Box<Task>>>,
    due_ns: u64,
}

/// Whether a request belongs to background work.
pub(super) fn is_background(tag: Tag) -> bool {
    connection_of(tag) == CONNECTION
}

fn tag(task: usize) -> Tag {
    u64::from(CONNECTION) << 32 | task as u64
}

impl Tasks {
    /// Time of the next work other than completions, in nanoseconds; `u64::MAX` for never.
    pub(super) fn due_ns(&self) -> u64 {
        if self.tasks.is_empty() { u64::MAX } else { self.due_ns }
    }

    /// Updates the tasks after a change of the namespaces.
    pub(super) fn update(&mut self, namespaces: &Namespaces, me: u16, shared: &Background, now_ns: u64) {
        let mut with_task = HashSet::new();
        for task in self.tasks.iter_mut().flatten().filter(|task| !task.is_removed) {
            let upkeep = namespaces.upkeep(task.namespace);
            task.is_removed = upkeep.is_none_or(|upkeep| !Arc::ptr_eq(upkeep, &task.scrubber.upkeep));
            if !task.is_removed {
                with_task.insert(task.namespace);
            }
        }
        for (namespace, upkeep) in namespaces.upkeeps() {
            let is_mine = upkeep.placed().is_some_and(|place| place.owner == me);
            if !is_mine || with_task.contains(&namespace) {
                continue;
            }
            let geometry = namespaces.geometry(namespace);
            match Scrubber::new(upkeep, geometry, shared.config().scrub_days, now_ns) {
                Ok(scrubber) => self.add(Box::new(Task { namespace, scrubber, is_removed: false })),
                Err(error) => tracing::warn!(%error, "no memory for the background work of a namespace"),
            }
        }
        self.due_ns = now_ns;
    }

    /// Adds a task, in the place of one that has ended if possible.
    fn add(&mut self, task: Box<Task>) {
        match self.tasks.iter_mut().find(|place| place.is_none()) {
            Some(place) => *place = Some(task),
            None => self.tasks.push(Some(task)),
        }
    }

    /// Advances the work at the end of a poll. Returns whether anything was done.
    pub(super) fn poll(&mut self, namespaces: &mut Namespaces, shared: &Background, round: Round) -> bool {
        let (mut busy, mut due_ns) = (false, u64::MAX);
        for (at, place) in self.tasks.iter_mut().enumerate() {
            let Some(task) = place else { continue };
            if task.is_removed && !task.scrubber.is_on_drive() {
                *place = None;
                continue;
            }
            let Some(channel) = namespaces.channel(task.namespace).filter(|_| !task.is_removed) else { continue };
            busy |= task.scrubber.poll(&mut Cx { channel, shared, round, tag: tag(at) });
            due_ns = due_ns.min(task.scrubber.due_ns(shared, round));
        }
        while self.tasks.last().is_some_and(Option::is_none) {
            self.tasks.pop();
        }
        self.due_ns = due_ns;
        busy
    }

    /// Handles the completion of a background request.
    pub(super) fn on_completion(&mut self, completion: Completion, shared: &Background, now_ns: u64) {
        if let Some(task) = self.tasks.get_mut(completion.tag as u32 as usize).and_then(Option::as_mut) {
            task.scrubber.on_completion(completion, shared, now_ns);
        }
        self.due_ns = now_ns;
    }

    /// At the end of the I/O thread: leaks the memory of requests that the backends have not returned.
    pub(super) fn abandon(&mut self) {
        for task in self.tasks.drain(..).flatten().filter(|task| task.scrubber.is_on_drive()) {
            Box::leak(task);
        }
    }
}
