//! Commands of a trace, distributed to the threads that send them.
//!
//! One thread reads the trace and distributes its commands to the workers in turn, in batches and in advance, so that reading a
//! trace adds no latency. A worker takes batches from a bounded channel; a trace that is read too slowly makes submissions
//! late, which is reported.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use crate::load::picker::Kind;
use crate::load::spec::{Layout, SpecError};

/// Commands of a batch, and batches in a worker's channel.
const BATCH: usize = 256;
const AHEAD: usize = 64;

/// A command of a trace that fits its space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceCommand {
    /// Due time in nanoseconds from the start; never decreases.
    pub at_ns: u64,
    /// A read, not a write.
    pub reads: bool,
    /// First byte within the space; a whole number of blocks.
    pub offset: u64,
    /// Bytes; a whole number of blocks, at least one.
    pub bytes: u32,
}

/// Limits of commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Bytes of the range.
    pub bytes: u64,
    /// Block size.
    pub block_bytes: u32,
    /// Most bytes of a command.
    pub max_bytes: u32,
}

/// The commands of a trace.
pub type Commands<'a> = Box<dyn Iterator<Item = TraceCommand> + Send + 'a>;

/// A command for a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Item {
    pub(crate) at_ns: u64,
    pub(crate) kind: Kind,
    pub(crate) lba: u64,
    pub(crate) blocks: u32,
}

/// The receiving end of a worker.
#[derive(Debug)]
pub(crate) struct Feed {
    batches: Receiver<Vec<Item>>,
    batch: std::vec::IntoIter<Item>,
    over: bool,
}

impl Feed {
    /// The next command, if it is available.
    #[inline]
    pub(crate) fn peek(&mut self) -> Option<Item> {
        if let Some(item) = self.batch.as_slice().first() {
            return Some(*item);
        }
        self.next_batch(Receiver::try_recv)
    }

    /// Waits for the next command; `None` after the last.
    pub(crate) fn peek_waiting(&mut self) -> Option<Item> {
        self.peek().or_else(|| {
            self.next_batch(|batches| batches.recv().map_err(|_| std::sync::mpsc::TryRecvError::Disconnected))
        })
    }

    #[cold]
    fn next_batch(
        &mut self,
        receive: impl FnOnce(&Receiver<Vec<Item>>) -> Result<Vec<Item>, std::sync::mpsc::TryRecvError>,
    ) -> Option<Item> {
        match receive(&self.batches) {
            Ok(batch) => self.batch = batch.into_iter(),
            Err(std::sync::mpsc::TryRecvError::Disconnected) => self.over = true,
            Err(std::sync::mpsc::TryRecvError::Empty) => {}
        }
        self.batch.as_slice().first().copied()
    }

    pub(crate) fn advance(&mut self) {
        self.batch.next();
    }

    /// Whether the trace has ended.
    pub(crate) fn is_over(&self) -> bool {
        self.over
    }
}

/// The sending end.
type Batches = SyncSender<Vec<Item>>;

/// The sending end of a worker until it ends, and its next batch.
struct WorkerBatch {
    to: Option<Batches>,
    batch: Vec<Item>,
}

impl WorkerBatch {
    fn push(&mut self, item: Item) {
        self.batch.push(item);
        if self.batch.len() == BATCH {
            self.send();
        }
    }

    /// Sends the batch, unless the worker has ended.
    fn send(&mut self) {
        let batch = std::mem::replace(&mut self.batch, Vec::with_capacity(BATCH));
        if self.to.as_ref().is_some_and(|to| to.send(batch).is_err()) {
            self.to = None;
        }
    }
}

/// `count` channels.
pub(crate) fn feeds(count: usize) -> (Vec<Batches>, Vec<Feed>) {
    let pair = |_| {
        let (sender, batches) = sync_channel(AHEAD);
        (sender, Feed { batches, batch: Vec::new().into_iter(), over: false })
    };
    (0..count).map(pair).unzip()
}

/// Distributes the commands to the workers in turn, until the last command or until all workers have ended.
///
/// # Errors
/// The first command that does not fit.
pub(crate) fn distribute(
    commands: impl Iterator<Item = TraceCommand>,
    layout: &Layout,
    space: &Space,
    senders: Vec<Batches>,
) -> Result<(), SpecError> {
    let worker = |to| WorkerBatch { to: Some(to), batch: Vec::with_capacity(BATCH) };
    let mut workers: Vec<WorkerBatch> = senders.into_iter().map(worker).collect();
    let count = workers.len();
    for (number, command) in commands.enumerate() {
        workers[number % count].push(fit(&command, layout, space)?);
        if workers.iter().all(|worker| worker.to.is_none()) {
            return Ok(());
        }
    }
    workers.iter_mut().for_each(WorkerBatch::send);
    Ok(())
}

fn fit(command: &TraceCommand, layout: &Layout, space: &Space) -> Result<Item, SpecError> {
    let block = u64::from(space.block_bytes);
    let end = command.offset.checked_add(u64::from(command.bytes)).filter(|&end| end <= space.bytes);
    let whole = command.offset.is_multiple_of(block) && command.bytes.is_multiple_of(space.block_bytes);
    if end.is_none() || !whole || command.bytes == 0 || command.bytes > space.max_bytes {
        return Err(SpecError::Command(command.bytes, command.offset, *space));
    }
    let kind = if command.reads { Kind::Read } else { Kind::Write };
    let lba = layout.first_lba + command.offset / block;
    Ok(Item { at_ns: command.at_ns, kind, lba, blocks: command.bytes / space.block_bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUT: Layout = Layout { first_lba: 100, regions: 10, blocks_per_io: 8, block_size: 512 };
    const SPACE: Space = Space { bytes: 40_960, block_bytes: 512, max_bytes: 4096 };

    fn command(at_ns: u64, offset: u64, bytes: u32) -> TraceCommand {
        TraceCommand { at_ns, reads: at_ns.is_multiple_of(2), offset, bytes }
    }

    #[test]
    fn commands_are_distributed_in_turn() {
        let (senders, mut feeds) = feeds(3);
        let commands = (0..10_000).map(|at| command(at, at % 80 * 512, 512));
        std::thread::scope(|scope| {
            let distributing = scope.spawn(move || distribute(commands, &LAYOUT, &SPACE, senders));
            for at in 0..10_000 {
                let feed = &mut feeds[at as usize % 3];
                let item = feed.peek_waiting().expect("one more");
                assert_eq!((item.at_ns, item.lba, item.blocks), (at, 100 + at % 80, 1));
                assert_eq!(item.kind == Kind::Read, at % 2 == 0);
                feed.advance();
            }
            assert!(feeds.iter_mut().all(|feed| feed.peek_waiting().is_none() && feed.is_over()));
            assert_eq!(distributing.join().expect("no panic"), Ok(()));
        });
    }

    #[test]
    fn distribution_ends_with_the_workers() {
        let (senders, feeds) = feeds(2);
        drop(feeds);
        assert_eq!(distribute((0..1_000_000).map(|at| command(at, 0, 512)), &LAYOUT, &SPACE, senders), Ok(()));
    }

    #[test]
    fn commands_beyond_the_space_are_rejected() {
        for (offset, bytes) in [(0, 0), (0, 100), (100, 512), (40_960, 512), (0, 8192), (u64::MAX - 511, 512)] {
            assert!(fit(&command(0, offset, bytes), &LAYOUT, &SPACE).is_err(), "{offset} {bytes}");
        }
        assert!(fit(&command(0, 40_448, 512), &LAYOUT, &SPACE).is_ok());
    }
}
