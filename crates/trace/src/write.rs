//! Writer of plain CSV, compressed with gzip if the file's name ends in `.gz`. The caller adds any other compression.

use std::io::{self, BufWriter, Write};
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::request::{Op, Request};

/// The heading of [`crate::Format::Csv`].
pub const HEADING: &str = "time_ns,volume,op,offset,bytes";

enum Packer<W: Write> {
    Plain(W),
    Gzip(GzEncoder<W>),
}

/// Writes one request per line.
pub struct Writer<W: Write> {
    packer: BufWriter<PackerWrite<W>>,
}

/// Implements `Write` for a packer.
struct PackerWrite<W: Write>(Packer<W>);

impl<W: Write> Write for PackerWrite<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.0 {
            Packer::Plain(to) => to.write(bytes),
            Packer::Gzip(to) => to.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.0 {
            Packer::Plain(to) => to.flush(),
            Packer::Gzip(to) => to.flush(),
        }
    }
}

impl<W: Write> Writer<W> {
    /// Writes to `to`, with gzip if `name` ends in `.gz`.
    ///
    /// # Errors
    /// The heading cannot be written.
    pub fn new(to: W, name: &Path) -> io::Result<Self> {
        let packer = match name.extension().and_then(|end| end.to_str()) {
            Some("gz") => Packer::Gzip(GzEncoder::new(to, Compression::default())),
            _ => Packer::Plain(to),
        };
        let mut packer = BufWriter::with_capacity(1 << 16, PackerWrite(packer));
        writeln!(packer, "{HEADING}")?;
        Ok(Self { packer })
    }

    /// Writes a request, without a CSV writer: numbers and a letter need no quotes.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&mut self, request: &Request) -> io::Result<()> {
        let Request { at_ns, volume, op, offset, bytes } = *request;
        let op = if op == Op::Read { 'R' } else { 'W' };
        writeln!(self.packer, "{at_ns},{volume},{op},{offset},{bytes}")
    }

    /// Flushes the buffer and ends the file, which is truncated otherwise.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn finish(self) -> io::Result<W> {
        let packer = self.packer.into_inner().map_err(io::IntoInnerError::into_error)?;
        let mut to = match packer.0 {
            Packer::Plain(to) => to,
            Packer::Gzip(to) => to.finish()?,
        };
        to.flush()?;
        Ok(to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Format, Options, Reader};

    #[test]
    fn a_written_trace_is_read_back() {
        let request = |at_ns, op| Request { at_ns, volume: 9, op, offset: 1 << 40, bytes: 4096 };
        let all = [request(0, Op::Read), request(7, Op::Write), request(1 << 50, Op::Read)];
        for (name, begins) in [("a.csv", &b"time"[..]), ("a.csv.gz", &[0x1f, 0x8b])] {
            let mut writer = Writer::new(Vec::new(), Path::new(name)).unwrap();
            all.iter().for_each(|request| writer.write(request).unwrap());
            let bytes = writer.finish().unwrap();
            assert!(bytes.starts_with(begins), "{name}");
            let reader = Reader::new(io::Cursor::new(bytes), &Options::default()).unwrap();
            assert_eq!(reader.format(), Format::Csv);
            assert_eq!(reader.collect::<Result<Vec<_>, _>>().unwrap(), all);
        }
    }
}
