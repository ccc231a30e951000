//! The ledger in a file, so that blocks can be verified after a crash of the target or this program.
//!
//! After a crash a block holds the last durable generation, or a newer one that was written and not flushed; an older one is lost
//! data. The file records at any time which generations are durable and which may have been sent.
//!
//! A generation is *durable* when the target has acknowledged a write of it with FUA, or has acknowledged it before a successful
//! Flush was sent (NVM 3.2: a Flush covers the commands that completed before it was submitted).
//!
//! The file has a header of [`HEADER_LEN`] bytes, then an entry of [`ENTRY_LEN`] bytes for each block of the range (zeroes: never
//! changed). Little endian.
//!
//! | bytes of the header | content | | bytes of an entry | content |
//! |---|---|---|---|---|
//! | 0..8 | magic number with the version | | 0..4 | last generation sent |
//! | 8..16 | run, as in the blocks | | 4..8 | last durable generation; 0 for none |
//! | 16..24 | first block of the range | | 8..12 | last generation that zeroed the block; 0 for none |
//! | 24..32 | blocks in the range | | 12..16 | CRC32C of the other bytes and the entry's number |
//! | 32..36 | bytes of a block | | | |
//! | 36..40 | CRC32C of bytes 0..36 | | | |
//!
//! An entry is written (`pwrite`) before its command is sent; durability is written after the acknowledgement of the write or the
//! Flush. So the file may lack a durable generation, but never records one that is not durable, and contains every generation
//! that may have been written. Entries do not straddle pages, so that a crash of the process cannot tear one. There is no
//! `fsync`: the file survives a crash of this program, not of its machine.
//!
//! Properties (tested with a reference store with a volatile cache): every state of a correct store after a crash is accepted;
//! every durable generation is recorded as such.

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
/// Most acknowledged changes that wait for a Flush. The oldest are dropped, and not recorded as durable.
const MAX_SETTLED: usize = 1 << 24;
/// Entries read at once.
const READ_ENTRIES: usize = 1 << 16;

/// Errors of a ledger's file.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// A system call failed.
    #[error("ledger {}: {cause}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        cause: io::Error,
    },
    /// The file exists.
    #[error(
        "ledger {} exists: a new run needs a new file; --verify-only checks an existing one",
        path.display()
    )]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// The file is not a ledger, or is damaged.
    #[error("ledger {}: {why}; give the file that load --verify --ledger wrote", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: Damage,
    },
}

/// Why a file cannot be used as a ledger.
#[derive(Debug, thiserror::Error)]
pub enum Damage {
    /// A device, FIFO or folder.
    #[error("it is not a regular file")]
    NotRegular,
    /// Less than a header.
    #[error("it is too short to be a ledger")]
    Short,
    /// Another header.
    #[error("it is not a ledger")]
    NotLedger,
    /// An invalid range of blocks: their number and the first.
    #[error("it states {0} blocks from {1}")]
    Range(u64, u64),
    /// Less than its blocks.
    #[error("{0}, although it states {1} blocks")]
    Truncated(io::Error, u64),
    /// The entry of a block has another checksum.
    #[error("the entry of block {0} is damaged")]
    Entry(u64),
}

/// A ledger's file for writing.
#[derive(Debug)]
pub struct LedgerFile {
    file: File,
    path: PathBuf,
    first: u64,
}

impl LedgerFile {
    /// Creates a file for `blocks` blocks from `first`.
    ///
    /// # Errors
    /// The path exists, or the file cannot be created.
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

/// Records the changes of one thread's [`Ledger`] in the file.
#[derive(Debug)]
pub struct Journal {
    file: Arc<LedgerFile>,
    first: u64,
    durable: Vec<u32>,
    /// Acknowledged blocks and generations that are not durable, in order.
    settled: VecDeque<(u64, u32)>,
    /// Total number removed from `settled`.
    removed: u64,
    scratch: Vec<u8>,
}

impl Journal {
    /// For a ledger of `blocks` blocks from `first`.
    #[must_use]
    pub fn new(file: Arc<LedgerFile>, first: u64, blocks: u64) -> Self {
        let durable = vec![0; blocks as usize];
        Self { file, first, durable, settled: VecDeque::new(), removed: 0, scratch: Vec::new() }
    }

    /// Records a started change, before the command is sent.
    ///
    /// # Errors
    /// The file cannot be written: the command must not be sent.
    pub fn begun(&mut self, ledger: &Ledger, lba: u64, blocks: u32) -> Result<(), LedgerError> {
        self.write(ledger, lba, blocks)
    }

    /// Records a successful change; with `fua` it is durable.
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
                self.removed += 1;
            }
            self.settled.push_back((at, generation));
        }
        if fua { self.write(ledger, lba, blocks) } else { Ok(()) }
    }

    /// A mark for a Flush that is about to be sent: it covers everything acknowledged until now.
    #[must_use]
    pub fn mark(&self) -> u64 {
        self.removed + self.settled.len() as u64
    }

    /// Records that everything up to `mark` is durable.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn flushed(&mut self, ledger: &Ledger, mark: u64) -> Result<(), LedgerError> {
        while self.removed < mark {
            let Some((lba, generation)) = self.settled.pop_front() else { break };
            self.removed += 1;
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

/// `None` for a damaged entry.
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
    /// Reads the ledger of an earlier run: a block may hold any generation from the durable one to the last one sent.
    ///
    /// # Errors
    /// The file is missing, not regular, not a ledger, or damaged.
    pub fn read(path: &Path) -> Result<Self, LedgerError> {
        let io = |cause| LedgerError::Io { path: path.into(), cause };
        let damaged = |why: Damage| LedgerError::Damaged { path: path.into(), why };
        // a FIFO must not block
        let nonblock = rustix::fs::OFlags::NONBLOCK.bits() as i32;
        let mut file = OpenOptions::new().read(true).custom_flags(nonblock).open(path).map_err(io)?;
        if !file.metadata().map_err(io)?.is_file() {
            return Err(damaged(Damage::NotRegular));
        }
        let mut header = [0; HEADER_LEN as usize];
        file.read_exact(&mut header).map_err(|_| damaged(Damage::Short))?;
        if header[..8] != MAGIC || u32_at(&header, 36) != digest::append(0, &header[..36]) {
            return Err(damaged(Damage::NotLedger));
        }
        let [run, first, blocks] = [8, 16, 24].map(|at| u64_at(&header, at));
        let block_size = u32_at(&header, 32) as usize;
        if blocks == 0 || blocks > MAX_BLOCKS || first.checked_add(blocks).is_none() {
            return Err(damaged(Damage::Range(blocks, first)));
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

    /// Identifier of the run in its blocks.
    #[must_use]
    pub fn run(&self) -> u64 {
        self.run
    }

    /// Blocks with an acknowledged generation; in a ledger read from a file: with a durable one.
    #[must_use]
    pub fn settled_blocks(&self) -> u64 {
        self.entries.iter().filter(|entry| entry.settled > 0).count() as u64
    }

    fn entry(&self, lba: u64) -> Entry {
        self.entries[(lba - self.first) as usize]
    }
}

fn read_entries(file: &mut File, first: u64, blocks: u64) -> Result<Vec<Entry>, Damage> {
    let mut entries = Vec::with_capacity(blocks as usize);
    let mut bytes = vec![0; READ_ENTRIES * ENTRY_LEN];
    while (entries.len() as u64) < blocks {
        let some = (blocks as usize - entries.len()).min(READ_ENTRIES);
        let bytes = &mut bytes[..some * ENTRY_LEN];
        file.read_exact(bytes).map_err(|error| Damage::Truncated(error, blocks))?;
        for chunk in bytes.as_chunks::<ENTRY_LEN>().0 {
            let number = entries.len() as u64;
            entries.push(decode(chunk, number).ok_or(Damage::Entry(first + number))?);
        }
    }
    Ok(entries)
}

#[cfg(test)]
mod tests;
