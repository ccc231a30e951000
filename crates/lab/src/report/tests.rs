//! A page of synthetic results.

use std::collections::BTreeMap;

use super::*;
use crate::fixtures::{self, Noise, at, knob};
use crate::results::summary::Spread;
use pilotlight_workloads::Value;

/// Depths 1, 4 and 16, reads and writes: 1,000 I/Os per second times the depth.
fn results() -> Results {
    let metric = |key: &str, title: &str, unit: &str, modelled| MetricInfo {
        key: key.into(),
        title: title.into(),
        unit: unit.into(),
        modelled,
    };
    let mut results = Results {
        title: "a <test>".into(),
        complete: true,
        knobs: vec!["depth".into(), "rw".into()],
        metrics: vec![
            metric("iops", "I/Os per second", "1/s", false),
            metric("cpu_modelled_generic_power_w", "power, CPU, modelled (generic)", "W", true),
            metric("io_per_j_cpu_modelled_generic", "I/Os per joule, CPU, modelled (generic)", "1/J", true),
        ],
        ..Results::default()
    };
    for (at, (depth, rw)) in [1, 4, 16].into_iter().flat_map(|depth| [(depth, "read"), (depth, "write")]).enumerate() {
        let rate = 1_000.0 * f64::from(depth);
        let values = [rate * 0.9, rate, rate * 1.1];
        let all = [
            ("iops", values),
            ("cpu_modelled_generic_power_w", [10.0; 3]),
            ("io_per_j_cpu_modelled_generic", values.map(|v| v / 10.0)),
        ];
        results.points.push(PointResult {
            point: at,
            knobs: BTreeMap::from([
                ("depth".into(), Value::Integer(depth.into())),
                ("rw".into(), Value::Word(rw.into())),
            ]),
            repeats: 3,
            values: all.map(|(key, values)| (key.to_owned(), Spread::new(&values).unwrap())).into(),
            ..PointResult::default()
        });
    }
    results
}

/// Without samples.
pub(super) fn plain_read() -> Read {
    Read {
        folder: Folder::new(Path::new("/nowhere")),
        results: results(),
        environment: Environment { host: "h".into(), ..Environment::default() },
        sensors: SensorSet::default(),
        finished: Finished::default(),
        drawn: Vec::new(),
        lines: Vec::new(),
    }
}

fn page() -> String {
    report(&plain_read()).html()
}

#[test]
fn date_duration_machine_contents_and_energy_are_first() {
    let folder = tempfile::tempdir().unwrap();
    let mut read = rich(folder.path());
    read.environment.at_unix_s = 1_795_321_553;
    let runs = &mut read.finished.runs;
    runs.values_mut().for_each(|run| run.began_wall_ns += 1_795_321_553_000_000_000);
    let took_s = runs.values().map(|run| run.span.length_ns()).sum::<u64>() / 1_000_000_000;
    let table = main_table(&read.results);
    let page = report(&read).html();
    let machine = "made-up, A processor with a long name @ 3.30 GHz, ten cores, hyper-threading off";
    assert!(
        page.contains(&format!(
            "</h1><p class=\"note\">2026-11-22 04:25 UTC, measured for {took_s} s; host {machine}</p>"
        )),
        "{page}"
    );
    assert!(page.contains("<nav") && page.contains("href=\"#section-1\"") && page.contains("id=\"section-1\""));
    assert!(!page.contains("simulated"), "nothing was simulated");
    let first: Vec<&str> = table.columns.iter().map(|column| column.name.as_str()).skip(5).take(6).collect();
    let energy =
        ["system power w", "cpu power w", "ssd power w", "io per j system", "bytes per j system", "io per j ssd cpu"];
    assert_eq!(first, energy);
    read.results.points[0].values.get_mut("iops").unwrap().family = Some((1.0, 2.0));
    assert!(main_table(&read.results).title.contains("family of simulated machines"));
}

#[test]
fn every_metric_has_a_chart_over_every_knob() {
    let page = page();
    for chart in [
        "I/Os per second over depth",
        "I/Os per second over rw",
        "power, CPU, modelled (generic) over depth",
        "I/Os per joule, CPU, modelled (generic) over rw",
        "I/Os per joule, CPU, modelled (generic) (1/J)",
    ] {
        assert!(page.contains(&format!("aria-label=\"{chart}\"")), "{chart}");
    }
    assert!(page.contains("16,000 ± "), "the table shows mean and interval");
}

#[test]
fn modelled_power_is_noted_and_text_is_escaped() {
    let page = page();
    assert!(page.contains("labelled as modelled"));
    assert!(page.contains("a &lt;test&gt;") && !page.contains("<test>"));
    for outside in ["http:", "https:", "<script"] {
        assert!(!page.contains(outside), "{outside}");
    }
}

#[test]
fn sizes_are_numbers_and_engines_are_not() {
    let number = |word: &str| knobs::number(&Value::Word(word.into()));
    assert_eq!(
        [number("4k"), number("1M"), number("512"), number("io_uring")],
        [Some(4_096.0), Some(1_048_576.0), Some(512.0), None]
    );
}

/// A machine with SSD, CPU and system power, four knobs, and samples of two of its measurements.
pub(super) fn rich(folder: &Path) -> Read {
    let knobs = [
        knob("ioengine", &["libaio", "io_uring", "io_uring hipri=1 fixedbufs=1", "posixaio"]),
        knob("rw", &["randread", "read"]),
        knob("bs", &["4k", "16k", "64k", "128k", "1m"]),
        knob("iodepth", &["1", "16"]),
    ];
    let metrics = [
        ("iops", "1/s"),
        ("bytes_per_s", "B/s"),
        ("latency_mean_us", "us"),
        ("latency_p99_us", "us"),
        ("cpu_busy_cores", "cores"),
        ("system_power_w", "W"),
        ("cpu_power_w", "W"),
        ("ssd_power_w", "W"),
        ("io_per_j_system", "1/J"),
        ("bytes_per_j_system", "B/J"),
        ("io_per_j_ssd_cpu", "1/J"),
        ("io_edp_mean_js_system", "J s"),
        ("io_edp_p99_js_system", "J s"),
    ];
    let mut noise = Noise::new(1);
    let given = fixtures::results(&knobs, 3, &metrics, |point| {
        let size = pilotlight_input::quantity::storage_bytes(&at(point, "bs")).unwrap() as f64;
        let depth: f64 = at(point, "iodepth").parse().unwrap();
        let polls = if at(point, "ioengine").contains("hipri") { 1.3 } else { 1.0 };
        let mut noisy = |value: f64| value * (0.03 * noise.normal()).exp();
        let rate = noisy(3.2e9 / (size + 16_000.0) * (1.0 - 0.7 / depth));
        let (cpu, ssd) = (noisy(45.0 * polls + rate / 3e4), noisy(1.8 + rate * size / 9e8));
        let (system, latency) = (noisy(40.0 + cpu + ssd), depth / rate * 1e6);
        let p99 = noisy(latency * 3.0);
        let (per_j, edp) = (rate / system, system / rate * latency / 1e6);
        vec![
            rate,
            rate * size,
            latency,
            p99,
            noisy(0.4 * polls),
            system,
            cpu,
            ssd,
            per_j,
            per_j * size,
            rate / (cpu + ssd),
            edp,
            edp * 3.0,
        ]
    });
    let results = Results {
        notes: vec!["not read: rapl: there is no powercap here. Load the module intel_rapl_msr".into()],
        ..given.results
    };
    let folder = Folder::new(folder);
    let (sensors, finished) = sampled(&folder, &results);
    let cpu =
        [("model".to_owned(), "A processor with a long name @ 3.30 GHz, ten cores, hyper-threading off".to_owned())];
    let environment = Environment { host: "made-up".into(), cpu: cpu.into(), ..Environment::default() };
    Read { folder, results, environment, sensors, finished, drawn: Vec::new(), lines: Vec::new() }
}

/// Samples of the first two points: power that rises with the load, and bytes read by a drive.
fn sampled(folder: &Folder, results: &Results) -> (SensorSet, Finished) {
    use pilotlight_sensors::energy::{Point, Window};
    use pilotlight_sensors::recording::{Marker, Recording, Track};
    use pilotlight_sensors::{Domain, Part, Unit};
    let domain = Domain::power("system", Part::System);
    let read = Domain::counter("nvme0n1/read", Unit::Byte);
    let mut finished = Finished::default();
    const MS: u64 = 1_000_000;
    for (point, of) in results.points.iter().enumerate().take(2) {
        let mut tracks = [("ipmi", &domain), ("diskstats", &read)]
            .map(|(name, domain)| Track::new(name, std::slice::from_ref(domain), 10 * MS));
        for at_ns in (0..=6_000).step_by(20).map(|ms| ms * MS) {
            let busy = (500 * MS..5_500 * MS).contains(&at_ns);
            tracks[0].points[0].push(Point { at_ns, value: if busy { 95_000_000 } else { 60_000_000 } });
            let bytes = at_ns.clamp(500 * MS, 5_500 * MS) - 500 * MS;
            tracks[1].points[0].push(Point { at_ns, value: bytes as i64 * 2 });
        }
        let markers = vec![Marker { at_ns: 1_000 * MS, name: "measure".into() }];
        let recording = Recording {
            tracks: tracks.to_vec(),
            markers,
            wall_ns: 6_000 * MS,
            cpu_ns: 12 * MS,
            ..Recording::default()
        };
        let key = crate::plan::Key { point, repeat: 0 };
        let samples = folder.samples(&crate::results::folder::name_of(key));
        crate::results::samples::write(&recording, 0, &samples, crate::results::samples::Format::Csv).unwrap();
        let window = Window { from_ns: 1_000 * MS, to_ns: 5_000 * MS };
        let run = crate::record::Run {
            key,
            knobs: of.knobs.clone(),
            began_wall_ns: 0,
            span: Window { from_ns: 0, to_ns: 6_000 * MS },
            window,
            record: pilotlight_workloads::record::Record::default(),
            sensed: crate::record::Sensed::from_recording(&recording, window),
            completion: None,
        };
        finished.runs.insert(key, run);
    }
    let domains = vec![("ipmi".to_owned(), domain), ("diskstats".to_owned(), read)];
    (SensorSet { domains, ..SensorSet::default() }, finished)
}

/// Long names.
pub(super) fn long_names() -> Read {
    let knobs = [
        knob("policy", &["static", "interrupt", "sandman guards=recommended coarse_interval=100ms fine_interval=10us"]),
        knob("ioengine", &["io_uring hipri=1 fixedbufs=1 registerfiles=1", "libaio"]),
        knob("machine.files./sys/block/nvme0n1", &["1", "2", "3"]),
    ];
    let metrics = [("iops", "1/s"), ("io_per_j_system", "1/J")];
    let mut noise = Noise::new(2);
    let mut given = fixtures::results(&knobs, 3, &metrics, |_| vec![1e5 + noise.normal(), 1e3 + noise.normal()]);
    given.results.title = "a_name_of_an_experiment_in_which_there_is_no_space_at_all_".repeat(3);
    Read { results: given.results, ..plain_read() }
}

#[test]
fn the_page_has_the_charts_of_the_thesis() {
    let folder = tempfile::tempdir().unwrap();
    let page = report(&rich(folder.path())).html();
    for chart in [
        "iops over iodepth",
        "latency p99 us over bs",
        "system power w over ioengine",
        "io per j system over bs",
        "io edp mean js system over rw",
        "Power by part of the machine, mean over repeats",
    ] {
        assert!(page.contains(&format!("aria-label=\"{chart}\"")), "{chart}");
    }
    for text in [
        "Recommendations",
        "Notes and missing values",
        "power, ioengine=libaio rw=randread bs=4k iodepth=1",
        "rest of the system",
        "measured from",
        "Sampling took 0.20 %",
    ] {
        assert!(page.contains(text), "{text}");
    }
    assert!(!page.contains("No power was measured"));
    assert!(super::tests::page().contains("No power was measured"), "modelled power is not measured");
}

fn section<'a>(report: &'a Report, title: &str) -> &'a Section {
    report.sections.iter().find(|section| section.title == title).unwrap()
}

fn charts(section: &Section) -> Vec<&pilotlight_report::Chart> {
    section.blocks.iter().filter_map(|block| if let Block::Chart(chart) = block { Some(chart) } else { None }).collect()
}

/// Two knobs; values are 10 to the power of the point's index.
fn plain_results(repeats: &[f64]) -> Results {
    let knobs = [knob("engine", &["a", "b"]), knob("bs", &["4k", "64k"])];
    let given =
        fixtures::results(&knobs, 1, &[("iops", "1/s"), ("io_per_j_system", "1/J"), ("bytes_per_s", "B/s")], |_| {
            vec![1.0; 3]
        });
    let mut results = given.results;
    for point in &mut results.points {
        let first = 10.0_f64.powi(point.point as i32);
        for key in ["iops", "io_per_j_system", "bytes_per_s"] {
            let values: Vec<f64> = repeats.iter().map(|repeat| first * repeat).collect();
            point.values.insert(key.into(), Spread::new(&values).unwrap());
        }
    }
    results
}

#[test]
fn a_heat_map_has_every_point() {
    use pilotlight_report::Chart;
    let report = report(&Read { results: plain_results(&[1.0]), ..plain_read() });
    let maps = charts(section(&report, "Maps"));
    let Chart::Heat(heat) = maps[0] else { panic!("{maps:?}") };
    assert_eq!(heat.columns, ["4k", "64k"]);
    assert_eq!(
        heat.rows,
        [("a".to_owned(), vec![Some(1.0), Some(10.0)]), ("b".to_owned(), vec![Some(100.0), Some(1_000.0)])]
    );
}

#[test]
fn wide_ranges_have_a_logarithmic_scale_and_intervals_end_at_zero() {
    use pilotlight_report::Chart;
    use pilotlight_report::chart::Scale;
    // the half-width of the interval of 1 and 3 is 12.7, above the mean
    let report = report(&Read { results: plain_results(&[1.0, 3.0]), ..plain_read() });
    let over = charts(section(&report, "Over bs"));
    let Chart::Ordered(ordered) = over[0] else { panic!("{over:?}") };
    assert_eq!(ordered.y.scale, Scale::Log10, "from 2 to 2,000");
    let bar = ordered.lines[0].1[0].unwrap();
    let (low, high) = bar.band.unwrap();
    assert!(bar.value == 2.0 && low == 0.0 && (high - 14.706).abs() < 1e-3, "{bar:?}");
}

#[test]
fn values_of_the_table_have_the_unit_of_the_column() {
    let mut results = plain_results(&[1.0, 3.0]);
    for point in &mut results.points {
        point.values.insert("bytes_per_s".into(), Spread::new(&[5e6, 7e6]).unwrap());
    }
    let table = main_table(&results);
    let column = table.columns.iter().position(|column| column.name == "bytes per s").unwrap();
    assert_eq!(table.columns[column].unit, "MB/s");
    assert_eq!(table.rows[0][column], Cell::text("6 ± 12.71"));
}

#[test]
fn the_parts_sum_to_the_total() {
    use pilotlight_report::Chart;
    let metrics = [("ssd_power_w", "W"), ("cpu_power_w", "W"), ("system_power_w", "W")];
    let given = fixtures::results(&[knob("a", &["x"])], 2, &metrics, |_| vec![5.0, 40.0, 100.0]);
    let section = parts::section(&given.results).unwrap();
    let Chart::Stack(stack) = charts(&section)[0] else { panic!("{section:?}") };
    assert_eq!(stack.rows, [("the only point".to_owned(), vec![Some(5.0), Some(40.0), Some(55.0)])]);
}

#[test]
fn metrics_with_values_are_not_missing() {
    let mut results = plain_results(&[1.0, 2.0]);
    results.metrics.push(fixtures::metric_info("ssd_power_w", "W"));
    results.points[0].missing =
        [("iops", "in one repeat"), ("ssd_power_w", "no sensor")].map(|(k, v)| (k.into(), v.into())).into();
    let section = missing::section(&Read { results, ..plain_read() }).unwrap();
    let Some(Block::Table(table)) = section.blocks.first() else { panic!("{section:?}") };
    assert_eq!(table.rows, [vec![Cell::Integer(1), Cell::text("no sensor")]]);
}

#[test]
fn charts_over_time_show_the_first_finished_measurement() {
    use pilotlight_report::Chart;
    let folder = tempfile::tempdir().unwrap();
    let mut read = rich(folder.path());
    // The clock started long before the command; the first repeat failed.
    let (first, later) = (crate::plan::Key { point: 0, repeat: 0 }, crate::plan::Key { point: 0, repeat: 2 });
    let mut run = read.finished.runs.remove(&first).unwrap();
    let name = |key| read.folder.samples(&crate::results::folder::name_of(key));
    std::fs::rename(name(first), name(later)).unwrap();
    for at_ns in [&mut run.span.from_ns, &mut run.span.to_ns, &mut run.window.from_ns, &mut run.window.to_ns] {
        *at_ns += 1_000_000_000_000;
    }
    run.key = later;
    read.finished.runs.insert(later, run);
    let report = report(&read);
    let charts = charts(section(&report, "Over time"));
    let Chart::Trace(power) = charts[0] else { panic!("{charts:?}") };
    assert_eq!(power.marks, [(1.0, "measured from".to_owned()), (5.0, "to".to_owned())]);
    let watts: Vec<f64> = power.lines[0].places.iter().filter_map(|place| place.y).collect();
    assert!(watts.iter().all(|watts| (60.0..=95.0).contains(watts)), "{watts:?}");
    assert_eq!(charts.len(), 4, "two points, power and throughput");
}
