//! Sources of random bytes: an argument of what needs them, and the kernel's.

use rustix::rand::{GetRandomFlags, getrandom};
use thiserror::Error;

/// Fills a buffer with cryptographically secure random bytes, as [`kernel_random`].
pub type Random<'a> = dyn FnMut(&mut [u8]) -> Result<(), RandomUnavailable> + 'a;

/// The source of random bytes failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the source of random bytes failed: check that getrandom(2) is allowed")]
pub struct RandomUnavailable;

/// Fills a buffer with random bytes of the kernel (getrandom(2)).
///
/// # Errors
/// The system call is not allowed or does not exist.
pub fn kernel_random(bytes: &mut [u8]) -> Result<(), RandomUnavailable> {
    let mut filled = 0;
    while filled < bytes.len() {
        filled += getrandom(&mut bytes[filled..], GetRandomFlags::empty()).map_err(|_| RandomUnavailable)?;
    }
    Ok(())
}
