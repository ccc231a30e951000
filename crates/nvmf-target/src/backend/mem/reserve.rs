//! A namespace's address space, and its memory where that is allocated before it is written.
//!
//! Preallocated memory is in huge pages where the system allows them. A sparse namespace refuses them, because a write of
//! one page would take the memory of 512.

use std::io;
use std::ops::Range;

use super::super::guard::{Leave, PAGE, PageGuards};
use super::{Store, first_slice, pages_of};
use crate::mapping::Mapping;

/// Address space set aside beyond the namespace's size, where there is any: what it can grow to.
const RESERVE_FACTOR: u64 = 16;
pub(super) const RESERVE_LEAST: u64 = 64 << 30;

/// Maps address space for `bytes` and, as far as the system lets us, for growth.
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
    /// Charges a range beyond the end of what is in use and makes it resident; all of it, or none and an error.
    /// Not for reactors.
    pub(super) fn preallocate(&self, bytes: Range<u64>) -> io::Result<()> {
        self.data.use_huge_pages_within(bytes.end as usize);
        let charged = bytes.start..self.charge_slices(bytes.clone());
        let result = if charged == bytes {
            let pages = pages_of(&bytes);
            self.data.populate(pages.start as usize * PAGE, (pages.end - pages.start) as usize * PAGE)
        } else {
            let message = "max_memory leaves too little for it: make the namespace smaller, or raise max_memory";
            Err(io::Error::new(io::ErrorKind::OutOfMemory, message))
        };
        result.inspect_err(|_| {
            self.data.use_huge_pages_within(bytes.start as usize);
            self.clear(charged);
        })
    }

    /// Charges a range slice by slice as far as the budget allows, and marks it as content, as if it had been written with
    /// zeroes. Returns where it ended.
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
            self.guards.release_leaving(hold, |_| Leave::Content);
            bytes.start = slice.end;
        }
        bytes.start
    }
}
