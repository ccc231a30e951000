//! Results of flushes after writes and syncs have failed, with every access method.

use super::super::conformance::Driver;
use super::super::{IoError, Op, Random};
use super::tests::{fresh, on_disk, options};
use super::*;

const EIO: Result<(), IoError> = Err(IoError::Medium(libc::EIO));

/// The default (AIO where supported), threads bypassing the page cache, threads using it.
fn all_limits() -> [Limits; 3] {
    let limits = Limits::default();
    [limits, Limits { aio: false, ..limits }, Limits { direct: false, ..limits }]
}

fn run(driver: &mut Driver, op: Op) -> Result<(), IoError> {
    let data = matches!(op, Op::Write { .. }).then_some(&[7; 4096][..]);
    let blocks = u32::from(op != Op::Flush);
    driver.run(op, 3, blocks, data).map(drop)
}

fn forced_operations() -> [Op; 2] {
    [Op::Write { fua: true }, Op::WriteZeroes { fua: true, deallocate: false }]
}

/// The forced operation consumes the kernel's only report of lost writes: no flush may succeed after it.
#[test]
fn every_flush_fails_after_a_forced_write_reported_lost_writes() {
    let dir = on_disk();
    for limits in all_limits() {
        for forced in forced_operations() {
            let backend = fresh(&dir, 4096, 64, limits);
            let mut driver = Driver::open(&backend, 4);
            assert_eq!(run(&mut driver, Op::Write { fua: false }), Ok(()));
            backend.medium.faults.lose_writes(libc::EIO);
            assert_eq!(run(&mut driver, forced), EIO, "{limits:?}: {forced:?}");
            for _ in 0..3 {
                assert_eq!(run(&mut driver, Op::Flush), EIO, "{limits:?}: a flush after {forced:?}");
            }
        }
    }
}

/// A failed write loses no earlier writes.
#[test]
fn a_failed_write_does_not_fail_a_flush() {
    let dir = on_disk();
    for limits in all_limits() {
        for number in [libc::EIO, libc::ENOSPC, libc::EROFS, libc::EINVAL] {
            let backend = fresh(&dir, 4096, 64, limits);
            let mut driver = Driver::open(&backend, 4);
            assert_eq!(run(&mut driver, Op::Write { fua: false }), Ok(()));
            backend.medium.faults.fail_writes(Some(number));
            for fua in [true, false] {
                assert!(run(&mut driver, Op::Write { fua }).is_err(), "{limits:?}: error {number}");
                assert_eq!(run(&mut driver, Op::Flush), Ok(()), "{limits:?}: a flush after error {number}");
            }
            backend.medium.faults.fail_writes(None);
            assert_eq!(run(&mut driver, Op::Write { fua: true }), Ok(()));
        }
    }
}

/// Where the device executes Force Unit Access, a forced write is one command: it does not consume the report of lost
/// writes, and its failure affects only itself.
#[test]
fn a_forced_write_executed_by_the_device_is_not_a_sync() {
    let dir = on_disk();
    let backend = fresh(&dir, 4096, 64, Limits { force_unit_access: true, ..Limits::default() });
    if backend.medium.method() != super::medium::AccessMethod::Aio {
        return println!("skipped: no AIO with O_DIRECT in {}", dir.path().display());
    }
    backend.medium.faults.open_at_once();
    let mut driver = Driver::open(&backend, 4);
    let forced = Op::Write { fua: true };
    // With an allocated extent, AIO does not defer the write to a thread.
    assert_eq!((run(&mut driver, Op::Write { fua: false }), run(&mut driver, Op::Flush)), (Ok(()), Ok(())));
    backend.medium.faults.fail_writes(Some(libc::EIO));
    assert_eq!(run(&mut driver, forced), EIO);
    backend.medium.faults.fail_writes(None);
    assert_eq!(run(&mut driver, Op::Flush), Ok(()));
    backend.medium.faults.lose_writes(libc::EIO);
    assert_eq!(run(&mut driver, forced), Ok(()));
    assert_eq!(run(&mut driver, Op::Flush), EIO, "the report is left for the flush");
    assert_eq!(run(&mut driver, Op::Flush), EIO);
}

/// The model: whether completed writes were lost, and whether the next write fails.
#[test]
fn flushes_succeed_until_completed_writes_are_lost() {
    let dir = on_disk();
    for seed in 0..24 {
        let mut random = Random::new(seed);
        let backend = fresh(&dir, 4096, 64, all_limits()[seed as usize % 3]);
        let mut driver = Driver::open(&backend, 4);
        let (mut lost, mut failing) = (false, false);
        for _ in 0..60 {
            match random.below(10) {
                0..3 => assert_eq!(run(&mut driver, Op::Write { fua: false }).is_ok(), !failing),
                3..5 => drop(run(&mut driver, Op::Write { fua: true })),
                5 => {
                    failing = random.one_in(2);
                    backend.medium.faults.fail_writes(failing.then_some(libc::EIO));
                }
                6 if random.one_in(8) => {
                    backend.medium.faults.lose_writes(libc::EIO);
                    lost = true;
                }
                _ => assert_eq!(run(&mut driver, Op::Flush).is_ok(), !lost, "seed {seed}"),
            }
        }
    }
}

/// Each write to a synchronous file is also a sync: its error may be the only report of lost writes.
#[test]
fn every_flush_fails_after_a_failed_write_to_a_synchronous_file() {
    let dir = on_disk();
    for limits in all_limits() {
        for (number, remembered) in
            [(libc::EIO, true), (libc::ENOSPC, false), (libc::EROFS, false), (libc::EINVAL, false)]
        {
            let path = dir.path().join("synchronous.img");
            let file = std::fs::File::create(&path).and_then(|file| file.set_len(64 * 4096).map(|()| file));
            if let Err(error) = rustix::fs::ioctl_setflags(file.expect("a file"), rustix::fs::IFlags::SYNC) {
                return println!("skipped: no file can be made synchronous here ({error})");
            }
            let backend = FileBackend::open_within(&options(&path, 4096, None), limits).expect("opens");
            let mut driver = Driver::open(&backend, 4);
            backend.medium.faults.fail_writes(Some(number));
            assert!(run(&mut driver, Op::Write { fua: false }).is_err());
            backend.medium.faults.fail_writes(None);
            assert_eq!(run(&mut driver, Op::Flush).is_err(), remembered, "{limits:?}: a flush after error {number}");
            std::fs::remove_file(&path).expect("it is there");
        }
    }
}

/// Deallocation never writes zeroes, and does not promise them where nothing was freed.
#[test]
fn deallocation_fails_where_holes_have_become_unsupported() {
    let dir = on_disk();
    let backend = fresh(&dir, 4096, 64, Limits::default());
    if backend.medium.deallocation() != super::medium::Deallocation::Punch {
        return println!("skipped: no holes in {}", dir.path().display());
    }
    let mut driver = Driver::open(&backend, 4);
    assert_eq!(run(&mut driver, Op::Write { fua: false }), Ok(()));
    backend.medium.faults.fail_fallocate(libc::EOPNOTSUPP);
    for op in [Op::Deallocate, Op::Clear, Op::Deallocate] {
        assert_eq!(run(&mut driver, op), Err(IoError::Unsupported));
        assert_eq!(driver.read(3, 1).expect("reads"), vec![7; 4096], "zeroes were written");
    }
    assert_eq!(run(&mut driver, Op::WriteZeroes { fua: false, deallocate: true }), Ok(()));
    assert_eq!(driver.read(3, 1).expect("reads"), vec![0; 4096]);
}

/// Zeroing and deallocation leave threads for other work, whichever channel they come from.
#[test]
fn stuck_zeroing_and_deallocation_delay_no_flush_and_no_write() {
    let dir = on_disk();
    for limits in [Limits { aio: false, ..Limits::default() }, Limits { direct: false, ..Limits::default() }] {
        let backend = fresh(&dir, 4096, 64, limits);
        let (mut driver, mut other) = (Driver::open(&backend, 32), Driver::open(&backend, 32));
        let stuck = backend.medium.faults.stick_long_jobs();
        let long = [Op::WriteZeroes { fua: false, deallocate: true }, Op::WriteZeroes { fua: true, deallocate: false }];
        let zero = |driver: &mut Driver, from: u64| -> Vec<_> {
            (from..from + 8).map(|lba| driver.submit(long[lba as usize % 2], lba, 1, None)).collect()
        };
        let tags = (zero(&mut driver, 16), zero(&mut other, 32));
        for driver in [&mut driver, &mut other] {
            for fua in [false, true] {
                assert_eq!(run(driver, Op::Write { fua }), Ok(()), "{limits:?}");
                assert_eq!(run(driver, Op::Flush), Ok(()), "{limits:?}");
            }
            assert_eq!(driver.in_flight(), 8, "{limits:?}");
        }
        drop(stuck);
        tags.0.into_iter().for_each(|tag| drop(driver.wait(tag).expect("zeroes")));
        tags.1.into_iter().for_each(|tag| drop(other.wait(tag).expect("zeroes")));
    }
}
