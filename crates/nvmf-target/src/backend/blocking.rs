//! A thread pool for blocking system calls, so that no reactor blocks in one.
//!
//! Reactors submit jobs without locks, allocation or blocking: jobs go through a bounded queue, and a system call is made
//! only if a thread sleeps. An idle thread reads the count of all jobs ever queued, announces that it is about to sleep,
//! checks the queue again, and sleeps only if the count has not changed. A job queued in between is either found or
//! changes the count, so no wake-up is lost.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;

use crossbeam_queue::ArrayQueue;
use rustix::thread::futex;

/// A job that may block.
pub(crate) trait Job: Send + 'static {
    /// Runs the job and delivers its result. Must not panic.
    fn run(self);
}

/// Capacity of the queue of jobs.
const QUEUED: usize = 4096;

/// The thread pool. Dropping it runs every accepted job to its end.
pub(crate) struct BlockingPool<J: Job> {
    shared: Arc<Shared<J>>,
    threads: Vec<JoinHandle<()>>,
}

impl<J: Job> BlockingPool<J> {
    /// Starts `count` threads, at least one. They inherit the caller's CPU affinity.
    pub(crate) fn start(count: usize) -> io::Result<Self> {
        Self::start_named(|number| format!("blocking-{number}"), count, QUEUED)
    }

    /// As [`Self::start`], with names for the threads and a queue of `queued` jobs.
    pub(crate) fn start_named(name: impl Fn(usize) -> String, count: usize, queued: usize) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            jobs: ArrayQueue::new(queued),
            queued: AtomicU32::new(0),
            sleeping: AtomicU32::new(0),
            ends: AtomicBool::new(false),
        });
        let mut pool = Self { shared, threads: Vec::new() };
        for number in 0..count.max(1) {
            let shared = Arc::clone(&pool.shared);
            let builder = std::thread::Builder::new().name(name(number));
            pool.threads.push(builder.spawn(move || shared.work())?);
        }
        Ok(pool)
    }

    /// A handle to submit jobs that does not keep the pool alive.
    pub(crate) fn handle(&self) -> Handle<J> {
        Handle(Arc::clone(&self.shared))
    }

    /// Jobs submitted so far.
    #[cfg(test)]
    pub(crate) fn jobs(&self) -> u32 {
        self.shared.queued.load(Ordering::SeqCst)
    }

    /// Submits a job; returns it if the queue is full.
    pub(crate) fn submit(&self, job: J) -> Result<(), J> {
        self.shared.submit(job)
    }
}

/// Submits jobs to a pool owned elsewhere.
pub(crate) struct Handle<J>(Arc<Shared<J>>);

impl<J: Job> Handle<J> {
    /// As [`BlockingPool::submit`]; returns the job if the pool has ended.
    pub(crate) fn submit(&self, job: J) -> Result<(), J> {
        if self.0.ends.load(Ordering::SeqCst) { Err(job) } else { self.0.submit(job) }
    }
}

impl<J: Job> Drop for BlockingPool<J> {
    fn drop(&mut self) {
        self.shared.ends.store(true, Ordering::SeqCst);
        self.shared.queued.fetch_add(1, Ordering::SeqCst);
        self.shared.wake(u32::MAX >> 1);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

struct Shared<J> {
    jobs: ArrayQueue<J>,
    /// Jobs ever queued, modulo 2^32: the futex on which idle threads sleep.
    queued: AtomicU32,
    sleeping: AtomicU32,
    ends: AtomicBool,
}

impl<J: Job> Shared<J> {
    fn submit(&self, job: J) -> Result<(), J> {
        self.jobs.push(job)?;
        self.queued.fetch_add(1, Ordering::SeqCst);
        if self.sleeping.load(Ordering::SeqCst) > 0 {
            self.wake(1);
        }
        Ok(())
    }

    fn wake(&self, most: u32) {
        let _ = futex::wake(&self.queued, futex::Flags::PRIVATE, most);
    }

    fn work(&self) {
        while let Some(job) = self.next() {
            job.run();
        }
    }

    /// The next job; `None` when the pool ends and the queue is empty.
    fn next(&self) -> Option<J> {
        loop {
            if let Some(job) = self.jobs.pop() {
                return Some(job);
            }
            let queued = self.queued.load(Ordering::SeqCst);
            self.sleeping.fetch_add(1, Ordering::SeqCst);
            let late = self.jobs.pop();
            let ends = self.ends.load(Ordering::SeqCst);
            if late.is_none() && !ends {
                // Returns at once if a job was queued meanwhile; a spurious return repeats the loop.
                let _ = futex::wait(&self.queued, futex::Flags::PRIVATE, queued, None);
            }
            self.sleeping.fetch_sub(1, Ordering::SeqCst);
            if late.is_some() || ends {
                return late;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    struct Count(u64, mpsc::Sender<u64>);

    impl Job for Count {
        fn run(self) {
            self.1.send(self.0).expect("the receiver exists");
        }
    }

    #[test]
    fn each_job_runs_once_and_no_wake_up_is_lost() {
        let pool = BlockingPool::start(3).expect("threads");
        let (done, results) = mpsc::channel();
        // One at a time, so that the threads go to sleep in between as often as possible.
        for number in 0..5_000 {
            assert!(pool.submit(Count(number, done.clone())).is_ok());
            assert_eq!(results.recv_timeout(std::time::Duration::from_secs(20)), Ok(number));
        }
        for number in 0..1_000 {
            assert!(pool.submit(Count(number, done.clone())).is_ok());
        }
        let mut seen: Vec<_> = results.iter().take(1_000).collect();
        seen.sort_unstable();
        assert!(seen.into_iter().eq(0..1_000));
    }

    #[test]
    fn dropping_the_pool_runs_accepted_jobs() {
        let (done, results) = mpsc::channel();
        let pool = BlockingPool::start(2).expect("threads");
        let accepted =
            (0..QUEUED as u64 / 2).filter(|&number| pool.submit(Count(number, done.clone())).is_ok()).count();
        drop((pool, done));
        assert_eq!(results.iter().count(), accepted);
    }

    struct Stuck(Arc<std::sync::Barrier>);

    impl Job for Stuck {
        fn run(self) {
            self.0.wait();
        }
    }

    #[test]
    fn submit_returns_the_job_if_the_queue_is_full() {
        let pool = BlockingPool::start(1).expect("a thread");
        let barrier = Arc::new(std::sync::Barrier::new(2));
        let accepted = (0..QUEUED + 2).filter(|_| pool.submit(Stuck(Arc::clone(&barrier))).is_ok()).count();
        assert!((QUEUED..=QUEUED + 1).contains(&accepted), "{accepted}");
        for _ in 0..accepted {
            barrier.wait();
        }
    }
}
