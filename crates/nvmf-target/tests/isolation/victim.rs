//! The victim host, and the target that it shares with hostile peers.
#![allow(dead_code)] // each test file uses a part

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use pilotlight_host::load::{LoadSpec, Report, run};
use pilotlight_nvmf_target::Limits;

use crate::host_support::{MS, Target, target_with, verify_spec};

/// Bytes of the namespace that the victim uses. Hostile hosts write behind them.
pub(crate) const VICTIM_BYTES: u64 = 8 << 20;
/// Duration of the victim's load.
const RUN_NS: u64 = 1500 * MS;

/// A target with one I/O thread and 16 MiB of buffers, which hostile peers can exhaust.
pub(crate) fn target(icreq_timeout: Duration) -> Target {
    let limits = Limits {
        buffer_memory: 16 << 20,
        icreq_timeout,
        max_connections: 140_000, // 10,000 of one address are a quarter of the rest of three eighths
        max_pending: 140_000,
        max_address_pending: 20_000,
        ..Limits::default()
    };
    target_with(limits, 1, 4096, 4096, |memory| memory)
}

/// A verified load of the victim, without errors.
pub(crate) fn victim(target: &Target) -> Report {
    let spec = LoadSpec {
        ios: None,
        runtime_ns: Some(RUN_NS),
        size_bytes: Some(VICTIM_BYTES),
        trim_percent: 5,
        flush_every: 50,
        timeout_ms: 10_000,
        ..verify_spec()
    };
    let report = run(&target.options(), &spec, &AtomicBool::new(false), &mut |_| {});
    let report = report.expect("the victim's load completes");
    assert!(report.is_clean(), "{report}");
    assert!(report.verify.is_some_and(|verify| verify.blocks_checked > 100), "{report}");
    report
}

pub(crate) fn print_comparison(name: &str, alone: &Report, beside: &Report, attack: &str) {
    let us = |ns: u64| ns as f64 / 1e3;
    let (before, during) = (&alone.total, &beside.total);
    println!(
        "{name}: {:.0} -> {:.0} IOPS, p50 {:.0} -> {:.0} us, p99 {:.0} -> {:.0} us, max {:.0} -> {:.0} us; {attack}",
        before.rate_iops,
        during.rate_iops,
        us(before.latency.p50_ns),
        us(during.latency.p50_ns),
        us(before.latency.p99_ns),
        us(during.latency.p99_ns),
        us(before.latency.max_ns),
        us(during.latency.max_ns),
    );
}
