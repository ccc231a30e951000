//! What has to happen before something goes on: the answer that everything in an I/O thread gives when the thread asks
//! whether it may wait in the kernel.
//!
//! The parts are combined with `min`: whatever comes first decides.

/// Time after which a request that a backend was too busy for is tried again by a thread that waits, in nanoseconds: about
/// what a wake-up by software takes (`design.md`, section 6). What holds it up, mostly an overlapping request of another
/// thread, rings nothing when it is over.
pub const BUSY_RETRY_NS: u64 = 50_000;

/// What has to happen before something goes on. In this order: the more pressing is the smaller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wait {
    /// Nothing: it has to be polled on.
    Poll,
    /// Time, until so many monotonic nanoseconds; something else may happen earlier.
    Until(u64),
    /// An event that makes the thread's descriptor readable, or nothing at all.
    Event,
}

impl Wait {
    /// The time of something that may never be due (`u64::MAX`).
    #[must_use]
    pub const fn until(ns: u64) -> Self {
        if ns == u64::MAX { Self::Event } else { Self::Until(ns) }
    }

    /// Until when a thread may wait that begins at `now_ns`: `u64::MAX` if no timer ends it; `None` if it may not.
    #[must_use]
    pub const fn limit_ns(self, now_ns: u64) -> Option<u64> {
        match self {
            Self::Event => Some(u64::MAX),
            Self::Until(ns) if ns > now_ns => Some(ns),
            Self::Until(_) | Self::Poll => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_first_decides() {
        use Wait::{Event, Poll, Until};
        assert_eq!([Event, Until(7), Until(5), Event].into_iter().min(), Some(Until(5)));
        assert_eq!([Until(5), Poll, Event].into_iter().min(), Some(Poll));
        assert_eq!((Wait::until(u64::MAX), Wait::until(3)), (Event, Until(3)));
        assert_eq!(
            [Event, Until(9), Until(8), Poll].map(|wait| wait.limit_ns(8)),
            [Some(u64::MAX), Some(9), None, None]
        );
    }
}
