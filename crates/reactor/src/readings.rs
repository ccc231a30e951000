//! Readings of power, bytes and latencies for a policy, written by other threads.

use std::fmt::Debug;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};

use pilotlight_plant::{NEVER, ReadingId, Source, Window};

/// The sources of this runtime's machine. Called from the main core, between two rounds: nothing here may wait or measure.
pub trait Readings: Debug + Send + Sync {
    /// All sources, by [`ReadingId`].
    fn sources(&self) -> Vec<Source>;

    /// Requests these readings; others need not be measured.
    fn want(&self, _wanted: &[ReadingId]) {}

    /// The last window of a source, with its end on this runtime's clock ([`crate::clock`]).
    fn last(&self, id: ReadingId) -> Option<Window>;
}

/// Readings that other threads measure and write here.
#[derive(Debug)]
pub struct ReadingBoard {
    sources: Vec<Source>,
    cells: Vec<Cell>,
}

#[derive(Debug)]
struct Cell {
    wanted: AtomicBool,
    /// [`NEVER`] before the first window.
    ended_ns: AtomicU64,
    /// [`NEVER`] without a value.
    value: AtomicU64,
}

impl ReadingBoard {
    /// A board without windows.
    #[must_use]
    pub fn new(sources: Vec<Source>) -> Self {
        let cell = |_: &Source| Cell {
            wanted: AtomicBool::new(false),
            ended_ns: AtomicU64::new(NEVER),
            value: AtomicU64::new(NEVER),
        };
        Self { cells: sources.iter().map(cell).collect(), sources }
    }

    /// Whether a source is to be measured.
    #[must_use]
    pub fn is_wanted(&self, id: ReadingId) -> bool {
        self.cells.get(id.index()).is_some_and(|cell| cell.wanted.load(Relaxed))
    }

    /// Writes a window of a source; one thread for each source. A concurrent reader may get the new value with the old end.
    pub fn put(&self, id: ReadingId, window: Window) {
        let Some(cell) = self.cells.get(id.index()) else { return };
        cell.value.store(window.value.unwrap_or(NEVER), Release);
        cell.ended_ns.store(window.ended_ns, Release);
    }
}

impl Readings for ReadingBoard {
    fn sources(&self) -> Vec<Source> {
        self.sources.clone()
    }

    fn want(&self, wanted: &[ReadingId]) {
        for (id, cell) in (0..).map(ReadingId).zip(&self.cells) {
            cell.wanted.store(wanted.contains(&id), Relaxed);
        }
    }

    fn last(&self, id: ReadingId) -> Option<Window> {
        let cell = self.cells.get(id.index())?;
        let ended_ns = cell.ended_ns.load(Acquire);
        let value = cell.value.load(Acquire);
        (ended_ns != NEVER).then(|| Window { ended_ns, value: Some(value).filter(|&value| value != NEVER) })
    }
}
