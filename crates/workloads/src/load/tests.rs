//! Runs the program where it was built, and parses recorded outputs.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use super::*;
use crate::Target;
use crate::record::OperationKind;
use crate::testing::{fixture, outcome, points, run, run_all, run_context, words};

fn configured(keys: &str) -> Load {
    Load::new(toml::from_str(keys).unwrap()).unwrap()
}

/// The built program, or the one in `PILOTLIGHT`.
fn built() -> Option<PathBuf> {
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target");
    let configured = std::env::var_os("PILOTLIGHT").map(PathBuf::from);
    let found = configured.into_iter().chain([target.join("debug/pilotlight"), target.join("release/pilotlight")]);
    let found = found.into_iter().find(|program| program.is_file());
    if found.is_none() {
        println!("skipped: pilotlight is not built, and PILOTLIGHT is not set");
    }
    found
}

#[test]
fn targets_with_two_policies_are_started_and_measured() {
    let Some(program) = built() else { return };
    // Below the ephemeral ports, which the kernel may assign between two servers.
    let ports = (0..10_000).map(|i| 20_000 + ((std::process::id() + i) % 10_000) as u16);
    let port = { ports }.find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).unwrap();
    let load = configured(&format!(
        "program = '{}'\nrw = 'randrw 70/30'\nnumjobs = 2
        options = {{ rate_iops = 4000, schedule = '5%:200ms,100%:100ms', yield = true }}
        [serve]\npolicy = ['static', 'sandman guards=recommended']\nnamespace = 'mem:16MiB'\nlisten = '127.0.0.1:{port}'
        options = {{ reactors = 2 }}",
        program.display()
    ));
    let scratch = tempfile::tempdir().unwrap();
    let context = run_context(scratch.path(), Target::None, 0.5, 1.2);
    assert!(load.tool().unwrap().known);
    for point in points(&load) {
        let server = run_all(&load.before(&point, &context).unwrap(), &context);
        let outcome = run(&load.command(&point, &context).unwrap(), &context);
        let read = || load.parse(&point, &context, &outcome).unwrap_or_else(|problem| panic!("{point:?}: {problem}"));
        let (mut record, until) = (read(), Instant::now() + Duration::from_secs(60));
        while !record.extra.contains_key("target_active_percent") && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(20)); // for the next line of the status
            record = read();
        }
        drop(server);
        let json: serde_json::Value = serde_json::from_slice(&outcome.stdout).unwrap();
        assert_same(&record, &json);
        let (from, to) = record.window_ns.unwrap();
        // The ramp and the start of the program, which may be slow on a busy machine.
        assert!((400_000_000..20_000_000_000).contains(&from) && to == outcome.span_ns.1, "{from} {to}");
        let (active, asleep) = (record.extra["target_active_percent"], record.extra["target_asleep_percent"]);
        assert!((100.0..=220.0).contains(&(active + asleep)), "{active} {asleep}");
        let polls = point["policy"] == Value::Word("static".into());
        assert!(!polls || record.extra["target_sleeps_count"] == 0.0);
        assert_eq!(record.tool.version, load.tool().unwrap().version);
    }
}

/// Compares every field with the JSON.
fn assert_same(record: &Record, json: &serde_json::Value) {
    let kinds = [(OperationKind::Read, "read"), (OperationKind::Write, "write"), (OperationKind::Trim, "deallocate")];
    let present = kinds.iter().filter(|(_, key)| !json[key].is_null());
    assert_eq!(record.classes.len(), present.clone().count());
    for (class, (kind, key)) in record.classes.iter().zip(present) {
        let (ios, of) = (&json[key]["ios"], &json[key]["latency"]);
        assert_eq!((&class.kind, class.counted()), (kind, ios.as_u64().unwrap()));
        assert_eq!(class.bytes, json[key]["data_bytes"].as_u64());
        assert_eq!(class.runtime_ns, json["elapsed_ns"].as_u64().unwrap());
        assert_eq!(
            (class.latency.mean_ns, class.latency.deviation_ns),
            (of["mean_ns"].as_f64(), of["stddev_ns"].as_f64())
        );
        assert_eq!((class.latency.least_ns, class.latency.greatest_ns), (of["min_ns"].as_u64(), of["max_ns"].as_u64()));
        for (ppm, key) in [(500_000, "p50_ns"), (990_000, "p99_ns"), (999_900, "p99_99_ns")] {
            let printed = class.latency.printed.iter().find(|(at, _)| *at == ppm).unwrap();
            assert_eq!(printed.1, of[key].as_u64().unwrap());
        }
    }
    for (i, phase) in json["phases"].as_array().unwrap().iter().enumerate() {
        assert_eq!(record.extra[&format!("phase{i}_p99_ns")], phase["latency"]["p99_ns"].as_f64().unwrap());
        assert_eq!(record.extra[&format!("phase{i}_requests_count")], phase["ios"].as_f64().unwrap());
    }
    let unstarted = json["open_loop"]["unstarted"].as_f64().unwrap();
    assert_eq!(record.extra["unstarted_requests_count"], unstarted);
    assert_eq!(record.warnings.iter().any(|warning| warning.contains("free slot")), unstarted > 0.0);
}

#[test]
fn a_recorded_output_is_parsed() {
    let text = fixture("load/0.1.0.json");
    let record = output::record(&outcome(&text, 0), "0.1.0".into()).unwrap();
    assert_same(&record, &serde_json::from_str(&text).unwrap());
    let (from, to) = record.window_ns.unwrap();
    assert_eq!((to, to - from), (100_000_000_000, record.classes[0].runtime_ns));
}

#[test]
fn command_lines() {
    let keys = "program = 'pilotlight'\nrw = 'randrw 70/30'\nbs = '16k'\niodepth = 32\nnumjobs = 4
        options = { rate_iops = '50k', schedule = '5%:1s,100%:100ms', yield = true, verify = false }
        [serve]\npolicy = 'sandman guards=recommended window=64'\noptions = { cores = '0-3' }";
    let load = configured(keys);
    let context = run_context(Path::new("/s"), Target::File("/d/f".into(), 4096), 0.5, 10.0);
    let [point] = points(&load).try_into().unwrap();
    let expected = "pilotlight load --target=127.0.0.1:14420 --json --rw=randrw --rwmixread=70 --bs=16k --iodepth=32 --numjobs=4 \
        --runtime=10000000us --ramp_time=500000us --randseed=7 --rate_iops=50k --schedule=5%:1s,100%:100ms --yield";
    assert_eq!(words(&load.command(&point, &context).unwrap()).join(" "), expected);
    let before = load.before(&point, &context).unwrap();
    let expected = "pilotlight serve --listen=127.0.0.1:14420 --namespace=file:/d/f?size=4096 --admin-socket=pilotlight.sock \
        --policy=sandman --policy-set=guards=recommended --policy-set=window=64 --cores=0-3";
    assert_eq!(words(&before[1]).join(" "), expected);
    assert!(before[1].background && before[1].ready == Some("/s/pilotlight.sock".into()));
    assert_eq!(before.iter().map(|step| step.background).collect::<Vec<_>>(), [false, true, false, false, true]);
    let running = configured("target = 'host:4420'\nnqn = 'nqn.x'\noptions = { number_ios = 5 }");
    let [point] = points(&running).try_into().unwrap();
    assert!(running.before(&point, &context).unwrap().is_empty());
    let arguments = words(&running.command(&point, &context).unwrap()).join(" ");
    assert!(arguments.contains("load --target=host:4420 --nqn=nqn.x --json"), "{arguments}");
    assert!(!arguments.contains("iodepth"), "{arguments}");
}

#[test]
fn invalid_keys_are_refused_by_name() {
    for (keys, at) in [
        ("bs = '4k'", "workload.target"),
        ("target = 'a:1'\n[serve]\npolicy = 'static'", "workload.target"),
        ("target = 'a:1'\noptions = { runtime = 5 }", "workload.options.runtime"),
        ("[serve]\npolicy = 'sandman window'", "workload.serve.policy"),
        ("[serve]\npolicy = []", "workload.policy"),
        ("target = 'a:1'\nrw = 'randrw 1/1'", "workload.rw"),
    ] {
        assert_eq!(Load::new(toml::from_str(keys).unwrap()).unwrap_err().at, at, "{keys}");
    }
    let missing = configured("program = '/nowhere'\ntarget = 'a:1'").tool().unwrap_err();
    assert!(missing.help.contains("workload.program"));
}

#[test]
fn failures_and_missing_fields_are_named() {
    let text = fixture("load/0.1.0.json");
    let read = |outcome: &Outcome| output::record(outcome, String::new()).unwrap_err();
    let problem = read(&outcome(&text.replacen("\"p99_ns\"", "\"other\"", 1), 0));
    assert!(problem.at.contains("total.latency") && problem.why.contains("p99_ns"), "{problem}");
    let mut ended = outcome("", 0);
    ended.status = Some(1);
    ended.stderr = b"error: load on nqn at 127.0.0.1:1: connection refused\n".to_vec();
    assert!(read(&ended).why.contains("connection refused"));
    let failed =
        text.replacen("\"errors\": 0", "\"errors\": 3", 1).replace("\"faults\": []", "\"faults\": [\"Media Error\"]");
    assert!(read(&outcome(&failed, 0)).why.contains("3 commands failed: Media Error"));
    let newer = output::record(&outcome(&text.replace("\"format\": 1", "\"format\": 2"), 0), String::new()).unwrap();
    assert!(!newer.tool.known && newer.warnings.iter().any(|warning| warning.contains("format 2")));
}

/// A status line of two reactors that ends at `end` and covers `window`.
fn status(end: u64, window: u64, busy: f64, wakes: u64) -> String {
    let reactor = format!(
        "{{\"state\":\"awake\",\"busy_percent\":{busy},\"idle_percent\":10.0,\"asleep_percent\":{{\"a\":1.0,\"b\":2.0}},\"scheduled_percent\":50.0}}"
    );
    let none = "{\"in_window\":0}";
    let io = "{\"connections\":1,\"iops\":0.0,\"read_bytes_per_s\":0.0,\"written_bytes_per_s\":0.0}";
    format!(
        "{{\"format\":1,\"io\":{io},\"server\":{{\"uptime_ns\":{end}}},\"window_ns\":{window},\"reactors\":[{reactor},{reactor}],\"commands\":{{\"moves\":{none},\
         \"sleeps\":{none},\"wakes\":{{\"in_window\":{wakes}}},\"refusals\":{none}}}}}\n"
    )
}

#[test]
fn counters_are_those_of_the_window_and_partial_lines_count_in_proportion() {
    let text = status(100, 100, 1.0, 8) + &status(200, 100, 3.0, 4) + &status(300, 100, 7.0, 2) + "{\"half";
    // The last line was written at 1,300: the lines are 1,000 to 1,100, to 1,200 and to 1,300.
    let of = |from, to| serve::of_lines(&text, 1_300, (from, to));
    let all = of(1_000, 1_300).unwrap();
    assert_eq!((all["target_busy_percent"], all["target_wakes_count"]), (22.0 / 3.0, 14.0));
    assert_eq!((all["target_asleep_percent"], all["target_scheduled_percent"]), (6.0, 100.0));
    let part = of(1_050, 1_200).unwrap();
    assert!((part["target_busy_percent"] - (50.0 * 2.0 + 100.0 * 6.0) / 150.0).abs() < 1e-9);
    assert_eq!((part["target_wakes_count"], part["target_active_percent"]), (8.0, part["target_busy_percent"] + 20.0));
    assert!(of(1_250, 1_400).unwrap_err().why.contains("less than half"));
    assert!(serve::of_lines("", 0, (0, 10)).is_err());
    assert_eq!(serve::of_lines("nonsense\n", 0, (0, 10)).unwrap_err().at, serve::STATUS);
}
