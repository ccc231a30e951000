//! A stock Linux kernel's NVMe/TCP initiator against this program, in QEMU: one test per case of `tests/linux/cases`.
//!
//! The harness needs the files of `tests/linux/prepare.sh`, and some cases need the program `pilotlab` in the same directory. If they are
//! missing, each test prints `SKIPPED` and the reason to standard error, past the test runner's capture, and passes; for the kernels in
//! `PILOTLIGHT_REQUIRE_LINUX` ("6.12 6.1", as set by CI) it fails instead. `PILOTLIGHT_LINUX=no` always skips: a run takes minutes.

#[path = "../../../../tests/linux/tools/block.rs"]
#[allow(dead_code, unreachable_pub, missing_docs, reason = "shared with the verifier, which uses other parts")]
mod block;
mod record;
mod tools;

use std::env;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The exit code of `run.sh` when tools are missing.
const NOT_READY: i32 = 2;

/// The directory of a run's artefacts.
fn directory(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("linux").join(name)
}

fn skip(name: &str, kernel: &str, why: &str) {
    let required = env::var("PILOTLIGHT_REQUIRE_LINUX").unwrap_or_default();
    let required = required.split_whitespace().any(|wanted| wanted == kernel);
    assert!(!required, "PILOTLIGHT_REQUIRE_LINUX has {kernel}, but: {why}");
    // Not `eprintln!`, whose output the runner drops if the test passes.
    let _ = writeln!(io::stderr(), "SKIPPED: linux::{name}: {why}");
}

/// Runs `case`; returns whether it ran, and panics if it failed. `name` is the directory of its artefacts.
fn run(name: &str, case: &str, kernel: &str, settings: &[(&str, &str)]) -> bool {
    if env::var("PILOTLIGHT_LINUX").is_ok_and(|wanted| wanted == "no") {
        skip(name, kernel, "PILOTLIGHT_LINUX=no");
        return false;
    }
    let output = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/linux/run.sh"))
        .args([case, kernel])
        .env("OUT", directory(name))
        .env("PILOTLIGHT", env!("CARGO_BIN_EXE_pilotlight"))
        .env("PILOTLAB", Path::new(env!("CARGO_BIN_EXE_pilotlight")).with_file_name("pilotlab"))
        .envs(settings.iter().copied())
        .output()
        .expect("bash runs");
    let printed = String::from_utf8_lossy(&output.stderr);
    match output.status.code() {
        Some(0) => true,
        Some(NOT_READY) => {
            skip(name, kernel, printed.lines().last().unwrap_or("run.sh printed nothing"));
            false
        }
        _ => panic!("{case} on {kernel}: {}\n{printed}", output.status),
    }
}

macro_rules! cases {
    ($($name:ident: $case:literal, $kernel:literal $(, $key:literal = $value:literal)*;)*) => {
        $(#[test]
        fn $name() {
            run(stringify!($name), $case, $kernel, &[$(($key, $value)),*]);
        })*
    };
}

cases! {
    smoke: "smoke", "6.12";
    smoke_on_5_10: "smoke", "5.10", "BLOCK_SIZE" = "512";
    smoke_on_6_1: "smoke", "6.1";
    file_system: "fs", "6.12";
    commands: "commands", "6.12";
    commands_on_512: "commands", "6.12", "BLOCK_SIZE" = "512";
    rescan: "rescan", "6.12";
    namespaces: "namespaces", "6.12";
    discovery: "discovery", "6.12";
    referral: "referral", "6.12";
    hosts: "hosts", "6.12";
    multipath_on_backports: "multipath", "backports";
    reservations_on_backports: "reservations", "backports";
    failover_on_backports: "failover", "backports";
    authenticate: "authenticate", "6.12";
    authenticate_on_6_1: "authenticate", "6.1";
    authenticate_on_backports: "authenticate", "backports";
    tls: "tls", "6.12";
    tls_on_6_1: "tls", "6.1";
    tls_on_backports: "tls", "backports";
    concat: "concat", "6.12";
    concat_on_backports: "concat", "backports";
    tls_kernel: "tls_kernel", "6.12";
    tls_kernel_on_backports: "tls_kernel", "backports";
    kernel_tls: "ktls", "6.12";
    kernel_tls_on_backports: "ktls", "backports";
    digests: "digests", "6.12";
    queues: "queues", "6.12";
    disconnect: "disconnect", "6.12";
    reconnect: "reconnect", "6.12";
    power: "power", "6.12";
    budget: "budget", "6.12";
    hotplug: "hotplug", "6.12";
    hotplug_on_6_1: "hotplug", "6.1";
    precondition: "precondition", "6.12";
    silent: "silent", "6.12";
    faults: "faults", "6.12";
    completion: "completion", "6.12";
    completion_on_5_10: "completion", "5.10";
    hybrid: "hybrid", "6.12";
    hybrid_on_backports: "hybrid", "backports";
    smoke_on_backports: "smoke", "backports";
    rdma: "rdma", "6.12-generic", "PEER" = "nvmet";
}

/// Runs the durability case and replays the record of the disk; `None` if it was skipped.
fn durability(name: &str, how: &str, drive: &str) -> Option<Result<record::Summary, record::Lost>> {
    if !run(name, "durability", "6.12", &[("DURABILITY", how), ("DRIVE", drive), ("CAPTURE", "no")]) {
        return None;
    }
    let log = fs::read(directory(name).join("writes.log")).expect("the record of the disk");
    Some(record::replay(&log, &record::Layout::OF_THE_CASE).expect("a record that can be read"))
}

#[test]
fn durable_writes_are_on_the_disk() {
    if let Some(verdict) = durability("durability_honest", "honest", "virtio") {
        let summary = verdict.unwrap_or_else(|lost| panic!("{lost}"));
        assert!(summary.marks >= 50 && summary.flushes >= 50, "too little happened: {summary:?}");
    }
}

#[test]
fn durable_writes_are_on_a_drive_with_force_unit_access() {
    if let Some(verdict) = durability("durability_scsi", "honest", "scsi") {
        let summary = verdict.unwrap_or_else(|lost| panic!("{lost}"));
        assert!(summary.marks >= 50, "too little happened: {summary:?}");
    }
}

#[test]
fn a_flush_that_does_nothing_is_caught() {
    if let Some(verdict) = durability("durability_no_cache", "no-cache", "virtio") {
        let lost = verdict.expect_err("the missing effect of flush and FUA was not detected");
        assert!(lost.mark <= 1, "the first promise about anything is already broken: {lost}");
    }
}

#[test]
fn force_unit_access_without_effect_is_detected() {
    if let Some(verdict) = durability("durability_no_fua", "no-fua", "virtio") {
        verdict.expect_err("the missing effect of FUA was not detected");
    }
}
