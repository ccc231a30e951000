//! All methods on a file whose words are their offsets, on this machine's disk. Unsupported methods are skipped with a reason; tests/linux
//! tests polled methods.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::Path;
use std::sync::Mutex;

use super::*;

const ALL: [Method; 5] =
    [Method::Preadv2, Method::Preadv2Polled, Method::Uring, Method::UringPolled, Method::UringHybrid];
const KIB: u64 = 1024;

/// A file of `kib` KiB on a disk (in this program's folder, as /tmp may be in memory); each word of eight bytes is its offset.
fn file(kib: u64) -> tempfile::NamedTempFile {
    let program = std::env::current_exe().unwrap();
    let mut file = tempfile::NamedTempFile::new_in(program.parent().unwrap()).unwrap();
    let words: Vec<u8> = (0..kib * KIB / 8).flat_map(|word| (word * 8).to_le_bytes()).collect();
    file.write_all(&words).unwrap();
    file.as_file().sync_all().unwrap();
    file
}

fn spec(path: &Path, method: Method) -> Spec {
    Spec {
        path: path.into(),
        method,
        bytes: 4 * KIB,
        jobs: 2,
        runtime_ns: 30_000_000,
        ramp_ns: 5_000_000,
        seed: 1,
        offset: 0,
        size: None,
    }
}

/// The report; `None`, with the reason printed, if this machine does not support the method.
fn tried<S: Fn(u64, &[u8]) + Sync>(spec: &Spec, seen: &S) -> Option<Report> {
    let lacks = ["no direct I/O", "does not have it", "cannot be polled", "forbidden here"];
    match job::run(spec, &AtomicBool::new(false), seen) {
        Ok(report) => Some(report),
        Err(error) if lacks.iter().any(|lack| error.to_string().contains(lack)) => {
            eprintln!("SKIPPED: {error}");
            None
        }
        Err(error) => panic!("{}: {error}", spec.method),
    }
}

fn refused(spec: &Spec) -> Error {
    run(spec, &AtomicBool::new(false)).unwrap_err()
}

#[test]
fn all_methods_and_sizes_read_the_right_data() {
    let file = file(512);
    for method in ALL {
        for bytes in [KIB, 4 * KIB, 128 * KIB] {
            let spec = Spec { bytes, jobs: 3, ..spec(file.path(), method) };
            let read = Mutex::new(0_u64);
            let seen = |offset: u64, data: &[u8]| {
                assert_eq!(data.len() as u64, bytes);
                for (word, at) in data.as_chunks::<8>().0.iter().zip((offset..).step_by(8)) {
                    assert_eq!(u64::from_le_bytes(*word), at, "{method}, {bytes} bytes at {offset}");
                }
                *read.lock().unwrap() += 1;
            };
            let Some(report) = tried(&spec, &seen) else { continue };
            let ios = report.read.ios;
            assert!(
                (3..=*read.lock().unwrap()).contains(&ios),
                "{method}: {ios}: each thread reads, and the ramp is not counted"
            );
        }
    }
}

#[test]
fn offsets_are_aligned_and_cover_the_region() {
    let file = file(256);
    let spec =
        Spec { offset: 32 * KIB, size: Some(67 * KIB), runtime_ns: 200_000_000, ..spec(file.path(), Method::Preadv2) };
    let places = Mutex::new(BTreeSet::new());
    let seen = |offset, _: &[u8]| {
        places.lock().unwrap().insert(offset);
    };
    let Some(report) = tried(&spec, &seen) else { return };
    let expected: BTreeSet<u64> = (0..16).map(|slot| (32 + 4 * slot) * KIB).collect();
    let places = places.into_inner().unwrap();
    assert!(places.is_subset(&expected), "{places:?}");
    assert!(report.read.ios < 1000 || places == expected, "{places:?} of {} reads", report.read.ios);
    assert_eq!((report.settings.offset_bytes, report.settings.size_bytes), (32 * KIB, 67 * KIB));
}

#[test]
fn results_are_consistent() {
    let file = file(256);
    for method in [Method::Preadv2, Method::Uring] {
        let Some(report) = tried(&spec(file.path(), method), &|_, _: &[u8]| ()) else { continue };
        let (read, of) = (&report.read, report.read.latency);
        assert_eq!(read.data_bytes, read.ios * 4096);
        assert_eq!(read.histogram_ns.iter().map(|(_, count)| count).sum::<u64>(), read.ios);
        assert!(read.histogram_ns.is_sorted_by(|a, b| a.0 < b.0), "ascending");
        let seconds = report.elapsed_ns as f64 / 1e9;
        assert!(seconds >= 0.03 && (read.rate_iops * seconds / read.ios as f64 - 1.0).abs() < 1e-6);
        assert!((read.data_bytes_per_s / read.rate_iops - 4096.0).abs() < 1e-6);
        let ordered = [of.min_ns, of.p50_ns, of.p90_ns, of.p99_ns, of.p99_9_ns, of.p99_99_ns, of.max_ns];
        assert!(ordered.is_sorted() && of.min_ns > 0 && of.mean_ns <= of.max_ns as f64, "{of:?}");
        let of_histogram = read.histogram_ns.iter().map(|(ns, count)| *ns as f64 * *count as f64).sum::<f64>();
        assert!((of_histogram / read.ios as f64 / of.mean_ns - 1.0).abs() < 2e-3, "{of:?}");
        // Two threads with one outstanding read each spend nearly the whole window reading.
        assert!(of.mean_ns * read.ios as f64 <= 2.02 * report.elapsed_ns as f64, "{report:?}");
        assert!(report.cpu_user_ns + report.cpu_system_ns <= 2 * report.elapsed_ns + 20_000_000, "{report:?}");
    }
}

#[test]
fn a_read_by_interrupt_leaves_its_cpu() {
    let file = file(1024);
    for method in [Method::Preadv2, Method::Uring] {
        let Some(report) = tried(&Spec { jobs: 1, ..spec(file.path(), method) }, &|_, _: &[u8]| ()) else { continue };
        let each = report.context_switches.voluntary_count as f64 / report.read.ios as f64;
        if report.read.latency.p50_ns < 5_000 {
            eprintln!("SKIPPED: a latency below 5 us means memory, which raises no interrupts");
            continue;
        }
        assert!(each > 0.5, "{method}: {each}");
    }
}

#[test]
fn a_stopped_run_reports_its_reads() {
    let file = file(64);
    let spec = Spec { runtime_ns: 1_000_000_000_000, ramp_ns: 0, ..spec(file.path(), Method::Preadv2) };
    let (stop, reads) = (AtomicBool::new(false), Mutex::new(0));
    let seen = |_, _: &[u8]| {
        let mut reads = reads.lock().unwrap();
        *reads += 1;
        stop.store(*reads >= 20, std::sync::atomic::Ordering::Relaxed);
    };
    match job::run(&spec, &stop, &seen) {
        Err(error) if error.to_string().contains("no direct I/O") => eprintln!("SKIPPED: {error}"),
        report => assert!((20..=22).contains(&report.unwrap().read.ios)),
    }
}

#[test]
fn errors_have_remedies() {
    let folder = tempfile::tempdir().unwrap();
    let missing = refused(&spec(&folder.path().join("none"), Method::Preadv2)).to_string();
    assert!(missing.contains("none: ") && missing.contains("No such file"), "{missing}");
    for no_disk in [folder.path(), Path::new("/dev/null")] {
        let error = refused(&spec(no_disk, Method::Preadv2)).to_string();
        assert!(error.contains("neither a block device nor a file"), "{error}");
    }
    let file = file(64);
    let good = spec(file.path(), Method::Preadv2);
    for (wrong, message) in [
        (Spec { bytes: 1000, ..good.clone() }, "not a multiple of the logical block size"),
        (Spec { offset: 100, ..good.clone() }, "not a multiple of the logical block size"),
        (Spec { bytes: 0, ..good.clone() }, "use 1 to"),
        (Spec { bytes: 1 << 40, ..good.clone() }, "use 1 to"),
        (Spec { bytes: 128 * KIB, ..good.clone() }, "are less than one read of 131072"),
        (Spec { size: Some(65 * KIB), ..good.clone() }, "fewer than 66560"),
        (Spec { offset: 128 * KIB, ..good.clone() }, "are less than one read of 4096"),
        (Spec { jobs: 0, ..good.clone() }, "use 1 to"),
        (Spec { runtime_ns: 0, ..good }, "must be above 0"),
    ] {
        match refused(&wrong) {
            error if error.to_string().contains("no direct I/O") => eprintln!("SKIPPED: {error}"),
            error => assert!(error.to_string().contains(message) && error.is_invalid_request(), "{error}"),
        }
    }
}

#[test]
fn errors_of_the_kernel_name_the_remedy() {
    let of = |number: i32| std::io::Error::from_raw_os_error(number);
    let hybrid = Error::method(Method::UringHybrid, &of(libc::EINVAL)).to_string();
    assert!(hybrid.contains("needs Linux 6.13, this is "), "{hybrid}");
    assert!(Error::method(Method::Uring, &of(libc::ENOSYS)).to_string().contains("Linux 5.6"));
    assert!(Error::method(Method::Uring, &of(libc::EPERM)).to_string().contains("kernel.io_uring_disabled"));
    assert!(error::of_read(Method::UringPolled, &of(libc::EOPNOTSUPP)).contains("nvme.poll_queues=N"));
    assert!(!error::of_read(Method::Uring, &of(libc::EOPNOTSUPP)).contains("nvme.poll_queues=N"));
    assert!(error::of_read(Method::Preadv2, &of(libc::EINVAL)).contains("logical block size"));
    let denied = Error::open(Path::new("/dev/x"), &of(libc::EACCES)).to_string();
    assert!(denied.starts_with("/dev/x: ") && denied.contains("root"), "{denied}");
    assert!(Error::open(Path::new("/dev/x"), &of(libc::EINVAL)).to_string().contains("no direct I/O"));
}

#[test]
fn holes_are_a_warning() {
    let file = file(0);
    file.as_file().set_len(1 << 20).unwrap();
    let Some(report) = tried(&spec(file.path(), Method::Preadv2), &|_, _: &[u8]| ()) else { return };
    assert!(report.warnings.iter().any(|warning| warning.contains("holes")), "{report:?}");
    assert!(report.to_string().contains("warning: the file has holes"));
}
