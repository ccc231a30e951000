//! The file that a trace is written to, packed with zstd where its name ends in `.zst`. (`pilotlight_trace` packs with gzip.)

use std::io::{self, Write};
use std::path::Path;

use pilotlight_report::Output;
use zstd::stream::write::Encoder;

/// Compression level of zstd: fast, since a trace is long.
const LEVEL: i32 = 3;

/// A file, perhaps packed.
pub(super) enum Packed {
    Plain(Output),
    Zstd(Encoder<'static, Output>),
}

impl Packed {
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        let output = Output::create(path)?;
        if path.extension().is_some_and(|end| end == "zst") {
            return Ok(Self::Zstd(Encoder::new(output, LEVEL)?));
        }
        Ok(Self::Plain(output))
    }

    /// Writes what is left; the file has its name only now.
    pub(super) fn finish(self) -> io::Result<()> {
        match self {
            Self::Plain(output) => output.finish(),
            Self::Zstd(encoder) => encoder.finish()?.finish(),
        }
    }
}

impl Write for Packed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(output) => output.write(bytes),
            Self::Zstd(encoder) => encoder.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(output) => output.flush(),
            Self::Zstd(encoder) => encoder.flush(),
        }
    }
}
