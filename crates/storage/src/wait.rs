//! The event that each part of an I/O thread waits for, to decide whether the thread may wait in the kernel.
//!
//! They are combined with `min`.

/// Retry interval of a waiting thread for a request that was busy, in nanoseconds: about the time of a software wake-up
/// (`design.md`, section 6). The blocking request, mostly an overlapping one of another thread, does not signal its end.
pub const BUSY_RETRY_NS: u64 = 50_000;

/// The awaited event, in order of urgency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wait {
    /// None: polling is needed.
    Poll,
    /// A time in monotonic nanoseconds, or an earlier event.
    Until(u64),
    /// An event that makes the thread's descriptor readable, or no event.
    Event,
}

impl Wait {
    /// A time, possibly never (`u64::MAX`).
    #[must_use]
    pub const fn until(ns: u64) -> Self {
        if ns == u64::MAX { Self::Event } else { Self::Until(ns) }
    }

    /// End of a wait that begins at `now_ns`: `u64::MAX` without a timer; `None` if waiting is not allowed.
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
    fn the_most_urgent_event_applies() {
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
