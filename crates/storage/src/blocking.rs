//! A thread pool for blocking system calls, so that no reactor blocks in one.
//!
//! Reactors submit jobs without locks, allocation or blocking: jobs go through a bounded queue, and a system call is made
//! only if a thread sleeps. An idle thread reads the count of all jobs ever queued, announces that it is about to sleep,
//! checks the queue again, and sleeps only if the count has not changed. A job queued in between is either found or
//! changes the count, so no wake-up is lost.
//!
//! Threads start on demand, up to a maximum: a thread that takes a job and leaves no other one idle starts another one
//! first, so that the next job never waits for this one. Those beyond [`SPARE`] that find no job for a while end.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;

use crossbeam_queue::ArrayQueue;
use rustix::event::Timespec;
use rustix::thread::futex;

use super::MemoryBudget;

/// A job that may block.
pub(crate) trait Job: Send + 'static {
    /// Runs the job and delivers its result. Must not panic.
    fn run(self);
}

/// Capacity of the queue of jobs.
const QUEUED: usize = 4096;
/// Idle threads that stay.
const SPARE: usize = 2;
/// Time without a job after which an idle thread beyond [`SPARE`] ends.
const IDLE_TIME: Timespec = Timespec { tv_sec: 10, tv_nsec: 0 };
/// Memory charged for a thread in bytes, an estimate of the used part of its stacks in user space and in the kernel.
const THREAD_BYTES: u64 = 32 << 10;

/// The thread pool. Dropping it runs every accepted job to its end.
pub(crate) struct BlockingPool<J: Job> {
    shared: Arc<Shared<J>>,
}

impl<J: Job> BlockingPool<J> {
    /// Starts a pool of up to `most` threads, at least one. They inherit the caller's CPU affinity. Their memory is charged to
    /// `budget`; without enough of it there are fewer.
    pub(crate) fn start(most: usize, budget: Arc<MemoryBudget>) -> io::Result<Self> {
        Self::start_with(Box::new(|number| format!("blocking-{number}")), most, QUEUED, budget)
    }

    /// As [`Self::start`], with names for the threads, a queue of `queued` jobs, and no budget.
    pub(crate) fn start_named(
        name: impl Fn(usize) -> String + Send + Sync + 'static,
        most: usize,
        queued: usize,
    ) -> io::Result<Self> {
        Self::start_with(Box::new(name), most, queued, Arc::new(MemoryBudget::unlimited()))
    }

    fn start_with(name: Box<Name>, most: usize, queued: usize, budget: Arc<MemoryBudget>) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            jobs: ArrayQueue::new(queued),
            queued: AtomicU32::new(0),
            sleeping: AtomicU32::new(0),
            idle: AtomicUsize::new(0),
            ends: AtomicBool::new(false),
            threads: Mutex::new(Vec::new()),
            most: most.max(1),
            name,
            budget,
        });
        let pool = Self { shared };
        for _ in 0..most.clamp(1, SPARE) {
            pool.shared.add_thread()?;
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
        // None is added after this: see `add_thread`.
        let threads = std::mem::take(&mut *self.shared.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads {
            let _ = thread.join();
        }
    }
}

type Name = dyn Fn(usize) -> String + Send + Sync;

struct Shared<J> {
    jobs: ArrayQueue<J>,
    /// Jobs ever queued, modulo 2^32: the futex on which idle threads sleep.
    queued: AtomicU32,
    sleeping: AtomicU32,
    /// Threads without a job.
    idle: AtomicUsize,
    ends: AtomicBool,
    /// Locked by the pool's threads and its owner, not to submit a job.
    threads: Mutex<Vec<JoinHandle<()>>>,
    most: usize,
    name: Box<Name>,
    budget: Arc<MemoryBudget>,
}

impl<J> Shared<J> {
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

    /// The next job; `None` when the pool ends and the queue is empty, or when the thread is one too many.
    fn next(&self) -> Option<J> {
        loop {
            if let Some(job) = self.jobs.pop() {
                return Some(job);
            }
            let queued = self.queued.load(Ordering::SeqCst);
            self.sleeping.fetch_add(1, Ordering::SeqCst);
            let late = self.jobs.pop();
            let ends = self.ends.load(Ordering::SeqCst);
            let mut slept = Ok(());
            if late.is_none() && !ends {
                let surplus = self.idle.load(Ordering::SeqCst) > SPARE;
                let timeout = surplus.then_some(&IDLE_TIME);
                // Returns at once if a job was queued meanwhile; a spurious return repeats the loop.
                slept = futex::wait(&self.queued, futex::Flags::PRIVATE, queued, timeout);
            }
            self.sleeping.fetch_sub(1, Ordering::SeqCst);
            if late.is_some() || ends {
                return late;
            }
            if slept == Err(rustix::io::Errno::TIMEDOUT) && self.leave() {
                return None;
            }
        }
    }

    /// Takes the thread out of the idle ones, if enough others are.
    fn leave(&self) -> bool {
        let fewer = |idle| (idle > SPARE).then(|| idle - 1);
        self.idle.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fewer).is_ok()
    }
}

impl<J: Job> Shared<J> {
    fn work(self: &Arc<Self>) {
        while let Some(job) = self.next() {
            if self.idle.fetch_sub(1, Ordering::SeqCst) == 1 {
                // Without another thread, later jobs wait for this one.
                let _ = self.add_thread();
            }
            job.run();
            self.idle.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Starts an idle thread, unless there are as many as may be.
    fn add_thread(self: &Arc<Self>) -> io::Result<()> {
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        if self.ends.load(Ordering::SeqCst) {
            return Ok(());
        }
        threads.retain(|thread| !thread.is_finished());
        if threads.len() >= self.most {
            return Ok(());
        }
        // The first one always starts: without it nothing would ever end.
        let charge = self.budget.charge(THREAD_BYTES);
        if charge.is_none() && !threads.is_empty() {
            return Ok(());
        }
        self.idle.fetch_add(1, Ordering::SeqCst);
        let shared = Arc::clone(self);
        let body = move || {
            shared.work();
            drop(charge);
        };
        match std::thread::Builder::new().name((self.name)(threads.len())).spawn(body) {
            Ok(thread) => threads.push(thread),
            Err(error) => {
                self.idle.fetch_sub(1, Ordering::SeqCst);
                return Err(error);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn start<J: Job>(most: usize) -> io::Result<BlockingPool<J>> {
        BlockingPool::start(most, Arc::new(MemoryBudget::unlimited()))
    }

    struct Count(u64, mpsc::Sender<u64>);

    impl Job for Count {
        fn run(self) {
            self.1.send(self.0).expect("the receiver exists");
        }
    }

    #[test]
    fn each_job_runs_once_and_no_wake_up_is_lost() {
        let pool = start(3).expect("threads");
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
        let pool = start(2).expect("threads");
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
        let pool = start(1).expect("a thread");
        let barrier = Arc::new(std::sync::Barrier::new(2));
        let accepted = (0..QUEUED + 2).filter(|_| pool.submit(Stuck(Arc::clone(&barrier))).is_ok()).count();
        assert!((QUEUED..=QUEUED + 1).contains(&accepted), "{accepted}");
        for _ in 0..accepted {
            barrier.wait();
        }
    }
    #[test]
    fn threads_start_while_others_are_stuck_up_to_the_maximum() {
        const MOST: usize = 7;
        let pool = start(MOST).expect("a thread");
        let barrier = Arc::new(std::sync::Barrier::new(MOST + 1));
        for _ in 0..3 * MOST {
            assert!(pool.submit(Stuck(Arc::clone(&barrier))).is_ok());
        }
        // Each time all threads are in a job, and no more.
        for _ in 0..3 {
            barrier.wait();
        }
        drop(pool);
    }

    #[test]
    fn threads_are_as_many_as_the_budget_allows() {
        let budget = Arc::new(MemoryBudget::new(3 * THREAD_BYTES));
        let pool = BlockingPool::start(64, Arc::clone(&budget)).expect("threads");
        let barrier = Arc::new(std::sync::Barrier::new(4));
        for _ in 0..6 {
            assert!(pool.submit(Stuck(Arc::clone(&barrier))).is_ok());
        }
        barrier.wait();
        barrier.wait();
        assert_eq!(pool.shared.threads.lock().expect("no panic holds it").len(), 3);
        drop(pool);
        assert_eq!(budget.used(), 0);
    }
}
