//! Decompresses zstd (RFC 8878): consecutive frames, ignoring skippable ones and verifying checksums.
//!
//! The decoder is in Rust because the server program links this crate, and the C library takes longer to build than the rest of it.

use std::io::{self, BufRead, Read};

use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

/// Decompressed content of `input`.
pub(super) struct Unpacked<R> {
    input: R,
    decoder: FrameDecoder,
    /// Whether the decoder is within a frame.
    is_open: bool,
}

impl<R: BufRead> Unpacked<R> {
    pub(super) fn new(input: R) -> Self {
        Self { input, decoder: FrameDecoder::new(), is_open: false }
    }

    /// Reads the header of the next frame; returns whether there is one.
    fn begin(&mut self) -> io::Result<bool> {
        while !self.input.fill_buf()?.is_empty() {
            match self.decoder.reset(&mut self.input) {
                Ok(()) => {
                    self.is_open = true;
                    return Ok(true);
                }
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame { length, .. })) => {
                    let skipped = io::copy(&mut self.input.by_ref().take(length.into()), &mut io::sink())?;
                    if skipped < u64::from(length) {
                        return Err(damaged("truncated in a skippable frame"));
                    }
                }
                Err(error) => return Err(damaged(&error.to_string())),
            }
        }
        Ok(false)
    }

    fn end(&mut self) -> io::Result<()> {
        self.is_open = false;
        let Some(expected) = self.decoder.get_checksum_from_data() else { return Ok(()) };
        if self.decoder.get_calculated_checksum() == Some(expected) { Ok(()) } else { Err(damaged("wrong checksum")) }
    }
}

impl<R: BufRead> Read for Unpacked<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.is_open && self.decoder.can_collect() > 0 {
                return self.decoder.read(buffer);
            }
            if self.is_open && !self.decoder.is_finished() {
                let block = self.decoder.decode_blocks(&mut self.input, BlockDecodingStrategy::UptoBlocks(1));
                block.map_err(|error| damaged(&error.to_string()))?;
                continue;
            }
            if self.is_open {
                self.end()?;
            }
            if !self.begin()? {
                return Ok(0);
            }
        }
    }
}

fn damaged(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("damaged zstd data: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Data compressed by the C library, with a checksum.
    fn packed(data: &[u8]) -> Vec<u8> {
        let mut encoder = zstd::Encoder::new(Vec::new(), 3).unwrap();
        encoder.include_checksum(true).unwrap();
        io::Write::write_all(&mut encoder, data).unwrap();
        encoder.finish().unwrap()
    }

    fn unpacked(bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut data = Vec::new();
        Unpacked::new(bytes).read_to_end(&mut data).map(|_| data)
    }

    fn data() -> Vec<u8> {
        (0..400_000_u32).flat_map(|i| (i.wrapping_mul(2_654_435_761) >> (i % 31)).to_le_bytes()).collect()
    }

    #[test]
    fn consecutive_frames_are_read_and_skippable_ones_ignored() {
        let skippable = [&[0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0][..], b"abc"].concat();
        let all = [packed(&data()), skippable, packed(b"more"), packed(b"")].concat();
        assert_eq!(unpacked(&all).unwrap(), [&data()[..], b"more"].concat());
        assert_eq!(unpacked(&zstd::encode_all(&data()[..], 19).unwrap()).unwrap(), data());
        assert_eq!(unpacked(b"").unwrap(), b"");
    }

    #[test]
    fn damaged_data_is_an_error() {
        let whole = packed(&data());
        for cut in [5, whole.len() / 2, whole.len() - 2] {
            assert_eq!(unpacked(&whole[..cut]).unwrap_err().kind(), io::ErrorKind::InvalidData, "{cut}");
        }
        let mut flipped = packed(&[7; 100]);
        *flipped.last_mut().unwrap() ^= 1;
        assert!(unpacked(&flipped).unwrap_err().to_string().contains("checksum"));
        assert!(unpacked(&[0x50, 0x2a, 0x4d, 0x18, 9, 0, 0, 0, 1]).is_err());
    }
}
