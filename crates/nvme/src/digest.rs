//! CRC32C header and data digests (TCP 3.3.1.1; CRC32C: polynomial 1EDC6F41h, as iSCSI uses it).

/// Length of a header or data digest in bytes.
pub const DIGEST_LEN: usize = 4;

/// The digest of `bytes`, as it is appended to a header or to data.
#[must_use]
pub fn digest(bytes: &[u8]) -> [u8; DIGEST_LEN] {
    crc32c::crc32c(bytes).to_le_bytes()
}

/// Extends the CRC of data that arrives in pieces; `crc` starts at 0.
#[must_use]
pub fn append(crc: u32, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc, bytes)
}
