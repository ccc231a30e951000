//! Format of the sums file.
//!
//! | offset | content |
//! |---|---|
//! | 0, 4096 | two copies of the header, written alternately: the valid one with the higher sequence number applies |
//! | 8192 | bad blocks: 4096 places of 16 bytes |
//! | 73728 | marks: one bit for each range, set while it is dirty; little-endian words of 64 bits |
//! | next multiple of 4096 | records: 72 bytes for each range |
//!
//! A header is 64 bytes: magic (8), version (4), bytes of a block (4), of a range (4), flags (4; bit 0: stopped cleanly), bytes of
//! the namespace (8), sequence number (8), start of the pass in Unix seconds (8), position of the pass in ranges (8),
//! reserved (4), CRC-32C of the first 60 bytes (4). A record is 16 checksums (4 each), reserved (4), CRC-32C of the range's
//! number and the first 68 bytes (4), which distinguishes a damaged record from damaged data. A place of a bad block is its
//! LBA (8), reserved (4), CRC-32C of the place's number and the first 12 bytes (4); an invalid place is empty.

use std::ops::Range;

use super::{BLOCK, BLOCKS, RANGE, Sums};

/// Offset between the copies of the header.
pub const HEADER_STEP: u64 = 4096;
/// Bytes of a header.
pub const HEADER: usize = 64;
/// Bytes of a record.
pub const RECORD: usize = 72;
/// Bytes of a place of a bad block.
pub const PLACE: usize = 16;
/// Number of places for bad blocks.
pub const PLACES: usize = 4096;

const MAGIC: [u8; 8] = *b"PLSUMS\r\n";
const VERSION: u32 = 1;
/// Offset of the bad blocks.
pub const BAD_AT: u64 = 2 * HEADER_STEP;
const MARKS_AT: u64 = BAD_AT + (PLACE * PLACES) as u64;
const CLEAN: u32 = 1;

/// Progress of a pass of scrubbing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pass {
    /// Start in Unix seconds; 0 for no pass.
    pub began_s: u64,
    /// Completed ranges.
    pub position: u64,
}

/// A header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Bytes of the namespace.
    pub bytes: u64,
    /// Sequence number.
    pub sequence: u64,
    /// Whether the namespace was closed cleanly.
    pub is_clean: bool,
    /// The pass of scrubbing.
    pub pass: Pass,
}

/// Why a file is not a sums file of this namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// Neither copy of the header is valid.
    #[error("no valid header")]
    Header,
    /// Another version, or other sizes of blocks and ranges.
    #[error("version {0} of the format; this program uses version {VERSION}")]
    Version(u32),
    /// It belongs to a namespace of another size.
    #[error("it is for {found} bytes, but the namespace has {wanted}")]
    Size {
        /// Bytes of the file's namespace.
        found: u64,
        /// Bytes of this namespace.
        wanted: u64,
    },
    /// The file is shorter than its header says.
    #[error("{found} bytes instead of {wanted}")]
    Short {
        /// Bytes of the file.
        found: u64,
        /// Expected bytes.
        wanted: u64,
    },
}

fn word32(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|word| word.try_into().ok()).map_or(0, u32::from_le_bytes)
}

fn word64(bytes: &[u8], at: usize) -> u64 {
    u64::from(word32(bytes, at)) | u64::from(word32(bytes, at + 4)) << 32
}

impl Header {
    /// Encodes it.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..8].copy_from_slice(&MAGIC);
        for (at, word) in [(8, VERSION), (12, BLOCK as u32), (16, RANGE as u32), (20, CLEAN * u32::from(self.is_clean))]
        {
            bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
        }
        let words = [self.bytes, self.sequence, self.pass.began_s, self.pass.position];
        for (at, word) in (24..).step_by(8).zip(words) {
            bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
        let sum = crc32c::crc32c(&bytes[..HEADER - 4]);
        bytes[HEADER - 4..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Decodes one copy.
    ///
    /// # Errors
    /// If it is not a header, or of another version.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let valid = bytes.len() >= HEADER
            && bytes[..8] == MAGIC
            && crc32c::crc32c(&bytes[..HEADER - 4]) == word32(bytes, HEADER - 4);
        if !valid {
            return Err(FormatError::Header);
        }
        let sizes = (u64::from(word32(bytes, 12)), u64::from(word32(bytes, 16)));
        if word32(bytes, 8) != VERSION || sizes != (BLOCK, RANGE) {
            return Err(FormatError::Version(word32(bytes, 8)));
        }
        Ok(Self {
            bytes: word64(bytes, 24),
            sequence: word64(bytes, 32),
            is_clean: word32(bytes, 20) & CLEAN != 0,
            pass: Pass { began_s: word64(bytes, 40), position: word64(bytes, 48) },
        })
    }

    /// The newer valid copy.
    ///
    /// # Errors
    /// If neither is valid.
    pub fn newest(copies: [&[u8]; 2]) -> Result<Self, FormatError> {
        match copies.map(Self::decode) {
            [Ok(one), Ok(other)] => Ok(if one.sequence >= other.sequence { one } else { other }),
            [Ok(one), Err(_)] | [Err(_), Ok(one)] => Ok(one),
            [Err(FormatError::Header), Err(error)] | [Err(error), Err(_)] => Err(error),
        }
    }

    /// Its offset in the file.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.sequence % 2 * HEADER_STEP
    }
}

/// Layout of the sums file of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Bytes of the namespace.
    pub bytes: u64,
    /// Its ranges.
    pub ranges: u64,
    records_at: u64,
}

impl Layout {
    /// For a namespace of `bytes` bytes (at most 2^63).
    #[must_use]
    pub fn new(bytes: u64) -> Self {
        let ranges = bytes.div_ceil(RANGE);
        let records_at = MARKS_AT + (ranges.div_ceil(64) * 8).next_multiple_of(HEADER_STEP);
        Self { bytes, ranges, records_at }
    }

    /// Number of words of marks.
    #[must_use]
    pub fn mark_words(&self) -> usize {
        self.ranges.div_ceil(64) as usize
    }

    /// Offset of a word of marks.
    #[must_use]
    pub fn word_at(&self, word: usize) -> u64 {
        MARKS_AT + word as u64 * 8
    }

    /// Offset of a range's record.
    #[must_use]
    pub fn record_at(&self, range: u64) -> u64 {
        self.records_at + range * RECORD as u64
    }

    /// Bytes of the file.
    #[must_use]
    pub fn file_bytes(&self) -> u64 {
        self.record_at(self.ranges)
    }

    /// The bytes of a range within the namespace.
    #[must_use]
    pub fn bytes_of(&self, range: u64) -> Range<u64> {
        let start = (range * RANGE).min(self.bytes);
        start..(start + RANGE).min(self.bytes)
    }
}

/// Encodes the bad block of a place; `None` is an empty place.
#[must_use]
pub fn encode_bad(place: usize, lba: Option<u64>) -> [u8; PLACE] {
    let mut bytes = [0; PLACE];
    if let Some(lba) = lba {
        bytes[..8].copy_from_slice(&lba.to_le_bytes());
        let sum = record_sum(place as u64, &bytes[..PLACE - 4]);
        bytes[PLACE - 4..].copy_from_slice(&sum.to_le_bytes());
    }
    bytes
}

/// Decodes the bad block of a place, if any.
#[must_use]
pub fn decode_bad(place: usize, bytes: &[u8]) -> Option<u64> {
    let is_valid = bytes.len() == PLACE && record_sum(place as u64, &bytes[..PLACE - 4]) == word32(bytes, PLACE - 4);
    is_valid.then(|| word64(bytes, 0))
}

fn record_sum(range: u64, record: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&range.to_le_bytes()), record)
}

/// Encodes a range's checksums.
#[must_use]
pub fn encode_record(range: u64, sums: &Sums) -> [u8; RECORD] {
    let mut record = [0; RECORD];
    for (bytes, sum) in record.chunks_exact_mut(4).zip(sums) {
        bytes.copy_from_slice(&sum.to_le_bytes());
    }
    let sum = record_sum(range, &record[..RECORD - 4]);
    record[RECORD - 4..].copy_from_slice(&sum.to_le_bytes());
    record
}

/// Decodes a range's checksums; `None` if the record is damaged or not written yet.
#[must_use]
pub fn decode_record(range: u64, record: &[u8]) -> Option<Sums> {
    if record.len() != RECORD || record_sum(range, &record[..RECORD - 4]) != word32(record, RECORD - 4) {
        return None;
    }
    let mut sums = [0; BLOCKS];
    for (at, sum) in sums.iter_mut().enumerate() {
        *sum = word32(record, at * 4);
    }
    Some(sums)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn header() -> impl Strategy<Value = Header> {
        (any::<u64>(), any::<u64>(), any::<bool>(), any::<u64>(), any::<u64>()).prop_map(
            |(bytes, sequence, is_clean, began_s, position)| {
                let pass = Pass { began_s, position };
                Header { bytes, sequence, is_clean, pass }
            },
        )
    }

    proptest! {
        #[test]
        fn encoding_round_trips(header in header(), range in any::<u64>(), sums in any::<Sums>()) {
            prop_assert_eq!(Header::decode(&header.encode()), Ok(header));
            let record = encode_record(range, &sums);
            prop_assert_eq!(decode_record(range, &record), Some(sums));
            prop_assert_eq!(decode_record(range.wrapping_add(1), &record), None);
            let bad = encode_bad(7, Some(range));
            prop_assert_eq!((decode_bad(7, &bad), decode_bad(8, &bad)), (Some(range), None));
        }

        /// Arbitrary bytes do not panic, and any single damaged byte is detected.
        #[test]
        fn damage_is_detected(
            bytes in prop::collection::vec(any::<u8>(), 0..200),
            header in header(),
            at in 0..HEADER,
            flip in 1..=255_u8,
        ) {
            let _ = (Header::decode(&bytes), decode_record(7, &bytes));
            let _ = Header::newest([&bytes, &bytes]);
            let mut damaged = header.encode();
            damaged[at] ^= flip;
            prop_assert_eq!(Header::decode(&damaged), Err(FormatError::Header));
            let other = Header { sequence: header.sequence.wrapping_sub(1), ..header };
            prop_assert_eq!(Header::newest([&damaged, &other.encode()]), Ok(other));
        }

        #[test]
        fn sections_do_not_overlap(bytes in 1..=1_u64 << 40) {
            let layout = Layout::new(bytes);
            prop_assert!(layout.word_at(0) >= 2 * HEADER_STEP);
            prop_assert!(layout.word_at(layout.mark_words()) <= layout.record_at(0));
            prop_assert_eq!(layout.bytes_of(layout.ranges - 1).end, bytes);
            prop_assert!(layout.bytes_of(layout.ranges).is_empty());
        }
    }

    /// The format is stable: later versions read files of this one.
    #[test]
    fn the_format_is_stable() {
        let pass = Pass { began_s: 3, position: 4 };
        let bytes = Header { bytes: 1, sequence: 2, is_clean: true, pass }.encode();
        assert_eq!(&bytes[..16], b"PLSUMS\r\n\x01\0\0\0\0\x10\0\0");
        assert_eq!(word32(&bytes, 16), 65_536);
        assert_eq!(decode_bad(0, &encode_bad(0, None)), None);
        assert_eq!(Layout::new(1).word_at(0), 73_728);
        assert_eq!([20, 24, 32, 40, 48].map(|at| word64(&bytes, at) & 0xff), [1, 1, 2, 3, 4]);
    }
}
