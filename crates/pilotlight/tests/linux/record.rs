//! Replays the record of a disk (QEMU's `blklogwrites`, the format of Linux's `dm-log-writes`) and checks the
//! durability of every acknowledged write.
//!
//! **Problem.** A target that acknowledges a Flush without flushing loses nothing while the machine runs. So the disk
//! below it is recorded, and a power cut is simulated at every promise.
//!
//! **Terms.** *Written*: the disk has acknowledged the write; it may be in the disk's volatile cache. *Durable*: a
//! flush followed. *Mark*: a block that the workload wrote on the same disk (so into the same record) after an
//! acknowledgement; it contains the least generation that each data block must have from then on (`tools/block.rs`),
//! its *promise*.
//!
//! **Algorithm.** Process the record with two states: the durable image, and the writes since the last flush. A flush
//! applies the latter to the former. At a mark, each promised block is checked in the durable image alone.
//!
//! **Properties.** A promise holds if the block has the promised generation or a later one, completely (all eight
//! sectors). Writes that are not yet flushed do not count: a power cut may lose any part of them. The workload has one
//! request in flight at a time, so the order in the record is the order of the acknowledgements.

use crate::block::{BLOCK, BLOCK_MAGIC, MARK_GENERATIONS, MARK_MAGIC, check, get};
use std::fmt;

const SUPERBLOCK_MAGIC: u64 = 0x006a_7366_7773_6872;
const FLUSH: u64 = 1;
const FUA: u64 = 2;
const DISCARD: u64 = 4;
/// Sectors are counted in this unit; the case sets it.
const UNIT: usize = 512;

/// Layout of the recorded disk.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Layout {
    /// First byte of the data partition.
    pub(crate) data_at: usize,
    /// First byte of the partition of marks.
    pub(crate) marks_at: usize,
    /// Bytes in each of them.
    pub(crate) len: usize,
}

impl Layout {
    /// As `tests/linux/cases/durability.host.sh` partitions the disk.
    pub(crate) const OF_THE_CASE: Self = Self { data_at: 2048 * UNIT, marks_at: 34816 * UNIT, len: 30720 * UNIT };
}

/// The contents of a valid record.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Summary {
    pub(crate) writes: usize,
    pub(crate) flushes: usize,
    pub(crate) marks: usize,
}

/// A promise that a power cut would have broken.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Lost {
    /// The mark that made it.
    pub(crate) mark: u64,
    /// The block of the data partition.
    pub(crate) block: usize,
    /// The promised least generation.
    pub(crate) promised: u64,
    /// The actual value.
    pub(crate) found: String,
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { mark, block, promised, found } = self;
        write!(f, "power cut at mark {mark}: block {block} was promised with generation {promised}, but {found}")
    }
}

struct Entry<'a> {
    offset: usize,
    len: usize,
    flags: u64,
    data: &'a [u8],
}

/// Reads the entry at `*at` and advances `*at`; `None` at the end. The superblock's count is not current (it is written
/// with flushes), so the record ends at the end of the file or at an empty entry.
fn next_entry<'a>(log: &'a [u8], at: &mut usize) -> Result<Option<Entry<'a>>, String> {
    let Some(header) = log.get(*at..*at + UNIT) else { return Ok(None) };
    let (sector, sectors, flags) = (get(header, 0) as usize, get(header, 8) as usize, get(header, 16));
    if sectors == 0 && flags == 0 {
        return Ok(None);
    }
    let len = sectors * UNIT;
    *at += UNIT;
    let stored = if flags & DISCARD == 0 { len } else { 0 };
    let data = log.get(*at..*at + stored).ok_or("an entry goes beyond the record")?;
    *at += stored;
    Ok(Some(Entry { offset: sector * UNIT, len, flags, data }))
}

struct Replay {
    layout: Layout,
    durable: Vec<u8>,
    /// Writes since the last flush: offset in the data partition, and bytes.
    volatile: Vec<(usize, Vec<u8>)>,
    summary: Summary,
}

impl Replay {
    fn flush(&mut self) {
        for (at, bytes) in self.volatile.drain(..) {
            self.durable[at..at + bytes.len()].copy_from_slice(&bytes);
        }
        self.summary.flushes += 1;
    }

    fn write(&mut self, entry: &Entry<'_>) -> Result<(), String> {
        let at = entry.offset - self.layout.data_at;
        if at + entry.len > self.layout.len {
            return Err(format!("a write of {} bytes at {} leaves its partition", entry.len, entry.offset));
        }
        if entry.flags & DISCARD != 0 {
            return Err("the workload discards nothing, but the record does".into());
        }
        self.summary.writes += 1;
        if entry.flags & FUA == 0 {
            self.volatile.push((at, entry.data.to_vec()));
        } else {
            self.durable[at..at + entry.len].copy_from_slice(entry.data);
        }
        Ok(())
    }

    fn mark(&mut self, mark: &[u8]) -> Result<(), Lost> {
        self.summary.marks += 1;
        let generations = mark[MARK_GENERATIONS..].chunks_exact(4).take(get(mark, 16) as usize);
        for (block, promised) in generations.enumerate() {
            let promised = u64::from(u32::from_le_bytes(promised.try_into().expect("four bytes")));
            self.holds(block, promised).map_err(|found| Lost { mark: get(mark, 8), block, promised, found })?;
        }
        Ok(())
    }

    /// Checks a promise in the durable image; the error is the actual content.
    fn holds(&self, block: usize, promised: u64) -> Result<(), String> {
        if promised == 0 {
            return Ok(());
        }
        let bytes = &self.durable[block * BLOCK..(block + 1) * BLOCK];
        if get(bytes, 0) != BLOCK_MAGIC {
            return Err("nothing was ever made durable there".into());
        }
        let generation = get(bytes, 16);
        check(bytes, block as u64, generation)?;
        if generation < promised { Err(format!("generation {generation} is there")) } else { Ok(()) }
    }
}

/// Checks every promise in `log`. The outer error is an invalid record.
pub(crate) fn replay(log: &[u8], layout: &Layout) -> Result<Result<Summary, Lost>, String> {
    if log.len() < UNIT || get(log, 0) != SUPERBLOCK_MAGIC || get(log, 8) != 1 {
        return Err("not a record of version 1".into());
    }
    if log[24..28] != (UNIT as u32).to_le_bytes() {
        return Err("another sector size than the case sets".into());
    }
    let mut state =
        Replay { layout: *layout, durable: vec![0; layout.len], volatile: Vec::new(), summary: Summary::default() };
    let mut at = UNIT;
    while let Some(entry) = next_entry(log, &mut at)? {
        if entry.flags & FLUSH != 0 {
            state.flush();
        }
        let in_data = (layout.data_at..layout.data_at + layout.len).contains(&entry.offset);
        let in_marks = (layout.marks_at..layout.marks_at + layout.len).contains(&entry.offset);
        if in_data && entry.len > 0 {
            state.write(&entry)?;
        } else if in_marks
            && entry.len == BLOCK
            && get(entry.data, 0) == MARK_MAGIC
            && let Err(lost) = state.mark(entry.data)
        {
            return Ok(Err(lost));
        }
    }
    Ok(Ok(state.summary))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::{fill, put};

    const LAYOUT: Layout = Layout { data_at: 8 * UNIT, marks_at: 64 * UNIT, len: 32 * UNIT };

    struct Log(Vec<u8>);

    impl Log {
        fn new() -> Self {
            let mut log = vec![0; UNIT];
            put(&mut log, 0, SUPERBLOCK_MAGIC);
            put(&mut log, 8, 1);
            log[24..28].copy_from_slice(&512u32.to_le_bytes());
            Self(log)
        }

        fn entry(mut self, offset: usize, flags: u64, data: &[u8]) -> Self {
            let mut header = [0; UNIT];
            put(&mut header, 0, (offset / UNIT) as u64);
            put(&mut header, 8, (data.len() / UNIT) as u64);
            put(&mut header, 16, flags);
            self.0.extend(header);
            self.0.extend(data);
            self
        }

        fn write(self, block: usize, generation: u64, flags: u64) -> Self {
            let mut bytes = [0; BLOCK];
            fill(&mut bytes, block as u64, generation);
            self.entry(LAYOUT.data_at + block * BLOCK, flags, &bytes)
        }

        fn flush(self) -> Self {
            self.entry(0, FLUSH, &[])
        }

        fn mark(self, number: u64, promised: &[u32]) -> Self {
            let mut bytes = [0; BLOCK];
            put(&mut bytes, 0, MARK_MAGIC);
            put(&mut bytes, 8, number);
            put(&mut bytes, 16, promised.len() as u64);
            for (at, generation) in promised.iter().enumerate() {
                bytes[MARK_GENERATIONS + 4 * at..][..4].copy_from_slice(&generation.to_le_bytes());
            }
            self.entry(LAYOUT.marks_at, 0, &bytes)
        }

        fn verdict(&self) -> Result<Summary, Lost> {
            replay(&self.0, &LAYOUT).expect("a record")
        }
    }

    #[test]
    fn a_promise_that_was_flushed_holds() {
        let log = Log::new().write(0, 1, 0).write(1, 1, 0).flush().mark(0, &[1, 1]).write(1, 2, 0).mark(1, &[1, 1]);
        assert_eq!(log.verdict(), Ok(Summary { writes: 3, flushes: 1, marks: 2 }));
    }

    #[test]
    fn a_later_generation_satisfies_an_earlier_flush() {
        let log = Log::new().write(0, 1, 0).write(0, 2, 0).flush().mark(0, &[1]);
        assert!(log.verdict().is_ok());
    }

    #[test]
    fn without_a_flush_nothing_is_durable() {
        let lost = Log::new().write(0, 1, 0).mark(0, &[1]).verdict().expect_err("lost");
        assert_eq!((lost.mark, lost.block, lost.promised), (0, 0, 1));
    }

    #[test]
    fn a_flush_before_the_write_does_not_count() {
        let log = Log::new().write(0, 1, 0).flush().write(0, 2, 0).mark(7, &[2]);
        let lost = log.verdict().expect_err("lost");
        assert_eq!((lost.mark, lost.found.as_str()), (7, "generation 1 is there"));
    }

    #[test]
    fn force_unit_access_makes_only_its_write_durable() {
        let log = Log::new().write(0, 1, 0).write(1, 1, FUA).mark(0, &[0, 1]);
        assert!(log.verdict().is_ok());
        assert!(log.mark(1, &[1, 1]).verdict().is_err());
    }

    #[test]
    fn a_write_that_carries_a_flush_flushes_what_came_before_it() {
        let log = Log::new().write(0, 1, 0).write(1, 1, FLUSH).mark(0, &[1, 0]);
        assert!(log.verdict().is_ok());
        assert!(log.mark(1, &[1, 1]).verdict().is_err());
    }

    #[test]
    fn a_torn_block_is_no_block() {
        let mut half = [0; BLOCK];
        fill(&mut half, 0, 2);
        let log = Log::new().write(0, 1, 0).entry(LAYOUT.data_at, 0, &half[..BLOCK / 2]).flush().mark(0, &[1]);
        let lost = log.verdict().expect_err("lost");
        assert!(lost.found.contains("sector 4: expected generation 2"), "{lost}");
    }

    #[test]
    fn a_misplaced_block_is_no_block() {
        let mut other = [0; BLOCK];
        fill(&mut other, 1, 5);
        assert!(Log::new().entry(LAYOUT.data_at, FUA, &other).mark(0, &[1]).verdict().is_err());
    }

    #[test]
    fn a_record_that_makes_no_sense_is_refused() {
        assert!(replay(&[0; UNIT], &LAYOUT).is_err());
        let mut cut = Log::new().write(0, 1, 0).0;
        cut.truncate(cut.len() - 1);
        assert!(replay(&cut, &LAYOUT).is_err());
        let outside = Log::new().entry(LAYOUT.data_at + LAYOUT.len - UNIT, 0, &[0; BLOCK]);
        assert!(replay(&outside.0, &LAYOUT).is_err());
        let discard = Log::new().entry(LAYOUT.data_at, 0, &[]).entry(LAYOUT.data_at, DISCARD, &[]);
        assert!(replay(&discard.0, &LAYOUT).is_ok(), "an entry without blocks ends or changes nothing");
    }
}
