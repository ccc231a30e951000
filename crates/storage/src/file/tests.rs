//! Every access method of the file backend, on disk, on tmpfs, and on a loop device where available.

mod device;

use std::os::unix::fs::FileExt;
use std::path::Path;

use pilotlight_reactor::CompletionMode;
use tempfile::TempDir;

use super::super::conformance::{self, Driver, Subject};
use super::super::{IoError, Op, Request, Submitted};
use super::medium::{AccessMethod, Deallocation};
use super::*;
use crate::wait::Wait;

/// A directory on the build's disk: /tmp may be a tmpfs.
pub(super) fn on_disk() -> TempDir {
    let here = std::env::current_exe().expect("a test has a path");
    TempDir::new_in(here.parent().expect("in a directory")).expect("a directory")
}

fn on_tmpfs() -> Option<TempDir> {
    TempDir::new_in("/dev/shm").inspect_err(|error| println!("skipped: no tmpfs at /dev/shm ({error})")).ok()
}

pub(super) fn options(path: &Path, block_size: u32, size: Option<u64>) -> FileOptions {
    FileOptions { path: path.to_owned(), block_size, size, is_read_only: false }
}

/// Creates a sparse file and opens it.
pub(super) fn fresh(dir: &TempDir, block_size: u32, blocks: u64, limits: Limits) -> FileBackend {
    let (_, path) = tempfile::NamedTempFile::new_in(dir).and_then(|file| Ok(file.keep()?)).expect("a file");
    std::fs::remove_file(&path).expect("it was there");
    let size = Some(blocks * u64::from(block_size));
    FileBackend::open_within(&options(&path, block_size, size), limits).expect("opens")
}

/// Runs the suite. Checks the access method, so that a fallback does not go unnoticed.
fn conforms(dir: &TempDir, limits: Limits, method: Option<AccessMethod>, requests: u32) {
    let create = |block_size, blocks| {
        let backend = fresh(dir, block_size, blocks, limits);
        assert!(
            method.is_none_or(|method| backend.medium.method() == method),
            "{:?} instead of {method:?}",
            backend.medium.method()
        );
        Arc::new(backend) as Arc<dyn Backend>
    };
    conformance::check(&Subject {
        create: &create,
        stores: true,
        resizes: true,
        counts_space: true,
        requests,
        seed: 11,
    });
}

/// Whether direct transfers work on the build's disk.
fn disk_is_direct(dir: &TempDir) -> bool {
    let direct = fresh(dir, 4096, 8, Limits::default()).medium.method() == AccessMethod::Aio;
    if !direct {
        println!("skipped: no direct asynchronous transfers in {}", dir.path().display());
    }
    direct
}

#[test]
fn conforms_on_disk_by_default() {
    conforms(&on_disk(), Limits::default(), None, 300);
}

#[test]
fn conforms_on_disk_with_aio() {
    let dir = on_disk();
    if disk_is_direct(&dir) {
        conforms(&dir, Limits::default(), Some(AccessMethod::Aio), 300);
    }
}

#[test]
fn conforms_on_disk_with_threads_bypassing_the_page_cache() {
    conforms(&on_disk(), Limits { aio: false, ..Limits::default() }, Some(AccessMethod::Threads), 300);
}

#[test]
fn conforms_on_disk_with_threads_using_the_page_cache() {
    conforms(&on_disk(), Limits { direct: false, ..Limits::default() }, Some(AccessMethod::Threads), 300);
}

#[test]
fn conforms_on_disk_without_deallocation() {
    conforms(&on_disk(), Limits { deallocate: false, ..Limits::default() }, None, 300);
}

#[test]
fn conforms_on_tmpfs() {
    let Some(dir) = on_tmpfs() else { return };
    conforms(&dir, Limits::default(), Some(AccessMethod::Aio), 4_000);
}

#[test]
fn conforms_on_tmpfs_with_threads_and_without_deallocation() {
    let Some(dir) = on_tmpfs() else { return };
    let limits = Limits { aio: false, deallocate: false, ..Limits::default() };
    conforms(&dir, limits, Some(AccessMethod::Threads), 1_000);
}

#[test]
fn errors_name_a_remedy() {
    let dir = on_disk();
    let path = dir.path().join("disk.img");
    let refuse = |path: &Path, block_size, size| {
        FileBackend::open(&options(path, block_size, size)).err().expect("refused").to_string()
    };
    assert_eq!(
        refuse(&path, 4096, None),
        format!(
            "{0}: no such file; create it with: truncate -s 10G {0}, or give a size: file:{0}?size=10GiB",
            path.display()
        )
    );
    assert!(!path.exists());
    assert!(refuse(dir.path(), 4096, None).ends_with("neither a regular file nor a block device"));
    assert!(refuse(Path::new("/dev/null"), 4096, None).ends_with("neither a regular file nor a block device"));
    std::fs::write(&path, [0; 4095]).expect("a short file");
    assert!(refuse(&path, 4096, None).contains("less than one block of 4096 bytes"));
    assert!(refuse(&path, 4096, Some(8192)).contains("less than one block"));
    assert_eq!(refuse(&path, 520, None), "unsupported block size of 520 bytes: use 512 or 4096");
    std::fs::write(&path, vec![0; 8192]).expect("a file");
    assert!(refuse(&path, 4096, Some(4096)).contains("the size is 8192 bytes, but size= is 4096"));
    for size in [None, Some(1 << 20)] {
        let missing = refuse(Path::new("/dev/nvme77n1"), 4096, size);
        assert_eq!(missing, format!("/dev/nvme77n1: no such device; {MISSING_DEVICE}"));
        assert!(!Path::new("/dev/nvme77n1").exists(), "no file in the place of a device");
    }
    assert!(refuse(Path::new("/dev/shm/missing.img"), 4096, None).contains("truncate"));
    let missing_directory = dir.path().join("no/disk.img");
    assert!(refuse(&missing_directory, 4096, Some(4096)).contains("No such file or directory"));
}

#[test]
fn a_file_is_opened_exclusively() {
    let dir = on_disk();
    let path = dir.path().join("disk.img");
    let first = FileBackend::open(&options(&path, 4096, Some(1 << 20))).expect("created");
    let second = FileBackend::open(&options(&path, 4096, None)).err().expect("refused");
    assert!(matches!(second, FileError::Locked { .. }), "{second}");
    assert!(second.to_string().starts_with(&format!("{}: locked by another program", path.display())), "{second}");
    drop(first);
    let again = FileBackend::open(&options(&path, 4096, Some(1 << 20))).expect("it is free again");
    assert_eq!(again.geometry().blocks, 256);
}

#[test]
fn a_partial_block_at_the_end_is_not_used() {
    let dir = on_disk();
    let path = dir.path().join("disk.img");
    std::fs::write(&path, vec![7; 3 * 4096 + 1000]).expect("a file");
    let backend = FileBackend::open(&options(&path, 4096, None)).expect("opens");
    assert_eq!(backend.geometry().blocks, 3);
    let mut driver = Driver::open(&backend, 4);
    assert_eq!(driver.read(2, 1).expect("reads"), vec![7; 4096]);
    assert_eq!(driver.read(3, 1), Err(IoError::OutOfRange));
}

#[test]
fn data_is_in_the_file_and_deallocation_frees_space() {
    let dir = on_disk();
    let path = dir.path().join("disk.img");
    let backend = FileBackend::open(&options(&path, 4096, Some(16 << 20))).expect("created");
    let mut driver = Driver::open(&backend, 8);
    assert_eq!(backend.allocated_bytes().expect("a number"), 0);
    for lba in 0..128 {
        driver.write(lba * 32, &vec![lba as u8 + 1; 128 << 10]).expect("writes");
    }
    driver.run(Op::Flush, 0, 0, None).expect("flushes");
    assert!(backend.allocated_bytes().expect("a number") >= 16 << 20);
    let mut content = vec![0; 4096];
    std::fs::File::open(&path).and_then(|file| file.read_exact_at(&mut content, 5 << 20)).expect("reads");
    assert_eq!(content, vec![41; 4096]);
    driver.run(Op::WriteZeroes { fua: false, deallocate: false }, 0, 4096, None).expect("zeroes");
    assert!(backend.allocated_bytes().expect("a number") >= 16 << 20, "plain zeroes keep the space");
    if backend.medium.deallocation() == Deallocation::Punch {
        driver.run(Op::Deallocate, 0, 4096, None).expect("deallocates");
        assert!(backend.allocated_bytes().expect("a number") < 1 << 20);
    }
}

#[test]
fn reads_beyond_the_end_of_a_truncated_file_fail() {
    for limits in [Limits::default(), Limits { direct: false, ..Limits::default() }] {
        let dir = on_disk();
        let path = dir.path().join("disk.img");
        let backend = FileBackend::open_within(&options(&path, 4096, Some(1 << 20)), limits).expect("created");
        let mut driver = Driver::open(&backend, 8);
        std::fs::OpenOptions::new().write(true).open(&path).and_then(|file| file.set_len(10_000)).expect("cut");
        assert!(driver.read(1, 1).is_ok());
        assert_eq!(driver.read(2, 1), Err(IoError::OutOfRange), "the file ends in this block");
        assert_eq!(driver.read(100, 1), Err(IoError::OutOfRange));
        assert_eq!(backend.resize(None).expect("follows").blocks, 2);
        assert_eq!(backend.geometry().blocks, 2);
    }
}

#[test]
fn system_errors_are_classified() {
    // /dev/full cannot be a backend, so only the classification is tested.
    let classify = |number| medium::classify(&io::Error::from_raw_os_error(number));
    assert_eq!(classify(libc::ENOSPC), IoError::NoSpace);
    assert_eq!(classify(libc::EDQUOT), IoError::NoSpace);
    assert_eq!(classify(libc::EROFS), IoError::ReadOnly);
    assert_eq!(classify(libc::EIO), IoError::Medium(libc::EIO));
}

#[test]
fn the_remedy_of_a_refused_aio_context_follows_its_error() {
    for (number, remedy) in [
        (libc::ENOSYS, "CONFIG_AIO"),
        (libc::EPERM, "allow io_setup"),
        (libc::EAGAIN, "aio-max-nr"),
        (libc::ENOMEM, "max_memory"),
    ] {
        let found = medium::aio_remedy(&io::Error::from_raw_os_error(number));
        assert!(found.contains(remedy), "{number}: {found}");
    }
}

/// Submits reads and drops the channel without collecting them.
fn abandon(backend: &FileBackend) {
    let mut pool = crate::buffer::BufferPool::new(1 << 20).expect("memory");
    let mut channel = backend.open_channel(16).expect("a channel");
    for tag in 0..8 {
        let buffer = Some(pool.alloc(4096).expect("memory"));
        let request = Request { tag, op: Op::Read, lba: tag, blocks: 1, buffer };
        assert!(matches!(channel.submit(request, 0), Submitted::Pending));
    }
    channel.poll(0, &mut Vec::new());
    drop(channel);
}

#[test]
fn dropping_a_channel_with_requests_waits_and_panics() {
    for limits in [Limits::default(), Limits { direct: false, ..Limits::default() }] {
        let backend = fresh(&on_disk(), 4096, 64, limits);
        let lost = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| abandon(&backend)));
        let message = *lost.expect_err("a panic").downcast::<String>().expect("a message");
        assert!(message.contains("8 requests in flight were lost"), "{message}");
        // The holds are released.
        Driver::open(&backend, 8).write(0, &vec![1; 32 * 4096]).expect("writes");
    }
}

#[test]
fn the_guard_table_has_fewer_words_than_blocks() {
    let backend = fresh(&on_disk(), 512, 3 << 20, Limits::default());
    let mut driver = Driver::open(&backend, 32);
    let data: Vec<_> = (0..3_u64).map(|n| vec![n as u8 + 1; 512]).collect();
    let tags: Vec<_> =
        (0..3).map(|n| driver.submit(Op::Write { fua: false }, n << 20, 1, Some(&data[n as usize]))).collect();
    tags.into_iter().for_each(|tag| drop(driver.wait(tag).expect("writes")));
    for n in 0..3 {
        assert_eq!(driver.read(n << 20, 1).expect("reads"), data[n as usize]);
    }
    driver.run(Op::Deallocate, 5, (3 << 20) - 5, None).expect("deallocates");
    assert_eq!(driver.read(1 << 20, 1).expect("reads"), vec![0; 512]);
    assert_eq!(backend.resize(Some(8)).expect("shrinks, waiting for every word once").blocks, 8);
}

#[test]
fn shrinking_waits_for_requests_beyond_the_new_end() {
    let backend = fresh(&on_disk(), 4096, 64, Limits::default());
    let hold = backend.medium.try_hold(&(40 * 4096..41 * 4096), true).expect("free").expect("within");
    std::thread::scope(|scope| {
        let shrinking = scope.spawn(|| backend.resize(Some(20)).expect("shrinks").blocks);
        while backend.geometry().blocks != 20 {
            std::thread::yield_now();
        }
        assert!(!shrinking.is_finished());
        assert_eq!(backend.medium.allocated_bytes().expect("a number"), 0);
        // A request that passed an earlier check of the end is checked again here.
        let late = backend.medium.try_hold(&(19 * 4096..21 * 4096), true).expect("free");
        assert_eq!(late.expect_err("beyond the end"), IoError::OutOfRange);
        backend.medium.release(hold);
        assert_eq!(shrinking.join().expect("no panic"), 20);
    });
}

/// A slice costs a thread about as much as a GiB of holes; a shrinking file must still wait for it.
#[test]
fn a_large_deallocation_has_few_slices_which_delay_no_write() {
    let backend = fresh(&on_disk(), 512, 2 << 20, Limits::default());
    if backend.medium.deallocation() != Deallocation::Punch {
        return println!("skipped: no holes on the build's disk");
    }
    let mut driver = Driver::open(&backend, 32);
    for lba in [0, 1000, 2048, 1 << 20, (2 << 20) - 3, (2 << 20) - 1] {
        driver.write(lba, &[7; 512]).expect("writes");
    }
    let before = backend.threads.jobs();
    let stuck = backend.medium.faults.stick_long_jobs();
    let tag = driver.submit(Op::Deallocate, 0, (2 << 20) - 2, None);
    driver.write(2049, &[8; 512]).expect("writes to a part that is deallocated");
    let held = [(64 << 20) - 512, 64 << 20].map(|at| {
        let hold = backend.medium.try_hold(&(at..at + 512), true);
        hold.map(|hold| backend.medium.release(hold.expect("within"))).is_none()
    });
    assert_eq!(held, [true, false], "the last block of the first slice");
    drop(stuck);
    driver.wait(tag).expect("deallocates");
    let jobs = backend.threads.jobs() - before;
    assert!(jobs <= 20, "{jobs} jobs for 1 GiB");
    for lba in [0, 1000, 2048, 2049, 1 << 20, (2 << 20) - 3] {
        assert_eq!(driver.read(lba, 1).expect("reads"), [0; 512], "block {lba}");
    }
    assert_eq!(driver.read((2 << 20) - 1, 1).expect("reads"), [7; 512]);
}

#[test]
fn threads_transfer_no_reads_and_overwrites() {
    let dir = on_disk();
    if !disk_is_direct(&dir) {
        return;
    }
    let backend = fresh(&dir, 4096, 256, Limits::default());
    overwrites(&backend);
    assert!(backend.threads.jobs() > backend.medium.faults.works(), "the file's requests were submitted by threads");
}

/// Writes and reads blocks; fails if threads transfer more than a few.
fn overwrites(backend: &FileBackend) {
    backend.medium.faults.open_at_once();
    let mut driver = Driver::open(backend, 32);
    let mut write_all = |value: u8| {
        for lba in 0..256 {
            driver.write(lba, &vec![value; 4096]).expect("writes");
        }
        driver.run(Op::Flush, 0, 0, None).expect("flushes");
    };
    write_all(1);
    let before = backend.medium.faults.works();
    write_all(2);
    for lba in 0..256 {
        assert_eq!(driver.read(lba, 1).expect("reads"), vec![2; 4096]);
    }
    // The file system may block occasionally, for instance to update the modification time.
    let works = backend.medium.faults.works() - before;
    assert!(works < 50, "threads did {works} of 513 requests");
}

/// Writes block after block and waits as the channel's `wait` says. Returns the waits for the bell, and the requests that
/// needed polling.
fn waits(limits: Limits) -> (u32, u32) {
    let backend = fresh(&on_disk(), 4096, 256, limits);
    let mut driver = Driver::open(&backend, 32);
    driver.set_completions(CompletionMode::Interrupt);
    let (mut rung, mut polled) = (0, 0);
    for lba in 0..256 {
        let tag = driver.submit(Op::Write { fua: false }, lba, 1, Some(&[1; 4096]));
        driver.poll(); // submits it
        let mut empty_polls = 0;
        while driver.in_flight() > 0 {
            match driver.rest() {
                Wait::Event => rung += 1,
                Wait::Until(_) => {} // no thread has taken the request yet
                Wait::Poll => empty_polls += 1,
            }
            driver.poll();
        }
        polled += u32::from(empty_polls > 1); // one is allowed: the completion may arrive just before the wait
        driver.wait(tag).expect("writes");
    }
    (rung, polled)
}

#[test]
fn a_waiting_thread_is_woken_by_the_device() {
    for limits in [Limits::default(), Limits { direct: false, ..Limits::default() }] {
        // The number of waits depends on the machine; the number of polled requests must be 0.
        let mut rung = 0;
        for pass in 0.. {
            assert!(pass < 100, "{limits:?}: waited for the bell {rung} times in {pass} passes");
            let (more, polled) = waits(limits);
            assert_eq!(polled, 0, "{limits:?}: requests that had to be polled for");
            rung += more;
            if rung > 100 {
                break;
            }
        }
    }
}

/// Submissions that wait for the file system keep a channel from nothing but what they carry.
#[test]
fn stuck_submissions_stop_neither_the_reactor_nor_other_work() {
    let dir = on_disk();
    if !disk_is_direct(&dir) {
        return;
    }
    let backend = fresh(&dir, 4096, 1024, Limits::default());
    backend.medium.faults.open_at_once();
    let (mut driver, mut other) = (Driver::open(&backend, 256), Driver::open(&backend, 32));
    let stuck = backend.medium.faults.stick_submissions();
    let tags: Vec<_> = (0..256)
        .map(|lba| {
            let tag = driver.submit(Op::Write { fua: false }, lba, 1, Some(&[3; 4096]));
            driver.poll(); // returns
            tag
        })
        .collect();
    other.run(Op::Flush, 0, 0, None).expect("flushes");
    other.run(Op::WriteZeroes { fua: false, deallocate: false }, 512, 8, None).expect("zeroes");
    for _ in 0..10_000 {
        driver.poll(); // the time of the driver passes: more submissions are wanted
    }
    assert_eq!(driver.in_flight(), 256);
    let submissions = backend.threads.jobs() - backend.medium.faults.works();
    assert!((2..=4).contains(&submissions), "{submissions} submissions are stuck");
    drop(stuck);
    tags.into_iter().for_each(|tag| drop(driver.wait(tag).expect("writes")));
    assert_eq!(driver.read(255, 1).expect("reads"), vec![3; 4096]);
}

/// Where the system allows no more contexts, threads do the transfers.
#[test]
fn a_channel_without_a_context_uses_threads() {
    let dir = on_disk();
    if !disk_is_direct(&dir) {
        return;
    }
    let backend = fresh(&dir, 4096, 64, Limits::default());
    backend.medium.faults.refuse_contexts();
    let mut driver = Driver::open(&backend, 32);
    for round in 0..20 {
        driver.write(round, &[round as u8; 4096]).expect("writes");
        assert_eq!(driver.read(round, 1).expect("reads"), vec![round as u8; 4096]);
    }
    assert_eq!(backend.medium.faults.works(), 40);
    let began = std::time::Instant::now();
    while !backend.medium.is_limited() {
        assert!(began.elapsed() < std::time::Duration::from_secs(60), "no thread has tried to open the context");
        std::thread::yield_now();
    }
}

/// Requests that block are served up to 64 at once, by threads that start when they are needed.
#[test]
fn sixty_four_requests_block_at_once() {
    let backend = fresh(&on_disk(), 4096, 256, Limits { aio: false, ..Limits::default() });
    let mut driver = Driver::open(&backend, 128);
    let stuck = backend.medium.faults.stick_works();
    let tags: Vec<_> = (0..100).map(|lba| driver.submit(Op::Write { fua: false }, lba, 1, Some(&[3; 4096]))).collect();
    let began = std::time::Instant::now();
    while backend.medium.faults.works() < 64 {
        driver.poll();
        assert!(began.elapsed() < std::time::Duration::from_secs(60), "{} threads", backend.medium.faults.works());
    }
    assert_eq!(driver.in_flight(), 100);
    drop(stuck);
    tags.into_iter().for_each(|tag| drop(driver.wait(tag).expect("writes")));
}

/// The memory of channels, contexts and threads is charged, and returned.
#[test]
fn memory_is_charged_to_the_budget() {
    let dir = on_disk();
    let path = dir.path().join("disk.img");
    let open = |budget: &Arc<MemoryBudget>| {
        FileBackend::open_by(&options(&path, 4096, Some(64 * 4096)), &DirectOpener, Arc::clone(budget)).expect("opens")
    };
    let budget = Arc::new(MemoryBudget::new(1 << 20));
    let backend = open(&budget);
    let threads = budget.used();
    let channels: Vec<_> = std::iter::from_fn(|| backend.open_channel(256).ok()).collect();
    assert!((2..40).contains(&channels.len()), "{} channels of 1 MiB", channels.len());
    let error = backend.open_channel(256).err().expect("refused").to_string();
    assert!(error.contains("raise max_memory"), "{error}");
    drop(channels);
    assert_eq!(budget.used(), threads);
    let mut driver = Driver::open(&backend, 256);
    (0..64).for_each(|lba| driver.write(lba, &[1; 4096]).expect("writes"));
    drop((driver, backend));
    assert_eq!(budget.used(), 0);
    let backend = open(&budget);
    if backend.medium.method() != AccessMethod::Aio {
        return println!("skipped: the build's disk has no AIO");
    }
    let sizes = [false, true].map(|at_once| {
        if at_once {
            backend.medium.faults.open_at_once();
        }
        let before = budget.used();
        let _channel = backend.open_channel(256).expect("opens");
        budget.used() - before
    });
    assert!(sizes[1] > sizes[0] + 256 * 64, "a context is charged: {sizes:?}");
}
