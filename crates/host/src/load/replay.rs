//! Requests of a trace on their way to the threads that send them.
//!
//! One thread goes through the trace and deals its commands to the workers in turn, in batches and ahead of time: reading and
//! unpacking a trace is then nobody's latency. A worker takes them from a bounded channel, so memory is bounded too; a
//! trace that cannot be read fast enough makes submissions late, which is reported.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use crate::load::picker::Kind;
use crate::load::spec::Layout;

/// Commands of a batch, and batches that a worker has before it.
const BATCH: usize = 256;
const AHEAD: usize = 64;

/// One command of a trace, fitted to the space it goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceCommand {
    /// When it is due, in nanoseconds from the start; never before the command before.
    pub at_ns: u64,
    /// A read rather than a write.
    pub reads: bool,
    /// First byte within the space; a whole number of blocks.
    pub offset: u64,
    /// Bytes; a whole number of blocks, at least one.
    pub bytes: u32,
}

/// What commands have to fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Bytes there are.
    pub bytes: u64,
    /// Bytes of a block.
    pub block_bytes: u32,
    /// Most bytes of a command.
    pub most_bytes: u32,
}

/// The commands of a trace, made for a space once that is known.
pub type Commands<'a> = Box<dyn Iterator<Item = TraceCommand> + Send + 'a>;

/// A command as it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Item {
    pub(crate) at_ns: u64,
    pub(crate) kind: Kind,
    pub(crate) lba: u64,
    pub(crate) blocks: u32,
}

/// A worker's end.
#[derive(Debug)]
pub(crate) struct Feed {
    batches: Receiver<Vec<Item>>,
    batch: std::vec::IntoIter<Item>,
    over: bool,
}

impl Feed {
    /// The next command, where there is one by now.
    #[inline]
    pub(crate) fn peek(&mut self) -> Option<Item> {
        if let Some(item) = self.batch.as_slice().first() {
            return Some(*item);
        }
        self.take_in(Receiver::try_recv)
    }

    /// The next command, waited for; `None` after the last.
    pub(crate) fn peek_waiting(&mut self) -> Option<Item> {
        self.peek()
            .or_else(|| self.take_in(|batches| batches.recv().map_err(|_| std::sync::mpsc::TryRecvError::Disconnected)))
    }

    #[cold]
    fn take_in(
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

    /// Whether the last command has been taken.
    pub(crate) fn is_over(&self) -> bool {
        self.over
    }
}

/// Where batches go.
type Batches = SyncSender<Vec<Item>>;

/// A worker, as long as it takes batches, and the batch that it gets next.
struct Taker {
    to: Option<Batches>,
    batch: Vec<Item>,
}

impl Taker {
    fn push(&mut self, item: Item) {
        self.batch.push(item);
        if self.batch.len() == BATCH {
            self.send();
        }
    }

    /// Sends what there is; a worker that has ended takes no more.
    fn send(&mut self) {
        let batch = std::mem::replace(&mut self.batch, Vec::with_capacity(BATCH));
        if self.to.as_ref().is_some_and(|to| to.send(batch).is_err()) {
            self.to = None;
        }
    }
}

/// So many feeds, and what fills them.
pub(crate) fn feeds(count: usize) -> (Vec<Batches>, Vec<Feed>) {
    let pair = |_| {
        let (sender, batches) = sync_channel(AHEAD);
        (sender, Feed { batches, batch: Vec::new().into_iter(), over: false })
    };
    (0..count).map(pair).unzip()
}

/// Deals the commands to the workers in turn, until the last or until nobody takes any.
///
/// # Errors
/// The first command that does not fit, in words.
pub(crate) fn deal(
    commands: impl Iterator<Item = TraceCommand>,
    layout: &Layout,
    space: &Space,
    senders: Vec<Batches>,
) -> Result<(), String> {
    let taker = |to| Taker { to: Some(to), batch: Vec::with_capacity(BATCH) };
    let mut takers: Vec<Taker> = senders.into_iter().map(taker).collect();
    let count = takers.len();
    for (number, command) in commands.enumerate() {
        takers[number % count].push(fitted(&command, layout, space)?);
        if takers.iter().all(|taker| taker.to.is_none()) {
            return Ok(());
        }
    }
    takers.iter_mut().for_each(Taker::send);
    Ok(())
}

fn fitted(command: &TraceCommand, layout: &Layout, space: &Space) -> Result<Item, String> {
    let block = u64::from(space.block_bytes);
    let end = command.offset.checked_add(u64::from(command.bytes)).filter(|&end| end <= space.bytes);
    let whole = command.offset.is_multiple_of(block) && command.bytes.is_multiple_of(space.block_bytes);
    if end.is_none() || !whole || command.bytes == 0 || command.bytes > space.most_bytes {
        return Err(format!("a command of {} bytes at {} does not fit {space:?}", command.bytes, command.offset));
    }
    let kind = if command.reads { Kind::Read } else { Kind::Write };
    let lba = layout.first_lba + command.offset / block;
    Ok(Item { at_ns: command.at_ns, kind, lba, blocks: command.bytes / space.block_bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUT: Layout = Layout { first_lba: 100, regions: 10, blocks_per_io: 8, block_size: 512 };
    const SPACE: Space = Space { bytes: 40_960, block_bytes: 512, most_bytes: 4096 };

    fn command(at_ns: u64, offset: u64, bytes: u32) -> TraceCommand {
        TraceCommand { at_ns, reads: at_ns.is_multiple_of(2), offset, bytes }
    }

    #[test]
    fn commands_are_dealt_in_turn_and_all_arrive() {
        let (senders, mut feeds) = feeds(3);
        let commands = (0..10_000).map(|at| command(at, at % 80 * 512, 512));
        std::thread::scope(|scope| {
            let dealing = scope.spawn(move || deal(commands, &LAYOUT, &SPACE, senders));
            for at in 0..10_000 {
                let feed = &mut feeds[at as usize % 3];
                let item = feed.peek_waiting().expect("one more");
                assert_eq!((item.at_ns, item.lba, item.blocks), (at, 100 + at % 80, 1));
                assert_eq!(item.kind == Kind::Read, at % 2 == 0);
                feed.advance();
            }
            assert!(feeds.iter_mut().all(|feed| feed.peek_waiting().is_none() && feed.is_over()));
            assert_eq!(dealing.join().expect("no panic"), Ok(()));
        });
    }

    #[test]
    fn nobody_waits_for_workers_that_have_ended() {
        let (senders, feeds) = feeds(2);
        drop(feeds);
        assert_eq!(deal((0..1_000_000).map(|at| command(at, 0, 512)), &LAYOUT, &SPACE, senders), Ok(()));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        for (offset, bytes) in [(0, 0), (0, 100), (100, 512), (40_960, 512), (0, 8192), (u64::MAX - 511, 512)] {
            assert!(fitted(&command(0, offset, bytes), &LAYOUT, &SPACE).is_err(), "{offset} {bytes}");
        }
        assert!(fitted(&command(0, 40_448, 512), &LAYOUT, &SPACE).is_ok());
    }
}
