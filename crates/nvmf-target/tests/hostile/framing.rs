//! F1xx: connection setup and PDU headers: order, the common header, ICReq, H2CTermReq.

use pilotlight_host::Handshake;
use pilotlight_nvme::Sqe;
use pilotlight_nvme::command::opcode::admin::KEEP_ALIVE;
use pilotlight_nvme::pdu::{IcReq, PduType};
use zerocopy::IntoBytes;

use super::answer::{Answer, closed, cut_off, terminated};
use super::fixture::{BOTH, NONE, admin, enabled, io, io_with, r2t, shaken, tcp, write};
use super::rows;

/// PDU types that only a controller sends.
const TO_HOST: [PduType; 5] =
    [PduType::ICResp, PduType::C2HTermReq, PduType::CapsuleResp, PduType::C2HData, PduType::R2T];

/// A PDU without data of any type.
fn bare(pdu_type: u8, hlen: u8, plen: u32) -> Vec<u8> {
    let mut pdu = vec![0; hlen.into()];
    pdu[..4].copy_from_slice(&[pdu_type, 0, hlen, 0]);
    pdu[4..8].copy_from_slice(&plen.to_le_bytes());
    pdu
}

fn whole(pdu_type: PduType) -> Vec<u8> {
    let hlen = pdu_type.header_len();
    bare(pdu_type as u8, hlen as u8, hlen as u32)
}

/// A valid ICReq with one changed byte.
fn icreq(at: usize, value: u8) -> Vec<u8> {
    let mut pdu = IcReq::new(0, NONE, 0).as_bytes().to_vec();
    pdu[at] = value;
    pdu
}

/// The common response of several cases of a row.
fn same(answers: impl IntoIterator<Item = Answer>) -> Answer {
    let answers: Vec<Answer> = answers.into_iter().collect();
    assert!(answers.windows(2).all(|pair| pair[0] == pair[1]), "responses of one row differ: {answers:?}");
    answers[0]
}

rows! {
    fn f101_unknown_type() -> Answer {
        let types = [0x08, 0x0a, 0x0b, 0x10, 0x84, 0xff];
        let first = types.map(|pdu_type| terminated(&mut tcp(), &bare(pdu_type, 24, 24)));
        let later = types.map(|pdu_type| terminated(&mut io().peer, &bare(pdu_type, 24, 24)));
        same(first.into_iter().chain(later))
    }

    fn f102_capsule_before_icreq() -> Answer {
        let peer = &mut tcp();
        let capsule = peer.capsule(Sqe::new(KEEP_ALIVE, 0), &[]);
        terminated(peer, &capsule)
    }

    fn f103_data_before_icreq() -> Answer {
        terminated(&mut tcp(), &whole(PduType::H2CData))
    }

    fn f104_types_of_the_controller_before_icreq() -> Answer {
        same(TO_HOST.map(|pdu_type| terminated(&mut tcp(), &whole(pdu_type))))
    }

    fn f105_types_of_the_controller_on_a_queue() -> Answer {
        same(TO_HOST.map(|pdu_type| terminated(&mut io().peer, &whole(pdu_type))))
    }

    fn f106_second_icreq() -> Answer {
        same([shaken(NONE, 1), admin(), io().peer].map(|mut peer| terminated(&mut peer, &icreq(0, 0))))
    }

    fn f107_icreq_plen() -> Answer {
        // shorter than the header, longer than any PDU
        same([127, 0, 8, 129, 0xff].map(|plen| terminated(&mut tcp(), &icreq(4, plen))))
    }

    fn f108_icreq_plen_oversized() -> Answer {
        terminated(&mut tcp(), &icreq(7, 0xff))
    }

    fn f109_icreq_hlen() -> Answer {
        same([0, 127, 72, 0xff].map(|hlen| terminated(&mut tcp(), &icreq(2, hlen))))
    }

    fn f110_icreq_pfv() -> Answer {
        same([icreq(8, 1), icreq(9, 0x80)].map(|pdu| terminated(&mut tcp(), &pdu)))
    }

    fn f111_icreq_hpda() -> Answer {
        same([32, 0xff].map(|hpda| terminated(&mut tcp(), &icreq(10, hpda))))
    }

    fn f112_icreq_reserved_bits() -> Answer {
        // FLAGS, PDO, DGST bits 7:2, the first and the last reserved byte
        for (at, value) in [(1, 0xff), (3, 0xff), (11, 0xfc), (16, 0xff), (127, 0xff)] {
            let peer = &mut tcp();
            peer.send(&icreq(at, value)).expect("sent");
            let reply = peer.read_pdu().expect("an answer");
            let pilotlight_peers::raw::Reply::Pdu(pdu) = &reply else { panic!("byte {at}: {reply:?}") };
            assert_eq!((pdu[0], pdu[11]), (PduType::ICResp as u8, 0), "an ICResp that grants no digest");
        }
        Answer::Served
    }

    fn f113_icreq_cut_off() -> Answer {
        same([1, 7, 8, 127].map(|len| cut_off(&mut tcp(), &icreq(0, 0)[..len])))
    }

    fn f114_termination_before_icreq() -> Answer {
        closed(&mut tcp(), &whole(PduType::H2CTermReq))
    }

    fn f115_termination_on_a_queue() -> Answer {
        let receiving = || {
            let mut io = io_with(BOTH, 1, 8);
            r2t(&mut io.peer, write(1, 0, 4));
            io.peer
        };
        let peers = [shaken(NONE, 1), shaken(BOTH, 1), admin(), enabled(), io().peer, io_with(BOTH, 1, 8).peer, receiving()];
        same(peers.map(|mut peer| closed(&mut peer, &whole(PduType::H2CTermReq))))
    }

    fn f116_termination_malformed() -> Answer {
        let mut quoting = whole(PduType::H2CTermReq);
        quoting[4..8].copy_from_slice(&152u32.to_le_bytes());
        quoting.resize(152, 0xff);
        let pdus = [bare(2, 8, 0), bare(2, 8, u32::MAX), bare(2, 255, 24), quoting];
        same(pdus.map(|pdu| closed(&mut io().peer, &pdu)))
    }

    fn f117_maxr2t_above_the_targets_limit() -> Answer {
        let peer = &mut tcp();
        let handshake = Handshake { max_r2t: u32::MAX, ..Handshake::default() };
        peer.shake_hands(&handshake).expect("an ICResp");
        let io = io_with(NONE, u32::MAX, 8);
        let mut peer = io.peer;
        let capsule = peer.capsule(write(1, 0, 32), &[]);
        peer.send(&capsule).expect("sent");
        let tags: Vec<u16> = (0..4).map(|_| super::fixture::read_r2t(&mut peer).ttag.get()).collect();
        assert!(tags.windows(2).all(|pair| pair[0] != pair[1]), "{tags:?}");
        Answer::Served
    }
}
