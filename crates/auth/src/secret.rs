//! DH-HMAC-CHAP secrets: parsed, formatted, generated, and transformed into the key of an NQN (Base 8.3.5.5.7).

use std::fmt;

use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

use crate::hash::HashFunction;
use crate::interchange::{FormatError, Kind};
use crate::random::{Random, RandomUnavailable};

const KIND: Kind = Kind {
    prefix: "DHHC-1",
    command: "gen-dhchap-key",
    transforms: "00, 01 (SHA-256), 02 (SHA-384) or 03 (SHA-512)",
    max_transform: 3,
    lengths: &[32, 48, 64],
    lengths_text: "32, 48 or 64",
};

/// Length of a generated secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum SecretLen {
    /// 32 bytes.
    Bytes32 = 32,
    /// 48 bytes.
    Bytes48 = 48,
    /// 64 bytes.
    Bytes64 = 64,
}

/// A secret of a host or a controller, in text `DHHC-1:hh:base64(key || CRC-32):`. Erased when it is dropped, never printed.
#[derive(Clone)]
pub struct Secret {
    /// None where the secret is used as it is.
    transform: Option<HashFunction>,
    key: Zeroizing<Vec<u8>>,
}

impl Secret {
    /// Reads the text form.
    ///
    /// # Errors
    /// The text is malformed; the error does not quote it.
    pub fn parse(text: &str) -> Result<Self, FormatError> {
        let (transform, key) = KIND.parse(text)?;
        Ok(Self { transform: HashFunction::from_id(transform), key })
    }

    /// Draws a secret. `transform` is the hash function that mixes in the NQN of its owner, none to use it as it is.
    ///
    /// # Errors
    /// `random` failed.
    pub fn generate(
        transform: Option<HashFunction>,
        len: SecretLen,
        random: &mut Random<'_>,
    ) -> Result<Self, RandomUnavailable> {
        let mut key = Zeroizing::new(vec![0; len as usize]);
        random(&mut key)?;
        Ok(Self { transform, key })
    }

    /// The text form, erased when it is dropped.
    #[must_use]
    pub fn to_text(&self) -> Zeroizing<String> {
        KIND.format(self.transform.map_or(0, |hash| hash as u8), &self.key)
    }

    /// The key of the exchange: the secret, or its HMAC over the NQN of its owner and "NVMe-over-Fabrics".
    pub(crate) fn key_of(&self, nqn: &str) -> Zeroizing<Vec<u8>> {
        match self.transform {
            None => self.key.clone(),
            Some(hash) => {
                let key = hash.hmac(&self.key, &[nqn.as_bytes(), b"NVMe-over-Fabrics"]);
                Zeroizing::new(key.as_slice().to_vec())
            }
        }
    }
}

/// In time that does not depend on the keys.
impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        self.transform == other.transform && bool::from(self.key.ct_eq(&other.key))
    }
}

impl Eq for Secret {}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

#[cfg(test)]
#[path = "secret_tests.rs"]
mod tests;
