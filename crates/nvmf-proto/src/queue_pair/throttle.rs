//! Commands throttled by a bandwidth cap ([`Accounting`]), before their data is requested or a backend request submitted.
//!
//! A command throttled by its namespace's cap delays only later commands of that namespace; one throttled by its host's cap
//! delays all. The charge of a command that has not reached a backend is returned.

use std::collections::VecDeque;

use super::slots::{Slot, State};
use super::{Cx, Gate, Queue, QueuePair, Transport};
use crate::command::Work;
use crate::services::{Accounting, Charged, Demand, NamespaceTable, Services, ThrottledBy};

/// Throttled namespaces that one pass remembers; commands of further ones are retried individually.
const REFUSED: usize = 4;

/// The throttled commands of a queue pair.
pub(super) struct Throttled {
    /// Oldest first.
    commands: VecDeque<u16>,
    /// Whether the queue pair is in the I/O thread's list.
    is_listed: bool,
}

impl Throttled {
    /// For a queue with `slots` slots.
    pub(super) fn new(slots: usize) -> Self {
        Self { commands: VecDeque::with_capacity(slots), is_listed: false }
    }

    #[cfg(feature = "testing")]
    pub(super) fn len(&self) -> usize {
        self.commands.len()
    }
}

impl<T: Transport, S: Services> QueuePair<T, S> {
    /// Charges the new command in `index` to its caps. Returns whether one of them throttles it.
    #[cold]
    pub(super) fn is_throttled(&mut self, index: u16, cx: &mut Cx<S>) -> bool {
        let Some(queue) = &mut self.queue else { return false };
        let Err(by) = charge(queue, index, cx) else { return false };
        let slot = queue.slots.get(index);
        slot.state = State::Throttled;
        slot.held_by_host = matches!(by, ThrottledBy::Host);
        cx.accounting.begin_wait(&queue.usage.account, throttling(slot), cx.namespaces);
        queue.throttled.commands.push_back(index);
        if !std::mem::replace(&mut queue.throttled.is_listed, true) {
            cx.accounting.add_throttled(cx.me.index);
        }
        true
    }

    /// Retries the throttled commands; returns whether any was admitted. A draining server admits all.
    pub fn run_throttled(&mut self, cx: &mut Cx<S>) -> bool {
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
            cx.accounting.add_throttled(cx.me.index);
        }
        admitted
    }

    /// Clears the list at the end of the queue pair.
    #[cold]
    pub(super) fn clear_throttled(&mut self, cx: &mut Cx<S>) {
        let Some(queue) = &mut self.queue else { return };
        while let Some(index) = queue.throttled.commands.pop_front() {
            end_wait(queue, index, None, cx);
            queue.slots.get(index).state = State::Waiting;
        }
    }

    /// Returns the charge of the dropped command in `index`, or removes it from the throttled ones.
    #[cold]
    pub(super) fn return_charge(&mut self, index: u16, cx: &mut Cx<S>) {
        let Some(queue) = &mut self.queue else { return };
        if queue.slots.get(index).state == State::Throttled {
            queue.throttled.commands.retain(|&throttled| throttled != index);
            end_wait(queue, index, None, cx);
        }
        let slot = queue.slots.get(index);
        let charged = std::mem::replace(&mut slot.charged, Charged::NOTHING);
        if let Some((namespace, bytes)) = bytes_of(slot, cx) {
            cx.accounting.release(&queue.usage.account, charged, namespace, bytes);
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
    fn is_throttled<S: Services>(&mut self, queue: &mut Queue<S>, index: u16, cx: &mut Cx<S>) -> bool {
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
fn charge<S: Services>(queue: &mut Queue<S>, index: u16, cx: &mut Cx<S>) -> Result<(), ThrottledBy> {
    let slot = queue.slots.get(index);
    let Some((namespace, bytes)) = bytes_of(slot, cx) else { return Ok(()) };
    let is_write = matches!(slot.work, Work::Write { .. } | Work::FusedWrite { .. } | Work::Zero { .. });
    let demand = Demand { namespace, bytes, is_write, since_ns: slot.arrived_ns };
    let parts = (&*cx.namespaces, cx.services);
    slot.charged = cx.accounting.charge(&mut queue.usage.account, demand, parts, cx.now_ns)?;
    Ok(())
}

/// Admits a throttled command; its latency starts here.
fn admit<S: Services>(queue: &mut Queue<S>, index: u16, cx: &mut Cx<S>) {
    let slot = queue.slots.get(index);
    let waited_ns = cx.now_ns.saturating_sub(slot.arrived_ns);
    slot.arrived_ns = cx.now_ns;
    let bytes = bytes_of(slot, cx).map_or(0, |(_, bytes)| bytes);
    end_wait(queue, index, Some((waited_ns, bytes)), cx);
    queue.make_wait(index, false);
}

/// The command in `index` is throttled no longer: `admitted` after so many nanoseconds, with so many bytes.
fn end_wait<S: Services>(queue: &mut Queue<S>, index: u16, admitted: Option<(u64, u64)>, cx: &Cx<S>) {
    let by = throttling(queue.slots.get(index));
    cx.accounting.end_wait(&queue.usage.account, by, admitted, cx.namespaces);
}

/// The limit that throttles a command.
fn throttling(slot: &Slot) -> Option<ThrottledBy> {
    if slot.held_by_host {
        return Some(ThrottledBy::Host);
    }
    slot.work.target().map(|(namespace, _)| ThrottledBy::Namespace(namespace))
}

/// The namespace of a command subject to caps, and its remaining bytes.
fn bytes_of<S: Services>(slot: &Slot, cx: &Cx<S>) -> Option<(u32, u64)> {
    let (range, done) = match slot.work {
        Work::Read(range) | Work::Compare(range) | Work::Write { range, .. } | Work::FusedWrite { range, .. } => {
            (range, 0)
        }
        Work::Verify { range, done } | Work::Zero { range, done, .. } => (range, done),
        _ => return None,
    };
    let block_size = u64::from(cx.namespaces.geometry(range.namespace).block_size);
    Some((range.namespace, u64::from(range.blocks - done) * block_size))
}
