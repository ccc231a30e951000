//! Neither the target nor our host allocates memory for requests: no allocation in a million I/Os in the steady state.

mod host_support;

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use host_support::{base, target};
use pilotlight_counting_alloc::{CountingAlloc, calls};
use pilotlight_host::load::{LoadSpec, run};
use pilotlight_nvme::pdu::Digests;

#[global_allocator]
static ALLOCATOR: CountingAlloc = CountingAlloc;

/// Allocations of the process during `ios` I/Os, after `warm` I/Os.
fn allocations(digests: Digests, spec: &LoadSpec, warm: u64, ios: u64) -> u64 {
    let target = target(1, 16_384, 4096, |memory| memory);
    let mut options = target.options();
    options.handshake.digests = digests;
    let stop = AtomicBool::new(false);
    let (mut from, mut to): (Option<(u64, u64)>, Option<u64>) = (None, None);
    run(&options, spec, &stop, &mut |progress| {
        let calls = calls();
        match from {
            None if progress.ios >= warm => from = Some((progress.ios, calls)),
            Some((first, _)) if to.is_none() && progress.ios >= first + ios => {
                to = Some(calls);
                stop.store(true, Relaxed);
            }
            _ => {}
        }
    })
    .expect("the run ends well");
    target.stop();
    to.expect("enough I/Os") - from.expect("a steady state").1
}

#[test]
fn a_million_ios_allocate_nothing() {
    let none = Digests::default();
    let both = Digests { header: true, data: true };
    let runtime_ns = Some(600_000_000_000);
    let base = LoadSpec { runtime_ns, depth: 64, read_percent: 70, ..base() };
    // small writes use in-capsule data, large ones R2Ts
    assert_eq!(allocations(none, &base, 200_000, 1_000_000), 0, "4 KiB");
    let large = LoadSpec { block_bytes: 65536, flush_every: 10, ..base.clone() };
    assert_eq!(allocations(none, &large, 5_000, 20_000), 0, "64 KiB");
    assert_eq!(allocations(both, &large, 5_000, 20_000), 0, "64 KiB with digests");
    let verified = LoadSpec { verify: true, trim_percent: 20, ..base };
    assert_eq!(allocations(none, &verified, 50_000, 100_000), 0, "verified");
}
