//! The hash of a key, and the cipher suite that belongs to it.

/// The hash of a PSK, which determines the cipher suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hash {
    /// `TLS_AES_128_GCM_SHA256`.
    Sha256,
    /// `TLS_AES_256_GCM_SHA384`.
    Sha384,
}

impl Hash {
    /// Length of its digests in bytes.
    pub(crate) fn digest_len(self) -> usize {
        match self {
            Self::Sha256 => 32,
            Self::Sha384 => 48,
        }
    }

    /// Length of its cipher suite's keys in bytes.
    pub(crate) fn key_len(self) -> usize {
        match self {
            Self::Sha256 => 16,
            Self::Sha384 => 32,
        }
    }

    /// Code and name of its cipher suite (RFC 8446, appendix B.4).
    pub(crate) fn cipher_suite(self) -> ([u8; 2], &'static str) {
        match self {
            Self::Sha256 => ([0x13, 0x01], "TLS_AES_128_GCM_SHA256"),
            Self::Sha384 => ([0x13, 0x02], "TLS_AES_256_GCM_SHA384"),
        }
    }
}
