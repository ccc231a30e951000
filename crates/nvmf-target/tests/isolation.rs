//! Hostile peers do not disturb other hosts: a verified load on the same I/O thread has no errors. Its latency is printed and not
//! asserted, because two shared cores are too noisy.
//!
//! `cargo test --release -p pilotlight-nvmf-target --test isolation -- --nocapture` shows the figures.

mod host_support;

mod isolation {
    pub(crate) mod attacks;
    pub(crate) mod victim;
}

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use host_support::{Target, verify_spec};
use isolation::attacks::{self, Attack};
use isolation::victim::{VICTIM_BYTES, print_comparison, target, victim};
use pilotlight_host::load::LoadSpec;

/// One test at a time, because they measure.
fn alone() -> impl Drop {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Measures the victim alone and during `attack`. Afterwards the server must stop.
fn beside(name: &str, attack: fn(&Target) -> Attack) {
    let _alone = alone();
    let target = target(Duration::from_secs(5));
    let before = victim(&target);
    let attack = attack(&target);
    let during = victim(&target);
    print_comparison(name, &before, &during, &attack.end());
    victim_io_still_works(&target);
    target.stop();
}

fn victim_io_still_works(target: &Target) {
    let spec = LoadSpec { ios: Some(200), size_bytes: Some(VICTIM_BYTES), block_bytes: 131_072, ..verify_spec() };
    assert!(target.load(&spec).is_clean());
}

#[test]
fn slow_readers() {
    beside("slow readers", |target| attacks::never_read(target, 24));
}

#[test]
fn slow_readers_that_write_meanwhile() {
    beside("slow readers that write", |target| attacks::never_read_but_write(target, 24));
}

#[test]
fn hosts_that_never_answer_r2ts() {
    beside("unanswered R2Ts", |target| attacks::never_answer(target, 24));
}

#[test]
fn garbage_at_full_speed() {
    beside("garbage", |target| attacks::garbage(target, 2));
}

#[test]
fn slow_writers() {
    beside("slow writers", |target| attacks::one_byte_at_a_time(target, 16));
}

/// More hosts withhold data than there are parts of memory. Other hosts get memory when the target ends these.
#[test]
fn more_stalling_hosts_than_parts_of_memory() {
    let _alone = alone();
    let target = target(Duration::from_secs(5));
    let attack = attacks::never_answer(&target, 150);
    let since = Instant::now();
    let spec = LoadSpec { ios: Some(200), size_bytes: Some(VICTIM_BYTES), block_bytes: 65_536, ..verify_spec() };
    let report = target.load(&spec);
    assert!(report.is_clean(), "{report}");
    println!("150 stalling hosts: 400 I/Os of another host took {:?}; {}", since.elapsed(), attack.end());
    target.stop();
}
