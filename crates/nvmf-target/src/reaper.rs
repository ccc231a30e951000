//! Drops what may block, on an OS thread of its own.
//!
//! Closing a channel waits for the kernel (`io_destroy`); the last channel of a namespace also unmaps its memory, or joins
//! its threads. A reactor must do none of that, so it hands retired channels to the reaper: no lock, no allocation, and
//! no waiting. Where the ring is full the channel comes back, and its owner keeps it and tries again later.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::backend::blocking::{BlockingPool, Job};
use crate::lease::Leased;

/// Channels that may wait for the reaper.
const RETIRED: usize = 4096;

/// The thread. Dropping it waits until everything that was handed over is dropped.
pub struct Reaper {
    pool: BlockingPool<Retired>,
}

struct Retired(Leased);

impl Job for Retired {
    fn run(self) {
        if catch_unwind(AssertUnwindSafe(|| drop(self.0))).is_err() {
            tracing::error!("a namespace's channel failed while it was closed (see above); please report it");
        }
    }
}

impl Reaper {
    /// Starts the thread. It runs on the cores that the caller may run on.
    ///
    /// # Errors
    /// If the system has no thread left.
    pub fn start() -> io::Result<Self> {
        Self::with_room_for(RETIRED)
    }

    fn with_room_for(channels: usize) -> io::Result<Self> {
        Ok(Self { pool: BlockingPool::start_named(|_| "reaper".to_owned(), 1, channels)? })
    }

    /// Hands over a channel without requests in flight.
    ///
    /// # Errors
    /// Gives the channel back if too many are waiting.
    pub fn retire(&self, channel: Leased) -> Result<(), Leased> {
        self.pool.submit(Retired(channel)).map_err(|Retired(channel)| channel)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::time::Duration;

    use super::*;
    use crate::backend::{Channel, Completion, Geometry, Request, Submitted};
    use crate::lease::Lease;
    use crate::namespaces::Namespaces;
    use crate::wait::Wait;

    const PATIENCE: Duration = Duration::from_secs(60);
    const GEOMETRY: Geometry =
        Geometry { block_size: 4096, blocks: 1, volatile_write_cache: false, deallocated_reads_zero: true };

    /// A channel that is closed only when the test says so, and then tells on which thread.
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
            let _ = self.allowed.recv_timeout(PATIENCE); // fails on another thread instead of hanging it for ever
            self.closed.send(std::thread::current().name().unwrap_or_default().to_owned()).expect("the test listens");
            assert!(!self.panics, "closing fails");
        }
    }

    fn slow(closed: &Sender<String>, panics: bool) -> (Sender<()>, Leased) {
        let (allow, allowed) = channel();
        let channel = Box::new(Slow { allowed, closed: closed.clone(), panics });
        (allow, Leased { channel, lease: Lease::default() })
    }

    /// Nothing here would return if anything but the reaper closed a channel before it is allowed.
    #[test]
    fn a_channel_for_which_there_is_no_room_is_kept_and_handed_over_later() {
        let reaper = Reaper::with_room_for(1).expect("a thread");
        let mut namespaces = Namespaces::new().expect("a descriptor");
        let (closed, results) = channel();
        let mut allow = Vec::new();
        for nsid in 1..=4 {
            let (allowing, slow) = slow(&closed, false);
            allow.push(allowing);
            namespaces.add(0, nsid, GEOMETRY, slow);
        }
        (1..=4).for_each(|nsid| namespaces.remove(0, nsid));
        namespaces.poll(0, &mut Vec::new(), &reaper);
        // One is being closed, at most one more is in the ring: the rest waits here, and is tried again after a while.
        assert!(matches!(namespaces.wait(0), Wait::Until(1..)), "{:?}", namespaces.wait(0));
        drop(allow);
        let mut seen = 0;
        while seen < 4 {
            namespaces.poll(0, &mut Vec::new(), &reaper);
            if let Ok(thread) = results.recv_timeout(Duration::from_millis(1)) {
                assert_eq!(thread, "reaper");
                seen += 1;
            }
        }
        namespaces.poll(0, &mut Vec::new(), &reaper);
        assert_eq!(namespaces.wait(0), Wait::Event);
    }

    #[test]
    fn a_channel_that_panics_while_it_is_closed_does_not_end_the_reaper() {
        let reaper = Reaper::start().expect("a thread");
        let (closed, results) = channel();
        for panics in [true, false] {
            let (_, slow) = slow(&closed, panics);
            assert!(reaper.retire(slow).is_ok());
            assert_eq!(results.recv_timeout(PATIENCE).as_deref(), Ok("reaper"));
        }
    }

    #[test]
    fn dropping_the_reaper_closes_what_was_handed_over() {
        let reaper = Reaper::start().expect("a thread");
        let (closed, results) = channel();
        for _ in 0..100 {
            assert!(reaper.retire(slow(&closed, false).1).is_ok());
        }
        drop((reaper, closed));
        assert_eq!(results.iter().count(), 100);
    }
}
