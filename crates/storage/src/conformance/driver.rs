//! Drives a channel in tests: submits, retries busy requests, and tracks every request.
//!
//! Every other read and write uses no buffer where the channel supports that.

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pilotlight_reactor::CompletionMode;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::super::{Backend, Bell, Channel, Completion, IoError, Loan, Op, Request, Submitted, Tag};
use crate::buffer::{Buffer, BufferPool};
use crate::wait::Wait;

/// Time limit of a request, in real time. Generous, because real media are slow on busy machines.
pub(super) const TIMEOUT: Duration = Duration::from_secs(60);
/// Fill of unused memory: a read that leaves any of it leaks another host's data.
const STALE: u8 = 0xee;
/// Simulated time between polls.
const POLL_NS: u64 = 1_000;

/// A channel, its buffers, and its requests.
pub(crate) struct Driver {
    channel: Box<dyn Channel>,
    bell: Arc<Bell>,
    pool: BufferPool,
    block_size: usize,
    now_ns: u64,
    next_tag: Tag,
    /// Requests in flight with their operations and bytes.
    expected: HashMap<Tag, (Op, usize)>,
    finished: HashMap<Tag, (Result<(), IoError>, Vec<u8>)>,
    done: Vec<Completion>,
}

impl Driver {
    /// Opens a channel.
    pub(crate) fn open(backend: &dyn Backend, depth: u32) -> Self {
        Self {
            channel: backend.open_channel(depth).expect("a channel"),
            bell: Arc::new(Bell::new().expect("a descriptor")),
            pool: BufferPool::new(16 << 20).expect("memory"),
            block_size: backend.geometry().block_size as usize,
            now_ns: 0,
            next_tag: 1 << 40,
            expected: HashMap::new(),
            finished: HashMap::new(),
            done: Vec::with_capacity(depth as usize),
        }
    }

    /// Bytes of a logical block.
    pub(crate) fn block_size(&self) -> usize {
        self.block_size
    }

    /// Sets how many completions one poll may return.
    pub(crate) fn completions_per_poll(&mut self, most: usize) {
        self.done = Vec::with_capacity(most);
        assert_eq!(self.done.capacity(), most);
    }

    /// Requests in flight, as counted by the driver.
    pub(crate) fn in_flight(&self) -> usize {
        self.expected.len()
    }

    /// A request to submit. The buffer is longer than needed and filled with stale bytes.
    pub(crate) fn request(&mut self, op: Op, lba: u64, blocks: u32, data: Option<&[u8]>) -> Request {
        let bytes = data_len(op, blocks, self.block_size);
        let buffer = has_data(op).then(|| {
            let len = (bytes + 1).min(crate::buffer::MAX_BUFFER);
            let mut buffer = self.pool.alloc(len).expect("enough buffers for a test");
            buffer.fill(STALE);
            if let Some(data) = data {
                buffer[..bytes].copy_from_slice(data);
            }
            buffer
        });
        self.next_tag += 1;
        Request { tag: self.next_tag, op, lba, blocks, buffer }
    }

    /// Blocks on loan, if the channel lends them.
    pub(crate) fn lend(&mut self, lba: u64, blocks: u32) -> Option<Loan> {
        self.channel.lend(lba, blocks)
    }

    /// Ends a loan.
    pub(crate) fn end_loan(&mut self, loan: Loan) {
        self.channel.end_loan(loan);
    }

    /// Writes without a buffer, if the channel supports that.
    pub(crate) fn write_now(&mut self, lba: u64, data: &[u8]) -> Option<Result<(), IoError>> {
        self.channel.write_now(lba, (data.len() / self.block_size) as u32, false, data)
    }

    /// Reads or writes without a buffer, if that is possible now: the result, and the data.
    fn do_directly(&mut self, request: &Request) -> Option<(Result<(), IoError>, Vec<u8>)> {
        let bytes = request.blocks as usize * self.block_size;
        match request.op {
            Op::Read => {
                let loan = self.lend(request.lba, request.blocks)?;
                let data = loan.bytes().to_vec();
                std::thread::yield_now();
                assert!(loan.bytes() == data, "blocks changed while they were on loan");
                self.end_loan(loan);
                assert_eq!(data.len(), bytes, "all blocks are lent");
                Some((Ok(()), data))
            }
            Op::Write { fua } => {
                let data = request.buffer.as_ref().map_or(&[][..], |buffer| &buffer[..bytes]);
                let result = self.channel.write_now(request.lba, request.blocks, fua, data)?;
                Some((result, data.to_vec()))
            }
            _ => None,
        }
    }

    /// Submits once. `Err` returns a busy request.
    pub(crate) fn try_submit(&mut self, request: Request) -> Result<Tag, Request> {
        let (tag, op, bytes) = (request.tag, request.op, data_len(request.op, request.blocks, self.block_size));
        if tag % 2 == 0
            && let Some(result) = self.do_directly(&request)
        {
            self.finished.insert(tag, result);
            self.discard(request);
            return Ok(tag);
        }
        let address = request.buffer.as_ref().map(|buffer| buffer.as_ptr());
        match self.channel.submit(request, self.now_ns) {
            Submitted::Busy(request) => {
                assert_eq!((request.tag, request.op), (tag, op), "a busy request is returned unchanged");
                assert_eq!(request.buffer.as_ref().map(|buffer| buffer.as_ptr()), address, "with its buffer");
                Err(request)
            }
            Submitted::Pending => {
                self.expected.insert(tag, (op, bytes));
                Ok(tag)
            }
            Submitted::Done(completion) => {
                self.expected.insert(tag, (op, bytes));
                self.account(completion);
                Ok(tag)
            }
        }
    }

    /// Submits, polling while the channel is busy.
    pub(crate) fn submit(&mut self, op: Op, lba: u64, blocks: u32, data: Option<&[u8]>) -> Tag {
        let mut request = self.request(op, lba, blocks, data);
        let started = Instant::now();
        loop {
            match self.try_submit(request) {
                Ok(tag) => return tag,
                Err(busy) => request = busy,
            }
            if started.elapsed() > TIMEOUT {
                self.discard(request);
                panic!("a request was busy for {TIMEOUT:?}");
            }
            if self.poll() == 0 {
                std::thread::yield_now();
            }
        }
    }

    /// Drops a request that was not accepted.
    pub(crate) fn discard(&mut self, request: Request) {
        if let Some(buffer) = request.buffer {
            self.pool.free(buffer);
        }
    }

    /// Polls once; returns how many requests completed.
    pub(crate) fn poll(&mut self) -> usize {
        self.now_ns += POLL_NS;
        let capacity = self.done.capacity();
        let before = self.expected.len();
        let mut done = std::mem::take(&mut self.done);
        self.channel.poll(self.now_ns, &mut done);
        assert_eq!(done.capacity(), capacity, "poll must not let the vector grow");
        let completed = done.len();
        for completion in done.drain(..) {
            self.account(completion);
        }
        self.done = done;
        assert_eq!(self.expected.len() + completed, before);
        assert_eq!(self.channel.in_flight(), self.expected.len(), "in_flight counts accepted requests");
        completed
    }

    /// Sets how the channel signals completions.
    pub(crate) fn set_completions(&mut self, how: CompletionMode) {
        self.channel.set_completions(how, &self.bell);
    }

    /// Waits as an I/O thread does: for the bell, until a time, or not at all. Returns the channel's answer.
    pub(crate) fn rest(&mut self) -> Wait {
        self.bell.arm();
        let wait = self.channel.wait(self.now_ns);
        match wait {
            Wait::Poll => std::thread::yield_now(),
            Wait::Until(ns) => self.now_ns = self.now_ns.max(ns),
            Wait::Event if self.expected.is_empty() => {}
            Wait::Event => {
                let mut bell = [PollFd::from_borrowed_fd(self.bell.as_fd(), PollFlags::IN)];
                let timeout = Timespec { tv_sec: TIMEOUT.as_secs() as i64, tv_nsec: 0 };
                let rung = poll(&mut bell, Some(&timeout)).expect("the descriptor is good");
                assert_eq!(rung, 1, "{} requests are in flight, and nothing has rung", self.expected.len());
            }
        }
        self.bell.disarm();
        self.bell.clear();
        wait
    }

    /// Results of requests that were not waited for by tag.
    pub(crate) fn take_finished(&mut self) -> impl Iterator<Item = Result<Vec<u8>, IoError>> {
        self.finished.drain().map(|(_, (result, data))| result.map(|()| data))
    }

    fn account(&mut self, completion: Completion) {
        let Completion { tag, result, buffer } = completion;
        let Some((op, bytes)) = self.expected.remove(&tag) else { panic!("tag {tag} completed but was not in flight") };
        let data = buffer.map(|buffer| self.take_data(buffer, bytes));
        assert_eq!(data.is_some(), has_data(op), "the buffer comes back");
        self.finished.insert(tag, (result, data.unwrap_or_default()));
    }

    fn take_data(&mut self, buffer: Buffer, bytes: usize) -> Vec<u8> {
        let data = buffer[..bytes].to_vec();
        assert!(buffer[bytes..].iter().all(|&byte| byte == STALE), "bytes behind the request changed");
        self.pool.free(buffer);
        data
    }

    /// Waits for a request. Returns the data of its buffer.
    pub(crate) fn wait(&mut self, tag: Tag) -> Result<Vec<u8>, IoError> {
        let started = Instant::now();
        loop {
            if let Some((result, data)) = self.finished.remove(&tag) {
                return result.map(|()| data);
            }
            assert!(self.expected.contains_key(&tag), "tag {tag} was never accepted, or is waited for twice");
            assert!(started.elapsed() < TIMEOUT, "no completion within {TIMEOUT:?}");
            if self.poll() == 0 {
                std::thread::yield_now();
            }
        }
    }

    /// Waits until nothing is in flight.
    pub(crate) fn wait_for_all(&mut self) {
        let tags: Vec<_> = self.expected.keys().copied().collect();
        for tag in tags {
            let result = self.wait(tag);
            self.finished.insert(tag, (result.as_ref().map(drop).map_err(|error| *error), result.unwrap_or_default()));
        }
    }

    /// Submits a request and waits for it.
    pub(crate) fn run(&mut self, op: Op, lba: u64, blocks: u32, data: Option<&[u8]>) -> Result<Vec<u8>, IoError> {
        let tag = self.submit(op, lba, blocks, data);
        self.wait(tag)
    }

    /// Reads.
    pub(crate) fn read(&mut self, lba: u64, blocks: u32) -> Result<Vec<u8>, IoError> {
        self.run(Op::Read, lba, blocks, None)
    }

    /// Writes whole blocks.
    pub(crate) fn write(&mut self, lba: u64, data: &[u8]) -> Result<(), IoError> {
        let blocks = (data.len() / self.block_size) as u32;
        self.run(Op::Write { fua: false }, lba, blocks, Some(data)).map(drop)
    }
}

fn has_data(op: Op) -> bool {
    matches!(op, Op::Read | Op::Write { .. } | Op::CompareAndWrite { .. })
}

/// Bytes of the data of a request that has data.
fn data_len(op: Op, blocks: u32, block_size: usize) -> usize {
    let halves = if matches!(op, Op::CompareAndWrite { .. }) { 2 } else { 1 };
    halves * blocks as usize * block_size
}

impl Drop for Driver {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        self.wait_for_all();
        assert_eq!(self.channel.in_flight(), 0);
        assert_eq!(self.pool.outstanding(), 0, "every buffer was returned");
    }
}
