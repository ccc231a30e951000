//! A connection until it is admitted, in simulated time: one time limit from accept on, and the memory of a host.

#[path = "waiting/host.rs"]
mod host;

use host::{Host, MS, connect_cmd, connect_data, memory};
use pilotlight_auth::{HashFunction, Secret, SecretLen};
use pilotlight_nvme::Status;
use pilotlight_nvme::fabrics::{CNTLID_DYNAMIC, authreq};
use pilotlight_nvmf_target::hosts::authentication::{AuthenticationConfig, HostSecrets};
use pilotlight_nvmf_target::testing::Bench;
use pilotlight_nvmf_target::{Limits, ServerConfig};

/// The time limit of Connect and authentication.
const LIMIT_NS: u64 = 60_000 * MS;

/// A bench on which host 1 has a secret.
fn bench(limits: Limits) -> Bench {
    let secret = Secret::generate(Some(HashFunction::Sha256), SecretLen::Bytes32, &mut |bytes| {
        bytes.fill(1);
        Ok(())
    });
    let hosts = [("nqn.2026-01.test:1".to_owned(), HostSecrets { host: secret.expect("a secret"), controller: None })];
    let authentication = AuthenticationConfig { hosts: hosts.into(), ..AuthenticationConfig::default() };
    let config = ServerConfig { authentication, limits, io_threads: 1, ..ServerConfig::default() };
    Bench::with_config(&memory(), config, 4 << 20).expect("a bench")
}

/// Runs until `at_ns`.
fn run_until(bench: &mut Bench, at_ns: u64) {
    bench.run(at_ns - bench.now_ns());
}

#[test]
fn connect_and_authentication_share_one_time_limit_from_accept_on() {
    let mut bench = bench(Limits::default());
    let began_ns = bench.now_ns();
    let silent = Host::shaken(&mut bench, false);
    let mut claimed = Host::shaken(&mut bench, false);
    let mut admitted = Host::shaken(&mut bench, false);
    run_until(&mut bench, began_ns + LIMIT_NS / 2);
    let answer = claimed.try_connect(&mut bench, connect_cmd(0, 32), &connect_data(1, CNTLID_DYNAMIC));
    assert!(answer.status().is_success() && answer.result.get() as u32 & authreq::ATR != 0, "{answer:?}");
    let answer = admitted.try_connect(&mut bench, connect_cmd(0, 32), &connect_data(2, CNTLID_DYNAMIC));
    assert!(answer.status().is_success(), "{answer:?}");
    run_until(&mut bench, began_ns + LIMIT_NS - 100 * MS);
    assert!(!silent.is_closed() && !claimed.is_closed());
    run_until(&mut bench, began_ns + LIMIT_NS + 1_100 * MS); // with the time for its last response
    assert!(silent.is_closed(), "no Connect");
    assert!(claimed.is_closed(), "no authentication: Connect has begun no new time limit");
    assert!(!admitted.is_closed());
}

#[test]
fn a_host_beyond_its_memory_is_refused_alone() {
    let mut bench = bench(Limits { max_host_memory: 300_000, ..Limits::default() });
    let (_admin, cntlid) = Host::admin(&mut bench, 2, 0);
    let connect = |bench: &mut Bench, number, hostid, cntlid| {
        let mut queue = Host::shaken(bench, false);
        let answer = queue.try_connect(bench, connect_cmd(number, 128), &connect_data(hostid, cntlid));
        (queue, answer.status())
    };
    let mut held = Vec::new();
    let refused = (1..=64).find_map(|number| {
        let (queue, status) = connect(&mut bench, number, 2, cntlid);
        held.push(queue);
        (!status.is_success()).then_some(status)
    });
    assert_eq!(refused.map(Status::code), Some(Status::CONNECT_BUSY), "after {} queues", held.len());
    assert!(held.len() > 1, "one queue has room");
    let (_other, other) = Host::admin(&mut bench, 3, 0);
    assert!(connect(&mut bench, 1, 3, other).1.is_success(), "another host has its own memory");
    drop(held);
    bench.run(100 * MS);
    assert!(connect(&mut bench, 1, 2, cntlid).1.is_success(), "ended queues return their memory");
}
