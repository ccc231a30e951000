//! `experiments/quick.toml` with the real fio, shortened. Skipped with a message without fio or io_uring.

use std::path::Path;

use pilotlight_input::{Merged, file as read, include};
use pilotlight_lab::experiment::{self, Overrides};
use pilotlight_lab::plan::Plan;
use pilotlight_lab::report;
use pilotlight_lab::results::samples::Format;
use pilotlight_lab::results::{Folder, Results};
use pilotlight_lab::run::{self, Settings, StopFlag};
use pilotlight_lab::sensor_set::SensorSet;
use pilotlight_sensors::Roots;

/// The duration in `shortened`, in seconds.
const DURATION_S: f64 = 0.3;

/// The file with short times and modelled power.
fn shortened() -> Merged {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments/quick.toml");
    let mut merged = include::load(&path).unwrap();
    let less = r#"
        warm_up = "100ms"
        duration = "300ms"
        cool_down = "0s"
        settle = "0s"
        idle_baseline = "200ms"
        repeats = 2
        [target]
        size = "8MiB"
        [workload]
        bs = "4k"
        rw = ["randread", "randrw 70/30"]
        iodepth = [4]
    "#;
    include::merge(&mut merged.table, read::parse("less", less).unwrap());
    merged
}

fn has_io_uring() -> bool {
    let disabled = std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled").unwrap_or_default();
    disabled.trim().is_empty() || disabled.trim() == "0"
}

#[test]
fn fio_on_a_file_gives_every_metric_and_only_modelled_power() {
    if run::find("fio").is_none() || !has_io_uring() {
        println!("skipped: there is no fio here (apt install fio), or io_uring is disabled");
        return;
    }
    // On disk: tmpfs has no O_DIRECT on older kernels.
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let out = Folder::new(&folder.path().join("out"));
    let requested = Overrides { sensors: vec!["modelled".into()], ..Overrides::default() };
    let loaded = experiment::from_merged(shortened(), &requested).unwrap_or_else(|error| panic!("{error}"));
    let (plan, roots) = (Plan::new(&loaded), Roots::default());
    let sensors = SensorSet::find(&loaded.experiment, &roots).unwrap();
    let changes = Some(folder.path().join("changes.jsonl"));
    let settings = Settings { folder: out.clone(), may_overwrite: None, format: Format::Parquet, roots, changes };
    let results = run::run(&loaded, &plan, &sensors, &settings, &StopFlag::default(), &mut |_| ()).unwrap();

    assert!(results.complete);
    check_work(&results);
    check_watts(&results, &sensors);
    report::write(out.root()).unwrap();
    let page = std::fs::read_to_string(out.report()).unwrap();
    assert!(page.contains("I/Os per second over rw") && page.contains("throughput of drives"), "charts are there");
    assert!(!out.root().join("data.bin").exists());
}

/// Values of fio's own output, parsed separately.
fn check_work(results: &Results) {
    let reads = results.points.iter().find(|point| point.knobs["rw"].to_string() == "randread").unwrap();
    let mixed = results.points.iter().find(|point| point.knobs["rw"].to_string() != "randread").unwrap();
    for key in ["iops", "bytes_per_s", "latency_mean_us", "latency_p99_us", "cpu_busy_cores"] {
        let spread = &reads.values[key];
        assert!(spread.n == 2 && spread.mean > 0.0 && spread.low.is_some(), "{key}: {spread:?}");
    }
    let (rate, bytes) = (reads.values["iops"].mean, reads.values["bytes_per_s"].mean);
    // At the end of a ramp fio does not reset requests and bytes together: those in flight (four) may be in only one count.
    assert!((bytes / 4096.0 - rate).abs() <= 4.0 / DURATION_S, "{bytes} {rate}");
    assert!(!reads.values.contains_key("write_iops"));
    let share = mixed.values["read_iops"].mean / mixed.values["iops"].mean;
    // the direction of each request is random: five standard deviations of two repeats
    let requests = mixed.values["iops"].mean * 2.0 * DURATION_S;
    assert!((share - 0.7).abs() < 5.0 * (0.7 * 0.3 / requests).sqrt(), "{share} of {requests}");
    // Little's law: four requests in flight in each repeat (not for the means over both: one may be much slower)
    let latencies = &reads.values["latency_mean_us"].values;
    for (rate, latency_us) in reads.values["iops"].values.iter().zip(latencies) {
        let in_flight = rate * latency_us / 1e6;
        assert!((3.0..5.0).contains(&in_flight), "{in_flight}");
    }
}

fn check_watts(results: &Results, sensors: &SensorSet) {
    let point = &results.points[0];
    assert!(point.values["cpu_modelled_generic_power_w"].mean > 10.0);
    assert!(point.values.contains_key("io_per_j_cpu_modelled_generic"));
    // On a busy machine power may not be above idle; the metric then has a reason.
    let above = "io_edp_p99_js_cpu_modelled_generic_above_idle";
    assert!(point.values.contains_key(above) || point.missing[above].contains("not above zero"), "{:?}", point.missing);
    if sensors.has_measured_power() {
        return;
    }
    assert!(results.notes.iter().any(|note| note.contains("no power is measured")), "{:?}", results.notes);
    assert!(results.notes.iter().any(|note| note.contains("ipmi")), "{:?}", results.notes);
    let measured = results.metrics.iter().filter(|about| about.unit == "W" && !about.modelled);
    for about in measured {
        assert!(results.points.iter().all(|point| !point.values.contains_key(&about.key)), "{}", about.key);
    }
}
