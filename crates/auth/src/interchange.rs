//! The text form that DH-HMAC-CHAP secrets and TLS keys share: `PREFIX:hh:base64(key || CRC-32):`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use thiserror::Error;
use zeroize::Zeroizing;

/// Why a text is no secret or key. The message never quotes the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum FormatError {
    /// The prefix is missing, or the format has another version.
    #[error("expected {0}:hh:...: (generate one with nvme-cli: nvme {1})")]
    Prefix(&'static str, &'static str),
    /// The two digits after the prefix are not those of a hash function that this kind of key allows.
    #[error("the two digits after {0}: must be {1}")]
    Transform(&'static str, &'static str),
    /// The colon at the end is missing: the text may be cut off.
    #[error("the colon at the end is missing: copy the whole text")]
    Terminator,
    /// The key is not Base64.
    #[error("the key is not valid Base64: copy the whole text")]
    Base64,
    /// The key has another length than the allowed ones.
    #[error("the key has {len} bytes: it must have {allowed}")]
    Length {
        /// Bytes of the key, without its checksum.
        len: usize,
        /// The allowed lengths, in words.
        allowed: &'static str,
    },
    /// The checksum does not match.
    #[error("the checksum does not match: a character of the key is wrong, copy it again")]
    Checksum,
}

/// One kind of text: its prefix, and how errors describe it.
pub(crate) struct Kind {
    pub(crate) prefix: &'static str,
    pub(crate) command: &'static str,
    pub(crate) transforms: &'static str,
    pub(crate) max_transform: u8,
    pub(crate) lengths: &'static [usize],
    pub(crate) lengths_text: &'static str,
}

/// The longest key in bytes, that of SHA-512.
pub(crate) const MAX_KEY: usize = 64;
const CHECKSUM: usize = 4;
/// Room for the longest key, its checksum and what the decoder estimates beyond them.
const DECODED: usize = MAX_KEY + 2 * CHECKSUM;

impl Kind {
    /// The two digits and the key of `text`.
    pub(crate) fn parse(&self, text: &str) -> Result<(u8, Zeroizing<Vec<u8>>), FormatError> {
        let rest = text.strip_prefix(self.prefix).and_then(|rest| rest.strip_prefix(':'));
        let rest = rest.ok_or(FormatError::Prefix(self.prefix, self.command))?;
        let (digits, rest) = rest.split_once(':').ok_or(self.transform_error())?;
        let transform = self.parse_transform(digits)?;
        let encoded = rest.strip_suffix(':').ok_or(FormatError::Terminator)?;
        Ok((transform, self.decode(encoded)?))
    }

    fn parse_transform(&self, digits: &str) -> Result<u8, FormatError> {
        let [b'0', digit @ b'0'..=b'9'] = *digits.as_bytes() else { return Err(self.transform_error()) };
        let transform = digit - b'0';
        if transform <= self.max_transform { Ok(transform) } else { Err(self.transform_error()) }
    }

    fn transform_error(&self) -> FormatError {
        FormatError::Transform(self.prefix, self.transforms)
    }

    /// The key of Base64 text, its checksum verified and removed.
    fn decode(&self, encoded: &str) -> Result<Zeroizing<Vec<u8>>, FormatError> {
        let mut buffer = Zeroizing::new([0; DECODED]);
        let len = match STANDARD.decode_slice(encoded, &mut buffer[..]) {
            Ok(len) => len.saturating_sub(CHECKSUM),
            Err(base64::DecodeSliceError::OutputSliceTooSmall) => return Err(self.length_error(encoded.len() / 4 * 3)),
            Err(base64::DecodeSliceError::DecodeError(_)) => return Err(FormatError::Base64),
        };
        if !self.lengths.contains(&len) {
            return Err(self.length_error(len));
        }
        let (key, checksum) = (&buffer[..len], &buffer[len..len + CHECKSUM]);
        if crc32fast::hash(key).to_le_bytes() != checksum {
            return Err(FormatError::Checksum);
        }
        Ok(Zeroizing::new(key.to_vec()))
    }

    fn length_error(&self, len: usize) -> FormatError {
        FormatError::Length { len, allowed: self.lengths_text }
    }

    /// The text of a key.
    pub(crate) fn format(&self, transform: u8, key: &[u8]) -> Zeroizing<String> {
        let mut payload = Zeroizing::new(Vec::with_capacity(DECODED));
        payload.extend_from_slice(key);
        payload.extend_from_slice(&crc32fast::hash(key).to_le_bytes());
        // Room for the whole text, so that no copy of a part of it is left behind.
        let mut text = Zeroizing::new(String::with_capacity(self.prefix.len() + 8 + DECODED.div_ceil(3) * 4));
        text.push_str(self.prefix);
        text.push_str([":00:", ":01:", ":02:", ":03:"][usize::from(transform)]);
        STANDARD.encode_string(&payload[..], &mut text);
        text.push(':');
        text
    }
}
