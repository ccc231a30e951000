//! Every access method of the file backend, on disk, on tmpfs, and on a loop device where available.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use pilotlight_reactor::CompletionMode;
use tempfile::TempDir;

use super::super::conformance::{self, Driver, Subject};
use super::super::{IoError, Op, Request, Submitted};
use super::medium::{Deallocation, Way};
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
    FileOptions { path: path.to_owned(), block_size, size }
}

/// Creates a sparse file and opens it.
pub(super) fn fresh(dir: &TempDir, block_size: u32, blocks: u64, limits: Limits) -> FileBackend {
    let (_, path) = tempfile::NamedTempFile::new_in(dir).and_then(|file| Ok(file.keep()?)).expect("a file");
    std::fs::remove_file(&path).expect("it was there");
    let size = Some(blocks * u64::from(block_size));
    FileBackend::open_within(&options(&path, block_size, size), limits).expect("opens")
}

/// Runs the suite. Checks the access method, so that a fallback does not go unnoticed.
fn conforms(dir: &TempDir, limits: Limits, way: Option<Way>, requests: u32) {
    let create = |block_size, blocks| {
        let backend = fresh(dir, block_size, blocks, limits);
        assert!(way.is_none_or(|way| backend.medium.way() == way), "{:?} instead of {way:?}", backend.medium.way());
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
    let direct = fresh(dir, 4096, 8, Limits::default()).medium.way() == Way::Direct;
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
        conforms(&dir, Limits::default(), Some(Way::Direct), 300);
    }
}

#[test]
fn conforms_on_disk_with_threads_bypassing_the_page_cache() {
    conforms(&on_disk(), Limits { nowait: false, ..Limits::default() }, Some(Way::Threads), 300);
}

#[test]
fn conforms_on_disk_with_threads_using_the_page_cache() {
    conforms(&on_disk(), Limits { direct: false, ..Limits::default() }, Some(Way::Threads), 300);
}

#[test]
fn conforms_on_disk_without_deallocation() {
    conforms(&on_disk(), Limits { deallocate: false, ..Limits::default() }, None, 300);
}

#[test]
fn conforms_on_tmpfs() {
    let Some(dir) = on_tmpfs() else { return };
    conforms(&dir, Limits::default(), Some(Way::Inline), 4_000);
}

#[test]
fn conforms_on_tmpfs_with_threads_and_without_deallocation() {
    let Some(dir) = on_tmpfs() else { return };
    let limits = Limits { inline: false, deallocate: false, ..Limits::default() };
    conforms(&dir, limits, Some(Way::Threads), 1_000);
}

/// A loop device with its own file; detached when dropped.
struct Loop(String);

impl Loop {
    /// `None` and a message if no loop device is available.
    fn attach(dir: &TempDir, block_size: u32, blocks: u64) -> Option<Self> {
        let file = tempfile::NamedTempFile::new_in(dir).expect("a file");
        file.as_file().set_len(blocks * u64::from(block_size)).expect("a size");
        let path = file.into_temp_path().keep().expect("a file");
        let output = Command::new("losetup").args(["--find", "--show", "--direct-io=on"]).arg(&path).output();
        let reason = match output {
            Ok(output) if output.status.success() => {
                let device = Self(String::from_utf8_lossy(&output.stdout).trim().to_owned());
                // A device keeps its last setting.
                let _ = device.set_write_cache("write back");
                return Some(device);
            }
            Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
            Err(error) => error.to_string(),
        };
        println!("skipped: no loop device available ({reason})");
        None
    }

    fn path(&self) -> &Path {
        Path::new(&self.0)
    }

    fn name(&self) -> &str {
        self.path().file_name().and_then(|name| name.to_str()).expect("a name")
    }

    fn set_write_cache(&self, kind: &str) -> io::Result<()> {
        std::fs::write(format!("/sys/block/{}/queue/write_cache", self.name()), kind)
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.0]).status();
    }
}

/// A backend and its device, in the order in which they are dropped.
struct OnLoop(FileBackend, #[expect(dead_code, reason = "detached when dropped")] Loop);

impl Backend for OnLoop {
    fn geometry(&self) -> Geometry {
        self.0.geometry()
    }

    fn allocated_bytes(&self) -> io::Result<u64> {
        self.0.allocated_bytes()
    }

    fn open_channel(&self, depth: u32) -> io::Result<Box<dyn Channel>> {
        self.0.open_channel(depth)
    }

    fn resize(&self, blocks: Option<u64>) -> io::Result<Geometry> {
        self.0.resize(blocks)
    }
}

#[test]
fn conforms_on_a_block_device() {
    let dir = on_disk();
    if Loop::attach(&dir, 512, 8).is_none() {
        return;
    }
    let create = |block_size, blocks| {
        let device = Loop::attach(&dir, block_size, blocks).expect("another loop device");
        let backend = FileBackend::open(&options(device.path(), block_size, None)).expect("opens");
        assert_eq!(backend.medium.way(), Way::Direct);
        Arc::new(OnLoop(backend, device)) as Arc<dyn Backend>
    };
    conformance::check(&Subject {
        create: &create,
        stores: true,
        resizes: false,
        counts_space: false,
        requests: 200,
        seed: 12,
    });
}

#[test]
fn a_block_device_is_opened_exclusively_and_not_resized() {
    let dir = on_disk();
    let Some(device) = Loop::attach(&dir, 4096, 100) else { return };
    let options = options(device.path(), 4096, None);
    let first = FileBackend::open(&options).expect("opens");
    assert_eq!(first.geometry().blocks, 100);
    let second = FileBackend::open(&options).err().expect("refused");
    assert!(matches!(second, FileError::InUse { .. }), "{second}");
    assert!(second.to_string().starts_with(&format!("{}: the device is in use", device.0)), "{second}");
    assert_eq!(first.resize(Some(50)).unwrap_err().kind(), io::ErrorKind::Unsupported);
    assert_eq!(first.resize(None).expect("as it is").blocks, 100);
    drop(first);
    drop(FileBackend::open(&options).expect("it is free again"));
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
    let mut there = vec![0; 4096];
    std::fs::File::open(&path).and_then(|file| file.read_exact_at(&mut there, 5 << 20)).expect("reads");
    assert_eq!(there, vec![41; 4096]);
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
fn blocks_smaller_than_the_mediums_are_refused() {
    let dir = on_disk();
    let Some(device) = Loop::attach(&dir, 4096, 100) else { return };
    let status = Command::new("losetup").args(["--sector-size", "4096", &device.0]).status().expect("losetup runs");
    if !status.success() {
        return println!("skipped: the sector size of {} cannot be set", device.0);
    }
    let error = FileBackend::open(&options(device.path(), 512, None)).err().expect("refused").to_string();
    assert!(
        error.ends_with("the medium's block size is 4096 bytes: set the namespace's block size to 4096"),
        "{error}"
    );
    drop(FileBackend::open(&options(device.path(), 4096, None)).expect("opens"));
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

#[test]
fn reads_and_overwrites_use_no_thread() {
    let dir = on_disk();
    if !disk_is_direct(&dir) {
        return;
    }
    let backend = fresh(&dir, 4096, 256, Limits::default());
    let mut driver = Driver::open(&backend, 32);
    let mut write_all = |value: u8| {
        for lba in 0..256 {
            driver.write(lba, &vec![value; 4096]).expect("writes");
        }
        driver.run(Op::Flush, 0, 0, None).expect("flushes");
    };
    write_all(1);
    let before = backend.threads.jobs();
    write_all(2);
    for lba in 0..256 {
        assert_eq!(driver.read(lba, 1).expect("reads"), vec![2; 4096]);
    }
    // The file system may block occasionally, for instance to update the modification time.
    let jobs = backend.threads.jobs() - before;
    assert!(jobs < 50, "{jobs} of 513 requests went to threads");
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
                _ => empty_polls += 1,
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

/// Flushes of a block device: the 16th field of its statistics.
fn flushes_of(device: &Loop) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/sys/block/{}/stat", device.name())).ok()?;
    stat.split_whitespace().nth(15)?.parse().ok()
}

#[test]
fn flush_and_force_unit_access_reach_the_device() {
    let dir = on_disk();
    let Some(device) = Loop::attach(&dir, 4096, 100) else { return };
    for nowait in [true, false] {
        let limits = Limits { nowait, ..Limits::default() };
        let backend = FileBackend::open_within(&options(device.path(), 4096, None), limits).expect("opens");
        let mut driver = Driver::open(&backend, 4);
        let mut flushes = |op: Op, blocks: u32| {
            let before = flushes_of(&device)?;
            let data = vec![1; blocks as usize * 4096];
            driver.run(op, 0, blocks, matches!(op, Op::Write { .. }).then_some(&data[..])).expect("works");
            Some(flushes_of(&device)? - before)
        };
        let Some(none) = flushes(Op::Write { fua: false }, 3) else {
            return println!("skipped: this kernel does not count flushes");
        };
        assert_eq!(none, 0, "a plain write causes no flush");
        assert_eq!(flushes(Op::Flush, 0), Some(1), "nowait: {nowait}");
        assert!(flushes(Op::Write { fua: true }, 3) >= Some(1), "nowait: {nowait}");
        assert_eq!(flushes(Op::WriteZeroes { fua: true, deallocate: false }, 3), Some(1), "nowait: {nowait}");
        assert_eq!(flushes(Op::WriteZeroes { fua: false, deallocate: true }, 3), Some(0), "nowait: {nowait}");
    }
}

/// Writes to a block device: the fifth field of its statistics.
fn writes_of(device: &Loop) -> u64 {
    let stat = std::fs::read_to_string(format!("/sys/block/{}/stat", device.name())).expect("statistics");
    stat.split_whitespace().nth(4).and_then(|number| number.parse().ok()).expect("a number")
}

/// The page cache above a device without a volatile cache is volatile.
#[test]
fn flush_and_force_unit_access_write_back_the_page_cache_of_a_write_through_device() {
    let dir = on_disk();
    let Some(device) = Loop::attach(&dir, 4096, 100) else { return };
    if device.set_write_cache("write through").is_err() {
        return println!("skipped: the cache of {} cannot be set to write-through", device.0);
    }
    for direct in [true, false] {
        let limits = Limits { direct, ..Limits::default() };
        let backend = FileBackend::open_within(&options(device.path(), 4096, None), limits).expect("opens");
        assert_eq!(backend.geometry().volatile_write_cache, !direct);
        let mut driver = Driver::open(&backend, 4);
        for fua in [true, false] {
            let before = writes_of(&device);
            driver.run(Op::Write { fua }, 7, 1, Some(&[1; 4096])).expect("writes");
            if !fua {
                driver.run(Op::Flush, 0, 0, None).expect("flushes");
            }
            assert!(writes_of(&device) > before, "direct: {direct}, fua: {fua}: the data is only in the page cache");
        }
    }
}
