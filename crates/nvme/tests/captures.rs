//! Captures of a Linux initiator (`tests/linux/cases/golden.sh`), decoded by this crate and compared with the command lines
//! that produced them.

#[path = "golden/parts.rs"]
#[allow(dead_code, reason = "shared with golden.rs, which uses all of it")]
mod parts;
#[path = "golden/vectors.rs"]
#[allow(dead_code, reason = "shared with golden.rs, which uses all of it")]
mod vectors;

use pilotlight_nvme::command::{Cqe, DsmRange, Sgl, Sqe, cdw12, dsm, opcode};
use pilotlight_nvme::fabrics::{ConnectCmd, ConnectData, PropertyCmd, fctype, nqn_from_field, property};
use pilotlight_nvme::pdu::{C2HData, CapsuleCmd, CapsuleResp, Flags, H2CData, IcReq, IcResp, PduType, R2T};
use pilotlight_nvme::status::Status;
use zerocopy::{FromBytes, Immutable, KnownLayout};

/// PDUs of one direction of a captured connection.
struct Capture(Vec<u8>);

impl Capture {
    fn read(name: &str) -> Self {
        Self(vectors::read(&vectors::directory().join("linux-6.12").join(name).with_extension("hex")))
    }

    fn pdus(&self) -> Vec<parts::Parts<'_>> {
        let (mut rest, mut pdus) = (self.0.as_slice(), Vec::new());
        while !rest.is_empty() {
            let (pdu, behind) = parts::split(rest).expect("a PDU");
            pdus.push(pdu);
            rest = behind;
        }
        pdus
    }

    fn all<T: FromBytes + KnownLayout + Immutable>(&self, pdu_type: PduType) -> Vec<T> {
        let of_type = self.pdus().into_iter().filter(|pdu| pdu.header[0] == pdu_type as u8);
        of_type.map(|pdu| T::read_from_bytes(pdu.header).expect("the header's length")).collect()
    }

    /// Commands with their in-capsule data.
    fn commands(&self) -> Vec<(Sqe, Vec<u8>)> {
        let capsules = self.pdus().into_iter().filter(|pdu| pdu.header[0] == PduType::CapsuleCmd as u8);
        capsules
            .map(|pdu| (CapsuleCmd::read_from_bytes(pdu.header).expect("a capsule").sqe, pdu.data.to_vec()))
            .collect()
    }

    /// The last completion of the command.
    fn completion(&self, command: &Sqe) -> Cqe {
        let responses = self.all::<CapsuleResp>(PduType::CapsuleResp);
        responses.iter().rev().find(|resp| resp.cqe.cid == command.cid).expect("a completion").cqe
    }
}

const SIDES: [(&str, &str, bool); 2] =
    [("io-host", "io-target", false), ("digests-io-host", "digests-io-target", true)];

#[test]
fn connections_are_set_up() {
    for (host, target, digests) in SIDES {
        let icreq = Capture::read(host).all::<IcReq>(PduType::ICReq)[0];
        assert_eq!((icreq.pfv.get(), icreq.hpda, icreq.maxr2t.get()), (0, 0, 0), "one R2T");
        let icresp = Capture::read(target).all::<IcResp>(PduType::ICResp)[0];
        assert_eq!((icresp.pfv.get(), icresp.cpda, icresp.maxh2cdata.get()), (0, 0, 0x40_0000), "nvmet's 4 MiB");
        assert_eq!((icreq.dgst, icresp.dgst), if digests { (3, 3) } else { (0, 0) });
    }
}

#[test]
fn connect_carries_subsystem_host_and_queue() {
    let hostnqn = "nqn.2014-08.org.nvmexpress:uuid:5f1b1a3e-3f5c-4c0a-9c5e-0c2a1d3b4e5f";
    let subnqn = "nqn.2014-08.org.nvmexpress:uuid:00000000-0000-4000-8000-000000000042";
    let discovery = "nqn.2014-08.org.nvmexpress.discovery";
    for (name, nqn, qid, sqsize, kato_ms) in
        [("discovery", discovery, 0, 31, 0), ("admin", subnqn, 0, 31, 1000), ("io", subnqn, 1, 127, 0)]
    {
        let (sqe, data) = Capture::read(&format!("{name}-host")).commands().swap_remove(0);
        assert_eq!((sqe.opcode, sqe.fctype(), sqe.psdt()), (opcode::FABRICS, fctype::CONNECT, 1));
        assert_eq!(sqe.sgl, Sgl::in_capsule(1024));
        assert_eq!(ConnectCmd::decode(&sqe), ConnectCmd { recfmt: 0, qid, sqsize, cattr: 0, kato_ms });
        let data = ConnectData::read_from_bytes(&data).expect("1,024 bytes");
        assert_eq!(nqn_from_field(&data.subnqn), Some(nqn));
        assert_eq!(nqn_from_field(&data.hostnqn), Some(hostnqn));
        assert_eq!(data.hostid[..4], [0x5f, 0x1b, 0x1a, 0x3e]);
        assert_eq!(data.cntlid.get(), if qid == 0 { 0xffff } else { 1 });
    }
}

#[test]
fn the_controller_is_enabled_by_properties() {
    let host = Capture::read("admin-host");
    let commands: Vec<Sqe> = host.commands().into_iter().map(|(sqe, _)| sqe).collect();
    let fabrics = commands.iter().filter(|sqe| sqe.opcode == opcode::FABRICS).skip(1);
    let properties: Vec<(u8, PropertyCmd)> = fabrics.map(|sqe| (sqe.fctype(), PropertyCmd::decode(sqe))).collect();
    let get = |offset, wide| (fctype::PROPERTY_GET, PropertyCmd { wide: Some(wide), offset, value: 0 });
    let set_cc = |value| (fctype::PROPERTY_SET, PropertyCmd { wide: Some(false), offset: property::CC, value });
    assert_eq!(properties[0], get(property::CAP, true));
    assert!(properties.contains(&set_cc(0x0046_0061)), "{properties:x?}"); // entries of 64 and 16 bytes, CSS 6, EN
    assert!(properties.contains(&get(property::CSTS, false)));
    assert_eq!(
        *properties.iter().rfind(|(kind, _)| *kind == fctype::PROPERTY_SET).expect("a set"),
        set_cc(0x0046_4061)
    );
    let opcodes: Vec<u8> = commands.iter().map(|sqe| sqe.opcode).collect();
    for expected in [
        opcode::admin::IDENTIFY,
        opcode::admin::SET_FEATURES,
        opcode::admin::GET_FEATURES,
        opcode::admin::GET_LOG_PAGE,
        opcode::admin::ASYNC_EVENT_REQUEST,
        opcode::admin::KEEP_ALIVE,
    ] {
        assert!(opcodes.contains(&expected), "no command {expected:#x}");
    }
}

/// Resizing the namespace completes the event request; the host then sends another.
#[test]
fn an_event_is_reported_and_requested_again() {
    let (host, target) = (Capture::read("admin-host"), Capture::read("admin-target"));
    let requests: Vec<Sqe> = host
        .commands()
        .iter()
        .map(|(sqe, _)| *sqe)
        .filter(|sqe| sqe.opcode == opcode::admin::ASYNC_EVENT_REQUEST)
        .collect();
    assert_eq!(requests.len(), 2);
    // Linux uses one identifier for both; nvmet completes the second when the controller is shut down.
    assert_eq!(requests[0].cid, requests[1].cid);
    let responses = target.all::<CapsuleResp>(PduType::CapsuleResp);
    let event = responses.iter().find(|resp| resp.cqe.cid == requests[0].cid).expect("an event").cqe;
    // Type 2 (notice), information 0 (namespace attribute changed), log page 4 (changed namespace list).
    assert_eq!(event.result.get() as u32, 0x0004_0002);
}

#[test]
fn commands_match_the_command_lines() {
    for (host, target, _) in SIDES {
        let (host, target) = (Capture::read(host), Capture::read(target));
        let commands = host.commands();
        let wanted: Vec<(u8, u64, u32)> = vec![
            (opcode::io::READ, 0, 7), // the partition table
            (opcode::io::WRITE, 8, 7),
            (opcode::io::WRITE, 16, 7 | cdw12::FUA),
            (opcode::io::WRITE, 64, 47),
            (opcode::io::READ, 64, 47),
            (opcode::io::FLUSH, 0, 0),
            (opcode::io::WRITE_ZEROES, 8, 7),
            (opcode::io::COMPARE, 8, 7),
            (opcode::io::VERIFY, 8, 7),
        ];
        let blocks =
            commands.iter().skip(1).map(|(sqe, _)| sqe).filter(|sqe| sqe.opcode != opcode::io::DATASET_MANAGEMENT);
        assert_eq!(blocks.map(|sqe| (sqe.opcode, sqe.slba(), sqe.cdw12())).collect::<Vec<_>>(), wanted);
        assert!(commands.iter().skip(1).all(|(sqe, _)| sqe.nsid.get() == 1 && sqe.psdt() == 1));
        for (sqe, data) in commands.iter().skip(1).filter(|(sqe, _)| sqe.sgl.identifier == Sgl::IN_CAPSULE) {
            assert_eq!((sqe.sgl.address.get(), sqe.sgl.length.get() as usize), (0, data.len()));
        }
        let refused = commands.iter().filter(|(sqe, _)| !target.completion(sqe).status().is_success());
        let refused: Vec<_> = refused.map(|(sqe, _)| (sqe.opcode, target.completion(sqe).status().code())).collect();
        assert_eq!(refused, [opcode::io::COMPARE, opcode::io::VERIFY].map(|opcode| (opcode, Status::INVALID_OPCODE)));
    }
}

/// nvme-cli sends the ranges alone; the kernel always sends 4,096 bytes.
#[test]
fn ranges_are_deallocated() {
    let commands = Capture::read("io-host").commands();
    let mut lists = commands.iter().filter(|(sqe, _)| sqe.opcode == opcode::io::DATASET_MANAGEMENT);
    for (bytes, expected) in [(32, vec![(16, 8), (64, 48)]), (4096, vec![(16, 8)])] {
        let (sqe, data) = lists.next().expect("another one");
        assert_eq!((sqe.cdw11(), data.len()), (dsm::AD, bytes));
        let range = |at: usize| DsmRange::read_from_bytes(&data[at * 16..][..16]).expect("16 bytes");
        let ranges: Vec<_> = (0..dsm::ranges(sqe.cdw10())).map(range).collect();
        assert_eq!(ranges.iter().map(|r| (r.slba.get(), r.blocks.get())).collect::<Vec<_>>(), expected);
    }
}

#[test]
fn data_matches_the_r2t() {
    for (host, target, _) in SIDES {
        let (host, target) = (Capture::read(host), Capture::read(target));
        let r2t = target.all::<R2T>(PduType::R2T)[0];
        let h2cdata = host.all::<H2CData>(PduType::H2CData)[0];
        assert_eq!((r2t.r2to.get(), r2t.r2tl.get()), (0, 24576));
        assert_eq!(
            (h2cdata.cccid, h2cdata.ttag, h2cdata.datao, h2cdata.datal),
            (r2t.cccid, r2t.ttag, r2t.r2to, r2t.r2tl)
        );
        assert!(Flags::from_bits_retain(h2cdata.ch.flags).contains(Flags::LAST_PDU));
        let c2hdata = target.all::<C2HData>(PduType::C2HData)[1];
        assert_eq!((c2hdata.datao.get(), c2hdata.datal.get()), (0, 24576));
        let pdus = target.pdus();
        let data = pdus.iter().filter(|pdu| pdu.header[0] == PduType::C2HData as u8).nth(1).expect("the read");
        assert!(data.data.iter().all(|&byte| byte == 0o303), "the pattern of golden.sh");
    }
}
