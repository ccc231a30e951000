//! The source of random bytes, which a caller hands in.

use thiserror::Error;

/// Fills a buffer with cryptographically secure random bytes, for example with `getrandom`.
pub type Random<'a> = dyn FnMut(&mut [u8]) -> Result<(), RandomUnavailable> + 'a;

/// The source of random bytes failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the source of random bytes failed: check that getrandom(2) is allowed")]
pub struct RandomUnavailable;
