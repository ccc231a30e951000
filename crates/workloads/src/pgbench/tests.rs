//! Runs pgbench and PostgreSQL where they are installed, and parses recorded outputs.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use super::*;
use crate::Target;
use crate::record::OperationKind;
use crate::testing::{fixture, is_installed, outcome, points, run, run_all, run_context, words};

fn configured(keys: &str) -> Pgbench {
    Pgbench::new(toml::from_str(keys).unwrap()).unwrap()
}

fn in_folder(scratch: &Path) -> RunContext {
    run_context(scratch, Target::Folder(scratch.into()), 1.0, 1.0)
}

/// The lines of the log files.
fn log_lines(folder: &Path) -> Vec<String> {
    let texts = fs::read_dir(folder).unwrap().map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap());
    texts.flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>()).collect()
}

/// The numbers of a column of the log.
fn column(lines: &[String], at: usize) -> Vec<f64> {
    lines.iter().map(|line| line.split(' ').nth(at).unwrap().parse().unwrap()).collect()
}

/// From the first start to the last end, in nanoseconds.
fn window_length_ns(lines: &[String]) -> u64 {
    let us = |at: usize| column(lines, at).into_iter().map(|number| number as u64);
    let ends: Vec<u64> = us(4).zip(us(5)).map(|(seconds, us)| seconds * 1_000_000 + us).collect();
    let starts = ends.iter().zip(us(2)).map(|(end, took)| end - took);
    (ends.iter().max().unwrap() - starts.min().unwrap()) * 1_000
}

fn assert_is_of(record: &Record, stdout: &str, us: &[f64]) {
    let [class] = &record.classes[..] else { panic!("{record:?}") };
    let number_after =
        |key: &str| stdout.split_once(key).unwrap().1.split_whitespace().next().unwrap().parse::<f64>().unwrap();
    assert_eq!((&class.kind, class.counted()), (&OperationKind::Transaction, us.len() as u64));
    assert_eq!(class.counted() as f64, number_after("actually processed: "));
    assert!((class.counted() as f64 * 1e9 / class.runtime_ns as f64 / number_after("tps = ") - 1.0).abs() < 1e-6);
    let mean = us.iter().sum::<f64>() / us.len() as f64;
    let variance = us.iter().map(|us| (us - mean).powi(2)).sum::<f64>() / (us.len() - 1) as f64;
    assert!((class.latency.mean_ns.unwrap() / mean / 1e3 - 1.0).abs() < 1e-9);
    assert!((class.latency.deviation_ns.unwrap() / variance.sqrt() / 1e3 - 1.0).abs() < 1e-9);
    assert!((mean / 1e3 - number_after("latency average = ")).abs() < 0.01, "{mean}");
    assert_eq!(class.latency.least_ns, us.iter().map(|us| *us as u64 * 1_000).min());
    assert_eq!(class.latency.greatest_ns, us.iter().map(|us| *us as u64 * 1_000).max());
    assert_eq!(class.latency.histogram.iter().map(|(_, count)| count).sum::<u64>(), class.counted());
}

#[test]
fn installed_postgresql_is_created_measured_and_removed() {
    let pgbench = configured("scale = 2\nclients = 2\njobs = 2\nsettings = { shared_buffers = '16MB', fsync = false }");
    if !is_installed(&pgbench) {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let context = in_folder(scratch.path());
    if postgres::is_root() {
        fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o700)).unwrap();
        let problem = pgbench.prepare(&context).unwrap_err();
        assert!(problem.why.contains("cannot pass through"), "{problem}");
    }
    fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o711)).unwrap();
    let server = run_all(&pgbench.prepare(&context).unwrap(), &context);
    assert!(pgbench.prepare(&context).unwrap_err().why.contains("may be running"));
    for point in points(&pgbench) {
        run_all(&pgbench.before(&point, &context).unwrap(), &context);
        let outcome = run(&pgbench.command(&point, &context).unwrap(), &context);
        let record = pgbench.parse(&point, &context, &outcome).unwrap();
        let stdout = String::from_utf8_lossy(&outcome.stdout);
        assert!(stdout.contains(&format!("scaling factor: {}", point["scale"])), "{stdout}");
        let lines = log_lines(&context.scratch.join(LOG));
        assert_is_of(&record, &stdout, &column(&lines, 2));
        let (from, to) = record.window_ns.unwrap();
        assert_eq!(to - from, window_length_ns(&lines));
        assert!(to <= outcome.span_ns.1 + 1_000_000);
        assert_eq!(record.tool, pgbench.tool().unwrap());
        assert!(record.warnings.is_empty() || !record.tool.known, "{:?}", record.warnings);
    }
    run_all(&pgbench.clean_up(&context), &context);
    assert!(!scratch.path().join("pilotlight-postgres").exists());
    drop(server);
}

#[test]
fn settings_with_several_values_restart_the_server_for_each_point() {
    let pgbench = configured("settings = { fsync = [true, false], shared_buffers = '16MB' }");
    let context = in_folder(Path::new("/d"));
    let context = RunContext { target: Target::Folder("/dev".into()), ..context };
    let starts = |steps: &[Step]| -> Vec<String> {
        steps.iter().filter(|step| step.background).map(|step| words(step).join(" ")).collect()
    };
    let prepare = pgbench.prepare(&context).unwrap();
    assert!(starts(&prepare)[0].ends_with("-c shared_buffers=16MB"), "only settings with one value");
    assert!(words(prepare.last().unwrap()).join(" ").contains("pg_ctl stop -D"));
    for (point, setting) in points(&pgbench).iter().zip(["fsync=on", "fsync=off"]) {
        let [start] = &starts(&pgbench.before(point, &context).unwrap())[..] else { panic!() };
        assert!(
            start.contains(setting) && start.contains("shared_buffers=16MB") && start.contains("listen_addresses= "),
            "{start}"
        );
    }
    let fixed = configured("settings = { fsync = false }");
    assert!(starts(&fixed.before(&points(&fixed)[0], &context).unwrap()).is_empty());
}

#[test]
fn command_lines() {
    let keys =
        "programs = '/pg'\nscript = ['select-only', '/own.sql']\nscale = 5\nclients = 8\njobs = 2\nsampling = 0.1
        options = { protocol = 'prepared', rate = 100, connect = true }";
    let (pgbench, context) = (configured(keys), in_folder(Path::new("/d")));
    let [builtin, own] = points(&pgbench).try_into().unwrap();
    let expected = "/pg/pgbench -h /d/pilotlight-postgres -U postgres --builtin=select-only --client=8 --jobs=2 --time=1 \
        --random-seed=7 --connect --protocol=prepared --rate=100 --no-vacuum --progress=86400 --log --log-prefix=pgbench-log/log \
        --sampling-rate=0.1 pgbench_5";
    assert_eq!(words(&pgbench.command(&builtin, &context).unwrap()).join(" "), expected);
    assert!(words(&pgbench.command(&own, &context).unwrap()).contains(&"--file=/own.sql".into()));
    let warming = pgbench.before(&builtin, &context).unwrap();
    assert!(!words(warming.last().unwrap()).iter().any(|word| word.starts_with("--log") || word == "--no-vacuum"));
}

#[test]
fn invalid_keys_are_refused_by_name() {
    for (keys, at) in [
        ("options = { time = 3 }", "workload.options.time"),
        ("settings = { port = 3 }", "workload.settings.port"),
        ("sampling = 0.0", "workload.sampling"),
        ("clients = []", "workload.clients"),
    ] {
        assert_eq!(Pgbench::new(toml::from_str(keys).unwrap()).unwrap_err().at, at);
    }
    let pgbench = configured("");
    let long = Target::Folder(format!("/{}", "x".repeat(90)).into());
    for target in [Target::None, long] {
        assert_eq!(pgbench.prepare(&run_context(Path::new("/s"), target, 0.0, 1.0)).unwrap_err().at, "target");
    }
    assert!(configured("programs = '/nowhere'").tool().unwrap_err().help.contains("apt install postgresql"));
}

#[test]
fn the_newest_of_debian_s_versions_is_used() {
    let folder = tempfile::tempdir().unwrap();
    for version in ["9", "15", "13", "common"] {
        fs::create_dir(folder.path().join(version)).unwrap();
    }
    assert_eq!(postgres::newest(folder.path()), folder.path().join("15/bin"));
    assert_eq!(postgres::newest(&folder.path().join("nothing")), Path::new(""));
}

fn log(text: &str) -> output::Log {
    let mut log = output::Log::default();
    log.read(text.as_bytes()).unwrap();
    log
}

// Start of the recorded run in ms since 1970, its window in ns after that and its lag in ms, read by hand.
const BEGAN: u64 = 1795322510462;
const WINDOW: (u64, u64) = (26781000, 1983945000);
const LAG: f64 = 1.119;

#[test]
fn recorded_outputs_are_parsed() {
    let text = fixture("pgbench/15.18.stdout");
    let record = output::record(&outcome(&text, BEGAN), log(&fixture("pgbench/15.18.log")), false, &[]).unwrap();
    let us: Vec<f64> =
        fixture("pgbench/15.18.log").lines().map(|l| l.split(' ').nth(2).unwrap().parse().unwrap()).collect();
    assert_is_of(&record, &text, &us);
    assert_eq!(record.tool, Tool { name: "pgbench".into(), version: "15.18".into(), known: true });
    assert_eq!(record.window_ns, Some(WINDOW));
    assert_eq!(record.extra["schedule_lag_mean_ms"], LAG);
    assert_eq!(record.extra["failed_transactions_count"], 0.0);
    assert!(record.warnings.is_empty(), "{:?}", record.warnings);
}

#[test]
fn the_window_is_from_the_first_start_to_the_last_end() {
    // In seconds: 100.0195 to 100.02, 100.01 to 101.002, 100.0297 to 100.03; started at 99.
    let overlapping = log("0 1 500 0 100 20000\n1 1 992000 0 101 2000\n0 2 300 0 100 30000\n");
    let text = fixture("pgbench/15.18.stdout");
    let record = output::record(&outcome(&text, 99_000), overlapping, true, &[]).unwrap();
    assert_eq!(record.window_ns, Some((1_010_000_000, 2_002_000_000)));
}

#[test]
fn with_a_sample_the_counts_and_means_are_pgbench_s() {
    let text = fixture("pgbench/15.18.stdout");
    let every_tenth: String =
        fixture("pgbench/15.18.log").lines().step_by(10).map(|line| format!("{line}\n")).collect();
    let record = output::record(&outcome(&text, BEGAN), log(&every_tenth), true, &[]).unwrap();
    let class = &record.classes[0];
    assert!(class.counted() as f64 > 9.0 * record.extra["logged_transactions_count"]);
    let number_after =
        |key: &str| text.split_once(key).unwrap().1.split_whitespace().next().unwrap().parse::<f64>().unwrap();
    assert_eq!(class.latency.mean_ns, Some(number_after("latency average = ") * 1e6));
    assert_eq!(class.latency.deviation_ns, Some(number_after("latency stddev = ") * 1e6));
    assert_eq!((class.latency.least_ns, class.latency.greatest_ns), (None, None));
    assert!(record.warnings.is_empty());
    let whole = output::record(&outcome(&text, BEGAN), log(&every_tenth), false, &[]).unwrap();
    assert!(whole.warnings.iter().any(|warning| warning.contains("logged")), "{:?}", whole.warnings);
}

#[test]
fn failures_and_missing_fields_are_named() {
    let text = fixture("pgbench/15.18.stdout");
    let read = |text: &str| output::record(&outcome(text, BEGAN), output::Log::default(), false, &[]);
    for field in ["number of transactions actually processed", "latency average", "tps"] {
        assert!(read(&text.replace(field, "gone")).unwrap_err().at.contains(field));
    }
    let mut ended = outcome(&text, BEGAN);
    ended.status = Some(2);
    ended.stderr = b"starting vacuum...end.\npgbench: error: Run was aborted\n".to_vec();
    let problem = output::record(&ended, output::Log::default(), false, &[]).unwrap_err();
    assert!(problem.why.contains("Run was aborted") && !problem.why.contains("vacuum"), "{problem}");
    let mut broken = output::Log::default();
    assert!(broken.read("0 1 nonsense 0 1 1\n".as_bytes()).unwrap_err().why.contains("nonsense"));
    let failed = log("0 1 failed 0 1795321979 1\n0 2 1500 0 1795321979 2000\n");
    let some = output::record(
        &outcome(&text.replace("failed transactions: 0", "failed transactions: 1"), BEGAN),
        failed,
        true,
        &[],
    );
    assert!(some.unwrap().warnings.iter().any(|warning| warning.contains("1 transactions failed")));
}

/// The result of a query, one value per line.
fn query(pgbench: &Pgbench, context: &RunContext, database: &str, text: &str) -> Vec<String> {
    let words = ["-At", "-d", database, "-c", text].map(str::to_owned);
    let outcome = run(&pgbench.server(context).unwrap().client("psql", words, ""), context);
    assert_eq!(outcome.status, Some(0), "{}", String::from_utf8_lossy(&outcome.stderr));
    String::from_utf8(outcome.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn tpcc_transactions_keep_the_database_consistent() {
    let pgbench = configured(
        "script = 'tpcc'\nscale = 2\nclients = 4\njobs = 2\ntpcc = { customers = 60, items = 200 }
        settings = { shared_buffers = '16MB', fsync = false }",
    );
    if !is_installed(&pgbench) {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o711)).unwrap();
    let context = run_context(scratch.path(), Target::Folder(scratch.path().into()), 1.0, 3.0);
    let server = run_all(&pgbench.prepare(&context).unwrap(), &context);
    let ask = |text: &str| query(&pgbench, &context, "tpcc_2", text);
    assert_eq!(ask("SELECT * FROM tpcc_check()"), [""; 0], "after loading");
    let counts =
        "SELECT count(*) FROM customer UNION ALL SELECT count(*) FROM new_order UNION ALL SELECT count(*) FROM stock";
    assert_eq!(ask(counts), ["1200", "360", "400"]);
    let [point] = points(&pgbench).try_into().unwrap();
    run_all(&pgbench.before(&point, &context).unwrap(), &context);
    let orders = || ask("SELECT count(*) FROM orders")[0].parse::<u64>().unwrap();
    let before = orders();
    let outcome = run(&pgbench.command(&point, &context).unwrap(), &context);
    let record = pgbench.parse(&point, &context, &outcome).unwrap();
    assert_eq!(ask("SELECT * FROM tpcc_check()"), [""; 0], "after {record:?}");
    check_kinds(&record, &String::from_utf8_lossy(&outcome.stdout), &context.scratch.join(LOG));
    // One new order in a hundred is rolled back. The last one of each of the four clients may be committed but not counted.
    let (committed, counted) = (orders() - before, operations(&record, "new-order"));
    assert!(committed <= counted + 4 && committed as f64 > 0.9 * counted as f64 - 5.0, "{committed} of {counted}");
    let minute = counted as f64 * 60e9 / record.classes[0].runtime_ns as f64;
    assert!((record.extra["new_orders_per_minute"] / minute - 1.0).abs() < 1e-9, "{minute}");
    assert!(record.warnings.iter().any(|warning| warning.contains("60 customers")), "{:?}", record.warnings);
    check_conditions(&ask);
    run_all(&pgbench.clean_up(&context), &context);
    drop(server);
}

fn operations(record: &Record, kind: &str) -> u64 {
    let is_kind = |other: &OperationKind| *other == OperationKind::TransactionKind(kind.into());
    record.classes.iter().find(|class| is_kind(&class.kind)).map_or(0, |class| class.counted())
}

/// Each kind has the latencies of its script in the log, and its fraction of the mix.
fn check_kinds(record: &Record, stdout: &str, log: &Path) {
    // A transaction that fails in a deadlock has a line without a duration.
    let (lines, failed): (Vec<_>, Vec<_>) =
        log_lines(log).into_iter().partition(|line| line.split(' ').nth(2).is_some_and(|us| us.parse::<f64>().is_ok()));
    assert_eq!(record.extra["failed_transactions_count"], failed.len() as f64, "{failed:?}");
    // Every thread writes a line for each transaction that it counts, so both numbers are equal. The counters of the scripts are shared
    // by the threads and lose updates.
    let all: u64 = record.classes.iter().map(|class| class.counted()).sum();
    assert_eq!(all as usize, lines.len());
    assert!(stdout.contains(&format!("actually processed: {all}\n")), "{all} lines: {stdout}");
    let mix =
        [("new-order", 0.45), ("payment", 0.43), ("order-status", 0.04), ("delivery", 0.04), ("stock-level", 0.04)];
    for (script, (kind, fraction)) in mix.iter().enumerate() {
        let of_script = |line: &&String| line.split(' ').nth(3) == Some(&script.to_string());
        let us: Vec<f64> =
            lines.iter().filter(of_script).map(|line| line.split(' ').nth(2).unwrap().parse().unwrap()).collect();
        assert_eq!(operations(record, kind), us.len() as u64, "{kind}");
        if us.is_empty() {
            continue;
        }
        let spread = 5.0 * (fraction * (1.0 - fraction) / all as f64).sqrt();
        assert!((us.len() as f64 / all as f64 - fraction).abs() < spread, "{kind}: {} of {all}", us.len());
        let class =
            record.classes.iter().find(|class| class.kind == OperationKind::TransactionKind((*kind).into())).unwrap();
        let mean_ns = us.iter().sum::<f64>() / us.len() as f64 * 1e3;
        assert!((class.latency.mean_ns.unwrap() / mean_ns - 1.0).abs() < 1e-9, "{kind}");
        assert_eq!(class.latency.histogram.iter().map(|(_, count)| count).sum::<u64>(), us.len() as u64);
    }
}

/// Checks the specification's example of a name, and that each condition can fail.
fn check_conditions(ask: &dyn Fn(&str) -> Vec<String>) {
    assert_eq!(ask("SELECT tpcc_last(371)"), ["PRICALLYOUGHT"]);
    for (change, conditions) in [
        ("UPDATE warehouse SET w_ytd = w_ytd + 1 WHERE w_id = 1", "1,8"),
        ("UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = 1 AND d_id = 1", "2"),
        (
            // A row from the middle of the district with the most new orders.
            "DELETE FROM new_order WHERE (no_w_id, no_d_id, no_o_id) = (SELECT no_w_id, no_d_id, max(no_o_id) - 1 FROM new_order \
             GROUP BY no_w_id, no_d_id ORDER BY count(*) DESC LIMIT 1)",
            "3,5",
        ),
        ("DELETE FROM order_line WHERE ol_w_id = 1 AND ol_d_id = 1 AND ol_o_id = 1 AND ol_number = 1", "4,6"),
        ("UPDATE order_line SET ol_delivery_d = NULL WHERE ol_w_id = 1 AND ol_d_id = 1 AND ol_o_id = 1", "7"),
        ("UPDATE district SET d_ytd = d_ytd + 1 WHERE d_w_id = 1 AND d_id = 1", "1,9"),
        ("UPDATE customer SET c_balance = c_balance + 1 WHERE c_w_id = 1 AND c_d_id = 1 AND c_id = 1", "10,12"),
    ] {
        let failing = "SELECT string_agg(DISTINCT condition::text, ',' ORDER BY condition::text) FROM tpcc_check()";
        let rows = ask(&format!("BEGIN; {change}; {failing}; ROLLBACK"));
        let row = rows.iter().find(|line| line.chars().next().is_some_and(|c| c.is_ascii_digit()));
        assert_eq!(row.map(String::as_str), Some(conditions), "{change}");
    }
}

/// pgbench's report of two scripts, the second of which lost an update of its counters.
const TWO_SCRIPTS: &str = "pgbench (15.18)
transaction type: multiple scripts
number of transactions actually processed: 5
number of failed transactions: 0 (0.000%)
latency average = 2.000 ms
tps = 100.000000 (without initial connection time)
SQL script 1: a.sql
 - weight: 1 (targets 50.0% of total)
 - 2 transactions (40.0% of total, tps = 40.000000)
 - latency average = 1.500 ms
SQL script 2: b.sql
 - weight: 1 (targets 50.0% of total)
 - 2 transactions (40.0% of total, tps = 40.000000)
 - latency average = 4.000 ms
";

#[test]
fn counts_by_script_are_those_of_a_complete_log() {
    let kinds = ["a", "b"].map(|name| output::Kind { name: name.into(), script: format!("{name}.sql") });
    let lines =
        "0 1 1000 0 100 1000\n0 2 2000 0 100 3000\n1 1 3000 1 100 4000\n1 2 4000 1 100 8000\n0 3 5000 1 100 9000\n";
    let read = |sample| output::record(&outcome(TWO_SCRIPTS, 99_000), log(lines), sample, &kinds).unwrap();
    let operations = |record: &Record| [operations(record, "a"), operations(record, "b")];
    let whole = read(false);
    assert_eq!((operations(&whole), whole.warnings.len()), ([2, 3], 0), "{:?}", whole.warnings);
    let sample = read(true);
    assert_eq!(operations(&sample), [2, 2]);
    assert!(
        sample.warnings.iter().any(|warning| warning.contains("4 transactions by script and 5 in all")),
        "{sample:?}"
    );
}

#[test]
fn a_script_without_a_report_is_named() {
    let text = fixture("pgbench/15.18.stdout");
    let problem = output::record(&outcome(&text, BEGAN), output::Log::default(), false, &tpcc::kinds()).unwrap_err();
    assert!(problem.at.contains("SQL script 1: tpcc-new-order.sql"), "{problem}");
    for keys in ["tpcc = { customers = 5 }", "tpcc = { items = 5 }"] {
        let refused = Pgbench::new(toml::from_str(keys).unwrap()).unwrap_err();
        assert!(refused.at.starts_with("workload.tpcc.") && refused.why.contains("specification"), "{refused}");
    }
}
