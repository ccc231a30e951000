//! F7xx: I/O commands: opcodes, namespaces, ranges, SGLs.

use pilotlight_nvme::Sqe;
use pilotlight_nvme::command::opcode::io::{
    COMPARE, DATASET_MANAGEMENT, FLUSH, READ, RESERVATION_ACQUIRE, RESERVATION_REGISTER, RESERVATION_RELEASE,
    RESERVATION_REPORT, VERIFY, WRITE, WRITE_ZEROES,
};
use pilotlight_nvme::command::{DsmRange, Sgl, dsm};
use pilotlight_peers::raw::RawPeer;
use zerocopy::IntoBytes;

use super::answer::{Answer, completed, read_completion, terminated};
use super::fixture::{
    BLOCKS, NONE, assert_unwritten, blocks, io, io_with, r2t, read, with_cid, write, write_in_capsule,
};
use super::rows;

fn each(peer: &mut RawPeer, commands: impl IntoIterator<Item = Sqe>) -> Answer {
    let answers: Vec<Answer> = commands.into_iter().map(|sqe| completed(peer, sqe, &[])).collect();
    assert!(answers.iter().all(|&answer| answer == answers[0]), "responses of one row differ: {answers:?}");
    answers[0]
}

/// Every command with a range of blocks, with a valid SGL.
fn over_blocks(nsid: u32, lba: u64, blocks: u32) -> [Sqe; 5] {
    let data = |opcode| Sqe { sgl: Sgl::transport(blocks * 4096), ..Sqe::block_io(opcode, nsid, lba, blocks) };
    let none = |opcode| Sqe::block_io(opcode, nsid, lba, blocks);
    [data(READ), data(WRITE), data(COMPARE), none(WRITE_ZEROES), none(VERIFY)]
}

/// A deallocation of `ranges` ranges, with `len` bytes of them in the capsule.
fn deallocate(ranges: u32, len: u32) -> Sqe {
    let sqe = Sqe::new(DATASET_MANAGEMENT, 1).with_cdw(10, ranges - 1).with_cdw(11, dsm::AD);
    with_cid(Sqe { sgl: Sgl::in_capsule(len), ..sqe }, 1)
}

fn fused(sqe: Sqe, fuse: u8) -> Sqe {
    Sqe { flags: sqe.flags | fuse, ..sqe }
}

/// Sends two commands, the first of which with CID 1 and the second with CID 2, and reads their completions.
fn both(peer: &mut RawPeer, first: Sqe, second: Sqe) -> [Answer; 2] {
    let [first, second] = [with_cid(first, 1), with_cid(second, 2)].map(|sqe| peer.capsule(sqe, &[]));
    peer.send(&[first, second].concat()).expect("the target takes the commands");
    [read_completion(peer, 1), read_completion(peer, 2)]
}

/// A reservation command with its data in the capsule.
fn reservation(opcode: u8, nsid: u32, cdw10: u32, len: u32) -> Sqe {
    Sqe { sgl: Sgl::in_capsule(len), ..Sqe::new(opcode, nsid).with_cdw(10, cdw10) }
}

/// Each reservation command, of a namespace.
const RESERVATIONS: [fn(u32) -> Sqe; 4] = [
    |nsid| reservation(RESERVATION_REGISTER, nsid, 0, 16),
    |nsid| reservation(RESERVATION_ACQUIRE, nsid, 0x100, 16),
    |nsid| reservation(RESERVATION_RELEASE, nsid, 0x100, 8),
    |nsid| Sqe { sgl: Sgl::transport(4096), ..Sqe::new(RESERVATION_REPORT, nsid).with_cdw(10, 1023).with_cdw(11, 1) },
];

fn range(lba: u64, blocks: u32) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes.copy_from_slice(DsmRange { attributes: 0.into(), blocks: blocks.into(), slba: lba.into() }.as_bytes());
    bytes
}

rows! {
    fn f701_unknown_io_opcode() -> Answer {
        // Write Uncorrectable, Copy, zones; admin opcodes; between those of reservations; vendor specific
        let opcodes = [0x03, 0x04, 0x06, 0x0a, 0x10, 0x12, 0x14, 0x16, 0x18, 0x19, 0x79, 0x7a, 0x7d, 0x80, 0xff];
        each(&mut io().peer, opcodes.map(|opcode| Sqe::new(opcode, 1)))
    }

    fn f702_nsid() -> Answer {
        let commands = [0, 3, 1024, 1025, u32::MAX].into_iter().flat_map(|nsid| over_blocks(nsid, 0, 1));
        let flush = [0, 3, u32::MAX - 1].map(|nsid| Sqe::new(FLUSH, nsid));
        let reservations = [0, 3, 1025, u32::MAX].into_iter().flat_map(|nsid| RESERVATIONS.map(|of| of(nsid)));
        each(&mut io().peer, commands.chain(flush).chain([Sqe::new(DATASET_MANAGEMENT, 3)]).chain(reservations))
    }

    fn f703_reserved_value_of_fuse() -> Answer {
        let lba = blocks();
        let commands = over_blocks(1, lba, 1).map(|sqe| fused(sqe, 3));
        let answer = each(&mut io().peer, commands.into_iter().chain(RESERVATIONS.map(|of| fused(of(1), 3))));
        assert_unwritten(lba, 1);
        answer
    }

    fn f704_lba_out_of_range() -> Answer {
        let ranges = [(BLOCKS, 1), (BLOCKS - 1, 2), (BLOCKS - 31, 32), (u64::MAX, 1), (u64::MAX - 30, 32), (1 << 63, 1)];
        each(&mut io().peer, ranges.into_iter().flat_map(|(lba, blocks)| over_blocks(1, lba, blocks)))
    }

    fn f705_over_mdts() -> Answer {
        let lba = blocks();
        let commands = [33, 64, 4096].into_iter().flat_map(|count| over_blocks(1, lba, count).into_iter().take(3));
        let answer = each(&mut io().peer, commands);
        assert_unwritten(lba, 32);
        answer
    }

    fn f706_prp_instead_of_sgl() -> Answer {
        let commands = [0, 2, 3].into_iter().flat_map(|psdt| [read(0, 0, 1), write(0, 0, 1)].map(|sqe| Sqe { flags: psdt << 6, ..sqe }));
        each(&mut io().peer, commands)
    }

    fn f707_sgl_type() -> Answer {
        let types = [0x00, 0x02, 0x0f, 0x10, 0x20, 0x21, 0x30, 0x40, 0x4f, 0x50, 0x5b, 0x6a, 0xff];
        let odd = types.into_iter().flat_map(|identifier| {
            [read(0, 0, 1), write(0, 0, 1)].map(|sqe| Sqe { sgl: Sgl { identifier, ..sqe.sgl }, ..sqe })
        });
        // a read cannot go into its own capsule
        each(&mut io().peer, odd.chain([Sqe { sgl: Sgl::in_capsule(4096), ..read(0, 0, 1) }]))
    }

    fn f708_sgl_length() -> Answer {
        let lengths = |sqe: Sqe, lengths: [u32; 3]| lengths.map(|length| Sqe { sgl: Sgl::transport(length), ..sqe });
        let writes = lengths(write(0, 0, 2), [0, 4096, 8188]).into_iter().chain(lengths(write(0, 0, 2), [8196, 131_072, u32::MAX]));
        each(&mut io().peer, writes.chain(lengths(read(0, 0, 2), [0, 4096, 8188])))
    }

    fn f709_sgl_longer_than_a_read() -> Answer {
        let peer = &mut io().peer;
        let pdu = peer.capsule(Sqe { sgl: Sgl::transport(1 << 20), ..read(1, 0, 1) }, &[]);
        peer.send(&pdu).expect("sent");
        let reply = peer.read_pdu().expect("an answer");
        let pilotlight_peers::raw::Reply::Pdu(data) = reply else { panic!("{reply:?}") };
        assert_eq!((data[0], data.len()), (7, 24 + 4096));
        Answer::Served
    }

    fn f710_in_capsule_length() -> Answer {
        let lba = blocks();
        let peer = &mut io().peer;
        // the lengths of the SGL, the data and the command must agree
        let answers = [(4096, 0), (4096, 4092), (4096, 4100), (4096, 8192), (8192, 8192), (512, 512), (0, 0)].map(|(said, there)| {
            let sqe = Sqe { sgl: Sgl::in_capsule(said), ..write_in_capsule(1, lba) };
            completed(peer, sqe, &vec![0x5a; there])
        });
        assert_unwritten(lba, 2);
        assert!(answers.iter().all(|&answer| answer == answers[0]), "{answers:?}");
        answers[0]
    }

    fn f711_in_capsule_offset() -> Answer {
        let lba = blocks();
        let peer = &mut io().peer;
        let answers = [4, 1 << 40, u64::MAX].map(|offset| {
            let mut sqe = write_in_capsule(1, lba);
            sqe.sgl.address = offset.into();
            completed(peer, sqe, &[0x5a; 4096])
        });
        assert_unwritten(lba, 1);
        assert!(answers.iter().all(|&answer| answer == answers[0]), "{answers:?}");
        answers[0]
    }

    fn f712_protection_information() -> Answer {
        let lba = blocks();
        let commands = over_blocks(1, lba, 1).into_iter().flat_map(|sqe| {
            [1, 2, 4, 8].map(|prinfo| sqe.with_cdw(12, sqe.cdw12() | prinfo << 26))
        });
        let answer = each(&mut io().peer, commands);
        assert_unwritten(lba, 1);
        answer
    }

    fn f713_command_identifier_in_use() -> Answer {
        let lba = blocks();
        let peer = &mut io().peer;
        r2t(peer, write(5, lba, 1));
        let answers = [read(5, 0, 1), with_cid(Sqe::new(FLUSH, 1), 5), with_cid(Sqe::new(0xee, 1), 5)].map(|sqe| completed(peer, sqe, &[]));
        assert_eq!(completed(peer, write_in_capsule(5, lba), &[0x5a; 4096]), answers[0]);
        assert_unwritten(lba, 1);
        assert!(answers.iter().all(|&answer| answer == answers[0]), "{answers:?}");
        answers[0]
    }

    fn f714_more_commands_than_the_queue_has_entries() -> Answer {
        let lba = blocks();
        let peer = &mut io_with(NONE, 1, 4).peer;
        for cid in 0..4 {
            r2t(peer, write(cid, lba, 1));
        }
        let pdu = peer.capsule(write(4, lba, 1), &[]);
        let answer = terminated(peer, &pdu);
        assert_unwritten(lba, 1);
        answer
    }

    fn f715_deallocation_ranges_missing() -> Answer {
        let lba = blocks();
        let peer = &mut io().peer;
        let answers = [(1, 0), (2, 16), (2, 31), (256, 4080)].map(|(ranges, len)| completed(peer, deallocate(ranges, len), &vec![0; len as usize]));
        // longer than 256 ranges; missing
        let large = Sqe { sgl: Sgl::transport(4112), ..deallocate(1, 0) };
        assert_eq!(completed(peer, large, &[]), answers[0]);
        assert_eq!(completed(peer, deallocate(1, 16), &range(lba, 1)[..12]), answers[0]);
        assert!(answers.iter().all(|&answer| answer == answers[0]), "{answers:?}");
        answers[0]
    }

    fn f716_deallocation_range_beyond_the_end() -> Answer {
        let lba = blocks();
        let peer = &mut io().peer;
        completed(peer, write_in_capsule(1, lba), &[0x77; 4096]);
        let bad = [(BLOCKS, 1), (BLOCKS - 1, 2), (u64::MAX, 1), (0, u32::MAX)];
        let answers = bad.map(|(at, count)| completed(peer, deallocate(2, 32), &[range(lba, 1), range(at, count)].concat()));
        assert!(super::fixture::content(lba, 1).iter().all(|&byte| byte == 0x77), "all ranges or none");
        assert!(answers.iter().all(|&answer| answer == answers[0]), "{answers:?}");
        answers[0]
    }

    fn f717_compare_of_different_data() -> Answer {
        let lba = blocks();
        let peer = &mut io().peer;
        let compare = with_cid(Sqe { sgl: Sgl::in_capsule(4096), ..Sqe::block_io(COMPARE, 1, lba, 1) }, 2);
        assert_eq!(completed(peer, compare, &[0; 4096]).to_string(), "CQE 0h/00h");
        let mut other = vec![0; 4096];
        other[4095] = 1;
        completed(peer, compare, &other)
    }

    fn f718_deallocation_ranges_of_odd_length() -> Answer {
        // R2Ts and their data have units of four bytes, so other lengths cannot be requested
        let peer = &mut io().peer;
        each(peer, [17, 18, 4095].map(|len| Sqe { sgl: Sgl::transport(len), ..deallocate(1, 0) }))
    }

    fn f719_over_wzsl_and_vsl() -> Answer {
        let lba = blocks();
        let peer = &mut io().peer;
        completed(peer, write_in_capsule(1, lba), &[0x77; 4096]);
        let answer = each(peer, [8193, 65_536].into_iter().flat_map(|count| [WRITE_ZEROES, VERIFY].map(|opcode| Sqe::block_io(opcode, 1, lba, count))));
        assert!(super::fixture::content(lba, 1).iter().all(|&byte| byte == 0x77));
        answer
    }

    fn f720_reservation_data_of_another_length() -> Answer {
        let lengths = [(RESERVATION_REGISTER, [4, 8, 12, 20]), (RESERVATION_ACQUIRE, [4, 8, 12, 20]), (RESERVATION_RELEASE, [4, 12, 20, 24])];
        let commands = lengths.into_iter().flat_map(|(opcode, lengths)| lengths.map(|len| (reservation(opcode, 1, 0x100, len), len)));
        let mut io = io();
        let peer = &mut io.peer;
        let mut answers: Vec<Answer> = commands.map(|(sqe, len)| completed(peer, sqe, &[0; 24][..len as usize])).collect();
        answers.push(completed(peer, Sqe { sgl: Sgl::transport(4), ..RESERVATIONS[3](1) }, &[]));
        assert!(answers.iter().all(|&answer| answer == answers[0]), "{answers:?}");
        answers[0]
    }

    fn f721_reserved_fields_of_reservations() -> Answer {
        let mut io = io();
        let peer = &mut io.peer;
        let register = [3, 7, 1 << 30, 3 << 30].map(|cdw10| (RESERVATION_REGISTER, cdw10, 16)); // nothing keeps PTPL
        let acquire = [0, 0x700, 0x103, 0x107, 0x108].map(|cdw10| (RESERVATION_ACQUIRE, cdw10, 16));
        let release = [0, 0x700, 0x102, 0x107, 0x108, 9].map(|cdw10| (RESERVATION_RELEASE, cdw10, 8));
        let commands = register.into_iter().chain(acquire).chain(release);
        let mut answers: Vec<Answer> = commands
            .map(|(opcode, cdw10, len)| completed(peer, reservation(opcode, 1, cdw10, len), &[0; 16][..len as usize]))
            .collect();
        answers.push(completed(peer, RESERVATIONS[3](1).with_cdw(10, 32_768), &[]));
        assert!(answers.iter().all(|&answer| answer == answers[0]), "{answers:?}");
        answers[0]
    }

    fn f722_report_with_short_host_identifiers() -> Answer {
        completed(&mut io().peer, RESERVATIONS[3](1).with_cdw(11, 0), &[])
    }

    fn f723_half_of_a_fused_operation() -> Answer {
        let lba = blocks();
        let mut io = io();
        let commands = || over_blocks(1, lba, 1).into_iter().chain(RESERVATIONS.map(|of| of(1)));
        let mut answers: Vec<Answer> = commands().map(|sqe| completed(&mut io.peer, fused(sqe, 2), &[])).collect();
        for sqe in commands() {
            let [half, flush] = both(&mut io.peer, fused(sqe, 1), Sqe::new(FLUSH, 1));
            assert_eq!(flush.to_string(), "CQE 0h/00h", "the next command is executed");
            answers.push(half);
        }
        assert_unwritten(lba, 1);
        assert!(answers.iter().all(|&answer| answer == answers[0]), "{answers:?}");
        answers[0]
    }

    fn f724_fused_operations_other_than_compare_and_write_of_one_block() -> Answer {
        let lba = blocks();
        let mut io = io();
        let of = |opcode, lba, blocks| Sqe { sgl: Sgl::transport(blocks * 4096), ..Sqe::block_io(opcode, 1, lba, blocks) };
        let compare = of(COMPARE, lba, 1);
        let mut answers = Vec::new();
        for (first, second, invalid) in [
            (of(WRITE, lba, 1), of(WRITE, lba, 1), 0),
            (of(READ, lba, 1), of(WRITE, lba, 1), 0),
            (of(COMPARE, lba, 2), of(WRITE, lba, 2), 0),
            (compare, of(READ, lba, 1), 1),
            (compare, of(COMPARE, lba, 1), 1),
            (compare, of(WRITE, lba + 1, 1), 1),
            (compare, of(WRITE, lba, 2), 1),
            (compare, Sqe::block_io(WRITE_ZEROES, 1, lba, 1), 1),
        ] {
            let pair = both(&mut io.peer, fused(first, 1), fused(second, 2));
            assert_eq!(pair[1 - invalid].to_string(), "CQE 0h/09h", "the other one is aborted");
            answers.push(pair[invalid]);
        }
        assert_unwritten(lba, 2);
        assert!(answers.iter().all(|&answer| answer == answers[0]), "{answers:?}");
        answers[0]
    }
}
