//! The ledger in a file, so that what a run wrote can be checked after the target or this program died.
//!
//! The problem: after a crash a block holds the last generation that was durable, or a newer one that was written and not flushed; an
//! older one has been lost. To tell these apart the file has to say, at any moment, which generations are durable and which
//! may be on their way.
//!
//! Words: a generation is *durable* when the target has acknowledged a write of it with FUA, or has acknowledged it before a Flush was
//! sent that succeeded (NVM 3.2: a Flush covers the commands that completed before it was submitted).
//!
//! The file: a header of [`HEADER_LEN`] bytes, then an entry of [`ENTRY_LEN`] bytes for each block of the range (zeroes: never
//! changed). Little endian.
//!
//! | bytes of the header | content | | bytes of an entry | content |
//! |---|---|---|---|---|
//! | 0..8 | a magic number with the version | | 0..4 | latest generation that was sent |
//! | 8..16 | run, as in the blocks | | 4..8 | latest generation that is durable; 0 for none |
//! | 16..24 | first block of the range | | 8..12 | latest generation that set the block to zero; 0 for none |
//! | 24..32 | blocks in the range | | 12..16 | CRC32C of the other bytes and the entry's number |
//! | 32..36 | bytes of a block | | | |
//! | 36..40 | CRC32C of bytes 0..36 | | | |
//!
//! The algorithm: an entry is in the file (`pwrite`) before the command that it announces is handed to the connection; that a generation is
//! durable is written after its acknowledgement or that of the Flush. So the file errs on one side only: it never calls durable what is not,
//! and never lacks what may be there. Entries do not straddle pages, and a `pwrite` within a page is whole or not there when the
//! process dies. There is no `fsync`: the file survives the death of this program, not that of the machine it runs on.
//!
//! Properties (tested against a naive store with a volatile cache): whatever a correct store keeps after a crash at any moment is
//! accepted; every durable generation is recorded as such.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pilotlight_nvme::digest;

use super::{Entry, Ledger, MAX_BLOCKS};

/// Bytes before the first entry: a page, so that no entry straddles one.
const HEADER_LEN: u64 = 4096;
/// Bytes of an entry.
const ENTRY_LEN: usize = 16;
const MAGIC: [u8; 8] = *b"PLLEDGR1";
/// Most acknowledged changes that await a Flush. Beyond, the oldest are forgotten: the file then knows less to be durable than is.
const MAX_SETTLED: usize = 1 << 24;
/// Entries read at once.
const READ_ENTRIES: usize = 1 << 16;

/// Why a ledger's file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// The system refused something.
    #[error("ledger {}: {cause}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        cause: io::Error,
    },
    /// It exists already.
    #[error(
        "ledger {} exists: --verify-only checks what it records; a new run needs a new file (name another, or remove it)",
        path.display()
    )]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// It is no ledger, or a damaged one.
    #[error("ledger {}: {why}; give the file that load --verify --ledger wrote", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
}

/// A ledger's file, being written.
#[derive(Debug)]
pub struct LedgerFile {
    file: File,
    path: PathBuf,
    first: u64,
}

impl LedgerFile {
    /// Makes a file for `blocks` blocks from `first`.
    ///
    /// # Errors
    /// There is something of that name already, whatever it is, or it cannot be made.
    pub fn create(path: &Path, first: u64, blocks: u64, block_size: u32, run: u64) -> Result<Self, LedgerError> {
        let io = |cause: io::Error| match cause.kind() {
            io::ErrorKind::AlreadyExists => LedgerError::Exists { path: path.into() },
            _ => LedgerError::Io { path: path.into(), cause },
        };
        let file = OpenOptions::new().write(true).create_new(true).open(path).map_err(io)?;
        let mut header = [0; 40];
        header[..8].copy_from_slice(&MAGIC);
        header[8..16].copy_from_slice(&run.to_le_bytes());
        header[16..24].copy_from_slice(&first.to_le_bytes());
        header[24..32].copy_from_slice(&blocks.to_le_bytes());
        header[32..36].copy_from_slice(&block_size.to_le_bytes());
        let crc = digest::append(0, &header[..36]);
        header[36..].copy_from_slice(&crc.to_le_bytes());
        file.set_len(HEADER_LEN + blocks * ENTRY_LEN as u64).map_err(io)?;
        file.write_all_at(&header, 0).map_err(io)?;
        Ok(Self { file, path: path.into(), first })
    }

    fn write(&self, lba: u64, entries: &[u8]) -> Result<(), LedgerError> {
        let at = HEADER_LEN + (lba - self.first) * ENTRY_LEN as u64;
        self.file.write_all_at(entries, at).map_err(|cause| LedgerError::Io { path: self.path.clone(), cause })
    }
}

/// What one thread records: the part of the file that belongs to its [`Ledger`].
#[derive(Debug)]
pub struct Journal {
    file: Arc<LedgerFile>,
    first: u64,
    durable: Vec<u32>,
    /// Blocks and generations that were acknowledged, in order, and are not known to be durable.
    settled: VecDeque<(u64, u32)>,
    /// How many were taken out of `settled`, ever.
    taken: u64,
    scratch: Vec<u8>,
}

impl Journal {
    /// For a ledger of `blocks` blocks from `first`.
    #[must_use]
    pub fn new(file: Arc<LedgerFile>, first: u64, blocks: u64) -> Self {
        let durable = vec![0; blocks as usize];
        Self { file, first, durable, settled: VecDeque::new(), taken: 0, scratch: Vec::new() }
    }

    /// Records a change that has begun; to be called before the command is sent.
    ///
    /// # Errors
    /// The file cannot be written: the command must not be sent.
    pub fn begun(&mut self, ledger: &Ledger, lba: u64, blocks: u32) -> Result<(), LedgerError> {
        self.write(ledger, lba, blocks)
    }

    /// Notes a change that was acknowledged as successful; with `fua` it is durable.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn succeeded(&mut self, ledger: &Ledger, lba: u64, blocks: u32, fua: bool) -> Result<(), LedgerError> {
        for at in lba..lba + u64::from(blocks) {
            let generation = ledger.entry(at).settled;
            if fua {
                self.durable[(at - self.first) as usize] = generation;
                continue;
            }
            if self.settled.len() == MAX_SETTLED {
                self.settled.pop_front();
                self.taken += 1;
            }
            self.settled.push_back((at, generation));
        }
        if fua { self.write(ledger, lba, blocks) } else { Ok(()) }
    }

    /// A mark for a Flush that is about to be sent: what was acknowledged until now is what it covers.
    #[must_use]
    pub fn mark(&self) -> u64 {
        self.taken + self.settled.len() as u64
    }

    /// Records that everything up to `mark` is durable.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn flushed(&mut self, ledger: &Ledger, mark: u64) -> Result<(), LedgerError> {
        while self.taken < mark {
            let Some((lba, generation)) = self.settled.pop_front() else { break };
            self.taken += 1;
            let durable = &mut self.durable[(lba - self.first) as usize];
            if generation > *durable {
                *durable = generation;
                self.write(ledger, lba, 1)?;
            }
        }
        Ok(())
    }

    fn write(&mut self, ledger: &Ledger, lba: u64, blocks: u32) -> Result<(), LedgerError> {
        self.scratch.clear();
        for at in lba..lba + u64::from(blocks) {
            let Entry { issued, zeroed, .. } = ledger.entry(at);
            let fields = [issued, self.durable[(at - self.first) as usize], zeroed];
            self.scratch.extend(encode(fields, at - self.file.first));
        }
        self.file.write(lba, &self.scratch)
    }
}

fn encode(fields: [u32; 3], number: u64) -> [u8; ENTRY_LEN] {
    let mut entry = [0; ENTRY_LEN];
    for (bytes, field) in entry.as_chunks_mut::<4>().0.iter_mut().zip(fields) {
        *bytes = field.to_le_bytes();
    }
    let crc = digest::append(digest::append(0, &entry[..12]), &number.to_le_bytes());
    entry[12..].copy_from_slice(&crc.to_le_bytes());
    entry
}

/// `None` for a damaged one.
fn decode(bytes: &[u8; ENTRY_LEN], number: u64) -> Option<Entry> {
    let [issued, durable, zeroed, _] = [0, 4, 8, 12].map(|at| u32_at(bytes, at));
    let is_new = bytes.iter().all(|byte| *byte == 0);
    let is_whole = is_new || *bytes == encode([issued, durable, zeroed], number);
    let possible = durable <= issued && zeroed <= issued;
    (is_whole && possible).then_some(Entry { issued, settled: durable, zeroed, busy: false })
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(word)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

impl Ledger {
    /// Reads what an earlier run recorded: a block may hold any generation from the durable one to the latest that was sent.
    ///
    /// # Errors
    /// It is not there, no regular file, no ledger, or damaged.
    pub fn read(path: &Path) -> Result<Self, LedgerError> {
        let io = |cause| LedgerError::Io { path: path.into(), cause };
        let damaged = |why: String| LedgerError::Damaged { path: path.into(), why };
        // without waiting for the other end of a FIFO
        let nonblock = rustix::fs::OFlags::NONBLOCK.bits() as i32;
        let mut file = OpenOptions::new().read(true).custom_flags(nonblock).open(path).map_err(io)?;
        if !file.metadata().map_err(io)?.is_file() {
            return Err(damaged("this is no regular file".into()));
        }
        let mut header = [0; HEADER_LEN as usize];
        file.read_exact(&mut header).map_err(|_| damaged("it is too short to be a ledger".into()))?;
        if header[..8] != MAGIC || u32_at(&header, 36) != digest::append(0, &header[..36]) {
            return Err(damaged("this is no ledger".into()));
        }
        let [run, first, blocks] = [8, 16, 24].map(|at| u64_at(&header, at));
        let block_size = u32_at(&header, 32) as usize;
        if blocks == 0 || blocks > MAX_BLOCKS || first.checked_add(blocks).is_none() {
            return Err(damaged(format!("it says that it has {blocks} blocks from {first}")));
        }
        let entries = read_entries(&mut file, first, blocks).map_err(damaged)?;
        Ok(Self { first, run, block_size, entries })
    }

    /// First block of the range.
    #[must_use]
    pub fn first(&self) -> u64 {
        self.first
    }

    /// Blocks in the range.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.entries.len() as u64
    }

    /// Bytes of a block.
    #[must_use]
    pub fn block_size(&self) -> u32 {
        self.block_size as u32
    }

    /// What marks the blocks of this run.
    #[must_use]
    pub fn run(&self) -> u64 {
        self.run
    }

    /// Blocks of which some generation was acknowledged; of one that was read from a file: is durable.
    #[must_use]
    pub fn settled_blocks(&self) -> u64 {
        self.entries.iter().filter(|entry| entry.settled > 0).count() as u64
    }

    fn entry(&self, lba: u64) -> Entry {
        self.entries[(lba - self.first) as usize]
    }
}

fn read_entries(file: &mut File, first: u64, blocks: u64) -> Result<Vec<Entry>, String> {
    let mut entries = Vec::with_capacity(blocks as usize);
    let mut bytes = vec![0; READ_ENTRIES * ENTRY_LEN];
    while (entries.len() as u64) < blocks {
        let some = (blocks as usize - entries.len()).min(READ_ENTRIES);
        let bytes = &mut bytes[..some * ENTRY_LEN];
        file.read_exact(bytes).map_err(|error| format!("{error}, though it says that it has {blocks} blocks"))?;
        for chunk in bytes.as_chunks::<ENTRY_LEN>().0 {
            let number = entries.len() as u64;
            let entry =
                decode(chunk, number).ok_or_else(|| format!("the entry of block {} is damaged", first + number))?;
            entries.push(entry);
        }
    }
    Ok(entries)
}

#[cfg(test)]
mod tests;
