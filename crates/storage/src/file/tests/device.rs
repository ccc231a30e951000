//! Block devices, as loop devices of files.

use std::process::Command;

use super::*;

/// A loop device with its own file; detached when dropped.
struct Loop(String);

impl Loop {
    /// `None` and a message if no loop device is available.
    fn attach(dir: &TempDir, block_size: u32, blocks: u64) -> Option<Self> {
        Self::attach_as(dir, block_size, blocks, &[])
    }

    /// The same with more options of `losetup`.
    fn attach_as(dir: &TempDir, block_size: u32, blocks: u64, options: &[&str]) -> Option<Self> {
        let file = tempfile::NamedTempFile::new_in(dir).expect("a file");
        file.as_file().set_len(blocks * u64::from(block_size)).expect("a size");
        let path = file.into_temp_path().keep().expect("a file");
        let output =
            Command::new("losetup").args(["--find", "--show", "--direct-io=on"]).args(options).arg(&path).output();
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

/// Opens a device that was closed before: the descriptor lives on in children that other tests are starting, until they execute.
fn open_freed(options: &FileOptions, limits: Limits) -> FileBackend {
    loop {
        match FileBackend::open_within(options, limits) {
            Err(FileError::InUse { .. }) => std::thread::yield_now(),
            other => return other.expect("opens"),
        }
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
        assert_eq!(backend.medium.method(), AccessMethod::Aio);
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
fn threads_take_no_part_in_reads_and_overwrites_of_a_block_device() {
    let dir = on_disk();
    let Some(device) = Loop::attach(&dir, 4096, 256) else { return };
    let backend = open_freed(&options(device.path(), 4096, None), Limits::default());
    overwrites(&backend);
    assert_eq!(backend.threads.jobs(), backend.medium.faults.works(), "no request was submitted by a thread");
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
    drop(open_freed(&options, Limits::default()));
}

/// The driver of loop devices lets such a device be opened for writing and refuses the writes.
#[test]
fn a_read_only_device_is_read_and_not_written() {
    let dir = on_disk();
    for (arguments, expected) in [(&[][..], false), (&["--read-only"], true)] {
        let Some(device) = Loop::attach_as(&dir, 4096, 100, arguments) else { return };
        let backend = open_freed(&options(device.path(), 4096, None), Limits::default());
        let geometry = backend.geometry();
        assert_eq!((geometry.is_read_only, geometry.blocks), (expected, 100));
        assert!(
            !expected || !geometry.volatile_write_cache && !geometry.deallocated_reads_zero,
            "nothing to flush or deallocate"
        );
        drop(backend);
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
    for aio in [true, false] {
        let limits = Limits { aio, ..Limits::default() };
        let backend = open_freed(&options(device.path(), 4096, None), limits);
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
        assert_eq!(flushes(Op::Flush, 0), Some(1), "aio: {aio}");
        assert!(flushes(Op::Write { fua: true }, 3) >= Some(1), "aio: {aio}");
        assert_eq!(flushes(Op::WriteZeroes { fua: true, deallocate: false }, 3), Some(1), "aio: {aio}");
        assert_eq!(flushes(Op::WriteZeroes { fua: false, deallocate: true }, 3), Some(0), "aio: {aio}");
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
        let backend = open_freed(&options(device.path(), 4096, None), limits);
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

/// A file system on a loop device; thawed and unmounted when dropped.
struct Mounted(TempDir, Loop);

impl Mounted {
    /// `None` and a message without a loop device, or without the right to mount it.
    fn ext4(dir: &TempDir) -> Option<Self> {
        let device = Loop::attach(dir, 4096, 16 << 8)?;
        let mounted = Self(TempDir::new_in(dir).expect("a directory"), device);
        for (program, arguments) in [("mkfs.ext4", vec!["-q"]), ("mount", vec!["-t", "ext4"])] {
            let mut command = Command::new(program);
            command.args(arguments).arg(mounted.1.path());
            if program == "mount" {
                command.arg(mounted.0.path());
            }
            match command.output() {
                Ok(output) if output.status.success() => {}
                Ok(output) => {
                    println!("skipped: {program}: {}", String::from_utf8_lossy(&output.stderr).trim());
                    return None;
                }
                Err(error) => {
                    println!("skipped: {program}: {error}");
                    return None;
                }
            }
        }
        Some(mounted)
    }

    fn freeze(&self) -> bool {
        self.fsfreeze("--freeze")
    }

    fn thaw(&self) -> bool {
        self.fsfreeze("--unfreeze")
    }

    fn fsfreeze(&self, option: &str) -> bool {
        Command::new("fsfreeze").arg(option).arg(self.0.path()).output().is_ok_and(|output| output.status.success())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        self.thaw();
        let _ = Command::new("umount").arg(self.0.path()).status();
    }
}

/// Writes to a frozen file system wait in the kernel whatever their flags: not in the reactor's thread.
#[test]
fn a_frozen_file_system_does_not_stop_the_reactor() {
    let dir = on_disk();
    let Some(mounted) = Mounted::ext4(&dir) else { return };
    let path = mounted.0.path().join("disk.img");
    let backend = FileBackend::open(&options(&path, 4096, Some(1 << 20))).expect("created");
    backend.medium.faults.open_at_once();
    let mut driver = Driver::open(&backend, 64);
    driver.write(0, &[1; 4096]).expect("writes");
    driver.run(Op::Flush, 0, 0, None).expect("flushes");
    if !mounted.freeze() {
        return println!("skipped: fsfreeze is not available");
    }
    let (returned, deadline) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        // Thaws after the time limit, so that a failure ends.
        let mounted = &mounted;
        let thawing = scope.spawn(move || {
            let in_time = deadline.recv_timeout(std::time::Duration::from_secs(60)).is_ok();
            (mounted.thaw(), in_time)
        });
        let mut tags = Vec::new();
        for lba in 0..64 {
            tags.push(driver.submit(Op::Write { fua: lba % 2 == 1 }, lba, 1, Some(&[2; 4096])));
            driver.poll(); // returns
        }
        assert_eq!(driver.in_flight(), 64, "no write passes the freeze");
        returned.send(()).expect("the other thread waits");
        assert_eq!(thawing.join().expect("no panic"), (true, true), "the reactor waited for the thaw");
        tags.into_iter().for_each(|tag| drop(driver.wait(tag).expect("writes")));
    });
    assert_eq!(driver.read(63, 1).expect("reads"), vec![2; 4096]);
}
