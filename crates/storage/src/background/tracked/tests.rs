//! Conformance of tracked backends, and their ranges.

use std::sync::Arc;

use super::super::sums::ranges::Mark;
use super::super::sums::sums_of;
use super::*;
use crate::conformance::{CASES, Driver, Subject};
use crate::{FileBackend, FileError, FileOptions, Op};

const WRITE: Op = Op::Write { fua: false };

fn open(folder: &Path, bytes: u64, tracking: &Tracking) -> TrackedBackend {
    let path = folder.join("disk");
    let options = FileOptions { path: path.clone(), block_size: 4096, size: Some(bytes), is_read_only: false };
    let inner: Arc<dyn Backend> = Arc::new(open_freed(&options));
    loop {
        match TrackedBackend::open(inner.clone(), &path, tracking, &crate::DirectOpener) {
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => std::thread::yield_now(), // as below
            other => return other.expect("it opens"),
        }
    }
}

/// Opens a file that was closed before: its lock lives on in children that other tests are starting, until they execute.
fn open_freed(options: &FileOptions) -> FileBackend {
    loop {
        match FileBackend::open(options) {
            Err(FileError::Locked { .. }) => std::thread::yield_now(),
            other => return other.expect("a file"),
        }
    }
}

fn checked() -> Tracking {
    Tracking { sums: Some(SumsPlace::Beside), trim: false }
}

#[test]
fn conforms_with_checksums_and_with_trimming() {
    for tracking in ["checked", "trim", "checked,trim"] {
        let tracking = Tracking::parse(tracking).expect("valid");
        let folder = tempfile::tempdir().expect("a folder");
        let number = std::sync::atomic::AtomicU32::new(0);
        let create = |_, blocks| {
            let own = folder.path().join(number.fetch_add(1, std::sync::atomic::Ordering::SeqCst).to_string());
            std::fs::create_dir(&own).expect("a folder");
            Arc::new(open(&own, blocks * 4096, &tracking)) as Arc<dyn Backend>
        };
        let subject = Subject {
            create: &create,
            stores: true,
            resizes: false,
            counts_space: !tracking.trim,
            requests: 300,
            seed: 3,
        };
        for (name, case) in CASES {
            println!("conformance: {tracking}: {name}");
            case(&subject, 4096);
        }
    }
}

#[test]
fn writes_mark_their_ranges_and_streams_mark_ahead() {
    let folder = tempfile::tempdir().expect("a folder");
    let backend = open(folder.path(), 8 << 20, &checked());
    let tracker = Arc::clone(backend.tracker().expect("tracked"));
    assert_eq!(tracker.dirty.len(), 128, "a new namespace is dirty");
    for range in 0..128 {
        assert!(tracker.ranges.begin_summing(range, false).is_some() && tracker.ranges.begin_commit(range));
    }
    let zeroes = sums_of(&vec![0; 1 << 16]);
    let work = super::super::sums::tracker::Work::Commit((0..128).map(|range| (range, zeroes)).collect());
    assert!(tracker.submit(work).is_ok());
    while tracker.reply().is_none() {
        std::thread::yield_now();
    }
    assert_eq!(tracker.dirty.len(), 0);
    let mut driver = Driver::open(&backend, 4);
    driver.write(16 * 9, &[7; 4096]).expect("works");
    assert_eq!((tracker.dirty.len(), tracker.ranges.mark(9)), (1, Mark::Dirty));
    driver.write(16 * 10, &[7; 4096]).expect("works");
    assert_eq!(tracker.dirty.len(), 17, "a stream is marked ahead");
    driver.run(Op::Deallocate, 16 * 50, 16, None).expect("works");
    assert_eq!(tracker.dirty.len(), 18);
    drop(driver);
    drop((backend, tracker));
    let backend = open(folder.path(), 8 << 20, &checked());
    assert_eq!(backend.tracker().expect("tracked").dirty.len(), 18, "marks survive");
}

#[test]
fn reads_of_a_bad_block_fail_until_it_is_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let backend = open(folder.path(), 1 << 20, &checked());
    let mut driver = Driver::open(&backend, 4);
    assert!(backend.tracker().expect("tracked").bad.add(5));
    assert_eq!(driver.read(3, 4).unwrap_err(), crate::IoError::Checksum);
    driver.read(6, 4).expect("other blocks are readable");
    let compare = Op::CompareAndWrite { fua: false };
    let (from_zeroes, from_ones) = ([[0; 4096], [2; 4096]].concat(), [[1; 4096], [2; 4096]].concat());
    let compared = driver.run(compare, 5, 1, Some(&from_zeroes)).map(drop);
    assert_eq!(compared.unwrap_err(), crate::IoError::Checksum, "a comparison reads it");
    driver.write(4, &[1; 8192]).expect("works");
    driver.run(compare, 4, 1, Some(&from_ones)).expect("equal");
    assert_eq!(driver.read(5, 1).expect("written again"), [1; 4096]);
    assert!(driver.run(WRITE, 300, 1, Some(&[0; 4096])).is_err(), "beyond the end");
}

#[test]
fn freed_ranges_read_as_zeroes_until_they_are_trimmed() {
    let folder = tempfile::tempdir().expect("a folder");
    let backend = open(folder.path(), 1 << 20, &Tracking { sums: None, trim: true });
    let tracker = Arc::clone(backend.tracker().expect("tracked"));
    let mut driver = Driver::open(&backend, 4);
    (0..2).for_each(|half| driver.write(half * 32, &vec![1; 4096 * 32]).expect("works"));
    driver.run(Op::Deallocate, 8, 50, None).expect("works");
    if tracker.trims() {
        assert_eq!(tracker.freed.len(), 2, "whole ranges only");
        assert_eq!(driver.read(8, 31).expect("works"), vec![0; 4096 * 31]);
        driver.write(16, &[2; 4096]).expect("works");
        assert!(!tracker.ranges.begin_punch(1), "a written range is not free");
        assert!(tracker.ranges.begin_punch(2));
        tracker.ranges.end_punch(2);
    }
}

/// tmpfs frees ranges and does not zero them.
#[test]
fn background_trimming_writes_no_zeroes_where_the_medium_cannot_zero_ranges() {
    let Ok(folder) = tempfile::tempdir_in("/dev/shm") else { return println!("skipped: no /dev/shm") };
    let backend = open(folder.path(), 1 << 20, &Tracking { sums: None, trim: true });
    let mut driver = Driver::open(&backend, 4);
    (0..8).for_each(|part| driver.write(part * 32, &vec![1; 4096 * 32]).expect("works"));
    let before = backend.allocated_bytes().expect("a number");
    driver.run(Op::Deallocate, 0, 200, None).expect("works");
    let freed = before - backend.allocated_bytes().expect("a number");
    assert_eq!(freed, 200 * 4096, "of {before} bytes");
    assert_eq!(driver.read(180, 30).expect("works"), [vec![0; 4096 * 20], vec![1; 4096 * 10]].concat());
}

#[test]
fn tracking_is_parsed_and_displayed() {
    for text in ["checked", "checked=/a/b.sums", "trim", "checked,trim", "checked=x,trim"] {
        assert_eq!(Tracking::parse(text).expect("valid").to_string(), text);
    }
    for text in ["", "checked=", "trim,trim", "checked,checked", "trim=x", "delay"] {
        assert_eq!(Tracking::parse(text), None, "{text}");
    }
}
