use std::path::PathBuf;

use pilotlight_workloads::Place;
use pilotlight_workloads::Stage;

use super::*;

fn machine() -> Host {
    let root = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    crate::simulated::host::load(&root.join("profiles/thesis-980pro.toml")).unwrap()
}

fn point(pairs: &[(&str, &str)]) -> Point {
    let usual = [("ioengine", "io_uring"), ("rw", "randread"), ("bs", "4k"), ("iodepth", "1"), ("numjobs", "1")];
    let word = |(key, value): &(&str, &str)| ((*key).to_owned(), Value::Word((*value).to_owned()));
    usual.iter().chain(pairs).map(word).collect()
}

fn asked(pairs: &[(&str, &str)], set: &str) -> Result<Load, Problem> {
    let stage = Stage { scratch: "/tmp".into(), place: Place::Nothing, ramp_s: 1.0, duration_s: 10.0, seed: 7 };
    let (point, set) = (point(pairs), toml::from_str(set).unwrap());
    load(&machine(), &Ask { workload: "fio", point: &point, stage: &stage, machine: &set, cool_down_ns: 5 })
}

#[test]
fn knobs_are_read_as_fio_reads_them() {
    let read = asked(&[("bs", "128k"), ("iodepth", "32"), ("numjobs", "4")], "power_state = 2").unwrap();
    assert_eq!(
        (read.job.bytes, read.job.depth, read.jobs, read.drive_state, read.job.way),
        (131_072, 32, 4, 2, Way::Uring)
    );
    assert_eq!((read.duration_ns, read.seed), (machine().window_ns, 7), "reads have no memory");
    let mixed = asked(&[("rw", "rw 70/30"), ("bs", "1m")], "scheduler = 'kyber'").unwrap();
    assert_eq!((mixed.job.sequential, mixed.job.writes_ppm, mixed.job.bytes), (true, 300_000, 1 << 20));
    assert_eq!((mixed.duration_ns, mixed.after_ns, mixed.job.scheduler), (10_000_000_000, 5, Scheduler::Kyber));
    let rests = asked(&[("thinktime", "5ms"), ("thinktime_blocks", "8"), ("direct", "true")], "").unwrap();
    assert_eq!((rests.job.think_after, rests.job.think_ns, rests.duration_ns), (8, 5_000_000, 10_000_000_000));
}

#[test]
fn ways_by_engine_and_by_mechanism() {
    let way = |pairs: &[(&str, &str)]| asked(pairs, "").unwrap().job.way;
    assert_eq!(way(&[("ioengine", "io_uring hipri=1 sqthread_poll=1")]), Way::UringPolled);
    assert_eq!(way(&[("ioengine", "pvsync2"), ("hipri", "true")]), Way::Classic);
    assert_eq!(way(&[("mechanism", "hybrid")]), Way::Hybrid);
    assert_eq!(way(&[("mechanism", "interrupt")]), Way::Interrupt);
}

#[test]
fn what_the_machine_does_not_have_is_refused_by_its_key() {
    let refused = |pairs: &[(&str, &str)], set: &str| asked(pairs, set).unwrap_err().at;
    assert_eq!(refused(&[("ioengine", "sg")], ""), "ioengine");
    assert_eq!(refused(&[("mechanism", "uring hybrid")], ""), "mechanism");
    assert_eq!(refused(&[("rw", "trim")], ""), "rw");
    assert_eq!(refused(&[("rate_iops", "5")], ""), "workload.options.rate_iops");
    assert_eq!(refused(&[], "power_state = 3"), "machine.power_state");
    assert_eq!(refused(&[], "scheduler = 'bfq'"), "machine.scheduler");
    assert_eq!(refused(&[], "governor = 'performance'"), "machine");
    assert_eq!(refused(&[("numjobs", "0")], ""), "numjobs");
    assert_eq!(refused(&[("bs", "9000m")], ""), "bs");
}
