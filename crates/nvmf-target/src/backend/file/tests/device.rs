//! Block devices, as loop devices of files.

use std::process::Command;

use super::*;

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
    drop(open_freed(&options, Limits::default()));
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
