//! F3xx: data that R2Ts have asked for, or have not.

use pilotlight_host::raw::{RawPeer, framed};
use pilotlight_nvme::command::opcode::admin::ABORT;
use pilotlight_nvme::pdu::{Digests, Flags, H2CData, PduType, R2T, data_offset};
use pilotlight_nvme::{Sqe, digest};
use zerocopy::IntoBytes;

use super::answer::{Answer, cut_off, read_completion, terminated};
use super::rows;
use super::stage::{
    BOTH, DATA, Io, NONE, assert_unwritten, blocks, content, enabled, io_with, r2t, read_r2t, shaken, write,
};

const CID: u16 = 0x1234;

/// A host in the middle of a write of 16 KiB, and the R2T that it has to answer.
struct Asked {
    io: Io,
    lba: u64,
    r2t: R2T,
}

fn asked(digests: Digests) -> Asked {
    let mut io = io_with(digests, 1, 8);
    let lba = blocks();
    let r2t = r2t(&mut io.peer, write(CID, lba, 4));
    assert_eq!((r2t.cccid.get(), r2t.r2to.get(), r2t.r2tl.get()), (CID, 0, 16_384));
    Asked { io, lba, r2t }
}

impl Asked {
    /// A data PDU of `len` bytes at `offset`, all [`Asked::fill`], the last one if `last`.
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

    /// Sends `pdu`, which ought to end the connection; no block may have changed.
    fn ends_with(mut self, pdu: &[u8]) -> Answer {
        let answer = terminated(&mut self.io.peer, pdu);
        assert_unwritten(self.lba, 4);
        answer
    }

    /// Answers the R2T as it should be.
    fn go_on(&mut self) {
        let pdu = self.data(0, 16_384, true);
        self.peer().send(&pdu).expect("sent");
        assert_eq!(read_completion(self.peer(), CID).to_string(), "CQE 0h/00h");
        assert!(content(self.lba, 4).iter().all(|&byte| byte == 0x5a));
    }
}

/// The answer to a whole and right data PDU with one byte changed.
fn altered(digests: Digests, at: usize, value: u8) -> Answer {
    let asked = asked(digests);
    let mut pdu = asked.data(0, 16_384, true);
    pdu[at] = value;
    if digests.header {
        let sum = digest::digest(&pdu[..24]);
        pdu[24..28].copy_from_slice(&sum);
    }
    asked.ends_with(&pdu)
}

fn same<const N: usize>(answers: [Answer; N]) -> Answer {
    assert!(answers.iter().all(|&answer| answer == answers[0]), "one row, one answer: {answers:?}");
    answers[0]
}

rows! {
    fn f301_data_before_connect() -> Answer {
        let asked = asked(NONE);
        terminated(&mut shaken(NONE, 1), &asked.data(0, 16_384, true))
    }

    fn f302_data_without_r2t() -> Answer {
        let asked = asked(NONE);
        let pdu = asked.data(0, 16_384, true);
        same([terminated(&mut enabled(), &pdu), terminated(&mut io_with(NONE, 1, 8).peer, &pdu)])
    }

    fn f303_ttag_never_given() -> Answer {
        same([1, 2, 4, 0x10, 0x8000].map(|flip| {
            let asked = asked(NONE);
            let ttag = asked.r2t.ttag.get() ^ flip;
            let pdu = asked.data_for(CID, ttag, 0, 16_384, true);
            asked.ends_with(&pdu)
        }))
    }

    fn f304_ttag_used_up() -> Answer {
        let mut asked = asked(NONE);
        asked.go_on();
        let pdu = asked.data(0, 16_384, true);
        terminated(asked.peer(), &pdu)
    }

    fn f305_cccid_of_another_command() -> Answer {
        let mut asked = asked(NONE);
        let command = write(7, asked.lba + 8, 4);
        let other = r2t(asked.peer(), command);
        assert_ne!(other.ttag, asked.r2t.ttag);
        let pdu = asked.data_for(7, asked.r2t.ttag.get(), 0, 16_384, true);
        asked.ends_with(&pdu)
    }

    fn f306_datao_unaligned() -> Answer {
        let asked = asked(NONE);
        let pdu = asked.data(2, 16_380, false);
        asked.ends_with(&pdu)
    }

    fn f307_datal_unaligned() -> Answer {
        let asked = asked(NONE);
        let pdu = asked.data(0, 4095, false);
        asked.ends_with(&pdu)
    }

    fn f308_datal_zero() -> Answer {
        let asked = asked(NONE);
        let pdu = asked.data(0, 0, false);
        asked.ends_with(&pdu)
    }

    fn f309_datal_and_plen_disagree() -> Answer {
        same([altered(NONE, 17, 0x3f), altered(NONE, 19, 0xff), altered(DATA, 16, 4)])
    }

    fn f310_datao_beyond_what_was_asked_for() -> Answer {
        same([16_384, 0xffff_fffc].map(|offset| {
            let asked = asked(NONE);
            let pdu = asked.data(offset, 4096, true);
            asked.ends_with(&pdu)
        }))
    }

    fn f311_datal_beyond_what_was_asked_for() -> Answer {
        same([(0, 16_388), (12_288, 8192), (0, 65_536)].map(|(offset, len)| {
            let mut asked = asked(NONE);
            if offset > 0 {
                let begin = asked.data(0, offset, false);
                asked.peer().send(&begin).expect("sent");
            }
            let pdu = asked.data(offset, len, true);
            asked.ends_with(&pdu)
        }))
    }

    fn f312_datao_of_another_r2t() -> Answer {
        let mut io = io_with(NONE, 4, 8);
        let lba = blocks();
        let first = r2t(&mut io.peer, write(CID, lba, 4));
        let second = read_r2t(&mut io.peer);
        assert_eq!((first.r2tl.get(), second.r2to.get()), (4096, 4096));
        let _others = [read_r2t(&mut io.peer), read_r2t(&mut io.peer)];
        let asked = Asked { io, lba, r2t: first };
        let pdu = asked.data(4096, 4096, true);
        asked.ends_with(&pdu)
    }

    fn f313_data_left_out() -> Answer {
        let asked = asked(NONE);
        let pdu = asked.data(4096, 12_288, true);
        asked.ends_with(&pdu)
    }

    fn f314_data_repeated() -> Answer {
        let mut asked = asked(NONE);
        let pdu = asked.data(0, 4096, false);
        asked.peer().send(&pdu).expect("sent");
        asked.ends_with(&pdu)
    }

    fn f315_last_missing() -> Answer {
        let asked = asked(NONE);
        let pdu = asked.data(0, 16_384, false);
        asked.ends_with(&pdu)
    }

    fn f316_last_too_early() -> Answer {
        let asked = asked(NONE);
        let pdu = asked.data(0, 4096, true);
        asked.ends_with(&pdu)
    }

    fn f317_plen_over_maxh2cdata() -> Answer {
        let asked = asked(NONE);
        let mut pdu = asked.data(0, 131_072 + 8, true);
        pdu.truncate(1000);
        asked.ends_with(&pdu)
    }

    fn f318_plen_below_the_header() -> Answer {
        same([altered(NONE, 5, 0), {
            let asked = asked(NONE);
            let mut pdu = asked.data(0, 4, false);
            pdu[4] = 20;
            asked.ends_with(&pdu)
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
            let asked = asked(BOTH);
            let mut pdu = asked.data(0, 16_384, true);
            pdu[at] ^= 0x40;
            let received = u32::from_le_bytes([pdu[24], pdu[25], pdu[26], pdu[27]]);
            assert_eq!(asked.ends_with(&pdu), Answer::Terminated(3, received), "byte {at}");
        }
        Answer::HeaderDigest
    }

    fn f324_data_digest_wrong() -> Answer {
        same([28, 28 + 4095, 28 + 4096].map(|at| {
            let mut asked = asked(BOTH);
            // the first of four PDUs is damaged, the others are not
            let mut damaged = asked.data(0, 4096, false);
            damaged[at] ^= 1;
            asked.peer().send(&damaged).expect("sent");
            for (offset, last) in [(4096, false), (8192, false), (12_288, true)] {
                let pdu = asked.data(offset, 4096, last);
                asked.peer().send(&pdu).expect("sent");
            }
            let answer = read_completion(asked.peer(), CID);
            assert_unwritten(asked.lba, 4);
            asked.r2t = r2t(&mut asked.io.peer, write(CID, asked.lba, 4));
            asked.go_on();
            answer
        }))
    }

    fn f325_data_cut_off() -> Answer {
        let whole = asked(NONE).data(0, 16_384, true).len();
        for len in [1, 8, 24, 25, 24 + 4096, whole - 1] {
            let mut asked = asked(NONE);
            let pdu = asked.data(0, 16_384, true);
            assert_eq!(cut_off(asked.peer(), &pdu[..len]), Answer::Closed);
            assert_unwritten(asked.lba, 4);
        }
        Answer::Closed
    }

    fn f326_r2t_never_answered() -> Answer {
        let mut asked = asked(NONE);
        assert_eq!(cut_off(asked.peer(), &[]), Answer::Closed);
        assert_unwritten(asked.lba, 4);
        Answer::Closed
    }

    fn f327_command_aborted_under_its_data() -> Answer {
        let mut asked = asked(NONE);
        let begin = asked.data(0, 4096, false);
        asked.peer().send(&begin[..1000]).expect("sent");
        // The Abort goes another way: only an answer tells that what was sent before it has been read.
        let abort = Sqe::new(ABORT, 0).with_cdw(10, 1 | u32::from(CID) << 16);
        let stopped = asked.io.controller.admin().execute("Abort", abort, &[], &mut []).expect("an answer");
        assert_eq!(stopped & 1, 0, "stopped");
        let answer = read_completion(asked.peer(), CID);
        // what was asked for may still come, and is thrown away
        asked.peer().send(&begin[1000..]).expect("sent");
        let rest = asked.data(4096, 12_288, true);
        asked.peer().send(&rest).expect("sent");
        assert_unwritten(asked.lba, 4);
        asked.r2t = r2t(&mut asked.io.peer, write(CID, asked.lba, 4));
        asked.go_on();
        answer
    }

    fn f328_reserved_bytes() -> Answer {
        let mut asked = asked(NONE);
        let mut pdu = asked.data(0, 16_384, true);
        pdu[1] |= 0xf8;
        pdu[20..24].fill(0xff);
        asked.peer().send(&pdu).expect("sent");
        assert_eq!(read_completion(asked.peer(), CID).to_string(), "CQE 0h/00h");
        Answer::Served
    }
}
