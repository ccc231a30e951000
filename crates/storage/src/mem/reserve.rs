//! A namespace's address space, and preallocation of its memory.
//!
//! Preallocated memory uses huge pages where available. A sparse namespace does not, because a write of one page would
//! take the memory of 512.

use std::io;
use std::ops::Range;

use super::super::guard::{PAGE, PageGuards, PageState};
use super::{Store, first_slice, pages_of};
use crate::mapping::Mapping;

/// Reserved address space relative to the namespace's size, for growth.
const RESERVE_FACTOR: u64 = 16;
pub(super) const RESERVE_LEAST: u64 = 64 << 30;

/// Maps address space for `bytes` and, if available, for growth.
pub(super) fn reserve(bytes: u64) -> io::Result<(Mapping, PageGuards)> {
    let mut reserve = bytes.saturating_mul(RESERVE_FACTOR).max(RESERVE_LEAST);
    loop {
        let pages = reserve.max(bytes).div_ceil(PAGE as u64);
        let mapped = pages
            .checked_mul(PAGE as u64)
            .and_then(|bytes| usize::try_from(bytes).ok())
            .ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))
            .and_then(Mapping::anonymous)
            .and_then(|data| Ok((data, PageGuards::new(pages)?)));
        match mapped {
            Err(_) if reserve > bytes => reserve /= 2,
            result => return result,
        }
    }
}

impl Store {
    /// Charges a range beyond the end and makes it resident, completely or not at all.
    /// Not for reactors.
    pub(super) fn preallocate(&self, bytes: Range<u64>) -> io::Result<()> {
        self.data.use_huge_pages_within(bytes.end as usize);
        let charged = bytes.start..self.charge_slices(bytes.clone());
        let result = if charged == bytes {
            let pages = pages_of(&bytes);
            self.data.populate(pages.start as usize * PAGE, (pages.end - pages.start) as usize * PAGE)
        } else {
            let message = "not enough memory within max_memory: make the namespace smaller, or raise max_memory";
            Err(io::Error::new(io::ErrorKind::OutOfMemory, message))
        };
        result.inspect_err(|_| {
            self.data.use_huge_pages_within(bytes.start as usize);
            self.clear(charged);
        })
    }

    /// Charges a range slice by slice as far as the budget allows, and marks it as content. Returns the end of the charged
    /// part.
    fn charge_slices(&self, mut bytes: Range<u64>) -> u64 {
        while !bytes.is_empty() {
            let slice = first_slice(&bytes);
            let Some(hold) = self.guards.try_exclusive(pages_of(&slice)) else {
                std::thread::yield_now();
                continue;
            };
            if self.charge(hold.pages()).is_err() {
                self.guards.release(hold);
                break;
            }
            self.guards.release_with(hold, |_| PageState::Content);
            bytes.start = slice.end;
        }
        bytes.start
    }
}
