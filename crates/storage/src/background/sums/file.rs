//! An open sums file. Marks are durable before data is written; checksums are durable before marks are cleared.
//!
//! All calls but [`SumsFile::pass`] may block. One thread makes them (`tracker.rs`), so that a mark after a commit of the same
//! range is written after it.
//!
//! # The properties
//! After a crash at any call (the crash test loses any unsynced data):
//! - a range that was marked and not committed since has its mark;
//! - a range without a mark has the checksums of its last commit.
//!
//! Bad blocks are stored so that reads of them fail after a restart, too. In marked ranges they are valid only after a
//! clean close: otherwise they may have been written again, and the ranges are summed again without a report.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::BLOCKS;
use super::Sums;
use super::format::{
    BAD_AT, FormatError, HEADER_STEP, Header, Layout, PLACE, PLACES, Pass, RECORD, decode_bad, decode_record,
    encode_bad, encode_record,
};
use crate::opener::{DirectOpener, FileOpener, Opened};

/// Storage of a sums file: a file, or a model in tests.
pub trait Storage: Send + Sync {
    /// Reads all of `data` at `offset`.
    ///
    /// # Errors
    /// The system's error.
    fn read(&self, offset: u64, data: &mut [u8]) -> io::Result<()>;
    /// Writes all of `data` at `offset`.
    ///
    /// # Errors
    /// The system's error.
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()>;
    /// Makes all writes durable.
    ///
    /// # Errors
    /// The system's error: writes since the last sync may be lost.
    fn sync(&self) -> io::Result<()>;
    /// Size in bytes.
    ///
    /// # Errors
    /// The system's error.
    fn size(&self) -> io::Result<u64>;
    /// Sets the size, fills with zeroes and allocates the space.
    ///
    /// # Errors
    /// The system's error.
    fn reset(&self, bytes: u64) -> io::Result<()>;
}

impl Storage for File {
    fn read(&self, offset: u64, data: &mut [u8]) -> io::Result<()> {
        self.read_exact_at(data, offset)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.write_all_at(data, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn reset(&self, bytes: u64) -> io::Result<()> {
        self.set_len(0)?;
        self.set_len(bytes)?;
        match rustix::fs::fallocate(self, rustix::fs::FallocateFlags::empty(), 0, bytes) {
            Ok(()) | Err(rustix::io::Errno::OPNOTSUPP) => {}
            Err(error) => return Err(error.into()),
        }
        self.sync_all()
    }
}

/// Opens the file at `path`, or creates it.
///
/// # Errors
/// The system's error, or that another process has it open.
pub fn open_file(path: &Path) -> io::Result<File> {
    open_file_by(path, &DirectOpener)
}

/// [`open_file`] with another opener.
///
/// # Errors
/// As [`open_file`].
pub fn open_file_by(path: &Path, opener: &dyn FileOpener) -> io::Result<File> {
    let file = match opener.open(path, Opened::File) {
        Err(error) if error.kind() == ErrorKind::NotFound => opener.open(path, Opened::NewFile),
        opened => opened,
    }?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(ErrorKind::InvalidInput, "not a regular file"));
    }
    file.try_lock().map_err(|error| match error {
        std::fs::TryLockError::WouldBlock => io::Error::new(ErrorKind::WouldBlock, "another program has it open"),
        std::fs::TryLockError::Error(error) => error,
    })?;
    // make the directory entry durable
    if let Some(folder) = path.parent() {
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        match File::open(folder) {
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {} // of another user, whose process has synchronised it
            opened => opened?.sync_all()?,
        }
    }
    Ok(file)
}

/// State of a sums file when it is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenState {
    /// Closed cleanly.
    Clean,
    /// Not closed cleanly.
    Unclean,
    /// Empty.
    New,
    /// Unusable and recreated.
    Reset(FormatError),
}

/// The mutable state.
struct Inner {
    header: Header,
    marks: Box<[u64]>,
    /// The bad block at each place.
    bad: Box<[Option<u64>]>,
}

/// A sums file.
pub struct SumsFile {
    storage: Box<dyn Storage>,
    layout: Layout,
    /// Locked during reads and writes of the file.
    inner: Mutex<Inner>,
    pass: LastPass,
}

/// The last recorded pass, which a reactor reads. One thread writes it.
#[derive(Debug)]
struct LastPass {
    began_s: AtomicU64,
    position: AtomicU64,
}

impl LastPass {
    fn new(pass: Pass) -> Self {
        Self { began_s: AtomicU64::new(pass.began_s), position: AtomicU64::new(pass.position) }
    }

    /// The position first: with the start of a new pass a reader sees no position of an older one, which would leave out ranges. The
    /// position of a newer one, with an older start, only repeats some.
    fn set(&self, pass: Pass) {
        self.position.store(pass.position, Ordering::Release);
        self.began_s.store(pass.began_s, Ordering::Release);
    }

    fn get(&self) -> Pass {
        let began_s = self.began_s.load(Ordering::Acquire);
        Pass { began_s, position: self.position.load(Ordering::Acquire) }
    }
}

impl SumsFile {
    /// Opens the sums file of a namespace of `bytes` bytes; in a new one every range is marked.
    ///
    /// # Errors
    /// If the file cannot be read or written.
    pub fn open(storage: Box<dyn Storage>, bytes: u64) -> io::Result<(Self, OpenState)> {
        let layout = Layout::new(bytes);
        let (header, found) = match read_header(&*storage, &layout)? {
            Ok(header) => (header, if header.is_clean { OpenState::Clean } else { OpenState::Unclean }),
            Err(why) => {
                let was_empty = storage.size()? == 0;
                let header = create(&*storage, &layout)?;
                (header, if was_empty { OpenState::New } else { OpenState::Reset(why) })
            }
        };
        let mut raw = vec![0; layout.mark_words() * 8];
        storage.read(layout.word_at(0), &mut raw)?;
        let marks = raw.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default())).collect();
        let bad = read_bad(&*storage)?;
        let (inner, pass) = (Mutex::new(Inner { header, marks, bad }), LastPass::new(header.pass));
        let file = Self { storage, layout, inner, pass };
        let mut inner = file.inner();
        let valid = file.valid_bad(&inner);
        let blocks: Vec<u64> =
            inner.bad.iter().zip(&valid).filter_map(|(bad, valid)| bad.filter(|_| valid.is_none())).collect();
        if !blocks.is_empty() {
            tracing::warn!(?blocks, "discarding bad blocks: they may have been written again before the unclean stop");
        }
        file.write_bad(&mut inner, &valid)?;
        file.write_header(&mut inner, false, header.pass)?;
        drop(inner);
        Ok((file, found))
    }

    /// The valid bad blocks, by place.
    fn valid_bad(&self, inner: &Inner) -> Box<[Option<u64>]> {
        let is_marked = |range: u64| inner.marks[range as usize / 64] >> (range % 64) & 1 == 1;
        let counts = |lba: u64| {
            let range = lba / BLOCKS as u64;
            range < self.layout.ranges && (inner.header.is_clean || !is_marked(range))
        };
        inner.bad.iter().map(|place| place.filter(|&lba| counts(lba))).collect()
    }

    /// The stored bad blocks, by place up to the last used one.
    #[must_use]
    pub fn bad(&self) -> Vec<Option<u64>> {
        let inner = self.inner();
        let used = inner.bad.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
        inner.bad[..used].to_vec()
    }

    /// Stores these bad blocks durably in place of the previous ones.
    ///
    /// # Errors
    /// The system's error.
    pub fn keep_bad(&self, places: &[Option<u64>]) -> io::Result<()> {
        let mut inner = self.inner();
        if self.write_bad(&mut inner, places)? { self.storage.sync() } else { Ok(()) }
    }

    /// Writes changed places. Returns whether there were any.
    fn write_bad(&self, inner: &mut Inner, places: &[Option<u64>]) -> io::Result<bool> {
        let mut changed = false;
        for (at, known) in inner.bad.iter_mut().enumerate() {
            let new = places.get(at).copied().flatten();
            if *known != new {
                self.storage.write(BAD_AT + (at * PLACE) as u64, &encode_bad(at, new))?;
                (*known, changed) = (new, true);
            }
        }
        Ok(changed)
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The layout.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The marked ranges.
    #[must_use]
    pub fn marked(&self) -> Vec<u64> {
        let inner = self.inner();
        (0..self.layout.ranges).filter(|&range| inner.marks[range as usize / 64] >> (range % 64) & 1 == 1).collect()
    }

    /// The last recorded pass of scrubbing. Takes no lock and does not wait for storage.
    #[must_use]
    pub fn pass(&self) -> Pass {
        self.pass.get()
    }

    /// Marks ranges durably.
    ///
    /// # Errors
    /// If the marks cannot be written or synced: then their state is unknown.
    pub fn mark(&self, ranges: &[u64]) -> io::Result<()> {
        let mut inner = self.inner();
        self.write_marks(&mut inner, ranges, true)?;
        self.storage.sync()
    }

    /// Writes the checksums of ranges and the `bad` blocks durably, then clears the marks of the ranges for which `is_clean`
    /// returns `true`.
    ///
    /// # Errors
    /// If a write or the sync fails: `is_clean` is not called, and every mark stays.
    pub fn commit(
        &self,
        sums: &[(u64, Sums)],
        bad: &[Option<u64>],
        mut is_clean: impl FnMut(u64) -> bool,
    ) -> io::Result<()> {
        self.write_bad(&mut self.inner(), bad)?;
        for (range, sums) in sums {
            self.storage.write(self.layout.record_at(*range), &encode_record(*range, sums))?;
        }
        self.storage.sync()?;
        let mut inner = self.inner();
        let clean: Vec<u64> = sums.iter().map(|(range, _)| *range).filter(|&range| is_clean(range)).collect();
        self.write_marks(&mut inner, &clean, false)
    }

    /// The checksums of a range; `None` if they are damaged or not written yet.
    ///
    /// # Errors
    /// The system's error.
    pub fn sums(&self, range: u64) -> io::Result<Option<Sums>> {
        let mut record = [0; RECORD];
        self.storage.read(self.layout.record_at(range), &mut record)?;
        Ok(decode_record(range, &record))
    }

    /// Records the pass of scrubbing; `closes` also records a clean close.
    ///
    /// # Errors
    /// The system's error.
    pub fn note(&self, pass: Pass, closes: bool) -> io::Result<()> {
        let mut inner = self.inner();
        if closes {
            self.storage.sync()?;
        }
        self.write_header(&mut inner, closes, pass)
    }

    fn write_header(&self, inner: &mut Inner, is_clean: bool, pass: Pass) -> io::Result<()> {
        let header = Header { sequence: inner.header.sequence + 1, is_clean, pass, ..inner.header };
        self.storage.write(header.offset(), &header.encode())?;
        self.storage.sync()?;
        inner.header = header;
        self.pass.set(pass);
        Ok(())
    }

    fn write_marks(&self, inner: &mut Inner, ranges: &[u64], set: bool) -> io::Result<()> {
        for &range in ranges {
            let (word, bit) = ((range / 64) as usize, 1 << (range % 64));
            let new = if set { inner.marks[word] | bit } else { inner.marks[word] & !bit };
            self.storage.write(self.layout.word_at(word), &new.to_le_bytes())?;
            inner.marks[word] = new;
        }
        Ok(())
    }
}

/// Reads the header of a file with any content.
fn read_header(storage: &dyn Storage, layout: &Layout) -> io::Result<Result<Header, FormatError>> {
    let found = storage.size()?;
    if found < 2 * HEADER_STEP {
        return Ok(Err(FormatError::Header));
    }
    let mut raw = vec![0; 2 * HEADER_STEP as usize];
    storage.read(0, &mut raw)?;
    let (one, other) = raw.split_at(HEADER_STEP as usize);
    let header = match Header::newest([one, other]) {
        Ok(header) => header,
        Err(error) => return Ok(Err(error)),
    };
    if header.bytes != layout.bytes {
        return Ok(Err(FormatError::Size { found: header.bytes, wanted: layout.bytes }));
    }
    let wanted = layout.file_bytes();
    Ok(if found < wanted { Err(FormatError::Short { found, wanted }) } else { Ok(header) })
}

/// The bad block at each place.
fn read_bad(storage: &dyn Storage) -> io::Result<Box<[Option<u64>]>> {
    let mut raw = vec![0; PLACE * PLACES];
    storage.read(BAD_AT, &mut raw)?;
    Ok(raw.chunks_exact(PLACE).enumerate().map(|(at, bytes)| decode_bad(at, bytes)).collect())
}

/// Creates a file; its header becomes durable after its marks.
fn create(storage: &dyn Storage, layout: &Layout) -> io::Result<Header> {
    storage.reset(layout.file_bytes())?;
    let mut marks = vec![0xff; layout.mark_words() * 8];
    if !layout.ranges.is_multiple_of(64)
        && let Some(last) = marks.last_chunk_mut::<8>()
    {
        *last = ((1_u64 << (layout.ranges % 64)) - 1).to_le_bytes();
    }
    storage.write(layout.word_at(0), &marks)?;
    storage.sync()?;
    Ok(Header { bytes: layout.bytes, sequence: 0, is_clean: false, pass: Pass::default() })
}

#[cfg(test)]
mod tests;
