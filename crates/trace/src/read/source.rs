//! Opens a trace: a file, standard input or a stream; plain, gzip or zstd.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use flate2::bufread::MultiGzDecoder;

use super::vscsi::fill;
use super::zstd::Unpacked;

/// Buffer size in bytes.
const BUFFER: usize = 1 << 16;
/// Decompressed bytes that are used to detect the format.
const BEGINNING: usize = 1 << 16;

/// Progress in a file; shared with the reader.
#[derive(Clone, Debug, Default)]
pub struct Position {
    read: Arc<AtomicU64>,
    total: Option<u64>,
}

impl Position {
    /// Bytes read from the file, before decompression.
    #[must_use]
    pub fn read_bytes(&self) -> u64 {
        self.read.load(Relaxed)
    }

    /// Size of the file; `None` if unknown.
    #[must_use]
    pub fn total_bytes(&self) -> Option<u64> {
        self.total
    }
}

/// Counts bytes read.
struct Counted<R> {
    inner: R,
    read: Arc<AtomicU64>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.read.fetch_add(count as u64, Relaxed);
        Ok(count)
    }
}

pub(super) type Input = Box<dyn BufRead + Send>;

/// A decompressed trace.
pub(super) struct Source {
    /// The first bytes, which `input` returns too.
    pub(super) beginning: Vec<u8>,
    pub(super) input: Input,
    pub(super) position: Position,
}

impl Source {
    /// A file, or standard input for `-`.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        if path == Path::new("-") {
            return Self::new(io::stdin(), None);
        }
        let file = File::open(path)?;
        let meta = file.metadata()?;
        if meta.is_dir() {
            return Err(io::Error::new(io::ErrorKind::IsADirectory, "is a directory"));
        }
        Self::new(file, meta.is_file().then_some(meta.len()))
    }

    pub(super) fn new(inner: impl Read + Send + 'static, total: Option<u64>) -> io::Result<Self> {
        let position = Position { read: Arc::default(), total };
        let mut packed = BufReader::with_capacity(BUFFER, Counted { inner, read: position.read.clone() });
        let mut magic = [0; 4];
        let count = fill(&mut packed, &mut magic)?;
        let packed = Cursor::new(magic).take(count as u64).chain(packed);
        let mut input = unpacked(&magic[..count], packed)?;
        let mut beginning = vec![0; BEGINNING];
        let count = fill(&mut input, &mut beginning)?;
        beginning.truncate(count);
        let input = Box::new(Cursor::new(beginning.clone()).chain(input));
        Ok(Self { beginning, input, position })
    }
}

fn unpacked(magic: &[u8], packed: impl BufRead + Send + 'static) -> io::Result<Input> {
    match magic {
        [0x1f, 0x8b, ..] => Ok(Box::new(BufReader::with_capacity(BUFFER, MultiGzDecoder::new(packed)))),
        // a frame, or a skippable one (RFC 8878, 3.1)
        [0x28, 0xb5, 0x2f, 0xfd] | [0x50..=0x5f, 0x2a, 0x4d, 0x18] => {
            Ok(Box::new(BufReader::with_capacity(BUFFER, Unpacked::new(packed))))
        }
        _ => Ok(Box::new(packed)),
    }
}
