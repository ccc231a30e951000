//! F4xx: Connect, Disconnect, properties.

use pilotlight_host::{ConnectOptions, Controller};
use pilotlight_nvme::Sqe;
use pilotlight_nvme::command::opcode::admin::{ASYNC_EVENT_REQUEST, IDENTIFY, KEEP_ALIVE};
use pilotlight_nvme::command::{Sgl, opcode};
use pilotlight_nvme::fabrics::{
    CNTLID_DYNAMIC, ConnectCmd, ConnectData, DISCOVERY_NQN, PropertyCmd, cc, csts, fctype, property,
};
use pilotlight_peers::raw::RawPeer;
use zerocopy::IntoBytes;

use super::answer::{Answer, completed, read_completion, terminated};
use super::fixture::{
    ADMIN_DEPTH, BOTH, CLOSED, FRIEND, IO_QUEUES, Io, NONE, QUEUE_DEPTH, admin, admin_of, assert_unwritten, blocks,
    connect_cmd, connect_data, enabled, enabled_of, host, io, io_with, r2t, shaken, with_cid, write,
};
use super::rows;

/// Response to a Connect. The connection must accept another one.
fn refused(peer: &mut RawPeer, cmd: &ConnectCmd, data: &ConnectData) -> Answer {
    let answer = completed(peer, with_cid(cmd.encode(), 9), data.as_bytes());
    let again = peer.connect_queue(&connect_cmd(0, 32), &connect_data(&host(), CNTLID_DYNAMIC)).expect("an answer");
    assert!(again.status().is_success(), "{}", again.status());
    answer
}

/// Response to a Connect of an admin queue with a changed command.
fn admin_cmd(change: impl FnOnce(&mut ConnectCmd)) -> Answer {
    let mut cmd = connect_cmd(0, 32);
    change(&mut cmd);
    refused(&mut shaken(NONE, 1), &cmd, &connect_data(&host(), CNTLID_DYNAMIC))
}

/// Response to a Connect of an admin queue with changed data.
fn admin_data(change: impl FnOnce(&mut ConnectData)) -> Answer {
    let mut data = connect_data(&host(), CNTLID_DYNAMIC);
    change(&mut data);
    refused(&mut shaken(NONE, 1), &connect_cmd(0, 32), &data)
}

/// Response to a Connect of an I/O queue of a controller of `io.host`.
fn io_queue(io: &Io, cmd: &ConnectCmd, change: impl FnOnce(&mut ConnectData)) -> Answer {
    let mut data = connect_data(&io.host, io.controller.cntlid());
    change(&mut data);
    refused(&mut shaken(NONE, 1), cmd, &data)
}

fn same<const N: usize>(answers: [Answer; N]) -> Answer {
    assert!(answers.iter().all(|&answer| answer == answers[0]), "responses of one row differ: {answers:?}");
    answers[0]
}

fn fabrics(fctype: u8) -> Sqe {
    with_cid(Sqe::new(opcode::FABRICS, u32::from(fctype)), 3)
}

fn set_cc(value: u32) -> Sqe {
    with_cid(PropertyCmd::set(property::CC, value), 4)
}

fn status_of(peer: &mut RawPeer) -> u64 {
    match completed(peer, with_cid(PropertyCmd::get(property::CSTS, false), 5), &[]) {
        Answer::Completed(status, value) if status.is_success() => value,
        other => panic!("CSTS: {other}"),
    }
}

/// A host of the discovery service.
fn discoverer() -> ConnectOptions {
    ConnectOptions { subnqn: DISCOVERY_NQN.to_owned(), ..host() }
}

rows! {
    fn f401_command_before_connect() -> Answer {
        let commands = [Sqe::new(IDENTIFY, 0), Sqe::new(KEEP_ALIVE, 0), Sqe::new(0xee, 0), fabrics(fctype::PROPERTY_GET), fabrics(0x55)];
        same(commands.map(|sqe| {
            let peer = &mut shaken(NONE, 1);
            let answer = completed(peer, sqe, &[]);
            let data = connect_data(&host(), CNTLID_DYNAMIC);
            assert!(peer.connect_queue(&connect_cmd(0, 32), &data).expect("an answer").status().is_success());
            answer
        }))
    }

    fn f402_connect_data_not_in_the_capsule() -> Answer {
        same([Sgl::TRANSPORT, 0x00, 0x40, 0xf1].map(|identifier| {
            let mut sqe = with_cid(connect_cmd(0, 32).encode(), 1);
            sqe.sgl.identifier = identifier;
            completed(&mut shaken(NONE, 1), sqe, connect_data(&host(), CNTLID_DYNAMIC).as_bytes())
        }))
    }

    fn f403_connect_data_of_another_length() -> Answer {
        same([0, 1020, 1028, 8192].map(|len| {
            let mut data = connect_data(&host(), CNTLID_DYNAMIC).as_bytes().to_vec();
            data.resize(len, 0);
            completed(&mut shaken(NONE, 1), with_cid(connect_cmd(0, 32).encode(), 1), &data)
        }))
    }

    fn f404_connect_data_digest_wrong() -> Answer {
        let mut peer = shaken(BOTH, 1);
        let mut pdu = peer.capsule(with_cid(connect_cmd(0, 32).encode(), 1), connect_data(&host(), CNTLID_DYNAMIC).as_bytes());
        pdu[300] ^= 1;
        peer.send(&pdu).expect("sent");
        read_completion(&mut peer, 1)
    }

    fn f405_connect_record_format() -> Answer {
        same([admin_cmd(|cmd| cmd.recfmt = 1), admin_cmd(|cmd| cmd.recfmt = 0xffff)])
    }

    fn f406_connect_sqsize() -> Answer {
        let io = io();
        let io_sqsize = |sqsize| io_queue(&io, &ConnectCmd { sqsize, ..connect_cmd(2, 2) }, |_| ());
        same([
            admin_cmd(|cmd| cmd.sqsize = 0),
            admin_cmd(|cmd| cmd.sqsize = ADMIN_DEPTH),
            admin_cmd(|cmd| cmd.sqsize = 0xffff),
            io_sqsize(0),
            io_sqsize(QUEUE_DEPTH),
        ])
    }

    fn f407_connect_subnqn() -> Answer {
        same([
            admin_data(|data| data.subnqn = pilotlight_nvme::fabrics::nqn_field("nqn.2026-01.test:nobody")),
            admin_data(|data| data.subnqn = [0; 256]),
            admin_data(|data| data.subnqn = [b'n'; 256]), // not terminated
            admin_data(|data| data.subnqn[3] = 0xff), // not UTF-8
        ])
    }

    fn f408_connect_hostnqn() -> Answer {
        same([
            admin_data(|data| data.hostnqn = [b'n'; 256]),
            admin_data(|data| data.hostnqn[3] = 0xff),
        ])
    }

    fn f409_connect_host_not_allowed() -> Answer {
        let closed = ConnectOptions { subnqn: CLOSED.to_owned(), ..host() };
        let answer = refused(&mut shaken(NONE, 1), &connect_cmd(0, 32), &connect_data(&closed, CNTLID_DYNAMIC));
        admin_of(&ConnectOptions { hostnqn: FRIEND.to_owned(), ..closed }, NONE);
        answer
    }

    fn f410_connect_admin_cntlid() -> Answer {
        let (_other, cntlid) = admin_of(&host(), NONE);
        same([0, 1, cntlid, 0xfffe].map(|cntlid| admin_data(|data| data.cntlid = cntlid.into())))
    }

    fn f411_connect_io_cntlid() -> Answer {
        let io = io();
        same([0, 0xfff0, 0xffff].map(|cntlid| io_queue(&io, &connect_cmd(2, 8), |data| data.cntlid = cntlid.into())))
    }

    fn f412_connect_io_to_a_removed_controller() -> Answer {
        let io = io();
        let cntlid = {
            let (gone, cntlid) = admin_of(&host(), NONE);
            drop(gone);
            cntlid
        };
        // until the target detects the end, the controller belongs to another host
        let answer = io_queue(&io, &connect_cmd(2, 8), |data| data.cntlid = cntlid.into());
        assert!(matches!(answer, Answer::Completed(..)));
        let until = std::time::Instant::now() + super::fixture::TIMEOUT;
        loop {
            let answer = io_queue(&io, &connect_cmd(2, 8), |data| data.cntlid = cntlid.into());
            if answer.to_string().ends_with("10010h") || std::time::Instant::now() > until {
                return answer;
            }
        }
    }

    fn f413_connect_io_subnqn_of_another() -> Answer {
        let io = io();
        io_queue(&io, &connect_cmd(2, 8), |data| data.subnqn = pilotlight_nvme::fabrics::nqn_field(DISCOVERY_NQN))
    }

    fn f414_connect_io_hostnqn_of_another() -> Answer {
        let io = io();
        io_queue(&io, &connect_cmd(2, 8), |data| data.hostnqn = pilotlight_nvme::fabrics::nqn_field("nqn.2026-01.test:other_host"))
    }

    fn f415_connect_io_hostid_of_another() -> Answer {
        let io = io();
        io_queue(&io, &connect_cmd(2, 8), |data| data.hostid[0] ^= 1)
    }

    fn f416_connect_io_qid() -> Answer {
        let io = io();
        same([IO_QUEUES + 1, 0xffff].map(|qid| io_queue(&io, &connect_cmd(qid, 8), |_| ())))
    }

    fn f417_connect_io_qid_not_granted() -> Answer {
        let host = host();
        let mut controller = Controller::connect(host.clone()).expect("a controller");
        controller.set_queue_count(2).expect("granted");
        refused(&mut shaken(NONE, 1), &connect_cmd(3, 8), &connect_data(&host, controller.cntlid()))
    }

    fn f418_connect_io_qid_in_use() -> Answer {
        let io = io();
        io_queue(&io, &connect_cmd(1, 8), |_| ())
    }

    fn f419_connect_io_before_the_controller_is_enabled() -> Answer {
        let host = host();
        let (_admin, cntlid) = admin_of(&host, NONE);
        refused(&mut shaken(NONE, 1), &connect_cmd(1, 8), &connect_data(&host, cntlid))
    }

    fn f420_connect_io_queue_of_a_discovery_controller() -> Answer {
        let host = discoverer();
        let (mut admin, cntlid) = admin_of(&host, NONE);
        assert!(matches!(completed(&mut admin, set_cc(cc::EN | cc::IOSQES_IOCQES), &[]), Answer::Completed(s, 0) if s.is_success()));
        refused(&mut shaken(NONE, 1), &connect_cmd(1, 8), &connect_data(&host, cntlid))
    }

    fn f421_second_connect() -> Answer {
        let host = host();
        let data = connect_data(&host, CNTLID_DYNAMIC);
        let mut io = io();
        same([
            completed(&mut admin(), connect_cmd(0, 32).encode(), data.as_bytes()),
            completed(&mut enabled(), connect_cmd(1, 32).encode(), data.as_bytes()),
            completed(&mut io.peer, connect_cmd(1, 32).encode(), connect_data(&io.host, io.controller.cntlid()).as_bytes()),
        ])
    }

    fn f422_too_many_commands_behind_a_pending_connect() -> Answer {
        // The Connect of an I/O queue is asynchronous; commands behind it in the same segment wait.
        let io = io();
        let mut peer = shaken(NONE, 1);
        let data = connect_data(&io.host, io.controller.cntlid());
        let mut pdus = peer.capsule(with_cid(connect_cmd(2, 8).encode(), 1), data.as_bytes());
        let behind = peer.capsule(write(2, 0, 1), &[0; 4096]);
        (0..4).for_each(|_| pdus.extend_from_slice(&behind));
        peer.send(&pdus).expect("sent");
        let answer = super::answer::read_termination(&mut peer, &behind);
        super::answer::ends(&mut peer);
        // the queue ID is free again
        let until = std::time::Instant::now() + super::fixture::TIMEOUT;
        while !shaken(NONE, 1).connect_queue(&connect_cmd(2, 8), &data).expect("an answer").status().is_success() {
            assert!(std::time::Instant::now() < until, "queue 2 remains in use");
        }
        answer
    }

    fn f423_too_many_unsent_responses_before_connect() -> Answer {
        const COMMANDS: usize = 20_000;
        let mut peer = shaken(NONE, 1);
        let pdu = peer.capsule(Sqe::new(KEEP_ALIVE, 0), &[]);
        let many: Vec<u8> = std::iter::repeat_n(&pdu[..], COMMANDS).flatten().copied().collect();
        let _ = peer.send(&many); // the target may close the connection before it has received everything
        let (pdus, end) = peer.read_to_end().expect("an end");
        assert_eq!(end, pilotlight_peers::raw::Reply::Closed, "after {} answers", pdus.len());
        assert!(pdus.len() < COMMANDS, "every command got a response");
        let last = pdus.last().expect("answers").clone();
        let (fes, fei) = pilotlight_peers::raw::Reply::Pdu(last).termination().expect("a termination at the end");
        Answer::Terminated(fes, fei)
    }

    fn f424_unknown_fabrics_command() -> Answer {
        let mut io = io();
        same([0x02, 0x05, 0x06, 0x55, 0xc0].map(|fctype| {
            let answer = completed(&mut enabled(), fabrics(fctype), &[]);
            assert_eq!(answer, completed(&mut io.peer, fabrics(fctype), &[]));
            answer
        }))
    }

    fn f425_disconnect_on_the_admin_queue() -> Answer {
        same([completed(&mut admin(), fabrics(fctype::DISCONNECT), &[]), completed(&mut enabled(), fabrics(fctype::DISCONNECT), &[])])
    }

    fn f426_disconnect_with_commands_in_progress() -> Answer {
        let lba = blocks();
        let mut io = io();
        r2t(&mut io.peer, write(1, lba, 1));
        completed(&mut io.peer, fabrics(fctype::DISCONNECT), &[])
    }

    fn f427_properties_on_an_io_queue() -> Answer {
        let mut io = io();
        same([
            completed(&mut io.peer, with_cid(PropertyCmd::get(property::CAP, true), 1), &[]),
            completed(&mut io.peer, set_cc(0), &[]),
        ])
    }

    fn f428_property_get_of_an_unknown_property() -> Answer {
        let mut peer = admin();
        same([(property::NSSR, false), (0x04, false), (0x15, false), (0x1000, false), (0xffff_fffc, true)]
            .map(|(offset, wide)| completed(&mut peer, with_cid(PropertyCmd::get(offset, wide), 1), &[])))
    }

    fn f429_property_get_of_another_size() -> Answer {
        let mut peer = admin();
        let reserved = PropertyCmd::get(property::VS, false).with_cdw(10, 2);
        same([
            completed(&mut peer, with_cid(PropertyCmd::get(property::CAP, false), 1), &[]),
            completed(&mut peer, with_cid(PropertyCmd::get(property::VS, true), 1), &[]),
            completed(&mut peer, with_cid(reserved, 1), &[]),
        ])
    }

    fn f430_property_set_of_a_read_only_property() -> Answer {
        let mut peer = admin();
        let wide = PropertyCmd::set(property::CC, 1).with_cdw(10, 1);
        same([
            completed(&mut peer, with_cid(PropertyCmd::set(property::CAP, 1), 1), &[]),
            completed(&mut peer, with_cid(PropertyCmd::set(property::CSTS, 0), 1), &[]),
            completed(&mut peer, with_cid(PropertyCmd::set(property::NSSR, 0x4e56_4d65), 1), &[]),
            completed(&mut peer, with_cid(wide, 1), &[]),
        ])
    }

    fn f431_enabled_with_unsupported_settings() -> Answer {
        let sizes = cc::IOSQES_IOCQES;
        // another command set, page size, arbitration; other entry sizes
        for value in [sizes | 6 << 4, sizes | 1 << 7, sizes | 1 << 11, 7 << 16 | 4 << 20, 6 << 16 | 5 << 20] {
            let mut peer = admin();
            assert!(matches!(completed(&mut peer, set_cc(cc::EN | value), &[]), Answer::Completed(s, 0) if s.is_success()));
            assert_eq!(status_of(&mut peer) as u32, csts::CFS, "CC {value:08x}");
        }
        Answer::FatalStatus
    }

    fn f432_commands_after_a_reset() -> Answer {
        let mut peer = enabled();
        completed(&mut peer, set_cc(cc::IOSQES_IOCQES), &[]);
        let mut identify = with_cid(Sqe::new(IDENTIFY, 0).with_cdw(10, 1), 6);
        identify.sgl = Sgl::transport(4096);
        completed(&mut peer, identify, &[])
    }

    fn f433_io_queue_of_a_controller_that_is_reset() -> Answer {
        let mut io = io();
        io.controller.disable().expect("a reset");
        super::answer::ends(&mut io.peer)
    }

    fn f434_io_queue_after_loss_of_its_admin_queue() -> Answer {
        let Io { mut peer, controller, .. } = io_with(NONE, 1, 8);
        let lba = blocks();
        r2t(&mut peer, write(1, lba, 1));
        drop(controller);
        let answer = super::answer::ends(&mut peer);
        assert_unwritten(lba, 1);
        answer
    }

    fn f435_more_commands_than_the_admin_queue_has_entries() -> Answer {
        let mut peer = shaken(NONE, 1);
        peer.connect_queue(&connect_cmd(0, 4), &connect_data(&host(), CNTLID_DYNAMIC)).expect("an answer");
        completed(&mut peer, set_cc(cc::EN | cc::IOSQES_IOCQES), &[]);
        let event = |cid| with_cid(Sqe::new(ASYNC_EVENT_REQUEST, 0), cid);
        for cid in 0..4 {
            let pdu = peer.capsule(event(cid), &[]);
            peer.send(&pdu).expect("sent");
        }
        let pdu = peer.capsule(event(4), &[]);
        terminated(&mut peer, &pdu)
    }

    fn f438_connect_without_a_host_nqn() -> Answer {
        let unnamed = || ConnectOptions { hostnqn: String::new(), ..host() };
        let (first, second) = (unnamed(), unnamed());
        let controller = Controller::connect(first.clone()).expect("a controller");
        let mut peer = shaken(NONE, 1);
        let data = connect_data(&first, controller.cntlid());
        assert!(peer.connect_queue(&connect_cmd(1, 8), &data).expect("an answer").status().is_success());
        let other_host = connect_data(&second, controller.cntlid());
        assert!(!shaken(NONE, 1).connect_queue(&connect_cmd(2, 8), &other_host).expect("an answer").status().is_success());
        let known = pilotlight_host::discover(&unnamed()).expect("the discovery service");
        assert!(known.iter().any(|entry| entry.subnqn == first.subnqn));
        assert!(!known.iter().any(|entry| entry.subnqn == CLOSED), "restricted subsystems are not listed");
        Answer::Served
    }

    fn f439_connect_without_a_host_nqn_where_hosts_are_listed() -> Answer {
        let unnamed = ConnectOptions { hostnqn: String::new(), subnqn: CLOSED.to_owned(), ..host() };
        refused(&mut shaken(NONE, 1), &connect_cmd(0, 32), &connect_data(&unnamed, CNTLID_DYNAMIC))
    }

    fn f436_discovery_host_of_an_io_subsystem() -> Answer {
        // the same host may use both, independently
        let host = host();
        let _io = enabled_of(&host);
        let discovery = ConnectOptions { subnqn: DISCOVERY_NQN.to_owned(), ..host };
        let mut peer = enabled_of(&discovery);
        assert_eq!(status_of(&mut peer) as u32, csts::RDY);
        Answer::Served
    }

    fn f437_reserved_shutdown_notification() -> Answer {
        completed(&mut enabled(), set_cc(cc::EN | cc::IOSQES_IOCQES | 3 << 14), &[])
    }
}
