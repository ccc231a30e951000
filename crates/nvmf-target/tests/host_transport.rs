//! Transport features with our own host: several R2Ts, SQ flow control on and off, digest errors in both directions, discovery.

mod host_support;

use std::time::Duration;

use host_support::{NQN, flipping_proxy, memory_target};
use pilotlight_host::{Buffers, Controller};
use pilotlight_host::{Connection, Handshake, HostError, R2tOrder, Sizes, discover};
use pilotlight_nvme::command::Sgl;
use pilotlight_nvme::command::opcode::io::{FLUSH, READ, WRITE};
use pilotlight_nvme::fabrics::{ConnectCmd, ConnectData};
use pilotlight_nvme::pdu::{Digests, FatalError};
use pilotlight_nvme::{Sqe, Status};
use pilotlight_peers::raw::RawPeer;

const BOTH: Digests = Digests { header: true, data: true };

fn pattern(seed: u32, len: u32) -> Vec<u8> {
    (0..len).map(|i| (i.wrapping_mul(2_654_435_761).wrapping_add(seed * 77) >> 13) as u8).collect()
}

#[test]
fn r2ts_are_answered_in_any_order_and_any_size() {
    for (max_r2t, digests) in [(1, Digests::default()), (3, Digests::default()), (3, BOTH), (16, BOTH)] {
        let target = memory_target();
        let mut options = target.options();
        options.handshake.max_r2t = max_r2t;
        options.handshake.digests = digests;
        let (controller, mut queue) = target.queue(options, 8, 131_072);
        queue.queue().set_r2t_order(R2tOrder::Shuffled { seed: u64::from(max_r2t), piece: 1500 });
        let (len, blocks) = (98_304, 24);
        let cids: Vec<u16> = (0..8)
            .map(|i| {
                let sqe = Sqe::block_io(WRITE, 1, u64::from(blocks * i), blocks);
                queue.submit(sqe, &pattern(i, len), 0).expect("submitted")
            })
            .collect();
        for cid in cids {
            assert!(queue.wait(cid, "a write", &mut []).expect("answered").status.is_success());
        }
        for i in 0..8 {
            let mut back = vec![0; len as usize];
            let sqe = Sqe::block_io(READ, 1, u64::from(blocks * i), blocks);
            queue.execute("a read", sqe, &[], &mut back).expect("read");
            assert!(back == pattern(i, len), "write {i} with {max_r2t} R2Ts");
        }
        let most = queue.queue().max_outstanding_r2ts();
        assert!(if max_r2t == 1 { most == 1 } else { (3..=max_r2t).contains(&most) }, "{most} of {max_r2t}");
        controller.shutdown().expect("shut down");
        target.stop();
    }
}

#[test]
fn sq_flow_control_sets_sqhd_and_not_the_success_flag() {
    let target = memory_target();
    let mut options = target.options();
    options.disable_sq_flow = false;
    let (_controller, mut queue) = target.queue(options, 3, 4096);
    let mut previous = None;
    for _ in 0..10 {
        let cid = queue.submit(Sqe::block_io(READ, 1, 0, 1), &[], 4096).expect("submitted");
        let completed = queue.wait(cid, "a read", &mut []).expect("answered");
        let sqhd = completed.sqhd.expect("a response capsule");
        assert!(sqhd < 4, "the queue has four entries");
        assert!(previous.is_none_or(|p| sqhd == (p + 1) % 4), "{sqhd} after {previous:?}");
        previous = Some(sqhd);
    }
    let (_controller, mut queue) = target.queue(target.options(), 3, 4096);
    let cid = queue.submit(Sqe::block_io(READ, 1, 0, 1), &[], 4096).expect("submitted");
    assert_eq!(queue.wait(cid, "a read", &mut []).expect("answered").sqhd, None, "SUCCESS in the data PDU");
    let cid = queue.submit(Sqe::new(FLUSH, 1), &[], 0).expect("submitted");
    assert_eq!(queue.wait(cid, "a flush", &mut []).expect("answered").status, Status::SUCCESS);
}

/// A raw I/O queue with both digests, and its controller.
fn raw_io_queue(target: &host_support::Target) -> (Controller, RawPeer) {
    let options = target.options();
    let controller = Controller::connect(options.clone()).expect("a controller");
    let mut peer = RawPeer::connect(target.addr, Duration::from_secs(5)).expect("connected");
    peer.shake_hands(&Handshake { digests: BOTH, ..Handshake::default() }).expect("an ICResp");
    let command = ConnectCmd { recfmt: 0, qid: 1, sqsize: 7, cattr: 0, kato_ms: 0 };
    let data = ConnectData::new(options.hostid, controller.cntlid(), NQN, &options.hostnqn);
    assert!(peer.connect_queue(&command, &data).expect("an answer").status().is_success());
    (controller, peer)
}

fn write_4k(lba: u64) -> Sqe {
    let mut sqe = Sqe::block_io(WRITE, 1, lba, 1);
    sqe.sgl = Sgl::in_capsule(4096);
    sqe
}

fn block(target: &host_support::Target, lba: u64) -> Vec<u8> {
    let (_controller, mut queue) = target.queue(target.options(), 1, 4096);
    let mut data = vec![0; 4096];
    queue.execute("a read", Sqe::block_io(READ, 1, lba, 1), &[], &mut data).expect("read");
    data
}

#[test]
fn a_write_with_a_bad_data_digest_fails_and_changes_no_block() {
    let target = memory_target();
    let (_controller, mut peer) = raw_io_queue(&target);
    let good = peer.capsule(write_4k(3), &[0x11; 4096]);
    peer.send(&good).expect("sent");
    assert!(peer.read_pdu().expect("read").completion().expect("a completion").status().is_success());
    let mut bad = peer.capsule(write_4k(3), &[0x22; 4096]);
    bad[100] ^= 1;
    peer.send(&bad).expect("sent");
    let status = peer.read_pdu().expect("read").completion().expect("a completion").status();
    assert_eq!(status.code(), Status::TRANSIENT_TRANSPORT, "the command may be retried");
    assert!(block(&target, 3).iter().all(|&b| b == 0x11));
    // the connection remains usable
    peer.send(&good).expect("sent");
    assert!(peer.read_pdu().expect("read").completion().expect("a completion").status().is_success());
}

#[test]
fn a_bad_header_digest_ends_the_connection_and_changes_no_block() {
    let target = memory_target();
    let (_controller, mut peer) = raw_io_queue(&target);
    let mut bad = peer.capsule(write_4k(3), &[0x22; 4096]);
    bad[48] ^= 1; // the block address
    let digest = u32::from_le_bytes([bad[72], bad[73], bad[74], bad[75]]);
    peer.send(&bad).expect("sent");
    let answer = peer.read_pdu().expect("read");
    assert_eq!(answer.termination(), Some((FatalError::HeaderDigest as u16, digest)));
    assert!(block(&target, 2).iter().chain(&block(&target, 3)).all(|&b| b == 0));
}

#[test]
fn damage_on_the_way_to_the_host_is_detected() {
    let target = memory_target();
    let options = target.options();
    let handshake = Handshake { digests: BOTH, ..Handshake::default() };
    let sizes = Sizes { depth: 4, max_io: 4096, buffers: Buffers::PerCommand, timeout_ms: 5000 };
    let command = ConnectCmd { recfmt: 0, qid: 1, sqsize: 7, cattr: 0, kato_ms: 0 };
    // sent to the host: ICResp (128 bytes), Connect's response (28), C2HData (28 + 4096 + 4)
    for (at, in_data) in [(128 + 28 + 28 + 1000, true), (128 + 28 + 12, false), (128 + 28 + 28 + 4096, true)] {
        let controller = Controller::connect(options.clone()).expect("a controller");
        let mut queue = Connection::open(flipping_proxy(target.addr, at), None, &handshake, &sizes).expect("connected");
        let data = ConnectData::new(options.hostid, controller.cntlid(), NQN, &options.hostnqn);
        let cid = queue.submit(command.encode(), zerocopy::IntoBytes::as_bytes(&data), 0).expect("submitted");
        assert!(queue.wait(cid, "Connect", &mut []).expect("answered").status.is_success());
        let read = queue.execute("a read", Sqe::block_io(READ, 1, 0, 1), &[], &mut [0; 4096]);
        match read {
            Err(HostError::DataDigest(_)) => assert!(in_data),
            Err(HostError::Violation(v)) => assert!(!in_data && v.fes == FatalError::HeaderDigest, "{v}"),
            other => panic!("damage at byte {at} was not detected: {other:?}"),
        }
    }
}

#[test]
fn a_host_discovers_connects_and_disconnects() {
    let target = memory_target();
    let entries = discover(&target.options()).expect("a discovery log");
    let ours: Vec<_> = entries.iter().filter(|e| e.subtype == 2).collect();
    assert_eq!(ours.len(), 1);
    assert_eq!((ours[0].subnqn.as_str(), ours[0].trtype), (NQN, 3));
    assert_eq!(ours[0].trsvcid, target.addr.port().to_string());
    let mut controller = Controller::connect(target.options()).expect("a controller");
    assert_eq!(controller.active_namespaces().expect("a list"), [1]);
    let ns = controller.namespace(1).expect("a namespace");
    assert_eq!((ns.blocks, ns.block_size), (4096, 4096));
    assert!(matches!(controller.namespace(7), Err(HostError::Status { .. } | HostError::Unsupported(_))));
    controller.keep_alive().expect("alive");
    controller.disable().expect("a reset");
    controller.enable().expect("enabled again");
    let refused = controller.admin().execute("nonsense", Sqe::new(0xee, 0), &[], &mut []);
    assert!(matches!(refused, Err(HostError::Status { status, .. }) if status.code() == Status::INVALID_OPCODE));
    controller.shutdown().expect("shut down");
    target.stop();
}
