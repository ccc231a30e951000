//! Loads from knobs, and refused knobs.

use std::path::PathBuf;

use pilotlight_workloads::RunContext;
use pilotlight_workloads::Target;

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

fn load_of(pairs: &[(&str, &str)], set: &str) -> Result<Load, Problem> {
    let stage = RunContext { scratch: "/tmp".into(), target: Target::None, ramp_s: 1.0, duration_s: 10.0, seed: 7 };
    let (point, set) = (point(pairs), toml::from_str(set).unwrap());
    load(
        &machine(),
        &Request { workload: "fio", point: &point, client: None, stage: &stage, machine: &set, cool_down_ns: 5 },
    )
}

#[test]
fn knobs_have_the_syntax_of_fio() {
    let read = load_of(&[("bs", "128k"), ("iodepth", "32"), ("numjobs", "4")], "power_state = 2").unwrap();
    assert_eq!(
        (read.job.bytes, read.job.depth, read.jobs, read.drive_state, read.job.method),
        (131_072, 32, 4, 2, IoMethod::Uring)
    );
    assert_eq!((read.duration_ns, read.seed), (machine().window_ns, 7), "reads are memoryless");
    let mixed = load_of(&[("rw", "rw 70/30"), ("bs", "1m")], "scheduler = 'kyber'").unwrap();
    assert_eq!((mixed.job.sequential, mixed.job.writes_ppm, mixed.job.bytes), (true, 300_000, 1 << 20));
    assert_eq!((mixed.duration_ns, mixed.after_ns, mixed.job.scheduler), (10_000_000_000, 5, Scheduler::Kyber));
    let rests = load_of(&[("thinktime", "5ms"), ("thinktime_blocks", "8"), ("direct", "true")], "").unwrap();
    assert_eq!((rests.job.think_after, rests.job.think_ns, rests.duration_ns), (8, 5_000_000, 10_000_000_000));
}

#[test]
fn the_method_depends_on_engine_and_mechanism() {
    let way = |pairs: &[(&str, &str)]| load_of(pairs, "").unwrap().job.method;
    assert_eq!(way(&[("ioengine", "io_uring hipri=1 sqthread_poll=1")]), IoMethod::UringPolled);
    assert_eq!(way(&[("ioengine", "pvsync2"), ("hipri", "true")]), IoMethod::Classic);
    assert_eq!(way(&[("mechanism", "hybrid")]), IoMethod::Hybrid);
    assert_eq!(way(&[("mechanism", "interrupt")]), IoMethod::Interrupt);
}

#[test]
fn unsupported_knobs_are_refused_with_their_key() {
    let refused = |pairs: &[(&str, &str)], set: &str| load_of(pairs, set).unwrap_err().at;
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

const CLIENT: &str = "threads = 6\nstall_bytes = 2000000\n\
    [mixes.a]\nreads = 0.5\nread_cpu_us = 42\nwrite_cpu_us = 84\nhits = 0.85\nwrite_hits = 0.8\nwrite_miss = 'read'\n\
    leaves_bytes = 1000\n[mixes.c]\nhits = 0.85\nread_cpu_us = 42\nleaves_bytes = 1000\n\
    [background.compaction]\nthreads = 4\nreads = 4\nwrites = 12\nbytes = 524288\ncpu_us = 1300\n";

fn client(text: &str, mix: &str) -> Result<Load, Problem> {
    let client = pilotlight_workloads::client::Client::new(toml::from_str(text).unwrap()).unwrap();
    let stage = RunContext { scratch: "/tmp".into(), target: Target::None, ramp_s: 1.0, duration_s: 10.0, seed: 7 };
    let point = Point::from([("mix".into(), Value::Word(mix.into())), ("threads".into(), Value::Integer(6))]);
    let set = toml::from_str("power_state = 1\nscheduler = 'kyber'").unwrap();
    let request = Request {
        workload: "client",
        point: &point,
        client: Some(&client),
        stage: &stage,
        machine: &set,
        cool_down_ns: 0,
    };
    load(&machine(), &request)
}

#[test]
fn clients_and_their_background_are_jobs() {
    let load = client(CLIENT, "a").unwrap();
    let job = Job {
        scheduler: Scheduler::Kyber,
        writes_ppm: 500_000,
        cpu_ns: 42_000,
        write_cpu_ns: Some(84_000),
        hits_ppm: 850_000,
        write_hits_ppm: 800_000,
        fetches: true,
        adds: 1_000,
        stalls_bytes: 2_000_000,
        ..Job::default()
    };
    assert_eq!((load.job, load.jobs, load.drive_state, load.duration_ns), (job, 6, 1, 10_000_000_000));
    let thread = Job {
        scheduler: Scheduler::Kyber,
        sequential: true,
        bytes: 524_288,
        writes_ppm: 750_000,
        cpu_ns: 1_300_000,
        backlog_ppm: 4_000_000,
        ..Job::default()
    };
    assert_eq!(load.beside, vec![thread; 4]);
}

#[test]
fn clients_that_only_read_have_no_background_and_are_memoryless() {
    let load = client(CLIENT, "c").unwrap();
    assert_eq!((load.beside.len(), load.job.adds, load.job.stalls_bytes, load.job.writes_ppm), (0, 0, 0, 0));
    assert_eq!(load.duration_ns, machine().window_ns);
}

#[test]
fn a_limit_below_a_request_is_refused_with_its_key() {
    let low = CLIENT.replace("stall_bytes = 2000000", "stall_bytes = 100000");
    assert_eq!(client(&low, "a").unwrap_err().at, "workload.stall_bytes");
}

#[test]
fn a_mix_equivalent_to_fio_is_refused() {
    let plain = "threads = 6\n[mixes.a]\nreads = 1\n";
    let refused = client(plain, "a").unwrap_err();
    assert_eq!(refused.at, "workload.mixes");
}
