//! The hash functions of NVMe in-band authentication: digests, HMAC and HKDF over them.

use hkdf::Hkdf;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Digest as _;
use zeroize::{Zeroize as _, Zeroizing};

/// Runs `$body` with `$hash` as the type of the hash function `$function`.
macro_rules! with_hash {
    ($function:expr, $hash:ident => $body:expr) => {
        match $function {
            HashFunction::Sha256 => {
                type $hash = sha2::Sha256;
                $body
            }
            HashFunction::Sha384 => {
                type $hash = sha2::Sha384;
                $body
            }
            HashFunction::Sha512 => {
                type $hash = sha2::Sha512;
                $body
            }
        }
    };
}

/// A hash function by its identifier (Base 8.3.5.5.2, HashID).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum HashFunction {
    /// SHA-256, 32 bytes.
    Sha256 = 1,
    /// SHA-384, 48 bytes.
    Sha384 = 2,
    /// SHA-512, 64 bytes.
    Sha512 = 3,
}

impl HashFunction {
    /// All of them, in the order of their identifiers.
    pub const ALL: [Self; 3] = [Self::Sha256, Self::Sha384, Self::Sha512];

    /// The function with identifier `id`.
    #[must_use]
    pub fn from_id(id: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|hash| *hash as u8 == id)
    }

    /// The function that a configuration names: `sha256`, `sha384` or `sha512`.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|hash| hash.name() == name)
    }

    /// Its name in configurations and messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sha256 => "sha256",
            Self::Sha384 => "sha384",
            Self::Sha512 => "sha512",
        }
    }

    /// Length of a digest in bytes.
    #[must_use]
    pub const fn digest_len(self) -> usize {
        match self {
            Self::Sha256 => 32,
            Self::Sha384 => 48,
            Self::Sha512 => 64,
        }
    }

    pub(crate) fn digest(self, data: &[u8]) -> Digest {
        with_hash!(self, H => Digest::take(&mut H::digest(data)))
    }

    /// HMAC of the concatenation of `parts`.
    pub(crate) fn hmac(self, key: &[u8], parts: &[&[u8]]) -> Digest {
        with_hash!(self, H => {
            let mut hmac = Hmac::<H>::new_from_slice(key).expect("HMAC takes keys of any length");
            for part in parts {
                hmac.update(part);
            }
            Digest::take(&mut hmac.finalize().into_bytes())
        })
    }

    /// HKDF-Extract without salt, and HKDF-Expand to `len` bytes (RFC 5869).
    pub(crate) fn hkdf(self, input: &[u8], info: &[u8], len: usize) -> Zeroizing<Vec<u8>> {
        let mut output = Zeroizing::new(vec![0; len]);
        with_hash!(self, H => Hkdf::<H>::new(None, input).expand(info, &mut output))
            .expect("the output is far shorter than 255 digests");
        output
    }
}

/// A digest or a challenge; erased when it is dropped.
#[derive(Clone)]
pub(crate) struct Digest {
    bytes: Zeroizing<[u8; 64]>,
    len: u8,
}

impl Digest {
    /// Copies `bytes`, at most 64, and erases them.
    fn take(bytes: &mut [u8]) -> Self {
        let digest = Self::from_slice(bytes);
        bytes.zeroize();
        digest
    }

    /// A digest of `bytes`, at most 64.
    pub(crate) fn from_slice(bytes: &[u8]) -> Self {
        let mut digest = Self::zero(bytes.len());
        digest.as_mut_slice().copy_from_slice(bytes);
        digest
    }

    /// `len` zeros, at most 64.
    pub(crate) fn zero(len: usize) -> Self {
        assert!(len <= 64, "the longest digest is that of SHA-512");
        Self { bytes: Zeroizing::new([0; 64]), len: len as u8 }
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut self.bytes[..usize::from(self.len)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn digests_have_their_length() {
        for hash in HashFunction::ALL {
            assert_eq!(hash.digest(b"").as_slice().len(), hash.digest_len());
            assert_eq!(hash.hmac(b"k", &[b"a"]).as_slice().len(), hash.digest_len());
            assert_eq!(HashFunction::from_id(hash as u8), Some(hash));
            assert_eq!(HashFunction::from_name(hash.name()), Some(hash));
        }
        assert_eq!(HashFunction::from_id(0), None);
        assert_eq!(HashFunction::from_id(4), None);
    }

    /// RFC 4231, test case 2.
    #[test]
    fn hmac_has_the_published_value() {
        let mac = HashFunction::Sha256.hmac(b"Jefe", &[b"what do ya want ", b"for nothing?"]);
        assert_eq!(hex(mac.as_slice()), "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    }

    /// RFC 5869, test case 3: neither salt nor info.
    #[test]
    fn hkdf_has_the_published_value() {
        let output = HashFunction::Sha256.hkdf(&[0x0b; 22], b"", 42);
        let expected = "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8";
        assert_eq!(hex(&output), expected);
    }
}
