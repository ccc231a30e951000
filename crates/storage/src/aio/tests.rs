use std::fs::{File, OpenOptions};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};

use super::*;
use crate::buffer::{Buffer, BufferPool};

const SLOTS: u32 = 16;

fn context(depth: u32) -> io::Result<Aio> {
    let options = Options { depth, nowait: true, by_threads: false };
    Aio::new(options, &Arc::new(MemoryBudget::unlimited()))
}

/// A file with allocated space on disk, opened with O_DIRECT where supported. It is filled bypassing the page cache: a
/// write to a cached page fails with EAGAIN until the page is evicted.
fn file() -> File {
    let here = std::env::current_exe().expect("a test has a path");
    let named = tempfile::NamedTempFile::new_in(here.parent().expect("in a directory")).expect("a file");
    let direct = OpenOptions::new().read(true).write(true).custom_flags(libc::O_DIRECT).open(named.path());
    let file = direct.unwrap_or_else(|_| named.reopen().expect("the same file"));
    let mut pool = BufferPool::new(1 << 20).expect("memory");
    let mut buffer = pool.alloc(SLOTS as usize * 4096).expect("memory");
    buffer.fill(0xff);
    file.write_all_at(&buffer, 0).expect("writes");
    file.sync_all().expect("syncs");
    pool.free(buffer);
    file
}

/// Runs a command in every slot, and repeats those that failed with EAGAIN.
fn run_all(aio: &mut Aio, file: &File, command: Command, addresses: &[*mut u8]) {
    let push = |aio: &mut Aio, slot: u32| {
        let memory = (addresses[slot as usize], 4096);
        // SAFETY: the caller does not touch the memory until this function returns, when all requests are reaped.
        unsafe { aio.push(slot, file.as_fd(), command, memory, u64::from(slot) * 4096) };
    };
    (0..SLOTS).for_each(|slot| push(aio, slot));
    let mut left = SLOTS;
    while left > 0 {
        aio.submit().expect("accepted");
        while let Some((slot, result)) = aio.reap() {
            if result == i64::from(-libc::EAGAIN) {
                push(aio, slot);
                continue;
            }
            assert_eq!(result, 4096, "{command:?} in slot {slot}");
            left -= 1;
        }
        std::thread::yield_now();
    }
    assert_eq!(aio.in_flight(), 0);
}

/// Writes and reads enough for the ring to wrap several times.
fn round_trips(mut aio: Aio) {
    let file = file();
    let mut pool = BufferPool::new(1 << 20).expect("memory");
    let mut buffers: Vec<Buffer> = (0..SLOTS).map(|_| pool.alloc(4096).expect("memory")).collect();
    let addresses: Vec<_> = buffers.iter_mut().map(Buffer::as_mut_ptr).collect();
    for round in 0..10_u8 {
        buffers.iter_mut().enumerate().for_each(|(slot, buffer)| buffer.fill(round ^ slot as u8));
        run_all(&mut aio, &file, Command::Write { durable: round == 5 }, &addresses);
        buffers.iter_mut().for_each(|buffer| buffer.fill(0));
        run_all(&mut aio, &file, Command::Read, &addresses);
        for (slot, buffer) in buffers.iter().enumerate() {
            assert!(buffer.iter().all(|&byte| byte == round ^ slot as u8), "round {round}, slot {slot}");
        }
    }
    buffers.into_iter().for_each(|buffer| pool.free(buffer));
}

#[test]
fn completions_are_read_from_the_ring() {
    let aio = context(SLOTS).expect("a context");
    assert!(aio.ring.is_some(), "the ring of this kernel is known");
    round_trips(aio);
}

#[test]
fn completions_are_fetched_where_the_ring_is_unknown() {
    let mut aio = context(SLOTS).expect("a context");
    aio.ring = None;
    round_trips(aio);
}

#[test]
fn submit_names_a_refused_request_and_the_others_complete() {
    let file = file();
    let reads_only = File::open("/dev/zero").expect("a device");
    let mut pool = BufferPool::new(1 << 20).expect("memory");
    let mut buffer = pool.alloc(4096).expect("memory");
    let memory = (buffer.as_mut_ptr(), 4096);
    let mut aio = context(4).expect("a context");
    // SAFETY: nothing is written to the memory, and the buffer is not touched until all requests are reaped.
    unsafe {
        aio.push(0, file.as_fd(), Command::Write { durable: false }, memory, 0);
        aio.push(1, reads_only.as_fd(), Command::Write { durable: false }, memory, 0);
        aio.push(2, file.as_fd(), Command::Write { durable: false }, memory, 4096);
    }
    assert_eq!(aio.submit(), Err((1, libc::EBADF)));
    assert_eq!(aio.in_flight() - aio.pushed.len(), 1);
    aio.submit().expect("the rest is accepted");
    let mut seen: Vec<_> = std::iter::repeat_with(|| aio.reap()).flatten().take(2).map(|(slot, _)| slot).collect();
    seen.sort_unstable();
    assert_eq!(seen, [0, 2]);
    pool.free(buffer);
}

#[test]
fn dropping_the_context_waits_for_the_device() {
    let file = file();
    let mut pool = BufferPool::new(1 << 20).expect("memory");
    for read_ring in [true, false] {
        let mut buffers: Vec<Buffer> = (0..SLOTS).map(|_| pool.alloc(4096).expect("memory")).collect();
        let mut aio = context(SLOTS).expect("a context");
        if !read_ring {
            aio.ring = None;
        }
        for (slot, buffer) in buffers.iter_mut().enumerate() {
            buffer.fill(1);
            let memory = (buffer.as_mut_ptr(), 4096);
            // SAFETY: the buffers are not touched until the context is dropped.
            unsafe { aio.push(slot as u32, file.as_fd(), Command::Read, memory, slot as u64 * 4096) };
        }
        aio.submit().expect("accepted");
        std::iter::repeat_with(|| aio.reap()).find(Option::is_some);
        drop(aio);
        // Each was read or failed with EAGAIN: no transfer is in progress.
        for buffer in buffers {
            assert!(buffer.iter().all(|&byte| byte == 0xff) || buffer.iter().all(|&byte| byte == 1));
            pool.free(buffer);
        }
    }
}

/// Two threads submit what the owner pushes: every request completes once or is refused once.
#[test]
fn each_request_pushed_for_threads_completes_or_is_refused() {
    const ROUNDS: usize = 2_000;
    let (good, bad) = (File::open("/dev/zero").expect("a device"), OpenOptions::new().write(true).open("/dev/null"));
    let bad = bad.expect("a device");
    let mut pool = BufferPool::new(1 << 20).expect("memory");
    let mut buffers: Vec<Buffer> = (0..SLOTS).map(|_| pool.alloc(4096).expect("memory")).collect();
    let options = Options { depth: SLOTS, nowait: false, by_threads: true };
    let mut aio = Aio::new(options, &Arc::new(MemoryBudget::unlimited())).expect("a context");
    let (jobs, queued) = std::sync::mpsc::channel::<Submission>();
    let queued = std::sync::Mutex::new(queued);
    let refused = crossbeam_queue::ArrayQueue::new(SLOTS as usize);
    let next = || queued.lock().expect("no panic").recv();
    let submit = || {
        while let Ok(submission) = next() {
            submission.run(|at, number| refused.push((at, number)).expect("room for each"));
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(submit);
        scope.spawn(submit);
        let (mut pushed, mut completed, mut refusals, mut now_ns) = (0, 0, 0, 0);
        while completed + refusals < ROUNDS {
            while pushed < ROUNDS && !aio.is_full() {
                let file = if pushed % 5 == 0 { &bad } else { &good };
                let memory = (buffers[pushed % SLOTS as usize].as_mut_ptr(), 8);
                // SAFETY: nobody reads the buffers; zeroes are written over zeroes.
                unsafe { aio.push(pushed as u32 % 5, file.as_fd(), Command::Read, memory, 0) };
                pushed += 1;
                if let Some(submission) = aio.next_submission(now_ns) {
                    jobs.send(submission).expect("the threads wait");
                }
            }
            now_ns += 1_000;
            if let Some(submission) = aio.next_submission(now_ns) {
                jobs.send(submission).expect("the threads wait");
            }
            while let Some((at, number)) = refused.pop() {
                assert_eq!((aio.refuse(at), number), (0, libc::EBADF));
                refusals += 1;
            }
            while let Some((tag, result)) = aio.reap() {
                assert!(tag != 0 && result == 8, "request {tag}: {result}");
                completed += 1;
            }
        }
        assert_eq!((refusals, aio.in_flight()), (ROUNDS / 5, 0));
        drop(jobs);
    });
    buffers.into_iter().for_each(|buffer| pool.free(buffer));
}
