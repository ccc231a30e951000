//! Random bytes as the checksum file of a namespace: it is opened, or created again.
//!
//! The first byte selects the size of the namespace; its bits 6 and 7 select parts that are made valid (the header, the bad blocks), so
//! that the bytes behind the header are reached. Properties for all bytes:
//! - no panic, and nothing outside of the file is read or written;
//! - marks and bad blocks are within the namespace;
//! - opened again at once, it has the same content;
//! - a file without a valid header has every range marked, so that nothing is compared with it.

use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pilotlight_storage::background::sums::file::{OpenState, Storage, SumsFile};
use pilotlight_storage::background::sums::format::{BAD_AT, HEADER, Header, Layout, PLACE, Pass, encode_bad};
use pilotlight_storage::background::sums::{BLOCK, RANGE};

/// Bytes in memory in place of a file.
#[derive(Clone, Default)]
struct Memory(Arc<Mutex<Vec<u8>>>);

impl Memory {
    fn bytes(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Storage for Memory {
    fn read(&self, offset: u64, data: &mut [u8]) -> io::Result<()> {
        let bytes = self.bytes();
        let from = bytes.get(offset as usize..offset as usize + data.len());
        data.copy_from_slice(from.ok_or(ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut bytes = self.bytes();
        bytes[offset as usize..offset as usize + data.len()].copy_from_slice(data);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.bytes().len() as u64)
    }

    fn reset(&self, bytes: u64) -> io::Result<()> {
        *self.bytes() = vec![0; bytes as usize];
        Ok(())
    }
}

/// A file generated from `bytes`: the headers, the bad blocks, the marks and records, a third each.
fn file_of(layout: &Layout, choice: u8, bytes: &[u8]) -> Vec<u8> {
    let mut file = vec![0; layout.file_bytes() as usize];
    let (head, rest) = bytes.split_at(bytes.len() / 3);
    let (bad, tail) = rest.split_at(rest.len() / 2);
    for (at, part) in [(0, head), (BAD_AT, bad), (layout.word_at(0), tail)] {
        let room = &mut file[at as usize..];
        let len = part.len().min(room.len());
        room[..len].copy_from_slice(&part[..len]);
    }
    if choice & 0x40 != 0 {
        let pass = Pass { began_s: 1, position: u64::from(choice) };
        let is_clean = choice & 1 == 1;
        let header = Header { bytes: layout.bytes, sequence: head.len() as u64, is_clean, pass };
        let at = header.offset() as usize;
        file[at..at + HEADER].copy_from_slice(&header.encode());
    }
    if choice & 0x80 != 0 {
        for (place, word) in bad.chunks_exact(8).enumerate() {
            let lba = word.try_into().map_or(0, u64::from_le_bytes) >> (choice & 0x3f);
            let at = BAD_AT as usize + place * PLACE;
            file[at..at + PLACE].copy_from_slice(&encode_bad(place, Some(lba)));
        }
    } else if choice & 0x40 == 0 {
        file.truncate(bytes.len() * 64);
    }
    file
}

/// Opens the file generated from `bytes`.
pub fn check(bytes: &[u8]) {
    let Some((&choice, rest)) = bytes.split_first() else { return };
    let size = RANGE * u64::from(choice & 0x3f) + BLOCK;
    let layout = Layout::new(size);
    let memory = Memory::default();
    *memory.bytes() = file_of(&layout, choice, rest);
    let open = || SumsFile::open(Box::new(memory.clone()), size).expect("memory neither fails nor ends");
    let (file, found) = open();
    let (marked, bad, pass) = (file.marked(), file.bad(), file.pass());
    assert!(marked.iter().all(|&range| range < layout.ranges), "{marked:?}");
    assert!(bad.iter().flatten().all(|&lba| lba / (RANGE / BLOCK) < layout.ranges), "{bad:?}");
    if matches!(found, OpenState::New | OpenState::Reset(_)) {
        assert_eq!((marked.len() as u64, bad.len()), (layout.ranges, 0), "{found:?}");
    }
    for range in 0..layout.ranges {
        file.sums(range).expect("a record lies in the file");
    }
    let is_unclean = |lba: u64| marked.contains(&(lba / (RANGE / BLOCK)));
    drop(file);
    let (again, found) = open();
    assert_eq!((again.marked(), again.pass(), found), (marked.clone(), pass, OpenState::Unclean));
    let mut left: Vec<_> = bad.into_iter().map(|place| place.filter(|&lba| !is_unclean(lba))).collect();
    while left.last() == Some(&None) {
        left.pop();
    }
    assert_eq!(again.bad(), left, "of marked ranges none, as it was not closed");
}
