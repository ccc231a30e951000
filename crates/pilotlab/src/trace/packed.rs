//! The output file of a trace, compressed by zstd if its name ends in `.zst`. (`pilotlight_trace` compresses by gzip.)

use std::io::{self, Write};
use std::path::Path;

use pilotlight_report::Output;
use zstd::stream::write::Encoder;

/// Compression level of zstd: fast, because traces are long.
const LEVEL: i32 = 3;

/// A file, optionally compressed.
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

    /// Writes buffered data; only now the file gets its name.
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
