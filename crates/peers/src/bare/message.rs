//! Messages of the bare peer, and their parser.

/// Bytes of a request's header.
pub(super) const REQUEST: usize = 72;
/// Bytes of every other header.
pub(super) const HEADER: usize = 24;

/// Kind of a message: the first byte of its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Client: read request.
    Read = 1,
    /// Client: write request with the block.
    Write = 2,
    /// Client: write request without the block.
    LargeWrite = 3,
    /// Server: request for the block of the oldest large write.
    DataRequest = 4,
    /// Client: the requested block.
    Data = 5,
    /// Server: the block.
    ReadResponse = 6,
    /// Server: the block is stored.
    WriteResponse = 7,
}

impl Kind {
    fn of(byte: u8) -> Self {
        match byte {
            1 => Self::Read,
            2 => Self::Write,
            3 => Self::LargeWrite,
            4 => Self::DataRequest,
            5 => Self::Data,
            6 => Self::ReadResponse,
            7 => Self::WriteResponse,
            _ => unreachable!("both peers use these kinds"),
        }
    }

    /// Bytes of the header.
    pub(super) fn header_len(self) -> usize {
        match self {
            Self::Read | Self::Write | Self::LargeWrite => REQUEST,
            Self::DataRequest | Self::Data | Self::ReadResponse | Self::WriteResponse => HEADER,
        }
    }

    /// Bytes behind the header, of blocks of `block` bytes.
    pub(super) fn data_len(self, block: usize) -> usize {
        match self {
            Self::Write | Self::Data | Self::ReadResponse => block,
            Self::Read | Self::LargeWrite | Self::DataRequest | Self::WriteResponse => 0,
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

/// Position in a stream.
#[derive(Clone, Copy, Debug)]
enum Position {
    /// Between two messages.
    Start,
    /// Remaining bytes of a header.
    Header(Kind, usize),
    /// Remaining bytes of data.
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

    /// Takes the next part from the front of `bytes`; `None` when they are used up.
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

    /// Remaining bytes of data of the current message.
    pub(super) fn data_left(&self) -> usize {
        if let Position::Data(_, left) = self.position { left } else { 0 }
    }

    /// Skips bytes of data that were received elsewhere.
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
    fn messages_are_found_in_pieces_of_any_length() {
        let block = 100;
        let kinds = [Kind::Read, Kind::Write, Kind::LargeWrite, Kind::Data, Kind::DataRequest, Kind::ReadResponse];
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
