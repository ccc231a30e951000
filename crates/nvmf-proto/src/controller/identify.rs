//! Identify (Base 5.17).

use pilotlight_nvme::ana;
use pilotlight_nvme::command::opcode;
use pilotlight_nvme::identify::{
    IdentifyController, IdentifyControllerNvm, IdentifyNamespace, IdentifyNamespaceIndependent, IdentifyNamespaceNvm,
    ascii_field, cns, fuses, nidt, oncs, put_descriptor,
};
use pilotlight_nvme::le::{U16, U32, U64, U128};
use pilotlight_nvme::reservation::rescap;
use pilotlight_nvme::{Sqe, Status, fabrics, feature};
use pilotlight_storage::buffer::{IN_CAPSULE, MAX_BUFFER, MIN_BUFFER};
use zerocopy::IntoBytes;

use super::{AdminEnv, Controller, ControllerKind, Outcome, VERSION, events, power};
use crate::command::{DSM_BLOCKS, DSM_RANGES, MAX_ZEROES};
use crate::subsystems::config::MAX_NSID;
use crate::subsystems::paths::MAX_GROUP;
use crate::subsystems::subsystem::NamespaceInfo;

const NSID_ALL: u32 = u32::MAX;
/// Controller attributes: 128-bit host identifier, traffic based keep-alive.
const CTRATT: u32 = 1 | 1 << 6;
/// Log page attributes: offsets, and for I/O controllers the commands supported and effects log.
const LPA_EXTENDED_DATA: u8 = 1 << 2;
const LPA_COMMAND_EFFECTS: u8 = 1 << 1;
/// One firmware slot, read-only.
const FRMW: u8 = 1 | 1 << 1;
/// SGLs supported; address of in-capsule data as an offset; transport SGL descriptors.
const SGLS: u32 = 1 | 1 << 20 | 1 << 21;
/// A volatile write cache is present; Flush with NSID FFFFFFFFh flushes every namespace.
const VWC: u8 = 1 | 3 << 1;
/// Optional commands of I/O controllers.
const ONCS: u16 = oncs::COMPARE
    | oncs::DATASET_MANAGEMENT
    | oncs::WRITE_ZEROES
    | oncs::SAVE_SELECT
    | oncs::RESERVATIONS
    | oncs::TIMESTAMP
    | oncs::VERIFY;
/// Maximum outstanding Abort commands, 0's based.
const ACL: u8 = 3;
/// Autonomous power state transitions are supported, if there are power states.
const APSTA: u8 = 1;
/// Granularity of the keep-alive timeout in units of 100 ms.
const KAS: u16 = 1;
/// The subsystem has more ports and controllers than these, and reports asymmetric namespace access.
const CMIC: u8 = 1 | 1 << 1 | 1 << 3;
/// Longest time in the state "change", in seconds: Linux resets a controller that stays longer.
const ANATT_S: u8 = 30;
/// Time limit of a shutdown that flushes slow media, in microseconds: Linux's default.
const SHUTDOWN_LATENCY_US: u32 = 5_000_000;

/// The namespace whose utilization an admin command reports (NUSE, in Identify Namespace).
#[must_use]
pub(crate) fn reports_utilization(sqe: &Sqe) -> Option<u32> {
    let nsid = sqe.nsid.get();
    let is_identify = sqe.opcode == opcode::admin::IDENTIFY && sqe.cdw10() as u8 == cns::NAMESPACE;
    (is_identify && nsid != NSID_ALL).then_some(nsid)
}

impl Controller {
    pub(super) fn identify(&self, sqe: &Sqe, out: &mut [u8], env: &AdminEnv) -> Outcome {
        let (cns, nsid, csi) = (sqe.cdw10() as u8, sqe.nsid.get(), (sqe.cdw11() >> 24) as u8);
        let command_set_specific = matches!(cns, cns::NAMESPACE_IOCS | cns::CONTROLLER_IOCS);
        if command_set_specific && csi != 0 {
            return Outcome::error(Status::INVALID_FIELD); // the NVM command set is the only one
        }
        let filled = match (cns, &self.params.kind) {
            (cns::CONTROLLER, _) => self.identify_controller(out),
            (_, ControllerKind::Discovery) => Err(Status::INVALID_FIELD),
            (cns::NAMESPACE, _) => namespace_or_zeroes(nsid, env, |info| put(out, &namespace(info))),
            (cns::ACTIVE_NAMESPACES, _) => active_list(nsid, out, env),
            (cns::NAMESPACE_DESCRIPTORS, _) => find(nsid, env).map(|info| descriptors(info, out)),
            // no protection information: all zero
            (cns::NAMESPACE_IOCS, _) => namespace_or_zeroes(nsid, env, |_| put(out, &IdentifyNamespaceNvm::default())),
            (cns::CONTROLLER_IOCS, _) => {
                put(out, &controller_nvm());
                Ok(())
            }
            (cns::NAMESPACE_INDEPENDENT, _) => namespace_or_zeroes(nsid, env, |info| put(out, &independent(info))),
            _ => Err(Status::INVALID_FIELD),
        };
        match filled {
            Ok(()) => Outcome::SUCCESS,
            Err(status) => Outcome::error(status),
        }
    }

    fn identify_controller(&self, out: &mut [u8]) -> Result<(), Status> {
        let mut id = IdentifyController {
            mn: ascii_field("Pilotlight"),
            fr: ascii_field(env!("CARGO_PKG_VERSION")),
            sn: ascii_field("discovery"),
            mdts: (MAX_BUFFER / MIN_BUFFER).ilog2() as u8,
            cntlid: U16::new(self.params.cntlid),
            ver: U32::new(VERSION),
            rtd3e: U32::new(SHUTDOWN_LATENCY_US),
            ctratt: U32::new(CTRATT),
            acl: ACL,
            aerl: events::LIMIT as u8 - 1,
            frmw: FRMW,
            lpa: LPA_EXTENDED_DATA,
            elpe: super::logs::ERROR_ENTRIES as u8 - 1,
            kas: U16::new(KAS),
            sqes: 0x66,
            cqes: 0x44,
            maxcmd: U16::new(self.params.max_queue_depth),
            sgls: U32::new(SGLS),
            ioccsz: U32::new(((64 + IN_CAPSULE) / 16) as u32),
            iorcsz: U32::new(1),
            msdbd: 1,
            ..IdentifyController::default()
        };
        match &self.params.kind {
            ControllerKind::Discovery => {
                id.cntrltype = 2;
                id.oaes = U32::new(feature::async_event::DISCOVERY_CHANGE);
                id.subnqn = fabrics::nqn_field(fabrics::DISCOVERY_NQN);
            }
            ControllerKind::Io(subsystem) => {
                id.sn = ascii_field(subsystem.serial());
                id.cntrltype = 1;
                id.lpa |= LPA_COMMAND_EFFECTS;
                id.cmic = CMIC;
                id.oaes = U32::new(feature::async_event::NAMESPACE_ATTRIBUTE | feature::async_event::ANA_CHANGE);
                id.anatt = ANATT_S;
                id.anacap = ana::ANACAP;
                id.anagrpmax = U32::new(MAX_GROUP);
                id.nanagrpid = U32::new(MAX_GROUP);
                id.nn = U32::new(MAX_NSID);
                id.mnan = U32::new(MAX_NSID);
                id.oncs = U16::new(ONCS);
                id.fuses = U16::new(fuses::COMPARE_AND_WRITE); // of one block (ACWU 0)
                id.vwc = VWC;
                id.ofcs = U16::new(1);
                id.subnqn = fabrics::nqn_field(subsystem.nqn());
            }
        }
        if self.features.power.is_some() {
            id.npss = power::NPSS;
            id.apsta = APSTA;
            id.psd = power::descriptors();
        }
        put(out, &id);
        Ok(())
    }
}

fn put<T: IntoBytes + zerocopy::Immutable>(out: &mut [u8], structure: &T) {
    out.copy_from_slice(structure.as_bytes());
}

fn find<'a>(nsid: u32, env: &'a AdminEnv) -> Result<&'a NamespaceInfo, Status> {
    env.namespaces.find(nsid).ok_or(Status::INVALID_NAMESPACE)
}

/// Identify Namespace returns zeroes for a valid inactive NSID. FFFFFFFFh (common values) needs namespace management and is
/// refused.
fn namespace_or_zeroes(nsid: u32, env: &AdminEnv, fill: impl FnOnce(&NamespaceInfo)) -> Result<(), Status> {
    match find(nsid, env) {
        Ok(info) => fill(info),
        Err(_) if (1..=MAX_NSID).contains(&nsid) => {}
        Err(status) => return Err(status),
    }
    Ok(())
}

fn namespace(info: &NamespaceInfo) -> IdentifyNamespace {
    let geometry = info.geometry;
    let blocks = U64::new(geometry.blocks);
    let allocated = info.allocated_bytes.get();
    let used = allocated.map_or(geometry.blocks, |bytes| bytes / u64::from(geometry.block_size));
    let thin = allocated.is_some();
    let mut id = IdentifyNamespace {
        nsze: blocks,
        ncap: blocks,
        nuse: U64::new(used.min(geometry.blocks)),
        nsfeat: u8::from(thin) | 1 << 4,
        nmic: 1,
        rescap: rescap_of(info),
        dlfeat: u8::from(geometry.deallocated_reads_zero) | 1 << 3,
        nvmcap: U128::new(u128::from(geometry.blocks) * u128::from(geometry.block_size)),
        nsattr: u8::from(geometry.is_read_only),
        anagrpid: U32::new(info.ana_group),
        nguid: info.nguid,
        ..IdentifyNamespace::default()
    };
    let page = U16::new((MIN_BUFFER as u32 / geometry.block_size) as u16 - 1);
    (id.npwg, id.npwa, id.npdg, id.npda, id.nows) = (page, page, page, page, page);
    id.lbaf[0] = [0, 0, geometry.block_size.ilog2() as u8, 0];
    id
}

fn independent(info: &NamespaceInfo) -> IdentifyNamespaceIndependent {
    let thin = info.allocated_bytes.get().is_some();
    let nsattr = u8::from(info.geometry.is_read_only);
    let anagrpid = U32::new(info.ana_group);
    IdentifyNamespaceIndependent {
        nsfeat: u8::from(thin),
        nmic: 1,
        anagrpid,
        rescap: rescap_of(info),
        nsattr,
        nstat: 1,
        ..Default::default()
    }
}

fn rescap_of(info: &NamespaceInfo) -> u8 {
    rescap::ALL_TYPES | rescap::IEKEY | if info.reservation.can_persist() { rescap::PTPL } else { 0 }
}

/// Limits (NVM 4.1.5.2). Write Zeroes and Verify have one because Linux treats "none" as MDTS, and needs a limit in bytes not to exceed the block
/// count of a command.
fn controller_nvm() -> IdentifyControllerNvm {
    let limit = (MAX_ZEROES / MIN_BUFFER as u32).ilog2() as u8;
    IdentifyControllerNvm {
        vsl: limit,
        wzsl: limit,
        dmrl: DSM_RANGES,
        dmrsl: U32::new(DSM_BLOCKS),
        dmsl: U64::new(DSM_BLOCKS.into()),
        ..IdentifyControllerNvm::default()
    }
}

fn active_list(after: u32, out: &mut [u8], env: &AdminEnv) -> Result<(), Status> {
    if after >= NSID_ALL - 1 {
        return Err(Status::INVALID_NAMESPACE);
    }
    let listed = env.namespaces.iter().map(|(nsid, _)| *nsid).filter(|&nsid| nsid > after);
    for (to, nsid) in out.chunks_exact_mut(4).zip(listed) {
        to.copy_from_slice(&nsid.to_le_bytes());
    }
    Ok(())
}

fn descriptors(info: &NamespaceInfo, out: &mut [u8]) {
    let at = put_descriptor(out, 0, nidt::UUID, &info.uuid);
    let at = put_descriptor(out, at, nidt::NGUID, &info.nguid);
    put_descriptor(out, at, nidt::CSI, &[0]);
}
