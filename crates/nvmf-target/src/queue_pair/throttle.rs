//! Commands that wait for a bandwidth cap (`caps/mod.rs`): decoded, and neither their data requested nor a backend told.
//!
//! A command that the cap of its namespace holds back stops only those of the same namespace behind it; one that the cap of
//! its host holds back stops all. What was charged for a command that no backend has got is given back.

use std::collections::VecDeque;

use super::slots::{Charged, Slot, State};
use super::{Cx, Queue, QueuePair, Role, Transport};
use crate::caps::{Bucket, Claim, Direction, Limit};
use crate::command::Work;

/// Namespaces that one visit remembers as capped; of more each command is tried.
const REFUSED: usize = 4;

/// The throttled commands of a queue pair.
pub(super) struct Throttled {
    /// Oldest first.
    commands: VecDeque<u16>,
    /// What it holds of its host's budget; an admin queue has none.
    host: Option<Bucket>,
    /// Whether the I/O thread knows of them.
    is_listed: bool,
}

/// Which limit holds a command back.
enum HeldBack {
    Host,
    Namespace(u32),
}

impl Throttled {
    /// None, of a queue with so many slots, whose host's budget is that of `host`.
    pub(super) fn new(slots: usize, host: Option<Bucket>) -> Self {
        Self { commands: VecDeque::with_capacity(slots), host, is_listed: false }
    }

    pub(super) fn len(&self) -> usize {
        self.commands.len()
    }
}

impl<T: Transport> QueuePair<T> {
    /// What an I/O queue holds of its host's budget.
    pub(super) fn host_bucket(&self, cx: &Cx) -> Option<Bucket> {
        let Role::Io(association) = &self.role else { return None };
        Some(Bucket::new(cx.shared.host_limit(&association.host.hostnqn)))
    }

    /// Charges the command in `index`, which has just come, to the caps that it meets. Returns whether one of them holds it
    /// back: then it waits.
    #[cold]
    pub(super) fn is_throttled(&mut self, index: u16, cx: &mut Cx) -> bool {
        let Some(queue) = &mut self.queue else { return false };
        let Err(by) = charge(queue, index, cx) else { return false };
        let slot = queue.slots.get(index);
        slot.state = State::Throttled;
        slot.held_by_host = matches!(by, HeldBack::Host);
        limit_of(queue, index, cx, |limit| limit.begin_wait());
        queue.throttled.commands.push_back(index);
        if !std::mem::replace(&mut queue.throttled.is_listed, true) {
            cx.caps.add_throttled(cx.me.index);
        }
        true
    }

    /// Tries the throttled commands again; returns whether any was admitted. A server that stops finishes them at once.
    pub fn run_throttled(&mut self, cx: &mut Cx) -> bool {
        let is_draining = self.draining;
        let Some(queue) = &mut self.queue else { return false };
        let mut commands = std::mem::take(&mut queue.throttled.commands);
        let before = commands.len();
        let mut visit = Visit::default();
        commands.retain(|&index| {
            let stays = !is_draining && visit.holds_back(queue, index, cx);
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

    /// The queue pair is at its end: nothing is throttled any more.
    #[cold]
    pub(super) fn give_up_throttled(&mut self, cx: &mut Cx) {
        let Some(queue) = &mut self.queue else { return };
        while let Some(index) = queue.throttled.commands.pop_front() {
            limit_of(queue, index, cx, |limit| limit.end_wait(None));
            queue.slots.get(index).state = State::Waiting;
        }
    }

    /// The command in `index` is given up; it may be throttled, or charged for what no backend has got.
    #[cold]
    pub(super) fn give_up_charge(&mut self, index: u16, cx: &mut Cx) {
        let Some(queue) = &mut self.queue else { return };
        if queue.slots.get(index).state == State::Throttled {
            queue.throttled.commands.retain(|&throttled| throttled != index);
            limit_of(queue, index, cx, |limit| limit.end_wait(None));
        }
        let slot = queue.slots.get(index);
        let charged = std::mem::replace(&mut slot.charged, Charged::NOTHING);
        let Some((namespace, bytes)) = bytes_of(slot, cx) else { return };
        if let Some(bucket) = queue.throttled.host.as_ref().filter(|_| charged.host) {
            bucket.give_back(bytes);
        }
        if let Some(bucket) = cx.caps.known_bucket(namespace).filter(|_| charged.namespace) {
            bucket.give_back(bytes);
        }
    }
}

/// What one visit of a queue pair has found out.
#[derive(Default)]
struct Visit {
    /// The host's cap holds everything back.
    by_host: bool,
    /// Namespaces whose caps hold back.
    namespaces: [Option<u32>; REFUSED],
    refused: usize,
}

impl Visit {
    /// Tries a throttled command, unless one before it says that it must wait.
    fn holds_back(&mut self, queue: &mut Queue, index: u16, cx: &mut Cx) -> bool {
        let slot = queue.slots.get(index);
        if !slot.status.is_success() {
            return false; // there was no memory for the data that came with it
        }
        let namespace = slot.work.place().map(|(namespace, _)| namespace);
        if self.by_host || namespace.is_some() && self.namespaces.contains(&namespace) {
            return true;
        }
        match charge(queue, index, cx) {
            Ok(()) => return false,
            Err(HeldBack::Host) => self.by_host = true,
            Err(HeldBack::Namespace(namespace)) => {
                self.namespaces[self.refused % REFUSED] = Some(namespace);
                self.refused += 1;
            }
        }
        true
    }
}

/// Charges a command to the caps that it meets: all of them, or none.
fn charge(queue: &mut Queue, index: u16, cx: &mut Cx) -> Result<(), HeldBack> {
    let slot = queue.slots.get(index);
    let (Some((namespace, bytes)), Some(host)) = (bytes_of(slot, cx), &mut queue.throttled.host) else { return Ok(()) };
    let claim = Claim { host: host.limit().number(), since_ns: slot.arrived_ns };
    let by_host = host.admit(bytes, claim, cx.now_ns).map_err(|until_ns| {
        if let Some(bucket) = cx.caps.known_bucket(namespace) {
            bucket.leave(claim);
        }
        cx.caps.note_due(until_ns, cx.now_ns);
        HeldBack::Host
    })?;
    let is_metered = cx.shared.caps.are_metered();
    let limit = cx.namespaces.limit(namespace).filter(|limit| is_metered || limit.bytes_per_s().is_some());
    let by_namespace = limit.map_or(Ok(false), |limit| cx.caps.bucket(namespace, limit).admit(bytes, claim, cx.now_ns));
    let by_namespace = by_namespace.map_err(|until_ns| {
        if by_host {
            host.give_back(bytes);
        }
        cx.caps.note_due(until_ns, cx.now_ns);
        HeldBack::Namespace(namespace)
    })?;
    if is_metered {
        let direction = direction_of(&slot.work);
        host.meter(direction, bytes, cx.now_ns);
        cx.caps.known_bucket(namespace).into_iter().for_each(|bucket| bucket.meter(direction, bytes, cx.now_ns));
    }
    slot.charged = Charged { host: by_host, namespace: by_namespace };
    Ok(())
}

/// A throttled command waits no longer: from now on it has its latency.
fn admit(queue: &mut Queue, index: u16, cx: &mut Cx) {
    let slot = queue.slots.get(index);
    let waited_ns = cx.now_ns.saturating_sub(slot.arrived_ns);
    slot.arrived_ns = cx.now_ns;
    cx.counters.cap_waits.record(waited_ns, 1);
    let bytes = bytes_of(slot, cx).map_or(0, |(_, bytes)| bytes);
    limit_of(queue, index, cx, |limit| limit.end_wait(Some((waited_ns, bytes))));
    queue.make_wait(index, false);
}

/// Calls `f` with the limit that holds a command back, unless its namespace is gone.
fn limit_of(queue: &mut Queue, index: u16, cx: &Cx, f: impl FnOnce(&Limit)) {
    let slot = queue.slots.get(index);
    let limit = match (&queue.throttled.host, slot.work.place()) {
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

/// The namespace of a command that has to do with caps, and the bytes that it has still to read or write there.
fn bytes_of(slot: &Slot, cx: &Cx) -> Option<(u32, u64)> {
    let (range, done) = match slot.work {
        Work::Read(range) | Work::Compare(range) | Work::Write { range, .. } => (range, 0),
        Work::Verify { range, done } | Work::Zero { range, done, .. } => (range, done),
        _ => return None,
    };
    let block_size = u64::from(cx.namespaces.geometry(range.namespace).block_size);
    Some((range.namespace, u64::from(range.blocks - done) * block_size))
}
