//! F3xx: H2CData PDUs, requested by an R2T or not.

use pilotlight_nvme::command::opcode::admin::ABORT;
use pilotlight_nvme::pdu::{Digests, Flags, H2CData, PduType, R2T, data_offset};
use pilotlight_nvme::{Sqe, digest};
use pilotlight_peers::raw::{RawPeer, framed};
use zerocopy::IntoBytes;

use super::answer::{Answer, cut_off, read_completion, terminated};
use super::fixture::{
    BOTH, DATA, Io, NONE, assert_unwritten, blocks, content, enabled, io_with, r2t, read_r2t, shaken, write,
};
use super::rows;

const CID: u16 = 0x1234;

/// A host with a write of 16 KiB and its outstanding R2T.
struct OutstandingWrite {
    io: Io,
    lba: u64,
    r2t: R2T,
}

fn outstanding(digests: Digests) -> OutstandingWrite {
    let mut io = io_with(digests, 1, 8);
    let lba = blocks();
    let r2t = r2t(&mut io.peer, write(CID, lba, 4));
    assert_eq!((r2t.cccid.get(), r2t.r2to.get(), r2t.r2tl.get()), (CID, 0, 16_384));
    OutstandingWrite { io, lba, r2t }
}

impl OutstandingWrite {
    /// A data PDU of `len` bytes at `offset`, all [`OutstandingWrite::fill`], the last one if `last`.
    fn data(&self, offset: u32, len: u32, last: bool) -> Vec<u8> {
        self.data_for(CID, self.r2t.ttag.get(), offset, len, last)
    }

    fn data_for(&self, cid: u16, ttag: u16, offset: u32, len: u32, last: bool) -> Vec<u8> {
        let digests = self.io.peer.digests;
        let pdo = data_offset(PduType::H2CData, digests, 0);
        let mut flags = Flags::empty();
        flags.set(Flags::LAST_PDU, last);
        let header = H2CData::new(cid, ttag, offset, len, pdo, flags, digests);
        framed(header.as_bytes(), pdo, &vec![0x5a; len as usize], digests)
    }

    fn peer(&mut self) -> &mut RawPeer {
        &mut self.io.peer
    }

    /// Sends `pdu`, which must end the connection. No block may change.
    fn ends_with(mut self, pdu: &[u8]) -> Answer {
        let answer = terminated(&mut self.io.peer, pdu);
        assert_unwritten(self.lba, 4);
        answer
    }

    /// Sends the requested data and completes the write.
    fn complete(&mut self) {
        let pdu = self.data(0, 16_384, true);
        self.peer().send(&pdu).expect("sent");
        assert_eq!(read_completion(self.peer(), CID).to_string(), "CQE 0h/00h");
        assert!(content(self.lba, 4).iter().all(|&byte| byte == 0x5a));
    }
}

/// Response to a valid data PDU with one changed byte.
fn altered(digests: Digests, at: usize, value: u8) -> Answer {
    let op = outstanding(digests);
    let mut pdu = op.data(0, 16_384, true);
    pdu[at] = value;
    if digests.header {
        let sum = digest::digest(&pdu[..24]);
        pdu[24..28].copy_from_slice(&sum);
    }
    op.ends_with(&pdu)
}

fn same<const N: usize>(answers: [Answer; N]) -> Answer {
    assert!(answers.iter().all(|&answer| answer == answers[0]), "responses of one row differ: {answers:?}");
    answers[0]
}

rows! {
    fn f301_data_before_connect() -> Answer {
        let op = outstanding(NONE);
        terminated(&mut shaken(NONE, 1), &op.data(0, 16_384, true))
    }

    fn f302_data_without_r2t() -> Answer {
        let op = outstanding(NONE);
        let pdu = op.data(0, 16_384, true);
        same([terminated(&mut enabled(), &pdu), terminated(&mut io_with(NONE, 1, 8).peer, &pdu)])
    }

    fn f303_ttag_unknown() -> Answer {
        same([1, 2, 4, 0x10, 0x8000].map(|flip| {
            let op = outstanding(NONE);
            let ttag = op.r2t.ttag.get() ^ flip;
            let pdu = op.data_for(CID, ttag, 0, 16_384, true);
            op.ends_with(&pdu)
        }))
    }

    fn f304_ttag_of_a_completed_transfer() -> Answer {
        let mut op = outstanding(NONE);
        op.complete();
        let pdu = op.data(0, 16_384, true);
        terminated(op.peer(), &pdu)
    }

    fn f305_cccid_of_another_command() -> Answer {
        let mut op = outstanding(NONE);
        let command = write(7, op.lba + 8, 4);
        let other = r2t(op.peer(), command);
        assert_ne!(other.ttag, op.r2t.ttag);
        let pdu = op.data_for(7, op.r2t.ttag.get(), 0, 16_384, true);
        op.ends_with(&pdu)
    }

    fn f306_datao_unaligned() -> Answer {
        let op = outstanding(NONE);
        let pdu = op.data(2, 16_380, false);
        op.ends_with(&pdu)
    }

    fn f307_datal_unaligned() -> Answer {
        let op = outstanding(NONE);
        let pdu = op.data(0, 4095, false);
        op.ends_with(&pdu)
    }

    fn f308_datal_zero() -> Answer {
        let op = outstanding(NONE);
        let pdu = op.data(0, 0, false);
        op.ends_with(&pdu)
    }

    fn f309_datal_and_plen_disagree() -> Answer {
        same([altered(NONE, 17, 0x3f), altered(NONE, 19, 0xff), altered(DATA, 16, 4)])
    }

    fn f310_datao_beyond_the_r2t() -> Answer {
        same([16_384, 0xffff_fffc].map(|offset| {
            let op = outstanding(NONE);
            let pdu = op.data(offset, 4096, true);
            op.ends_with(&pdu)
        }))
    }

    fn f311_datal_beyond_the_r2t() -> Answer {
        same([(0, 16_388), (12_288, 8192), (0, 65_536)].map(|(offset, len)| {
            let mut op = outstanding(NONE);
            if offset > 0 {
                let begin = op.data(0, offset, false);
                op.peer().send(&begin).expect("sent");
            }
            let pdu = op.data(offset, len, true);
            op.ends_with(&pdu)
        }))
    }

    fn f312_datao_of_another_r2t() -> Answer {
        let mut io = io_with(NONE, 4, 8);
        let lba = blocks();
        let first = r2t(&mut io.peer, write(CID, lba, 4));
        let second = read_r2t(&mut io.peer);
        assert_eq!((first.r2tl.get(), second.r2to.get()), (4096, 4096));
        let _others = [read_r2t(&mut io.peer), read_r2t(&mut io.peer)];
        let op = OutstandingWrite { io, lba, r2t: first };
        let pdu = op.data(4096, 4096, true);
        op.ends_with(&pdu)
    }

    fn f313_data_left_out() -> Answer {
        let op = outstanding(NONE);
        let pdu = op.data(4096, 12_288, true);
        op.ends_with(&pdu)
    }

    fn f314_data_repeated() -> Answer {
        let mut op = outstanding(NONE);
        let pdu = op.data(0, 4096, false);
        op.peer().send(&pdu).expect("sent");
        op.ends_with(&pdu)
    }

    fn f315_last_missing() -> Answer {
        let op = outstanding(NONE);
        let pdu = op.data(0, 16_384, false);
        op.ends_with(&pdu)
    }

    fn f316_last_too_early() -> Answer {
        let op = outstanding(NONE);
        let pdu = op.data(0, 4096, true);
        op.ends_with(&pdu)
    }

    fn f317_plen_over_maxh2cdata() -> Answer {
        let op = outstanding(NONE);
        let mut pdu = op.data(0, 131_072 + 8, true);
        pdu.truncate(1000);
        op.ends_with(&pdu)
    }

    fn f318_plen_below_the_header() -> Answer {
        same([altered(NONE, 5, 0), {
            let op = outstanding(NONE);
            let mut pdu = op.data(0, 4, false);
            pdu[4] = 20;
            op.ends_with(&pdu)
        }])
    }

    fn f319_hlen() -> Answer {
        same([0, 23, 72, 255].map(|hlen| altered(NONE, 2, hlen)))
    }

    fn f320_pdo() -> Answer {
        same([altered(NONE, 3, 0), altered(NONE, 3, 20), altered(NONE, 3, 25), altered(BOTH, 3, 24)])
    }

    fn f321_header_digest_flag() -> Answer {
        same([altered(NONE, 1, 0b101), altered(BOTH, 1, 0b110)])
    }

    fn f322_data_digest_flag() -> Answer {
        same([altered(NONE, 1, 0b110), altered(BOTH, 1, 0b101)])
    }

    fn f323_header_digest_wrong() -> Answer {
        for at in [8, 12, 24, 27] {
            let op = outstanding(BOTH);
            let mut pdu = op.data(0, 16_384, true);
            pdu[at] ^= 0x40;
            let received = u32::from_le_bytes([pdu[24], pdu[25], pdu[26], pdu[27]]);
            assert_eq!(op.ends_with(&pdu), Answer::Terminated(3, received), "byte {at}");
        }
        Answer::HeaderDigest
    }

    fn f324_data_digest_wrong() -> Answer {
        same([28, 28 + 4095, 28 + 4096].map(|at| {
            let mut op = outstanding(BOTH);
            // the first of four PDUs is damaged, the others are not
            let mut damaged = op.data(0, 4096, false);
            damaged[at] ^= 1;
            op.peer().send(&damaged).expect("sent");
            for (offset, last) in [(4096, false), (8192, false), (12_288, true)] {
                let pdu = op.data(offset, 4096, last);
                op.peer().send(&pdu).expect("sent");
            }
            let answer = read_completion(op.peer(), CID);
            assert_unwritten(op.lba, 4);
            op.r2t = r2t(&mut op.io.peer, write(CID, op.lba, 4));
            op.complete();
            answer
        }))
    }

    fn f325_data_cut_off() -> Answer {
        let whole = outstanding(NONE).data(0, 16_384, true).len();
        for len in [1, 8, 24, 25, 24 + 4096, whole - 1] {
            let mut op = outstanding(NONE);
            let pdu = op.data(0, 16_384, true);
            assert_eq!(cut_off(op.peer(), &pdu[..len]), Answer::Closed);
            assert_unwritten(op.lba, 4);
        }
        Answer::Closed
    }

    fn f326_r2t_never_answered() -> Answer {
        let mut op = outstanding(NONE);
        assert_eq!(cut_off(op.peer(), &[]), Answer::Closed);
        assert_unwritten(op.lba, 4);
        Answer::Closed
    }

    fn f327_command_aborted_during_its_data() -> Answer {
        let mut op = outstanding(NONE);
        let begin = op.data(0, 4096, false);
        op.peer().send(&begin[..1000]).expect("sent");
        // The Abort uses another connection. Its response shows that the earlier data has been read.
        let abort = Sqe::new(ABORT, 0).with_cdw(10, 1 | u32::from(CID) << 16);
        let stopped = op.io.controller.admin().execute("Abort", abort, &[], &mut []).expect("a response");
        assert_eq!(stopped & 1, 0, "aborted");
        let answer = read_completion(op.peer(), CID);
        // requested data may still arrive and is discarded
        op.peer().send(&begin[1000..]).expect("sent");
        let rest = op.data(4096, 12_288, true);
        op.peer().send(&rest).expect("sent");
        assert_unwritten(op.lba, 4);
        op.r2t = r2t(&mut op.io.peer, write(CID, op.lba, 4));
        op.complete();
        answer
    }

    fn f328_reserved_bytes() -> Answer {
        let mut op = outstanding(NONE);
        let mut pdu = op.data(0, 16_384, true);
        pdu[1] |= 0xf8;
        pdu[20..24].fill(0xff);
        op.peer().send(&pdu).expect("sent");
        assert_eq!(read_completion(op.peer(), CID).to_string(), "CQE 0h/00h");
        Answer::Served
    }
}
