//! Closes channels, which may block, on a separate OS thread.
//!
//! Closing a channel waits for the kernel (`io_destroy`); the last channel of a namespace also unmaps its memory or joins
//! its threads. Reactors pass retired channels to the reaper without locks, allocation or blocking. When the queue is full
//! the channel is returned for a later retry.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::blocking::{BlockingPool, Job};
use crate::lease::Leased;

/// Capacity of the queue.
const RETIRED: usize = 4096;

/// The thread. Dropping it waits until all queued channels are closed.
pub struct Reaper {
    pool: BlockingPool<Retired>,
}

struct Retired(Leased);

impl Job for Retired {
    fn run(self) {
        if catch_unwind(AssertUnwindSafe(|| drop(self.0))).is_err() {
            tracing::error!("panic while closing a namespace's channel (see above); please report it");
        }
    }
}

impl Reaper {
    /// Starts the thread with the caller's CPU affinity.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub fn start() -> io::Result<Self> {
        Self::with_capacity(RETIRED)
    }

    /// As [`Reaper::start`], with a queue of this capacity.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub fn with_capacity(channels: usize) -> io::Result<Self> {
        Ok(Self { pool: BlockingPool::start_named(|_| "reaper".to_owned(), 1, channels)? })
    }

    /// Queues a channel without requests in flight.
    ///
    /// # Errors
    /// The channel, if the queue is full.
    pub fn retire(&self, channel: Leased) -> Result<(), Leased> {
        self.pool.submit(Retired(channel)).map_err(|Retired(channel)| channel)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::time::Duration;

    use super::*;
    use crate::lease::Lease;
    use crate::{Channel, Completion, Request, Submitted};

    const TIMEOUT: Duration = Duration::from_secs(60);
    /// A channel that blocks while closing until the test allows it, and reports the thread.
    struct Slow {
        allowed: Receiver<()>,
        closed: Sender<String>,
        panics: bool,
    }

    impl Channel for Slow {
        fn submit(&mut self, request: Request, _now_ns: u64) -> Submitted {
            Submitted::Done(request.complete(Ok(())))
        }
        fn poll(&mut self, _now_ns: u64, _done: &mut Vec<Completion>) {}
        fn in_flight(&self) -> usize {
            0
        }
    }

    impl Drop for Slow {
        fn drop(&mut self) {
            let _ = self.allowed.recv_timeout(TIMEOUT); // bounds the time on a wrong thread
            self.closed.send(std::thread::current().name().unwrap_or_default().to_owned()).expect("the test receives");
            assert!(!self.panics, "closing fails");
        }
    }

    fn slow(closed: &Sender<String>, panics: bool) -> (Sender<()>, Leased) {
        let (allow, allowed) = channel();
        let channel = Box::new(Slow { allowed, closed: closed.clone(), panics });
        (allow, Leased { channel, lease: Lease::default() })
    }

    #[test]
    fn a_full_queue_gives_the_channel_back() {
        let reaper = Reaper::with_capacity(1).expect("a thread");
        let (closed, results) = channel();
        let (mut allow, mut refused, mut retired) = (Vec::new(), None, 0);
        while refused.is_none() {
            let (allowing, slow) = slow(&closed, false);
            allow.push(allowing);
            refused = reaper.retire(slow).err();
            retired += usize::from(refused.is_none());
        }
        assert!((1..=2).contains(&retired), "one is being closed, at most one is queued: {retired}");
        drop(allow);
        (0..retired).for_each(|_| assert_eq!(results.recv_timeout(TIMEOUT).as_deref(), Ok("reaper")));
        let mut refused = refused;
        while let Some(again) = refused.take() {
            refused = reaper.retire(again).err();
            std::thread::yield_now();
        }
        assert_eq!(results.recv_timeout(TIMEOUT).as_deref(), Ok("reaper"));
    }

    #[test]
    fn a_panicking_channel_does_not_end_the_reaper() {
        let reaper = Reaper::start().expect("a thread");
        let (closed, results) = channel();
        for panics in [true, false] {
            let (_, slow) = slow(&closed, panics);
            assert!(reaper.retire(slow).is_ok());
            assert_eq!(results.recv_timeout(TIMEOUT).as_deref(), Ok("reaper"));
        }
    }

    #[test]
    fn dropping_the_reaper_closes_queued_channels() {
        let reaper = Reaper::start().expect("a thread");
        let (closed, results) = channel();
        for _ in 0..100 {
            assert!(reaper.retire(slow(&closed, false).1).is_ok());
        }
        drop((reaper, closed));
        assert_eq!(results.iter().count(), 100);
    }
}
