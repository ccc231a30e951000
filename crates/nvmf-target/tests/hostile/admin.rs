//! F5xx: admin commands: opcodes, Identify, Get Log Page, Abort, Asynchronous Event Request.

use pilotlight_host::ConnectOptions;
use pilotlight_nvme::Sqe;
use pilotlight_nvme::command::Sgl;
use pilotlight_nvme::command::opcode::admin::{ABORT, ASYNC_EVENT_REQUEST, GET_LOG_PAGE, IDENTIFY, KEEP_ALIVE};
use pilotlight_nvme::command::opcode::io::READ;
use pilotlight_nvme::fabrics::DISCOVERY_NQN;
use pilotlight_peers::raw::RawPeer;

use super::answer::{Answer, completed, read_completion};
use super::fixture::{admin, enabled, enabled_of, host, with_cid};
use super::rows;

fn identify(cns: u32, nsid: u32) -> Sqe {
    let sqe = Sqe::new(IDENTIFY, nsid).with_cdw(10, cns);
    with_cid(Sqe { sgl: Sgl::transport(4096), ..sqe }, 1)
}

/// Get Log Page of `len` bytes from `offset`.
fn log(lid: u8, len: u32, offset: u64) -> Sqe {
    let dwords = len / 4 - 1;
    let sqe = Sqe::new(GET_LOG_PAGE, 0)
        .with_cdw(10, u32::from(lid) | dwords << 16)
        .with_cdw(11, dwords >> 16)
        .with_cdw(12, offset as u32)
        .with_cdw(13, (offset >> 32) as u32);
    with_cid(Sqe { sgl: Sgl::transport(len), ..sqe }, 1)
}

/// The common response to several commands on one admin queue.
fn each(mut peer: RawPeer, commands: impl IntoIterator<Item = Sqe>) -> Answer {
    let answers: Vec<Answer> = commands.into_iter().map(|sqe| completed(&mut peer, with_cid(sqe, 1), &[])).collect();
    assert!(answers.iter().all(|&answer| answer == answers[0]), "responses of one row differ: {answers:?}");
    answers[0]
}

fn discovery() -> RawPeer {
    enabled_of(&ConnectOptions { subnqn: DISCOVERY_NQN.to_owned(), ..host() })
}

rows! {
    fn f501_admin_command_before_enabling() -> Answer {
        each(admin(), [identify(1, 0), log(1, 64, 0), Sqe::new(KEEP_ALIVE, 0), Sqe::new(0xee, 0)])
    }

    fn f502_unknown_admin_opcode() -> Answer {
        // queue creation and deletion of PCIe, firmware, namespace management, directives, security, format, vendor specific
        let opcodes = [0x00, 0x01, 0x04, 0x05, 0x0d, 0x10, 0x11, 0x15, 0x19, 0x1a, 0x7c, 0x80, 0x81, 0x82, 0x84, 0xc0, 0xff];
        each(enabled(), opcodes.map(|opcode| Sqe::new(opcode, 0)))
    }

    fn f503_unknown_opcode_on_a_discovery_controller() -> Answer {
        each(discovery(), [ABORT, 0x01, READ | 0x80, 0xee].map(|opcode| Sqe::new(opcode, 0)))
    }

    fn f504_fused_admin_command() -> Answer {
        each(enabled(), [1, 2, 3].map(|fuse| Sqe { flags: 1 << 6 | fuse, ..identify(1, 0) }))
    }

    fn f505_prp_instead_of_sgl() -> Answer {
        each(enabled(), [0, 2, 3].map(|psdt| Sqe { flags: psdt << 6, ..identify(1, 0) }))
    }

    fn f506_sgl_type() -> Answer {
        let types = [Sgl::IN_CAPSULE, 0x00, 0x20, 0x30, 0x40, 0x4f, 0x50, 0x5b, 0xff];
        each(enabled(), types.map(|identifier| Sqe { sgl: Sgl { identifier, ..Sgl::transport(4096) }, ..identify(1, 0) }))
    }

    fn f507_sgl_shorter_than_the_data() -> Answer {
        each(enabled(), [0, 4, 4092].map(|len| Sqe { sgl: Sgl::transport(len), ..identify(1, 0) }))
    }

    fn f508_identify_unknown_structure() -> Answer {
        each(enabled(), [0x04, 0x07, 0x10, 0x13, 0x1c, 0xff].map(|cns| identify(cns, 1)))
    }

    fn f509_identify_namespace_of_a_discovery_controller() -> Answer {
        each(discovery(), [0x00, 0x02, 0x03, 0x05, 0x08].map(|cns| identify(cns, 1)))
    }

    fn f510_identify_nsid() -> Answer {
        // an inactive NSID returns zeroes, an invalid one an error
        let descriptors = [0, 7, u32::MAX].map(|nsid| identify(0x03, nsid));
        let namespace = [0, 1025, u32::MAX].map(|nsid| identify(0x00, nsid));
        let list = [0xffff_fffe, 0xffff_ffff].map(|nsid| identify(0x02, nsid));
        each(enabled(), descriptors.into_iter().chain(namespace).chain(list))
    }

    fn f511_identify_command_set() -> Answer {
        each(enabled(), [0x05, 0x06].map(|cns| identify(cns, 1).with_cdw(11, 2 << 24)))
    }

    fn f512_unknown_log_page() -> Answer {
        assert_eq!(each(discovery(), [log(2, 512, 0)]), each(enabled(), [log(0x70, 1024, 0)]));
        each(enabled(), [0x06, 0x07, 0x0d, 0x7f, 0x81, 0xc0, 0xff].map(|lid| log(lid, 64, 0)))
    }

    fn f513_log_page_offset() -> Answer {
        each(enabled(), [log(2, 64, 2), log(2, 64, 516), log(2, 64, 1 << 40), log(2, 64, u64::MAX - 3)])
    }

    fn f514_log_page_over_mdts() -> Answer {
        each(enabled(), [log(2, 131_076, 0), Sqe { sgl: Sgl::transport(u32::MAX), ..log(2, 4, 0).with_cdw(10, 0xffff_0002).with_cdw(11, 0xffff) }])
    }

    fn f515_too_many_event_requests() -> Answer {
        let mut peer = enabled();
        let event = |cid| with_cid(Sqe::new(ASYNC_EVENT_REQUEST, 0), cid);
        for cid in 0..4 {
            let pdu = peer.capsule(event(cid), &[]);
            peer.send(&pdu).expect("sent");
        }
        completed(&mut peer, event(4), &[])
    }

    fn f516_command_identifier_in_use() -> Answer {
        let mut peer = enabled();
        let pdu = peer.capsule(with_cid(Sqe::new(ASYNC_EVENT_REQUEST, 0), 77), &[]);
        peer.send(&pdu).expect("sent");
        completed(&mut peer, with_cid(Sqe::new(KEEP_ALIVE, 0), 77), &[])
    }

    fn f517_abort_of_nothing() -> Answer {
        // itself, an unknown command, an unknown queue: bit 0 of the result is set as no command was aborted
        each(enabled(), [1u32 << 16, 0x1234 << 16, 3, 0xffff_ffff].map(|cdw10| Sqe::new(ABORT, 0).with_cdw(10, cdw10)))
    }

    fn f518_aborted_event_request() -> Answer {
        let mut peer = enabled();
        for sqe in [with_cid(Sqe::new(ASYNC_EVENT_REQUEST, 0), 7), with_cid(Sqe::new(ABORT, 0).with_cdw(10, 7 << 16), 8)] {
            let pdu = peer.capsule(sqe, &[]);
            peer.send(&pdu).expect("sent");
        }
        let answer = read_completion(&mut peer, 7);
        assert_eq!(read_completion(&mut peer, 8).to_string(), "CQE 0h/00h", "aborted");
        answer
    }

    fn f519_log_page_by_index() -> Answer {
        each(enabled(), [1, 2, 5].map(|lid| log(lid, 64, 0).with_cdw(14, 1 << 23)))
    }

    fn f520_smart_log_of_a_namespace() -> Answer {
        each(enabled(), [1, 7].map(|nsid| Sqe { nsid: nsid.into(), ..log(2, 64, 0) }))
    }

    fn f521_effects_of_another_command_set() -> Answer {
        each(enabled(), [1, 2].map(|csi| log(5, 64, 0).with_cdw(14, csi << 24)))
    }
}
