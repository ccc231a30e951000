//! The bare peer's messages, and how they are found in a stream of bytes.

/// Bytes of a request's header.
pub(super) const REQUEST: usize = 72;
/// Bytes of every other header.
pub(super) const HEADER: usize = 24;

/// The type of a message: the first byte of its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Client: send me a block.
    Read = 1,
    /// Client: here is a block.
    Write = 2,
    /// Client: ask me for a block.
    LargeWrite = 3,
    /// Server: send the block of the oldest large write that was not asked for.
    Ask = 4,
    /// Client: the block that was asked for.
    Data = 5,
    /// Server: the block that was to be read.
    ReadAnswer = 6,
    /// Server: the block has come.
    WriteAnswer = 7,
}

impl Kind {
    fn of(byte: u8) -> Self {
        match byte {
            1 => Self::Read,
            2 => Self::Write,
            3 => Self::LargeWrite,
            4 => Self::Ask,
            5 => Self::Data,
            6 => Self::ReadAnswer,
            7 => Self::WriteAnswer,
            _ => unreachable!("the peer is this file as well"),
        }
    }

    /// Bytes of the header.
    pub(super) fn header_len(self) -> usize {
        match self {
            Self::Read | Self::Write | Self::LargeWrite => REQUEST,
            Self::Ask | Self::Data | Self::ReadAnswer | Self::WriteAnswer => HEADER,
        }
    }

    /// Bytes behind the header, of blocks of `block` bytes.
    pub(super) fn data_len(self, block: usize) -> usize {
        match self {
            Self::Write | Self::Data | Self::ReadAnswer => block,
            Self::Read | Self::LargeWrite | Self::Ask | Self::WriteAnswer => 0,
        }
    }

    /// Bytes in all.
    pub(super) fn len(self, block: usize) -> usize {
        self.header_len() + self.data_len(block)
    }
}

/// A part of a stream.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Part<'a> {
    /// Some data.
    Data(&'a [u8]),
    /// The end of a message.
    End(Kind),
}

/// Where a stream is.
#[derive(Clone, Copy, Debug)]
enum Position {
    /// Between two messages.
    Start,
    /// So many bytes of a header are to come.
    Header(Kind, usize),
    /// So many bytes of data are to come.
    Data(Kind, usize),
}

/// Finds messages in a stream of bytes.
#[derive(Debug)]
pub(super) struct Parser {
    position: Position,
    block: usize,
}

impl Parser {
    pub(super) fn new(block: usize) -> Self {
        Self { position: Position::Start, block }
    }

    /// The next part that begins in `bytes`, which is shortened by it; `None` when they are used up.
    #[inline]
    pub(super) fn next<'a>(&mut self, bytes: &mut &'a [u8]) -> Option<Part<'a>> {
        loop {
            self.position = match self.position {
                Position::Start => {
                    let kind = Kind::of(*bytes.first()?);
                    Position::Header(kind, kind.header_len())
                }
                Position::Header(kind, 0) => Position::Data(kind, kind.data_len(self.block)),
                Position::Header(kind, left) => Position::Header(kind, left - take(bytes, left)?.len()),
                Position::Data(kind, 0) => {
                    self.position = Position::Start;
                    return Some(Part::End(kind));
                }
                Position::Data(kind, left) => {
                    let data = take(bytes, left)?;
                    self.position = Position::Data(kind, left - data.len());
                    return Some(Part::Data(data));
                }
            };
        }
    }

    /// Bytes of data that come next in the stream.
    pub(super) fn data_left(&self) -> usize {
        if let Position::Data(_, left) = self.position { left } else { 0 }
    }

    /// So many of them were received elsewhere.
    pub(super) fn skip(&mut self, bytes: usize) {
        if let Position::Data(_, left) = &mut self.position {
            *left -= bytes;
        }
    }
}

/// Up to `most` bytes from the start of `bytes`; `None` if there is none.
fn take<'a>(bytes: &mut &'a [u8], most: usize) -> Option<&'a [u8]> {
    let (taken, rest) = bytes.split_at(most.min(bytes.len()));
    *bytes = rest;
    (!taken.is_empty()).then_some(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_found_however_the_stream_is_cut() {
        let block = 100;
        let kinds = [Kind::Read, Kind::Write, Kind::LargeWrite, Kind::Data, Kind::Ask, Kind::ReadAnswer];
        let mut stream = Vec::new();
        for kind in kinds {
            let start = stream.len();
            stream.resize(start + kind.len(block), 0);
            stream[start] = kind as u8;
        }
        for piece in 1..stream.len() {
            let (mut parser, mut found, mut data) = (Parser::new(block), Vec::new(), 0);
            for mut bytes in stream.chunks(piece) {
                let skipped = parser.data_left().min(bytes.len()) / 2;
                parser.skip(skipped);
                data += skipped;
                bytes = &bytes[skipped..];
                while let Some(part) = parser.next(&mut bytes) {
                    match part {
                        Part::Data(some) => data += some.len(),
                        Part::End(kind) => found.push(kind),
                    }
                }
            }
            assert_eq!((found.as_slice(), data), (&kinds[..], 3 * block), "pieces of {piece}");
        }
    }
}
