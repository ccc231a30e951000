//! A change of namespaces takes bounded work in each poll of an I/O thread, with many namespaces, views and connections.

#[path = "waiting/host.rs"]
mod host;

use std::time::{Duration, Instant};

use host::{BLOCK, Host, MS, capsule, memory};
use pilotlight_counting_alloc::{CountingAlloc, thread_bytes, thread_calls};
use pilotlight_nvme::Sqe;
use pilotlight_nvme::command::opcode::admin;
use pilotlight_nvme::feature::{async_event, fid};
use pilotlight_nvmf_target::server::Changes;
use pilotlight_nvmf_target::testing::{Bench, NQN};
use pilotlight_nvmf_target::{Limits, NamespaceConfig};

#[global_allocator]
static ALLOC: CountingAlloc = CountingAlloc;

const TIMEOUT: Duration = Duration::from_secs(60);

fn namespace(nsid: u32, hosts: Vec<String>) -> NamespaceConfig {
    let backend = "mem:4MiB".parse().expect("valid");
    NamespaceConfig { hosts, ..NamespaceConfig::new(nsid, backend, BLOCK) }
}

fn names(hosts: u32) -> Vec<String> {
    (0..hosts).map(|host| format!("nqn.2026-01.test:{host}")).collect()
}

/// Applies a change on another thread, and calls `polled` to poll once until it ends.
fn change(bench: &mut Bench, change: impl FnOnce(&Changes) + Send + 'static, mut polled: impl FnMut(&mut Bench)) {
    let changes = bench.changes();
    let until = Instant::now() + TIMEOUT;
    let changing = std::thread::spawn(move || change(&changes));
    while !changing.is_finished() {
        assert!(Instant::now() < until, "the change ends");
        polled(bench);
    }
    changing.join().expect("no panic");
}

#[test]
fn allocations_of_a_poll_do_not_grow_with_views_and_namespaces() {
    let mut bench = Bench::new(&memory(), Limits::default(), 4 << 20).expect("a bench");
    let hosts = names(100);
    let of_all = hosts.clone();
    change(
        &mut bench,
        move |changes| {
            (2..=100).for_each(|nsid| changes.add(NQN, &namespace(nsid, of_all.clone())).expect("added"));
        },
        |bench| _ = bench.run(1000),
    );
    let (mut calls, mut bytes) = (0, 0);
    change(
        &mut bench,
        move |changes| {
            changes.add(NQN, &namespace(101, names(50))).expect("added");
            changes.set_namespace_hosts(NQN, 101, &hosts[50..]).expect("changed");
            changes.set_namespace_hosts(NQN, 2, &[]).expect("changed");
            changes.remove(NQN, 101).expect("removed");
        },
        |bench| {
            let before = (thread_calls(), thread_bytes());
            bench.run(1000);
            calls = calls.max(thread_calls() - before.0);
            bytes = bytes.max((thread_bytes() - before.1).abs());
        },
    );
    println!("at most {calls} allocations and {bytes} bytes in a poll, with 100 hosts and 100 namespaces");
    assert!(calls <= 16 && bytes <= 16 << 10, "{calls} allocations, {bytes} bytes in a poll");
}

#[test]
fn few_hosts_are_notified_in_one_poll() {
    const HOSTS: usize = 100;
    let mut bench = Bench::new(&memory(), Limits::default(), 4 << 20).expect("a bench");
    let mut hosts: Vec<Host> = (0..HOSTS as u8)
        .map(|at| {
            let (mut host, _) = Host::admin(&mut bench, at + 1, 0);
            let enable = Sqe::new(admin::SET_FEATURES, 0)
                .with_cdw(10, u32::from(fid::ASYNC_EVENT_CONFIGURATION))
                .with_cdw(11, async_event::NAMESPACE_ATTRIBUTE);
            host.send(&capsule(1, enable, &[]));
            host.completion(&mut bench);
            host.send(&capsule(9, Sqe::new(admin::ASYNC_EVENT_REQUEST, 0), &[]));
            bench.run(MS);
            host
        })
        .collect();
    let (mut most, mut all) = (0, 0);
    change(
        &mut bench,
        |changes| _ = changes.resize(NQN, 1, Some(2048)).expect("resized"),
        |bench| {
            bench.run(1000);
            let notified = hosts.iter_mut().map(|host| usize::from(host.receive(4096) > 0)).sum::<usize>();
            most = most.max(notified);
            all += notified;
        },
    );
    println!("at most {most} of {HOSTS} hosts in a poll");
    assert_eq!(all, HOSTS, "every host is notified before the change ends");
    assert!(most <= 16, "{most} hosts in a poll");
}

/// With connections, over which the check for commands of removed namespaces is spread.
#[test]
fn removed_namespaces_leave_no_entries() {
    const ROUNDS: u32 = 2000;
    let mut bench = Bench::new(&memory(), Limits::default(), 4 << 20).expect("a bench");
    let _hosts: Vec<Host> = (0..20).map(|at| Host::admin(&mut bench, at + 1, 0).0).collect();
    let mut most = 0;
    change(
        &mut bench,
        |changes| {
            for _ in 0..ROUNDS {
                changes.add(NQN, &namespace(2, Vec::new())).expect("added");
                changes.remove(NQN, 2).expect("removed");
            }
        },
        |bench| {
            bench.run(1000);
            most = most.max(bench.namespace_entries());
        },
    );
    println!("at most {most} entries in {ROUNDS} rounds, with one other namespace");
    assert!(most <= 4, "{most} entries");
}
