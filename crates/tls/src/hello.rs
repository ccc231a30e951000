//! The parts of a ClientHello by which the server selects a PSK (RFC 8446, sections 4.1.2 and 4.2).
//!
//! s2n-tls parses the message again, and decides. Here it is read only because the PSK must be known before that.

const SUPPORTED_VERSIONS: u16 = 43;
const PRE_SHARED_KEY: u16 = 41;
const PSK_KEY_EXCHANGE_MODES: u16 = 45;
const TLS_1_3: [u8; 2] = [3, 4];
const PSK_DHE_KE: u8 = 1;
const RANDOM_BYTES: usize = 32;

/// Fields of a ClientHello, undecoded.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Hello<'a> {
    cipher_suites: &'a [u8],
    versions: &'a [u8],
    modes: &'a [u8],
    identities: &'a [u8],
    binders: &'a [u8],
}

impl<'a> Hello<'a> {
    /// Reads a message without its header of four bytes; `None` if a length is wrong.
    pub(crate) fn parse(message: &'a [u8]) -> Option<Self> {
        let mut rest = message.get(2 + RANDOM_BYTES..)?; // after legacy_version and random
        let _session_id = short_vector(&mut rest)?;
        let mut hello = Self { cipher_suites: vector(&mut rest)?, ..Self::default() };
        let _compression_methods = short_vector(&mut rest)?;
        let mut extensions = vector(&mut rest)?;
        while !extensions.is_empty() {
            let kind = u16(&mut extensions)?;
            hello.add(kind, vector(&mut extensions)?)?;
        }
        Some(hello)
    }

    fn add(&mut self, kind: u16, mut data: &'a [u8]) -> Option<()> {
        match kind {
            SUPPORTED_VERSIONS => self.versions = short_vector(&mut data)?,
            PSK_KEY_EXCHANGE_MODES => self.modes = short_vector(&mut data)?,
            PRE_SHARED_KEY => (self.identities, self.binders) = (vector(&mut data)?, vector(&mut data)?),
            _ => {}
        }
        Some(())
    }

    /// Whether it offers TLS 1.3.
    pub(crate) fn has_tls13(&self) -> bool {
        self.versions.chunks_exact(2).any(|version| version == TLS_1_3)
    }

    /// Whether it offers PSKs with an (EC)DHE exchange.
    pub(crate) fn has_dhe_mode(&self) -> bool {
        self.modes.contains(&PSK_DHE_KE)
    }

    /// Whether it offers this cipher suite.
    pub(crate) fn has_cipher_suite(&self, suite: [u8; 2]) -> bool {
        self.cipher_suites.chunks_exact(2).any(|offered| offered == suite)
    }

    /// The offered identities of PSKs with the lengths of their binders, in the order of the client's preference; ends at a wrong length.
    pub(crate) fn identities(&self) -> impl Iterator<Item = (&'a [u8], usize)> + use<'a> {
        let (mut rest, mut binders) = (self.identities, self.binders);
        std::iter::from_fn(move || {
            let identity = vector(&mut rest)?;
            let _obfuscated_ticket_age = take(&mut rest, 4)?;
            Some((identity, short_vector(&mut binders)?.len()))
        })
    }
}

fn take<'a>(rest: &mut &'a [u8], len: usize) -> Option<&'a [u8]> {
    let (taken, after) = rest.split_at_checked(len)?;
    *rest = after;
    Some(taken)
}

fn u16(rest: &mut &[u8]) -> Option<u16> {
    take(rest, 2).map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]))
}

/// A vector with a length of two bytes.
fn vector<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = u16(rest)?;
    take(rest, usize::from(len))
}

/// A vector with a length of one byte.
fn short_vector<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = take(rest, 1)?[0];
    take(rest, usize::from(len))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A ClientHello with these extensions.
    fn message(extensions: &[(u16, &[u8])]) -> Vec<u8> {
        let mut body = vec![];
        for (kind, data) in extensions {
            body.extend(kind.to_be_bytes());
            body.extend((data.len() as u16).to_be_bytes());
            body.extend(*data);
        }
        let mut message = vec![3, 3];
        message.extend([7; RANDOM_BYTES]);
        message.extend([1, 9]); // session ID
        message.extend([0, 4, 0x13, 0x01, 0x13, 0x02]); // cipher suites
        message.extend([1, 0]); // compression methods
        message.extend((body.len() as u16).to_be_bytes());
        message.extend(body);
        message
    }

    #[test]
    fn fields_are_found_among_other_extensions() {
        let psks = [0, 15, 0, 2, b'a', b'b', 0, 0, 0, 0, 0, 1, b'c', 0, 0, 0, 0, 0, 5, 1, 9, 2, 9, 9];
        let message = message(&[(10, &[1, 2, 3]), (43, &[2, 3, 4]), (45, &[1, 1]), (41, &psks)]);
        let hello = Hello::parse(&message).expect("it is valid");
        assert!(hello.has_tls13() && hello.has_dhe_mode());
        assert!(hello.has_cipher_suite([0x13, 0x02]) && !hello.has_cipher_suite([0x13, 0x03]));
        assert_eq!(hello.identities().collect::<Vec<_>>(), [(&b"ab"[..], 1), (b"c", 2)]);
    }

    #[test]
    fn every_shortened_message_is_refused() {
        let message = message(&[(43, &[2, 3, 4]), (45, &[1, 0])]);
        assert!(!Hello::parse(&message).expect("it is valid").has_dhe_mode());
        for len in 0..message.len() {
            assert_eq!(Hello::parse(&message[..len]), None, "{len} bytes");
        }
    }

    #[test]
    fn identities_end_at_a_wrong_length() {
        let psks = [0, 11, 0, 1, b'a', 0, 0, 0, 0, 0, 9, b'b', 0, 0, 4, 1, 7, 1, 7];
        let message = message(&[(41, &psks)]);
        let hello = Hello::parse(&message).expect("the outer lengths are valid");
        assert_eq!(hello.identities().collect::<Vec<_>>(), [(&b"a"[..], 1)]);
        assert!(!hello.has_tls13() && !hello.has_dhe_mode());
    }
}
