//! Commands throttled by a bandwidth cap (`caps/mod.rs`), before their data is requested or a backend request submitted.
//!
//! A command throttled by its namespace's cap delays only later commands of that namespace; one throttled by its host's cap
//! delays all. The charge of a command that has not reached a backend is returned.

use std::collections::VecDeque;

use super::slots::{Charged, Slot, State};
use super::{Cx, Gate, Queue, QueuePair, Role, Transport};
use crate::caps::{Bucket, Claim, Direction, Limit};
use crate::command::Work;

/// Throttled namespaces that one pass remembers; commands of further ones are retried individually.
const REFUSED: usize = 4;

/// The throttled commands of a queue pair.
pub(super) struct Throttled {
    /// Oldest first.
    commands: VecDeque<u16>,
    /// The bucket of its host; `None` for an admin queue.
    host: Option<Bucket>,
    /// Whether the queue pair is in the I/O thread's list.
    is_listed: bool,
}

/// The limit that throttles a command.
enum ThrottledBy {
    Host,
    Namespace(u32),
}

impl Throttled {
    /// For a queue with `slots` slots.
    pub(super) fn new(slots: usize, host: Option<Bucket>) -> Self {
        Self { commands: VecDeque::with_capacity(slots), host, is_listed: false }
    }

    pub(super) fn len(&self) -> usize {
        self.commands.len()
    }
}

impl<T: Transport> QueuePair<T> {
    /// The bucket of an I/O queue's host.
    pub(super) fn host_bucket(&self, cx: &Cx) -> Option<Bucket> {
        let Role::Io(association) = &self.role else { return None };
        Some(Bucket::new(cx.shared.host_limit(&association.host.hostnqn)))
    }

    /// Charges the new command in `index` to its caps. Returns whether one of them throttles it.
    #[cold]
    pub(super) fn is_throttled(&mut self, index: u16, cx: &mut Cx) -> bool {
        let Some(queue) = &mut self.queue else { return false };
        let Err(by) = charge(queue, index, cx) else { return false };
        let slot = queue.slots.get(index);
        slot.state = State::Throttled;
        slot.held_by_host = matches!(by, ThrottledBy::Host);
        limit_of(queue, index, cx, |limit| limit.begin_wait());
        queue.throttled.commands.push_back(index);
        if !std::mem::replace(&mut queue.throttled.is_listed, true) {
            cx.caps.add_throttled(cx.me.index);
        }
        true
    }

    /// Retries the throttled commands; returns whether any was admitted. A draining server admits all.
    pub fn run_throttled(&mut self, cx: &mut Cx) -> bool {
        let is_draining = self.gate == Gate::Drain;
        let Some(queue) = &mut self.queue else { return false };
        let mut commands = std::mem::take(&mut queue.throttled.commands);
        let before = commands.len();
        let mut pass = Pass::default();
        commands.retain(|&index| {
            let stays = !is_draining && pass.is_throttled(queue, index, cx);
            if !stays {
                admit(queue, index, cx);
            }
            stays
        });
        let admitted = commands.len() < before;
        queue.throttled.is_listed = !commands.is_empty();
        queue.throttled.commands = commands;
        if queue.throttled.is_listed {
            cx.caps.add_throttled(cx.me.index);
        }
        admitted
    }

    /// Clears the list at the end of the queue pair.
    #[cold]
    pub(super) fn clear_throttled(&mut self, cx: &mut Cx) {
        let Some(queue) = &mut self.queue else { return };
        while let Some(index) = queue.throttled.commands.pop_front() {
            limit_of(queue, index, cx, |limit| limit.end_wait(None));
            queue.slots.get(index).state = State::Waiting;
        }
    }

    /// Returns the charge of the dropped command in `index`, or removes it from the throttled ones.
    #[cold]
    pub(super) fn return_charge(&mut self, index: u16, cx: &mut Cx) {
        let Some(queue) = &mut self.queue else { return };
        if queue.slots.get(index).state == State::Throttled {
            queue.throttled.commands.retain(|&throttled| throttled != index);
            limit_of(queue, index, cx, |limit| limit.end_wait(None));
        }
        let slot = queue.slots.get(index);
        let charged = std::mem::replace(&mut slot.charged, Charged::NOTHING);
        let Some((namespace, bytes)) = bytes_of(slot, cx) else { return };
        if let Some(bucket) = queue.throttled.host.as_ref().filter(|_| charged.host) {
            bucket.release(bytes);
        }
        if let Some(bucket) = cx.caps.known_bucket(namespace).filter(|_| charged.namespace) {
            bucket.release(bytes);
        }
    }
}

/// State of one pass over a queue pair.
#[derive(Default)]
struct Pass {
    /// The host's cap throttles all.
    by_host: bool,
    /// Throttled namespaces.
    namespaces: [Option<u32>; REFUSED],
    refused: usize,
}

impl Pass {
    /// Retries a throttled command, unless an earlier one delays it.
    fn is_throttled(&mut self, queue: &mut Queue, index: u16, cx: &mut Cx) -> bool {
        let slot = queue.slots.get(index);
        if !slot.status.is_success() {
            return false; // there was no memory for its in-capsule data
        }
        let namespace = slot.work.target().map(|(namespace, _)| namespace);
        if self.by_host || namespace.is_some() && self.namespaces.contains(&namespace) {
            return true;
        }
        match charge(queue, index, cx) {
            Ok(()) => return false,
            Err(ThrottledBy::Host) => self.by_host = true,
            Err(ThrottledBy::Namespace(namespace)) => {
                self.namespaces[self.refused % REFUSED] = Some(namespace);
                self.refused += 1;
            }
        }
        true
    }
}

/// Charges a command to all of its caps, or to none.
fn charge(queue: &mut Queue, index: u16, cx: &mut Cx) -> Result<(), ThrottledBy> {
    let slot = queue.slots.get(index);
    let (Some((namespace, bytes)), Some(host)) = (bytes_of(slot, cx), &mut queue.throttled.host) else { return Ok(()) };
    let claim = Claim { host: host.limit().number(), since_ns: slot.arrived_ns };
    let by_host = host.admit(bytes, claim, cx.now_ns).map_err(|until_ns| {
        if let Some(bucket) = cx.caps.known_bucket(namespace) {
            bucket.leave(claim);
        }
        cx.caps.note_due(until_ns, cx.now_ns);
        ThrottledBy::Host
    })?;
    let is_metered = cx.shared.caps.are_metered();
    let limit = cx.namespaces.limit(namespace).filter(|limit| is_metered || limit.bytes_per_s().is_some());
    let by_namespace = limit.map_or(Ok(false), |limit| cx.caps.bucket(namespace, limit).admit(bytes, claim, cx.now_ns));
    let by_namespace = by_namespace.map_err(|until_ns| {
        if by_host {
            host.release(bytes);
        }
        cx.caps.note_due(until_ns, cx.now_ns);
        ThrottledBy::Namespace(namespace)
    })?;
    if is_metered {
        let direction = direction_of(&slot.work);
        host.meter(direction, bytes, cx.now_ns);
        cx.caps.known_bucket(namespace).into_iter().for_each(|bucket| bucket.meter(direction, bytes, cx.now_ns));
    }
    slot.charged = Charged { host: by_host, namespace: by_namespace };
    Ok(())
}

/// Admits a throttled command; its latency starts here.
fn admit(queue: &mut Queue, index: u16, cx: &mut Cx) {
    let slot = queue.slots.get(index);
    let waited_ns = cx.now_ns.saturating_sub(slot.arrived_ns);
    slot.arrived_ns = cx.now_ns;
    cx.counters.cap_waits.record(waited_ns, 1);
    let bytes = bytes_of(slot, cx).map_or(0, |(_, bytes)| bytes);
    limit_of(queue, index, cx, |limit| limit.end_wait(Some((waited_ns, bytes))));
    queue.make_wait(index, false);
}

/// Calls `f` with the limit that throttles a command, unless its namespace has been removed.
fn limit_of(queue: &mut Queue, index: u16, cx: &Cx, f: impl FnOnce(&Limit)) {
    let slot = queue.slots.get(index);
    let limit = match (&queue.throttled.host, slot.work.target()) {
        (Some(host), _) if slot.held_by_host => Some(host.limit()),
        (_, Some((namespace, _))) => cx.namespaces.limit(namespace),
        _ => None,
    };
    if let Some(limit) = limit {
        f(limit);
    }
}

fn direction_of(work: &Work) -> Direction {
    match work {
        Work::Write { .. } | Work::Zero { .. } => Direction::Written,
        _ => Direction::Read,
    }
}

/// The namespace of a command subject to caps, and its remaining bytes.
fn bytes_of(slot: &Slot, cx: &Cx) -> Option<(u32, u64)> {
    let (range, done) = match slot.work {
        Work::Read(range) | Work::Compare(range) | Work::Write { range, .. } => (range, 0),
        Work::Verify { range, done } | Work::Zero { range, done, .. } => (range, done),
        _ => return None,
    };
    let block_size = u64::from(cx.namespaces.geometry(range.namespace).block_size);
    Some((range.namespace, u64::from(range.blocks - done) * block_size))
}
