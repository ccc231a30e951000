//! Admin commands beyond their host's rate are delayed in order; what keeps an association alive is not.
//!
//! Time is simulated.

#[path = "waiting/host.rs"]
mod host;

use host::{Host, MS, capsule, memory};
use pilotlight_nvme::command::opcode::admin;
use pilotlight_nvme::fabrics::{PropertyCmd, property};
use pilotlight_nvme::pdu::CapsuleResp;
use pilotlight_nvme::{Sqe, Status};
use pilotlight_nvmf_target::Limits;
use pilotlight_nvmf_target::testing::Bench;

/// Commands per second; a burst is as many.
const RATE: u16 = 10;
/// Simulated time between two commands of the rate.
const INTERVAL_NS: u64 = 100 * MS;

/// An admin queue on which the burst has been used up and `delayed` commands wait: their command identifiers follow [`RATE`].
fn beyond_the_rate(delayed: u16) -> (Bench, Host) {
    let limits = Limits { admin_rate: u32::from(RATE), ..Limits::default() };
    let mut bench = Bench::new(&memory(), limits, 4 << 20).expect("a bench");
    let (mut host, _) = Host::admin(&mut bench, 1, 0);
    for cid in 0..RATE + delayed {
        host.send(&features(cid));
    }
    for cid in 0..RATE {
        assert_eq!(host.completion(&mut bench).cid.get(), cid, "the burst");
    }
    (bench, host)
}

/// Get Features, Number of Queues.
fn features(cid: u16) -> Vec<u8> {
    capsule(cid, Sqe::new(admin::GET_FEATURES, 0).with_cdw(10, 7), &[])
}

#[test]
fn commands_beyond_the_burst_are_answered_in_order_at_the_rate() {
    let (mut bench, mut host) = beyond_the_rate(12);
    for cid in RATE..RATE + 12 {
        let before_ns = bench.now_ns();
        assert_eq!(host.completion(&mut bench).cid.get(), cid);
        let late_ns = bench.now_ns() - before_ns;
        assert!(late_ns > INTERVAL_NS * 8 / 10 && late_ns < INTERVAL_NS * 12 / 10, "{late_ns} ns after the one before");
    }
    host.send(&features(1));
    assert!(host.pdu_within(&mut bench, INTERVAL_NS / 2).is_none(), "the rate holds after the wait");
    assert_eq!(host.completion(&mut bench).cid.get(), 1);
}

#[test]
fn keep_alive_and_abort_overtake_what_is_delayed() {
    let (mut bench, mut host) = beyond_the_rate(3);
    host.send(&capsule(20, Sqe::new(admin::KEEP_ALIVE, 0), &[]));
    assert!(host.pdu_within(&mut bench, MS).is_some(), "Keep Alive");
    // the first of those that wait
    host.send(&capsule(21, Sqe::new(admin::ABORT, 0).with_cdw(10, u32::from(RATE) << 16), &[]));
    let aborted = host.response(&mut bench);
    assert_eq!((aborted.cid.get(), aborted.status()), (RATE, Status::ABORT_REQUESTED));
    let abort = host.completion(&mut bench);
    assert_eq!((abort.cid.get(), abort.result.get() & 1), (21, 0), "it has been aborted");
    let rest = [0; 2].map(|_| host.completion(&mut bench).cid.get());
    assert_eq!(rest, [RATE + 1, RATE + 2], "the others follow");
}

#[test]
fn waiting_commands_and_aborts_in_turn_need_no_more_room() {
    let (mut bench, mut host) = beyond_the_rate(0);
    for _ in 0..200 {
        host.send(&features(RATE));
        host.send(&capsule(21, Sqe::new(admin::ABORT, 0).with_cdw(10, u32::from(RATE) << 16), &[]));
        let statuses = [0; 2].map(|_| host.response(&mut bench).status());
        assert_eq!(statuses, [Status::ABORT_REQUESTED, Status::SUCCESS]);
    }
    host.send(&features(RATE));
    assert_eq!(host.completion(&mut bench).cid.get(), RATE);
}

#[test]
fn a_reset_ends_what_is_delayed_and_a_new_command_is_served() {
    let (mut bench, mut host) = beyond_the_rate(5);
    host.send(&capsule(20, PropertyCmd::set(property::CC, 0), &[]));
    assert_eq!(host.completion(&mut bench).cid.get(), 20, "a Fabrics command is not delayed");
    assert!(host.pdu_within(&mut bench, 10 * INTERVAL_NS).is_none(), "commands of before the reset have no completion");
    host.send(&capsule(21, PropertyCmd::get(property::CSTS, false), &[]));
    assert_eq!(host.completion(&mut bench).result.get() & 1, 0, "the reset has been done");
}

#[test]
fn a_server_that_stops_executes_what_is_delayed_first() {
    let (mut bench, mut host) = beyond_the_rate(5);
    bench.drain();
    bench.run(INTERVAL_NS / 2); // until deadlines have been checked, and not until the rate allows it
    assert_eq!(host.receive(65_536), 5 * size_of::<CapsuleResp>());
    assert!(host.is_closed());
}
