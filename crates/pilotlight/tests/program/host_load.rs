//! `pilotlight load` against `pilotlight serve`, both as processes: output and exit codes.

use std::process::Output;

use serde_json::Value;

use crate::process::{Server, run, text};

fn serve(namespace: &str) -> Server {
    Server::start(&["--listen", "127.0.0.1:0", "--namespace", namespace])
}

fn load(server: &Server, args: &str) -> Output {
    let target = server.address().to_string();
    let all: Vec<&str> = ["load", "--yield", "--target", &target].into_iter().chain(args.split_whitespace()).collect();
    run(&all)
}

#[test]
fn verified_load_exits_with_code_0_and_stable_keys() {
    let server = serve("mem:16MiB");
    let args = "--rw randrw --verify --iodepth 8 --number_ios 2000 --trim-mix 10 --fsync 100 --data-digest --json";
    let output = load(&server, args);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(report["format"], 1);
    assert_eq!(report["total"]["ios"], 2000);
    assert_eq!(report["verify"]["mismatches"], 0);
    for key in ["rate_iops", "data_bytes", "data_bytes_per_s", "errors"] {
        assert!(report["read"][key].is_number(), "{key}");
    }
    for key in ["min_ns", "mean_ns", "p50_ns", "p90_ns", "p99_ns", "p99_9_ns", "p99_99_ns", "max_ns"] {
        assert!(report["write"]["latency"][key].is_number(), "{key}");
    }
}

#[test]
fn the_report_of_an_open_loop_is_a_table() {
    let server = serve("null:1GiB");
    let output = load(&server, "--rate_iops 1k --rate_process poisson --number_ios 200 --bs 8k");
    let table = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{table}{}", text(&output.stderr));
    assert!(table.contains("open (poisson)") && table.contains("p99.9 us") && table.contains("200 sent"), "{table}");
}

#[test]
fn usage_errors_exit_with_code_2_and_a_remedy() {
    let server = serve("mem:16MiB");
    for (args, expected) in [
        ("--bs 3k", "4096"),
        ("--iodepth 60000", "1 to"),
        ("--size 1g", "16777216"),
        ("--nsid 9", "active namespaces: [1]"),
        ("--rwmixread 200 --rw randrw", "100"),
        ("--rate_iops fast", "50k"),
        ("--schedule 5%:1s", "--rate_iops"),
        ("--verify", "randrw"),
        ("--rwmixread 101", "0..=100"),
        ("--trim-mix 200", "0..=100"),
        ("--hostnqn bad", "nqn.2024-05.com.example:disks"),
        ("--keep-alive-tmo 1us", "1ms or more"),
        ("--timeout 0", "1ms or more"),
        ("--ledger /nowhere/ledger", "--verify-only"),
        ("--verify --rw randrw --ledger /nowhere/ledger", "--fsync COUNT"),
        ("--verify --rw randrw --fua --ledger /nowhere/ledger", "No such file"),
        ("--verify --rw randrw --fua --ledger /dev/null", "needs a new file"),
        ("--verify-only", "--ledger"),
        ("--verify-only --ledger /nowhere/ledger", "No such file"),
        ("--verify-only --ledger /dev/zero", "not a regular file"),
        ("--verify-only --ledger /nowhere/ledger --rw read", "--rw"),
    ] {
        let output = load(&server, args);
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args}: {message}");
        assert!(message.contains(expected), "{args}: {message}");
    }
}

#[test]
fn an_unreachable_target_exits_with_code_1() {
    let output = run(&["load", "--target", "127.0.0.1:1"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("is a target listening there"));
}
