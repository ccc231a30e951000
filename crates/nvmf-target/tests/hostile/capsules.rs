//! F2xx: command capsules: header fields, in-capsule data, digests.

use pilotlight_nvme::Sqe;
use pilotlight_nvme::command::Sgl;
use pilotlight_nvme::command::opcode::admin::KEEP_ALIVE;
use pilotlight_nvme::command::opcode::io::WRITE;
use pilotlight_nvme::pdu::{CapsuleCmd, Digests};
use pilotlight_peers::raw::RawPeer;

use super::answer::{Answer, cut_off, read_completion, terminated};
use super::fixture::{
    BOTH, DATA, HEADER, Io, NONE, assert_unwritten, blocks, content, enabled, io, io_with, read, write_in_capsule,
};
use super::rows;

/// Response to a write with in-capsule data and one changed byte, on a queue with `digests`. No block may change.
fn altered(digests: Digests, at: usize, change: impl Fn(u8) -> u8) -> Answer {
    let lba = blocks();
    let mut io = io_with(digests, 1, 8);
    let mut pdu = io.peer.capsule(write_in_capsule(1, lba), &[0x5a; 4096]);
    pdu[at] = change(pdu[at]);
    if digests.header && at < 8 {
        let digest = pilotlight_nvme::digest::digest(&pdu[..72]);
        pdu[72..76].copy_from_slice(&digest);
    }
    let answer = terminated(&mut io.peer, &pdu);
    assert_unwritten(lba, 1);
    answer
}

/// Response to a capsule without data whose byte `at` is `value`.
fn with_byte(peer: &mut RawPeer, at: usize, value: u8) -> Answer {
    let mut pdu = peer.capsule(Sqe::new(KEEP_ALIVE, 0), &[]);
    pdu[at] = value;
    terminated(peer, &pdu)
}

fn write_of(lba: u64, sgl_length: u32) -> Sqe {
    Sqe { sgl: Sgl::in_capsule(sgl_length), ..Sqe::block_io(WRITE, 1, lba, 1) }
}

rows! {
    fn f201_hlen() -> Answer {
        let answers = [0, 24, 71, 73, 128, 255].map(|hlen| with_byte(&mut enabled(), 2, hlen));
        assert!(answers.iter().all(|&answer| answer == altered(NONE, 2, |_| 64)));
        answers[0]
    }

    fn f202_plen_below_the_header() -> Answer {
        let answers = [0, 7, 8, 71].map(|plen| with_byte(&mut enabled(), 4, plen));
        assert!(answers.iter().all(|&answer| answer == answers[0]));
        answers[0]
    }

    fn f203_plen_below_header_and_digest() -> Answer {
        let mut io = io_with(HEADER, 1, 8);
        let mut pdu = io.peer.capsule(read(1, 0, 1), &[]);
        pdu[4] = 75;
        terminated(&mut io.peer, &pdu)
    }

    fn f204_plen_over_the_in_capsule_limit() -> Answer {
        let mut io = io();
        let mut pdu = io.peer.capsule(write_of(0, 16_384), &[0; 16_384]);
        pdu.truncate(1000); // the target does not wait for the rest
        terminated(&mut io.peer, &pdu)
    }

    fn f205_plen_of_four_gigabytes() -> Answer {
        altered(NONE, 7, |_| 0xff)
    }

    fn f206_plen_without_data_behind_pdo() -> Answer {
        let mut io = io();
        let mut pdu = io.peer.capsule(read(1, 0, 1), &[]);
        pdu[3] = 76;
        pdu[4] = 76;
        pdu.resize(76, 0);
        terminated(&mut io.peer, &pdu)
    }

    fn f207_plen_shorter_than_a_data_digest() -> Answer {
        let mut io = io_with(DATA, 1, 8);
        let mut pdu = io.peer.capsule(write_of(0, 4096), &[1, 2, 3, 4]);
        pdu[4] = 75;
        pdu.truncate(75);
        terminated(&mut io.peer, &pdu)
    }

    fn f208_pdo_inside_the_header() -> Answer {
        let answers = [0, 8, 68].map(|pdo| altered(NONE, 3, |_| pdo));
        assert!(answers.iter().all(|&answer| answer == altered(BOTH, 3, |_| 72)), "header and digest take 76");
        answers[0]
    }

    fn f209_pdo_unaligned() -> Answer {
        altered(NONE, 3, |pdo| pdo + 1)
    }

    fn f210_header_digest_flag_not_negotiated() -> Answer {
        assert_eq!(with_byte(&mut enabled(), 1, 1), altered(NONE, 1, |flags| flags | 1));
        altered(DATA, 1, |flags| flags | 1)
    }

    fn f211_header_digest_flag_missing() -> Answer {
        altered(BOTH, 1, |flags| flags & !1)
    }

    fn f212_data_digest_flag_not_negotiated() -> Answer {
        altered(NONE, 1, |flags| flags | 2)
    }

    fn f213_data_digest_flag_missing() -> Answer {
        altered(BOTH, 1, |flags| flags & !2)
    }

    fn f214_reserved_flags_and_pdo_without_data() -> Answer {
        let lba = blocks();
        let mut io = io();
        let mut pdu = io.peer.capsule(write_in_capsule(1, lba), &[0x77; 4096]);
        pdu[1] |= 0xfc;
        io.peer.send(&pdu).expect("sent");
        assert_eq!(read_completion(&mut io.peer, 1).to_string(), "CQE 0h/00h");
        assert!(content(lba, 1).iter().all(|&byte| byte == 0x77));
        let mut pdu = io.peer.capsule(Sqe::new(0, 1), &[]);
        pdu[1] |= 2; // a data digest flag without data
        pdu[3] = 0xff;
        io.peer.send(&pdu).expect("sent");
        assert_eq!(read_completion(&mut io.peer, 0).to_string(), "CQE 0h/00h");
        Answer::Served
    }

    fn f215_header_digest_wrong() -> Answer {
        let lba = blocks();
        for at in [72, 75, 8, 48, 71] {
            let mut io = io_with(BOTH, 1, 8);
            let mut pdu = io.peer.capsule(write_in_capsule(1, lba), &[0x5a; 4096]);
            pdu[at] ^= 0x10;
            let received = u32::from_le_bytes([pdu[72], pdu[73], pdu[74], pdu[75]]);
            assert_eq!(terminated(&mut io.peer, &pdu), Answer::Terminated(3, received), "byte {at}");
        }
        assert_unwritten(lba, 2);
        Answer::HeaderDigest
    }

    fn f216_data_digest_wrong() -> Answer {
        let lba = blocks();
        let mut io = io_with(BOTH, 1, 8);
        let mut answers = Vec::new();
        // the first and the last byte of the data, the digest
        for at in [76, 76 + 4095, 76 + 4096] {
            let mut pdu = io.peer.capsule(write_in_capsule(1, lba), &[0x5a; 4096]);
            pdu[at] ^= 1;
            io.peer.send(&pdu).expect("sent");
            answers.push(read_completion(&mut io.peer, 1));
        }
        assert_unwritten(lba, 1);
        assert!(answers.iter().all(|&answer| answer == answers[0]));
        answers[0]
    }

    fn f217_capsule_cut_off() -> Answer {
        let lba = blocks();
        for len in [1, 8, 71, 72, 1000, 72 + 4095] {
            let Io { mut peer, controller, .. } = io();
            let pdu = peer.capsule(write_in_capsule(1, lba), &[0x5a; 4096]);
            assert_eq!(cut_off(&mut peer, &pdu[..len]), Answer::Closed);
            drop(controller);
        }
        assert_unwritten(lba, 1);
        Answer::Closed
    }

    fn f218_data_for_a_command_that_takes_none() -> Answer {
        let mut io = io();
        let pdu = io.peer.capsule(Sqe::new(0, 1), &[0xab; 512]); // Flush
        io.peer.send(&pdu).expect("sent");
        assert_eq!(read_completion(&mut io.peer, 0).to_string(), "CQE 0h/00h");
        Answer::Served
    }

    fn f219_data_far_behind_the_header() -> Answer {
        let lba = blocks();
        let mut io = io();
        let header = CapsuleCmd::new(write_in_capsule(1, lba), 4096, 252, NONE);
        let pdu = pilotlight_peers::raw::framed(zerocopy::IntoBytes::as_bytes(&header), 252, &[0x33; 4096], NONE);
        io.peer.send(&pdu).expect("sent");
        assert_eq!(read_completion(&mut io.peer, 1).to_string(), "CQE 0h/00h");
        assert!(content(lba, 1).iter().all(|&byte| byte == 0x33));
        Answer::Served
    }
}
