//! Runs fio where it is installed, and compares the record with an independent evaluation of fio's JSON.

use std::path::Path;

use proptest::prelude::*;
use serde_json::Value as Json;

use super::*;
use crate::record::{Class, Latency, OperationKind};
use crate::testing::{fixture, is_installed, outcome, point, points, run, run_all, run_context, words};

// Start of the recorded runs in ms since 1970, and their windows in ms after that, read by hand.
const BEGAN_33: u64 = 1795321553137;
const WINDOW_33: (u64, u64) = (714, 1217);
const BEGAN_39: u64 = 1795321554372;
const WINDOW_39: (u64, u64) = (651, 1151);

fn configured(keys: &str) -> Fio {
    let options: Options = toml::from_str(keys).unwrap();
    Fio::new(options).unwrap()
}

fn refused(keys: &str) -> Problem {
    Fio::new(toml::from_str(keys).unwrap()).unwrap_err()
}

fn on_file(scratch: &Path) -> RunContext {
    run_context(scratch, Target::File(scratch.join("da:ta"), 8 << 20), 0.2, 0.5)
}

// Independent evaluation: sums of x and x squared over jobs.

fn number(json: &Json, path: &str) -> f64 {
    json.pointer(path).and_then(Json::as_f64).unwrap_or_else(|| panic!("{path}"))
}

fn expected_class(jobs: &[Json], direction: &str, latency: &str) -> Option<Class> {
    let of = |path: &str| jobs.iter().map(|job| number(job, &format!("/{direction}/{path}"))).collect::<Vec<_>>();
    let lat = |path: &str| of(&format!("{latency}/{path}"));
    let operations: f64 = of("total_ios").iter().sum();
    if operations == 0.0 {
        return None;
    }
    let (ns, means, deviations) = (lat("N"), lat("mean"), lat("stddev"));
    let n: f64 = ns.iter().sum();
    let mean = (0..jobs.len()).map(|i| ns[i] * means[i]).sum::<f64>() / n;
    let squares = |i: usize| deviations[i].powi(2) * (ns[i] - 1.0) + ns[i] * means[i].powi(2);
    let squares: f64 = (0..jobs.len()).filter(|&i| ns[i] > 0.0).map(squares).sum();
    let mut histogram: Vec<(u64, u64)> = Vec::new();
    for job in jobs {
        let bins = job.pointer(&format!("/{direction}/{latency}/bins")).and_then(Json::as_object);
        for (value, count) in bins.into_iter().flatten() {
            let (value, count) = (value.parse().unwrap(), count.as_u64().unwrap());
            match histogram.iter_mut().find(|(there, _)| *there == value) {
                Some(bin) => bin.1 += count,
                None => histogram.push((value, count)),
            }
        }
    }
    histogram.sort_unstable();
    let counted: Vec<usize> = (0..jobs.len()).filter(|&i| ns[i] > 0.0).collect();
    Some(Class {
        kind: OperationKind::Read,
        operations: Some(operations as u64),
        bytes: Some(of("io_bytes").iter().sum::<f64>() as u64),
        runtime_ns: of("runtime").into_iter().fold(0.0, f64::max) as u64 * 1_000_000,
        latency: Latency {
            mean_ns: Some(mean),
            deviation_ns: Some(((squares - n * mean * mean) / (n - 1.0)).sqrt()),
            least_ns: counted.iter().map(|&i| lat("min")[i] as u64).min(),
            greatest_ns: counted.iter().map(|&i| lat("max")[i] as u64).max(),
            histogram,
            printed: Vec::new(),
        },
    })
}

fn assert_close(one: Option<f64>, other: Option<f64>) {
    let (one, other) = (one.unwrap(), other.unwrap());
    assert!((one - other).abs() <= 1e-6 * other.abs(), "{one} is not {other}");
}

/// Compares every field of the record with fio's output.
fn assert_same(record: &Record, stdout: &str, latency: &str) {
    let json: Json = serde_json::from_str(&stdout[stdout.find('{').unwrap()..]).unwrap();
    let jobs = json["jobs"].as_array().unwrap();
    assert_eq!(format!("fio-{}", record.tool.version), json["fio version"].as_str().unwrap());
    let mut classes = record.classes.iter();
    for (kind, direction) in
        [(OperationKind::Read, "read"), (OperationKind::Write, "write"), (OperationKind::Trim, "trim")]
    {
        let Some(expected) = expected_class(jobs, direction, latency) else { continue };
        let class = classes.next().unwrap();
        assert_eq!((&class.kind, class.counted(), class.bytes), (&kind, expected.counted(), expected.bytes));
        assert_eq!(class.runtime_ns, expected.runtime_ns);
        assert_close(class.latency.mean_ns, expected.latency.mean_ns);
        assert_close(class.latency.deviation_ns, expected.latency.deviation_ns);
        assert_eq!(class.latency.least_ns, expected.latency.least_ns);
        assert_eq!(class.latency.greatest_ns, expected.latency.greatest_ns);
        assert_eq!(class.latency.histogram, expected.latency.histogram);
        // fio counts latencies and operations separately; at the end of a ramp they are not reset together.
        let counted: u64 = class.latency.histogram.iter().map(|(_, count)| count).sum();
        let latencies: f64 = jobs.iter().map(|job| number(job, &format!("/{direction}/{latency}/N"))).sum();
        assert_eq!(counted as f64, latencies);
    }
    assert!(classes.next().is_none());
    let sum = |path: &str| jobs.iter().map(|job| number(job, path)).sum::<f64>();
    assert_close(record.extra.get("cpu_user_percent").copied(), Some(sum("/usr_cpu")));
    assert_close(record.extra.get("cpu_system_percent").copied(), Some(sum("/sys_cpu")));
    assert_eq!(record.extra["context_switches_count"], sum("/ctx"));
    assert_eq!(record.extra["major_faults_count"], sum("/majf"));
    assert_eq!(record.extra["minor_faults_count"], sum("/minf"));
    assert_eq!(record.extra["syncs_count"], sum("/sync/lat_ns/N"));
}

#[test]
fn output_of_installed_fio_is_parsed() {
    let keys = "ioengine = ['psync', 'libaio', 'io_uring']\nrw = ['randrw 70/30', 'write']\niodepth = 4\nnumjobs = 2
        options = { direct = [false, true], fsync = 8, rate_iops = 2000 }";
    let fio = configured(keys);
    if !is_installed(&fio) {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let context = on_file(scratch.path());
    run_all(&fio.prepare(&context).unwrap(), &context);
    assert_eq!(std::fs::metadata(scratch.path().join("da:ta")).unwrap().len(), 8 << 20);
    let version = fio.tool().unwrap().version;
    for point in points(&fio).iter().step_by(5) {
        let outcome = run(&fio.command(point, &context).unwrap(), &context);
        let record = fio.parse(point, &context, &outcome);
        let stdout = String::from_utf8_lossy(&outcome.stdout);
        if stdout.contains("Operation not permitted") || stdout.contains("Function not implemented") {
            println!("skipped {point:?}: not permitted by the kernel: {record:?}");
            continue;
        }
        let record = record.unwrap_or_else(|problem| panic!("{point:?}: {problem}"));
        assert_eq!(record.tool.version, version);
        assert_same(&record, &stdout, "lat_ns");
        let (from, to) = record.window_ns.unwrap();
        // From the start of the first job to the end of the last: at least as long as the longest job.
        let longest = record.classes.iter().map(|class| class.runtime_ns).max().unwrap();
        assert!(to - from + 1_000_000 >= longest, "{from} {to} {longest}");
        assert!(from >= 100_000_000 && to <= outcome.span_ns.1 + 1_000_000, "{from} {to}");
        let is_cached = point["direct"] == Value::Switch(false) && point["rw"] != Value::Word("write".into());
        assert_eq!(record.warnings.iter().any(|warning| warning.contains("page cache")), is_cached);
    }
}

#[test]
fn recorded_outputs_of_both_versions_are_parsed() {
    for (version, began_ms, window_ms) in [("3.33", BEGAN_33, WINDOW_33), ("3.39", BEGAN_39, WINDOW_39)] {
        let text = fixture(&format!("fio/{version}.txt"));
        let record = output::record(&outcome(&text, began_ms), Kind::Total).unwrap();
        assert_same(&record, &text, "lat_ns");
        assert!(record.tool.known);
        assert_eq!(record.window_ns, Some((window_ms.0 * 1_000_000, window_ms.1 * 1_000_000)));
        assert_eq!(record.warnings.len(), 1, "{:?}", record.warnings);
        assert!(record.warnings[0].contains("queue depth will be capped at 1"));
        assert!(record.extra["syncs_count"] > 0.0 && record.extra["sync_mean_ns"] > 0.0);
    }
}

#[test]
fn completion_latency_is_selected() {
    let fio = configured("rw = 'randread'\nlatency = 'completion'\nfill = false\noptions = { number_ios = 500 }");
    if is_installed(&fio) {
        let scratch = tempfile::tempdir().unwrap();
        let (context, [point]) = (on_file(scratch.path()), points(&fio).try_into().unwrap());
        let outcome = run(&fio.command(&point, &context).unwrap(), &context);
        let record = fio.parse(&point, &context, &outcome).unwrap();
        assert_same(&record, &String::from_utf8_lossy(&outcome.stdout), "clat_ns");
    }
    let record = output::record(&outcome(&fixture("fio/3.33.txt"), BEGAN_33), Kind::Completion).unwrap();
    assert!(record.warnings.iter().any(|warning| warning.contains("no histogram")), "{:?}", record.warnings);
}

#[test]
fn command_line() {
    let keys = "ioengine = 'io_uring hipri=1 fixedbufs=1'\nrw = 'randrw 70/30'\nbs = '16k'\niodepth = 32\nnumjobs = 4
        options = { direct = true, rate_process = 'poisson' }";
    let (fio, scratch) = (configured(keys), Path::new("/scratch"));
    let context = run_context(scratch, Target::Device("/dev/nvme0n1".into()), 1.5, 10.0);
    let [point] = points(&fio).try_into().unwrap();
    let step = fio.command(&point, &context).unwrap();
    let expected = "fio --output-format=json+ --eta=never --name=job --ioengine=io_uring --hipri=1 --fixedbufs=1 \
        --filename=/dev/nvme0n1 --rw=randrw --rwmixread=70 --bs=16384 --iodepth=32 --numjobs=4 --time_based=1 \
        --runtime=10000000us --ramp_time=1500000us --randseed=7 --lat_percentiles=1 --clat_percentiles=0 --direct=1 \
        --rate_process=poisson";
    assert_eq!(words(&step).join(" "), expected);
    assert!(fio.prepare(&context).unwrap().is_empty(), "a device is never filled");
}

#[test]
fn a_size_with_a_standard_unit_is_passed_in_bytes() {
    let sizes = ["4KiB", "4kB", "4kb", "64KIB", "4k", "4k-16k", "50%"];
    let fio = configured(&format!("bs = {sizes:?}\nsize = '1GiB'"));
    let context = run_context(Path::new("/s"), Target::Device("/d".into()), 0.0, 1.0);
    let bytes = ["4096", "4000", "4000", "65536", "4096", "4k-16k", "50%"].map(|size| format!("--bs={size}"));
    for (point, bs) in points(&fio).iter().zip(&bytes) {
        let words = words(&fio.command(point, &context).unwrap());
        assert!(
            words.iter().any(|word| word == bs) && words.iter().any(|word| word == "--size=1073741824"),
            "{words:?}"
        );
    }
}

#[test]
fn target_arguments() {
    let fio = configured("ioengine = 'psync'");
    let of = |fio: &Fio, target| {
        fio.target_arguments(&run_context(Path::new("/s"), target, 0.0, 1.0), "psync").map(|words| words.join(" "))
    };
    assert_eq!(of(&fio, Target::File("/a:b".into(), 4096)).unwrap(), "--filename=/a\\:b --size=4096");
    assert_eq!(of(&fio, Target::Folder("/f".into())).unwrap_err().at, "workload.size");
    assert_eq!(of(&fio, Target::None).unwrap_err().at, "target");
    let sized = configured("size = '1g'");
    assert_eq!(of(&sized, Target::Folder("/f".into())).unwrap(), "--filename=/f/fio.data --size=1073741824");
    assert_eq!(of(&sized, Target::File("/a".into(), 4096)).unwrap(), "--filename=/a --size=1073741824");
    let null = configured("ioengine = 'null'\nsize = '1g'");
    assert_eq!(
        null.target_arguments(&run_context(Path::new("/s"), Target::None, 0.0, 1.0), "null").unwrap(),
        ["--size=1073741824"]
    );
}

#[test]
fn invalid_keys_are_refused_by_name() {
    for (keys, at) in [
        ("options = { runtime = 5 }", "workload.options.runtime"),
        ("options = { rwmixread = 70 }", "workload.options.rwmixread"),
        ("options = { direct = [] }", "workload.options.direct"),
        ("bs = ['4k', '4k']", "workload.bs"),
        ("rw = 'randrw 70/40'", "workload.rw"),
        ("rw = 'randrw 70'", "workload.rw"),
        ("ioengine = 'io_uring hipri'", "workload.ioengine"),
        ("ioengine = 'io_uring runtime=3'", "workload.options.runtime"),
    ] {
        assert_eq!(refused(keys).at, at, "{keys}");
    }
}

#[test]
fn unknown_engines_and_programs_are_refused() {
    let fio = configured("ioengine = ['psync', 'nosuch']");
    if is_installed(&configured("ioengine = 'psync'")) {
        let missing = fio.tool().unwrap_err();
        assert!(missing.why.contains("nosuch") && missing.help.contains("io_uring"), "{missing}");
    }
    let missing = configured("program = '/nowhere/fio'").tool().unwrap_err();
    assert!(missing.help.contains("apt install fio"), "{missing}");
    let missing = configured("program = 'true'").tool().unwrap_err();
    assert!(missing.why.contains("it is not fio"), "{missing}");
}

#[test]
fn errors_have_fio_s_output() {
    let read = |outcome: &Outcome| output::record(outcome, Kind::Total).unwrap_err();
    let text = fixture("fio/3.33.txt");
    let mut ended = outcome("fio: unrecognized option '--x=1'\n", BEGAN_33);
    ended.status = Some(1);
    assert!(read(&ended).why.contains("exit status 1; output: fio: unrecognized option"));
    let mut ended = outcome(&text.replacen("\"error\" : 0", "\"error\" : 28", 1), BEGAN_33);
    ended.stderr = b"fio: io_u error on file /dev/full: No space left on device\n".to_vec();
    let why = read(&ended).why;
    assert!(why.contains("ended with error 28") && why.contains("No space left"), "{why}");
    let mut ended = outcome(&text, BEGAN_33);
    ended.status = None;
    assert!(read(&ended).why.contains("killed by a signal"));
    assert!(read(&outcome(&text[..text.len() / 2], BEGAN_33)).at.starts_with("fio's output"));
}

/// The text without `"N"`, as fio 3.8 to 3.16 print it, and with `-nan` where nothing was measured (fio 672, 1478).
fn without_counts(text: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    for line in text.lines() {
        if line.trim_start().starts_with("\"N\" : ") {
            let last = lines.pop().unwrap();
            let comma = if line.ends_with(',') { "," } else { "" };
            lines.push(last.trim_end_matches(',').to_owned() + comma);
        } else {
            lines.push(
                line.replace("\"bw_dev\" : 0.000000", "\"bw_dev\" : -nan")
                    .replace("\"iops_stddev\" : 0.000000", "\"iops_stddev\" : nan"),
            );
        }
    }
    lines.join("\n")
}

#[test]
fn counts_of_older_versions_are_those_of_the_bins_or_operations() {
    for (version, began) in [("3.33", BEGAN_33), ("3.39", BEGAN_39)] {
        let text = fixture(&format!("fio/{version}.txt"));
        let old = without_counts(&text);
        assert!(!old.contains("\"N\"") && old.contains("\"bw_dev\" : -nan,"));
        let parsed = |text: &str, kind| output::record(&outcome(text, began), kind).unwrap();
        assert_eq!(parsed(&old, Kind::Total), parsed(&text, Kind::Total), "the bins are those of `lat`");
        let (old, new) = (parsed(&old, Kind::Completion), parsed(&text, Kind::Completion));
        let means = |record: &Record| record.classes.iter().map(|class| class.latency.mean_ns).collect::<Vec<_>>();
        assert_eq!((means(&old).len(), &old.extra), (means(&new).len(), &new.extra));
        assert!(
            means(&new).into_iter().zip(means(&old)).all(|(new, old)| (new.unwrap() / old.unwrap() - 1.0).abs() < 0.1)
        );
    }
}

#[test]
fn a_version_whose_output_cannot_be_read_is_refused_before_anything_is_written() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("fio");
    for (version, refused) in [("fio-2.21", true), ("fio-3.8", false), ("fio-3.16-dirty", false)] {
        let script = format!("#!/bin/sh\ncase $1 in --version) echo {version};; *) echo Engines:; echo psync;; esac\n");
        let new = folder.path().join("new");
        std::fs::write(&new, script).unwrap();
        std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o755)).unwrap();
        std::fs::rename(new, &program).unwrap();
        let fio = configured(&format!("program = '{}'", program.display()));
        // a process that another test starts meanwhile may have inherited the file open for writing
        let is_busy = |tool: &Result<_, Missing>| tool.as_ref().is_err_and(|why| why.why.contains("busy"));
        let tool = std::iter::repeat_with(|| fio.tool()).find(|tool| !is_busy(tool)).unwrap();
        assert_eq!(tool.is_err(), refused, "{version}: {tool:?}");
        assert!(!refused || tool.unwrap_err().help.contains("install fio 3.8 or later"));
    }
}

#[test]
fn a_missing_field_is_named() {
    let text = fixture("fio/3.33.txt");
    for (field, at) in [("total_ios", "jobs[0].read"), ("usr_cpu", "jobs[0]"), ("timestamp_ms", ".")] {
        let without = text.replacen(&format!("\"{field}\""), "\"renamed\"", 1);
        let problem = output::record(&outcome(&without, BEGAN_33), Kind::Total).unwrap_err();
        assert!(problem.at.contains(at) && problem.why.contains(field), "{problem}");
    }
}

#[test]
fn an_unknown_version_and_a_clock_step_are_warnings() {
    let text = fixture("fio/3.33.txt").replace("fio-3.33", "fio-4.0");
    let fio = configured("options = { direct = true }");
    let at = point([("rw", Value::Word("read".into())), ("direct", Value::Switch(true))]);
    let context = run_context(Path::new("/s"), Target::File("/a".into(), 4096), 0.0, 1.0);
    let record = fio.parse(&at, &context, &outcome(&text, BEGAN_33 + 3_600_000)).unwrap();
    assert!(!record.tool.known && record.window_ns.is_none());
    for text in ["fio 4.0", "clock"] {
        assert!(record.warnings.iter().any(|warning| warning.contains(text)), "{:?}", record.warnings);
    }
}

proptest! {
    #[test]
    fn corrupted_output_does_not_panic(cut in 0usize..60_000, with in "[ -~]{0,12}") {
        let text = fixture("fio/3.39.txt");
        let cut = cut % text.len();
        let changed = format!("{}{with}{}", &text[..cut], &text[(cut + with.len()).min(text.len())..]);
        let _ = output::record(&outcome(&changed, BEGAN_39), Kind::Total);
    }

    #[test]
    fn times_are_exact_to_the_microsecond(us in 0u64..1_000_000_000_000) {
        prop_assert_eq!(time(us as f64 / 1e6, "ramp").unwrap(), format!("{us}us"));
    }
}

#[test]
fn invalid_times_are_refused() {
    for seconds in [-1.0, f64::NAN, f64::INFINITY] {
        assert_eq!(time(seconds, "ramp").unwrap_err().at, "ramp");
    }
    let fio = configured("");
    let context = run_context(Path::new("/s"), Target::File("/a".into(), 4096), 0.0, 0.0);
    assert_eq!(fio.command(&points(&fio)[0], &context).unwrap_err().at, "duration");
}
