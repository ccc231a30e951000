//! F8xx: timeouts, limits and configuration changes.

use std::time::{Duration, Instant};

use pilotlight_host::{ConnectOptions, Controller};
use pilotlight_nvme::Sqe;
use pilotlight_nvme::command::opcode::io::FLUSH;
use pilotlight_nvme::fabrics::CNTLID_DYNAMIC;
use pilotlight_nvmf_target::Limits;
use pilotlight_peers::raw::RawPeer;

use super::answer::{Answer, completed, ends};
use super::fixture::{
    ICREQ_TIMEOUT, NONE, OPEN, TIMEOUT, assert_unwritten, blocks, connect_cmd, connect_data, enabled, host, io, read,
    server, shaken, tcp,
};
use super::rows;

rows! {
    fn f801_icreq_missing() -> Answer {
        let (since, mut peer) = (Instant::now(), tcp());
        let answer = ends(&mut peer);
        assert!(since.elapsed() >= ICREQ_TIMEOUT, "closed after {:?}", since.elapsed());
        answer
    }

    fn f802_icreq_too_slow() -> Answer {
        let since = Instant::now();
        let mut peer = tcp();
        let mut sent = 0;
        // single bytes do not extend the timeout of the ICReq
        while sent < 127 && since.elapsed() < ICREQ_TIMEOUT * 2 && peer.send(&[u8::from(sent == 2 || sent == 4) * 128]).is_ok() {
            sent += 1;
            std::thread::sleep(Duration::from_millis(100));
        }
        let answer = ends(&mut peer);
        assert!(since.elapsed() >= ICREQ_TIMEOUT && sent < 127, "closed after {:?} and {sent} bytes", since.elapsed());
        answer
    }

    fn f803_silent_for_longer_than_its_keep_alive_timeout() -> Answer {
        let mut peer = shaken(NONE, 1);
        let mut cmd = connect_cmd(0, 32);
        cmd.kato_ms = 500;
        let since = Instant::now();
        let cqe = peer.connect_queue(&cmd, &connect_data(&host(), CNTLID_DYNAMIC)).expect("an answer");
        assert!(cqe.status().is_success());
        let answer = ends(&mut peer);
        assert!(since.elapsed() >= Duration::from_millis(500), "closed after {:?}", since.elapsed());
        answer
    }

    fn f804_more_connections_than_allowed() -> Answer {
        let server = server(Limits { max_connections: 3, ..Limits::default() });
        let connect = || RawPeer::connect(server.local_addrs()[0], TIMEOUT).expect("the kernel accepts");
        let shake = |peer: &mut RawPeer| peer.shake_hands(&pilotlight_host::Handshake::default());
        let mut within = [connect(), connect(), connect()];
        for peer in &mut within {
            shake(peer).expect("within the limit");
        }
        let answer = ends(&mut connect());
        drop(within);
        let until = Instant::now() + TIMEOUT;
        while shake(&mut connect()).is_err() {
            assert!(Instant::now() < until, "connections are accepted again");
        }
        answer
    }

    fn f810_connect_without_memory_for_the_queue() -> Answer {
        let server = server(Limits { queue_memory: 1 << 20, ..Limits::default() });
        let options = ConnectOptions::new(server.local_addrs()[0], OPEN);
        let controller = Controller::connect(options.clone()).expect("a controller");
        let data = connect_data(&options, controller.cntlid());
        let mut connected = Vec::new();
        for qid in 1.. {
            let mut peer = RawPeer::connect(options.addr, TIMEOUT).expect("the kernel accepts");
            peer.shake_hands(&options.handshake).expect("an ICResp");
            let cqe = peer.connect_queue(&connect_cmd(qid, 1024), &data).expect("an answer");
            if !cqe.status().is_success() {
                assert!(!connected.is_empty());
                return Answer::Completed(cqe.status(), cqe.result.get());
            }
            connected.push(peer);
        }
        Answer::Served
    }

    fn f811_connect_of_one_queue_too_many() -> Answer {
        let server = server(Limits { max_host_queues: 3, ..Limits::default() });
        let options = ConnectOptions::new(server.local_addrs()[0], OPEN);
        let controller = Controller::connect(options.clone()).expect("a controller");
        let data = connect_data(&options, controller.cntlid());
        let connect = |qid| {
            let mut peer = RawPeer::connect(options.addr, TIMEOUT).expect("the kernel accepts");
            peer.shake_hands(&options.handshake).expect("an ICResp");
            let cqe = peer.connect_queue(&connect_cmd(qid, 8), &data).expect("an answer");
            (peer, cqe)
        };
        let within = [connect(1), connect(2)];
        assert!(within.iter().all(|(_, cqe)| cqe.status().is_success()));
        let cqe = connect(3).1;
        Answer::Completed(cqe.status(), cqe.result.get())
    }

    fn f805_namespace_removed_while_in_use() -> Answer {
        let server = server(Limits::default());
        let options = ConnectOptions { addr: server.local_addrs()[0], ..host() };
        let controller = pilotlight_host::Controller::connect(options.clone()).expect("a controller");
        let mut peer = RawPeer::connect(options.addr, TIMEOUT).expect("connected");
        peer.shake_hands(&pilotlight_host::Handshake::default()).expect("an ICResp");
        peer.connect_queue(&connect_cmd(1, 8), &connect_data(&options, controller.cntlid())).expect("an answer");
        let flush = Sqe::new(FLUSH, 2);
        assert_eq!(completed(&mut peer, flush, &[]).to_string(), "CQE 0h/00h");
        server.remove_namespace(OPEN, 2).expect("removed");
        let until = Instant::now() + TIMEOUT;
        loop {
            let answer = completed(&mut peer, flush, &[]);
            if answer.to_string() != "CQE 0h/00h" || Instant::now() > until {
                return answer;
            }
        }
    }

    fn f806_namespace_shrunk_while_in_use() -> Answer {
        let server = server(Limits::default());
        let options = ConnectOptions { addr: server.local_addrs()[0], ..host() };
        let controller = pilotlight_host::Controller::connect(options.clone()).expect("a controller");
        let mut peer = RawPeer::connect(options.addr, TIMEOUT).expect("connected");
        peer.shake_hands(&pilotlight_host::Handshake::default()).expect("an ICResp");
        peer.connect_queue(&connect_cmd(1, 8), &connect_data(&options, controller.cntlid())).expect("an answer");
        server.resize_namespace(OPEN, 1, Some(16)).expect("shrunk");
        let until = Instant::now() + TIMEOUT;
        loop {
            let pdu = peer.capsule(read(1, 16, 1), &[]);
            peer.send(&pdu).expect("sent");
            let reply = peer.read_pdu().expect("an answer");
            if let Some(cqe) = reply.completion() {
                return Answer::Completed(cqe.status(), cqe.result.get());
            }
            assert!(Instant::now() < until, "a read beyond the end fails");
        }
    }

    fn f807_server_stops() -> Answer {
        let server = server(Limits::default());
        let options = ConnectOptions { addr: server.local_addrs()[0], ..host() };
        let mut controller = pilotlight_host::Controller::connect(options.clone()).expect("a controller");
        let mut silent = RawPeer::connect(options.addr, TIMEOUT).expect("connected");
        let mut peer = RawPeer::connect(options.addr, TIMEOUT).expect("connected");
        peer.shake_hands(&pilotlight_host::Handshake::default()).expect("an ICResp");
        peer.connect_queue(&connect_cmd(1, 8), &connect_data(&options, controller.cntlid())).expect("an answer");
        controller.keep_alive().expect("alive");
        server.stop(TIMEOUT).expect("idle hosts do not delay the stop");
        assert_eq!(ends(&mut peer), ends(&mut silent));
        Answer::Closed
    }

    fn f808_peer_closes_the_connection() -> Answer {
        let lba = blocks();
        for _ in 0..20 {
            let mut io = io();
            let pdu = io.peer.capsule(super::fixture::write(1, lba, 4), &[]);
            io.peer.send(&pdu).expect("sent");
            drop((io, enabled(), tcp(), shaken(NONE, 1)));
        }
        assert_unwritten(lba, 4);
        Answer::Nothing
    }

    fn f809_data_withheld_while_memory_is_short() -> Answer {
        let server = server(Limits { buffer_memory: 1 << 20, ..Limits::default() });
        let queue = || {
            let options = ConnectOptions { addr: server.local_addrs()[0], ..host() };
            let controller = pilotlight_host::Controller::connect(options.clone()).expect("a controller");
            let mut peer = RawPeer::connect(options.addr, TIMEOUT).expect("connected");
            peer.shake_hands(&pilotlight_host::Handshake::default()).expect("an ICResp");
            peer.connect_queue(&connect_cmd(1, 8), &connect_data(&options, controller.cntlid())).expect("an answer");
            (controller, peer)
        };
        // R2Ts use all memory: some writes get none until the target ends the others
        let mut queues: Vec<_> = (0..12).map(|_| queue()).collect();
        let since = Instant::now();
        for (_, peer) in &mut queues {
            let pdu = peer.capsule(super::fixture::write(1, 0, 32), &[]);
            peer.send(&pdu).expect("sent");
        }
        let has_r2t = |peer: &RawPeer| {
            peer.stream().set_read_timeout(Some(Duration::from_millis(100))).expect("a timeout");
            let readable = peer.stream().peek(&mut [0]).is_ok();
            peer.stream().set_read_timeout(Some(TIMEOUT)).expect("a timeout");
            readable
        };
        let (mut stalling, mut waiting): (Vec<_>, Vec<_>) = queues.into_iter().partition(|(_, peer)| has_r2t(peer));
        assert!(!stalling.is_empty() && !waiting.is_empty());
        super::fixture::read_r2t(&mut waiting[0].1);
        assert!(since.elapsed() >= Duration::from_secs(2), "ended after {:?}", since.elapsed());
        let (_controller, first) = &mut stalling[0];
        super::fixture::read_r2t(first);
        ends(first)
    }
}
