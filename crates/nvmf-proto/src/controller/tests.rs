//! Commands and properties, checked by offsets and values of the specification.

mod discovery;
mod power;
mod reservations;

use pilotlight_nvme::feature::{NAMESPACE_CHANGED, async_event, fid};
use pilotlight_storage::Geometry;

use super::*;
use crate::subsystems::allocated_bytes::AllocatedBytes;
use crate::subsystems::config::SubsystemConfig;
use crate::subsystems::subsystem::NamespaceInfo;

const NQN: &str = "nqn.2014-08.org.example:s";
const SECOND: u64 = 1_000_000_000;

fn controller(kind: ControllerKind) -> Controller {
    controller_with(kind, 5000)
}

fn controller_with(kind: ControllerKind, kato_ms: u32) -> Controller {
    Controller::new(ControllerParams {
        cntlid: 9,
        kind,
        hostid: [5; 16],
        hostnqn: "nqn.2014-08.org.example:h".into(),
        kato_ms,
        max_io_queues: 128,
        max_queue_depth: 1024,
        now_ns: 0,
        power_states: false,
        path_changes: 0,
    })
}

fn io_controller() -> Controller {
    let config = SubsystemConfig::new(NQN, Vec::new());
    let mut controller = controller(ControllerKind::Io(Arc::new(Subsystem::new(&config))));
    enable(&mut controller);
    controller
}

fn enable(controller: &mut Controller) {
    let linux = PropertyCmd { wide: Some(false), offset: property::CC, value: 0x0046_0001 };
    assert_eq!(controller.property_set(&linux, 0), Ok(Effect::Enabled));
}

fn namespaces() -> Vec<(u32, NamespaceInfo)> {
    let geometry = Geometry {
        block_size: 4096,
        blocks: 1000,
        volatile_write_cache: true,
        deallocated_reads_zero: true,
        is_read_only: false,
    };
    let info = NamespaceInfo {
        geometry,
        uuid: [1; 16],
        nguid: [2; 16],
        allocated_bytes: AllocatedBytes::new(Some(8192)),
        failures: Default::default(),
        upkeep: Arc::default(),
        ana_group: 1,
        reservation: Arc::default(),
    };
    let read_only = NamespaceInfo { geometry: Geometry { is_read_only: true, ..geometry }, ..info.clone() };
    vec![(1, info), (3, read_only)]
}

fn run(controller: &mut Controller, sqe: &Sqe, out: &mut [u8]) -> Outcome {
    run_at(controller, sqe, &[], out, 0)
}

fn run_at(controller: &mut Controller, sqe: &Sqe, data: &[u8], out: &mut [u8], now_ns: u64) -> Outcome {
    run_with(controller, sqe, (data, out), now_ns, &Directory::default())
}

/// Runs a command with the data of both directions.
fn run_with(
    controller: &mut Controller,
    sqe: &Sqe,
    (data, out): (&[u8], &mut [u8]),
    now_ns: u64,
    directory: &Directory,
) -> Outcome {
    let listed = namespaces();
    let env = AdminEnv {
        namespaces: Listed::whole(&listed),
        counters: &Totals { reads: 7, read_bytes: 512_001, ..Totals::default() },
        power_on: Duration::from_secs(7200),
        directory,
        port: PortId::default(),
        local: None,
    };
    controller.execute(sqe, data, out, now_ns, &env)
}

fn identify(controller: &mut Controller, cns: u32, nsid: u32) -> (Outcome, Vec<u8>) {
    let mut out = vec![0; 4096];
    let outcome = run(controller, &Sqe::new(admin::IDENTIFY, nsid).with_cdw(10, cns), &mut out);
    (outcome, out)
}

fn error(status: Status) -> Outcome {
    Outcome::error(status)
}

#[test]
fn admin_commands_are_refused_before_enable() {
    let mut controller = controller(ControllerKind::Discovery);
    let (outcome, _) = identify(&mut controller, 1, 0);
    assert_eq!(outcome, error(Status::COMMAND_SEQUENCE));
}

#[test]
fn properties() {
    let controller = io_controller();
    let get = |offset, wide| controller.property_get(&PropertyCmd { wide: Some(wide), offset, value: 0 });
    let cap = get(0, true).expect("CAP");
    assert_eq!(cap & 0xffff, 1023, "MQES");
    assert_eq!(cap >> 37 & 1, 1, "NVM command set");
    assert_eq!(cap >> 48 & 0xf, 0, "MPSMIN: 4 KiB");
    assert_eq!(cap >> 59 & 1, 1, "CRWMS, required by version 2.0");
    assert_eq!(get(0x68, false), Ok(30), "CRTO, in units of 500 ms");
    assert_eq!(get(8, false), Ok(0x0002_0000));
    assert_eq!(get(0x1c, false), Ok(1));
    assert_eq!(get(0, false), Err(Status::INVALID_FIELD), "CAP is 8 bytes wide");
    assert_eq!(get(0x20, false), Err(Status::INVALID_FIELD), "no subsystem reset");
}

#[test]
fn an_unsupported_configuration_is_a_fatal_status() {
    let mut controller = controller(ControllerKind::Discovery);
    let wrong_page_size = PropertyCmd { wide: Some(false), offset: property::CC, value: 0x0046_0081 };
    assert_eq!(controller.property_set(&wrong_page_size, 0), Ok(Effect::None));
    let status = controller.property_get(&PropertyCmd { wide: Some(false), offset: property::CSTS, value: 0 });
    assert_eq!(status, Ok(2));
    assert!(!controller.is_ready());
    assert_eq!(identify(&mut controller, 1, 0).0, error(Status::COMMAND_SEQUENCE), "not ready");
}

#[test]
fn reset_and_both_kinds_of_shutdown() {
    let mut controller = io_controller();
    let set = |controller: &mut Controller, value| {
        controller.property_set(&PropertyCmd { wide: Some(false), offset: property::CC, value }, 0)
    };
    let status = |controller: &Controller| {
        controller.property_get(&PropertyCmd { wide: Some(false), offset: property::CSTS, value: 0 }).expect("CSTS")
    };
    assert_eq!(set(&mut controller, 0x0046_4001), Ok(Effect::Shutdown { abrupt: false }));
    assert_eq!(status(&controller) >> 2 & 3, 1, "occurring");
    controller.shutdown_done();
    assert_eq!(status(&controller) >> 2 & 3, 2, "complete");
    assert_eq!(set(&mut controller, 0x0046_0000), Ok(Effect::Reset));
    assert!(!controller.is_ready(), "no I/O queue may join during a reset");
    controller.reset_done();
    assert_eq!(status(&controller), 0);
    assert_eq!(set(&mut controller, 0x0046_0001), Ok(Effect::Enabled));
    assert_eq!(set(&mut controller, 0x0046_8001), Ok(Effect::Shutdown { abrupt: true }));
}

#[test]
fn a_reset_replaces_a_shutdown() {
    let mut controller = io_controller();
    let set = |controller: &mut Controller, value| {
        controller.property_set(&PropertyCmd { wide: Some(false), offset: property::CC, value }, 0)
    };
    let status = |controller: &Controller| {
        controller.property_get(&PropertyCmd { wide: Some(false), offset: property::CSTS, value: 0 }).expect("CSTS")
    };
    assert_eq!(set(&mut controller, 0x0046_c001), Err(Status::INVALID_FIELD.dnr()), "SHN 3 is reserved");
    assert_eq!(set(&mut controller, 0x0046_4001), Ok(Effect::Shutdown { abrupt: false }));
    assert_eq!(set(&mut controller, 0x0046_0000), Ok(Effect::Reset));
    assert_eq!(set(&mut controller, 0x0046_0001), Err(Status::COMMAND_SEQUENCE), "its queues still exist");
    controller.reset_done();
    controller.shutdown_done(); // the flush of the shutdown ends late
    controller.shutdown_failed();
    assert_eq!(status(&controller), 0);
    enable(&mut controller);
    assert_eq!(status(&controller), 1);
}

#[test]
fn identify_controller_by_offsets() {
    let (outcome, id) = identify(&mut io_controller(), 1, 0);
    assert_eq!(outcome, Outcome::SUCCESS);
    assert_eq!(&id[24..34], b"Pilotlight");
    assert_eq!(id[77], 5, "MDTS: 128 KiB");
    assert_eq!(id[78..80], [9, 0], "CNTLID");
    assert_eq!(id[80..84], [0, 0, 2, 0], "VER 2.0");
    assert_eq!(id[88..92], 5_000_000u32.to_le_bytes(), "RTD3E: a shutdown takes up to 5 s");
    assert_eq!(id[76], 0b1011, "CMIC: ports, controllers, ANA");
    assert_eq!(id[92..96], [0, 9, 0, 0], "OAES: namespace attribute and ANA change notices");
    assert_eq!(id[96..100], [0x41, 0, 0, 0], "CTRATT: 128-bit host identifier, TBKAS");
    assert_eq!(id[111], 1, "I/O controller");
    assert_eq!(id[258..260], [3, 3], "ACL, AERL");
    assert_eq!(id[260..264], [3, 6, 63, 0], "FRMW, LPA, ELPE, NPSS");
    assert_eq!(id[320..322], [1, 0], "KAS");
    assert_eq!(id[342..352], [30, 0x5f, 32, 0, 0, 0, 32, 0, 0, 0], "ANATT, ANACAP, ANAGRPMAX, NANAGRPID");
    assert_eq!(id[512..516], [0x66, 0x44, 0, 4], "SQES, CQES, MAXCMD 1024");
    assert_eq!(id[516..520], [0, 4, 0, 0], "NN");
    assert_eq!(
        id[520..522],
        [0xfd, 0],
        "ONCS: Compare, DSM, Write Zeroes, Save/Select, Reservations, Timestamp, Verify"
    );
    assert_eq!(id[522..525], [1, 0, 0], "FUSES: Compare and Write; FNA");
    assert_eq!(id[525], 7, "VWC");
    assert_eq!(id[526..530], [0; 4], "AWUN, AWUPF: one block");
    assert_eq!(id[532..534], [0; 2], "ACWU: one block");
    assert_eq!(id[536..540], [1, 0, 0x30, 0], "SGLS: offset in capsule, transport SGLs");
    assert_eq!(id[540..544], [0, 4, 0, 0], "MNAN");
    assert_eq!(&id[768..768 + NQN.len()], NQN.as_bytes());
    assert_eq!(id[1792..1796], [4, 2, 0, 0], "IOCCSZ: 64 + 8192 bytes");
    assert_eq!(id[1796..1800], [1, 0, 0, 0], "IORCSZ");
    assert_eq!(id[1800..1802], [0, 0], "ICDOFF");
    assert_eq!(id[1802..1806], [0, 1, 1, 0], "FCATT dynamic, MSDBD, OFCS Disconnect");
}

#[test]
fn identify_namespace_by_offsets() {
    let mut controller = io_controller();
    let (outcome, id) = identify(&mut controller, 0, 3);
    assert_eq!(outcome, Outcome::SUCCESS);
    assert_eq!(id[..8], 1000u64.to_le_bytes());
    assert_eq!(id[16..24], 2u64.to_le_bytes(), "NUSE: two blocks");
    assert_eq!(id[33], 9, "deallocated blocks read zero, DEAC is honoured");
    assert_eq!(id[99], 1, "NSATTR: write protected");
    assert_eq!(identify(&mut controller, 0, 1).1[99], 0, "writable");
    assert_eq!([1, 3].map(|nsid| identify(&mut controller, 8, nsid).1[8]), [0, 1], "NSATTR of CNS 08h");
    assert_eq!(id[104..120], [2; 16]);
    assert_eq!(id[130], 12, "4 KiB blocks");
    let (outcome, id) = identify(&mut controller, 0, 2);
    assert_eq!((outcome, id), (Outcome::SUCCESS, vec![0; 4096]), "valid but not active");
    assert_eq!(identify(&mut controller, 0, 0).0, error(Status::INVALID_NAMESPACE));
}

#[test]
fn lists_and_descriptors() {
    let mut controller = io_controller();
    let (_, list) = identify(&mut controller, 2, 1);
    assert_eq!(list[..8], [3, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(identify(&mut controller, 2, 0xffff_fffe).0, error(Status::INVALID_NAMESPACE));
    let (_, descriptors) = identify(&mut controller, 3, 1);
    assert_eq!(descriptors[..4], [3, 16, 0, 0]);
    assert_eq!(descriptors[20..24], [2, 16, 0, 0]);
    assert_eq!(descriptors[40..46], [4, 1, 0, 0, 0, 0]);
    assert_eq!(identify(&mut controller, 8, 1).1[14], 1, "ready");
    for cns in [5, 8] {
        assert_eq!(identify(&mut controller, cns, 2), (Outcome::SUCCESS, vec![0; 4096]), "valid but not active");
        assert_eq!(identify(&mut controller, cns, 0).0, error(Status::INVALID_NAMESPACE));
    }
    assert_eq!(identify(&mut controller, 5, 1), (Outcome::SUCCESS, vec![0; 4096]), "no protection information");
    let (_, limits) = identify(&mut controller, 6, 0);
    assert_eq!(limits[..4], [13, 13, 0, 255], "VSL and WZSL: 32 MiB; WUSL: none; DMRL");
    let most = crate::command::DSM_BLOCKS;
    assert_eq!(limits[4..16], [&most.to_le_bytes()[..], &u64::from(most).to_le_bytes()].concat(), "DMRSL, DMSL");
    assert_eq!(identify(&mut controller, 3, 2).0, error(Status::INVALID_NAMESPACE));
    let zoned = Sqe::new(admin::IDENTIFY, 1).with_cdw(10, 5).with_cdw(11, 2 << 24);
    assert_eq!(run(&mut controller, &zoned, &mut [0; 4096]), error(Status::INVALID_FIELD));
    assert_eq!(identify(&mut controller, 0x13, 1).0, error(Status::INVALID_FIELD));
}

fn log_page(controller: &mut Controller, lid: u32, offset: u32, len: usize) -> (Outcome, Vec<u8>) {
    let mut out = vec![0; len];
    let dwords = (len / 4 - 1) as u32;
    let sqe = Sqe::new(admin::GET_LOG_PAGE, u32::MAX).with_cdw(10, lid | dwords << 16).with_cdw(12, offset);
    let outcome = run(controller, &sqe, &mut out);
    (outcome, out)
}

#[test]
fn log_pages_with_offsets() {
    let mut controller = io_controller();
    let (_, smart) = log_page(&mut controller, 2, 0, 512);
    assert_eq!(smart[32], 2, "512,001 bytes are two units, rounded up");
    assert_eq!(smart[64], 7, "host reads");
    let (_, tail) = log_page(&mut controller, 2, 64, 16);
    assert_eq!(tail[..], smart[64..80]);
    assert_eq!(log_page(&mut controller, 2, 3, 16).0, error(Status::INVALID_FIELD), "not a whole dword");
    assert_eq!(log_page(&mut controller, 2, 516, 16).0, error(Status::INVALID_FIELD), "beyond the end");
    assert_eq!(log_page(&mut controller, 0x70, 0, 16).0, error(Status::INVALID_LOG_PAGE));
    let (_, errors) = log_page(&mut controller, 1, 0, 64);
    assert_eq!(errors[..8], 3u64.to_le_bytes(), "the three refused commands");
    let (_, firmware) = log_page(&mut controller, 3, 0, 512);
    assert_eq!((firmware[0], &firmware[8..16]), (1, format!("{:8}", env!("CARGO_PKG_VERSION")).as_bytes()));
    let (_, pages) = log_page(&mut controller, 0, 0, 1024);
    let listed: Vec<usize> = (0..256).filter(|lid| pages[lid * 4] & 1 == 1).collect();
    assert_eq!(listed, [0, 1, 2, 3, 4, 5, 12, 0x80]);
    let refused = [
        Sqe::new(admin::GET_LOG_PAGE, 0).with_cdw(10, 2).with_cdw(14, 1 << 23), // an index instead of an offset
        Sqe::new(admin::GET_LOG_PAGE, 0).with_cdw(10, 5).with_cdw(14, 2 << 24), // zoned namespaces
        Sqe::new(admin::GET_LOG_PAGE, 1).with_cdw(10, 2),                       // SMART of a namespace
    ];
    for sqe in refused {
        assert_eq!(run(&mut controller, &sqe, &mut [0; 4]), error(Status::INVALID_FIELD));
    }
    let (_, effects) = log_page(&mut controller, 5, 0, 4096);
    assert_eq!(effects[1024 + 4], 3, "Write changes content");
}

#[test]
fn an_event_is_reported_once_until_its_page_is_read() {
    let mut controller = io_controller();
    let aer = |cid: u16| {
        let mut sqe = Sqe::new(admin::ASYNC_EVENT_REQUEST, 0);
        sqe.cid.set(cid);
        sqe
    };
    for cid in 1..=4 {
        assert_eq!(run(&mut controller, &aer(cid), &mut []), Outcome::Parked);
    }
    assert_eq!(run(&mut controller, &aer(5), &mut []), error(Status::AER_LIMIT));
    controller.namespace_changed(3);
    assert_eq!(controller.take_event_completion(), None, "these events are masked");
    let configure = Sqe::new(admin::SET_FEATURES, 0)
        .with_cdw(10, u32::from(fid::ASYNC_EVENT_CONFIGURATION))
        .with_cdw(11, async_event::NAMESPACE_ATTRIBUTE);
    assert_eq!(run(&mut controller, &configure, &mut []), Outcome::SUCCESS);
    assert_eq!(controller.take_event_completion(), Some((1, NAMESPACE_CHANGED)));
    assert_eq!(NAMESPACE_CHANGED, 0x0004_0002);
    controller.namespace_changed(1);
    assert_eq!(controller.take_event_completion(), None, "reported already");
    let (_, retained) = log_page(&mut controller, 0x8004, 0, 4096);
    assert_eq!(retained[..12], [1, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0]);
    controller.namespace_changed(1);
    assert_eq!(controller.take_event_completion(), None, "read with Retain Asynchronous Event");
    let _ = log_page(&mut controller, 4, 0, 4096);
    assert_eq!(log_page(&mut controller, 4, 0, 4096).1[..4], [0; 4]);
    controller.namespace_changed(1);
    assert_eq!(controller.take_event_completion(), Some((2, NAMESPACE_CHANGED)));
}

#[test]
fn the_changed_namespace_list_overflows() {
    let mut controller = io_controller();
    (1..=1024).for_each(|nsid| controller.namespace_changed(nsid));
    let (_, list) = log_page(&mut controller, 0x8004, 0, 4096);
    assert_eq!((&list[..4], &list[4092..]), (&[1, 0, 0, 0][..], &[0, 4, 0, 0][..]));
    controller.namespace_changed(1025);
    let (_, list) = log_page(&mut controller, 4, 0, 4096);
    assert_eq!(list[..8], [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0]);
    assert_eq!(log_page(&mut controller, 4, 0, 4096).1, vec![0; 4096]);
}

#[test]
fn lengths_beyond_mdts_are_refused() {
    let controller = io_controller();
    let get = |dwords: u32| Sqe::new(admin::GET_LOG_PAGE, 0).with_cdw(10, 4 | (dwords - 1) << 16);
    assert_eq!(controller.controller_data_len(&get(32 * 1024)), Ok(128 * 1024));
    assert_eq!(controller.controller_data_len(&get(32 * 1024 + 1)), Err(Status::INVALID_FIELD.dnr()));
}

fn feature(controller: &mut Controller, opcode: u8, cdw10: u32, cdw11: u32) -> Outcome {
    run(controller, &Sqe::new(opcode, 0).with_cdw(10, cdw10).with_cdw(11, cdw11), &mut [0; 16])
}

#[test]
fn features_are_set_and_read() {
    let (set, get) = (admin::SET_FEATURES, admin::GET_FEATURES);
    let c = &mut io_controller();
    assert_eq!(feature(c, set, 7, 3 | 3 << 16), Outcome::result(3 | 3 << 16));
    assert_eq!(c.granted_io_queues(), 4);
    assert_eq!(feature(c, set, 7, 0x0fff_0fff), Outcome::result(127 | 127 << 16));
    assert_eq!(feature(c, set, 7, 0xffff), error(Status::INVALID_FIELD));
    assert_eq!(feature(c, set, 0x0f, 1201), Outcome::SUCCESS);
    assert_eq!(feature(c, get, 0x0f, 0), Outcome::result(1300), "rounded up to KAS");
    assert_eq!(feature(c, set, 0x0f | 1 << 31, 1000), error(Status::FEATURE_NOT_SAVEABLE));
    assert_eq!(feature(c, get, 0x0f | 3 << 8, 0), Outcome::result(4), "changeable");
    assert_eq!(feature(c, get, 0x0f | 1 << 8, 0), Outcome::result(5000), "default: the value of Connect");
    assert_eq!(feature(c, get, 0x0f | 2 << 8, 0), Outcome::result(5000), "saved: the default");
    let one_namespace = Sqe::new(set, 1).with_cdw(10, 1);
    assert_eq!(run(c, &one_namespace, &mut []), error(Status::FEATURE_NOT_NAMESPACE));
    assert_eq!(feature(c, get, 6, 0), Outcome::result(1));
    assert_eq!(feature(c, set, 6, 0), error(Status::FEATURE_NOT_CHANGEABLE));
    assert_eq!(feature(c, set, 2, 1), error(Status::INVALID_FIELD), "no power state 1");
    assert_eq!(feature(c, set, 8, 1), error(Status::INVALID_FIELD), "interrupt coalescing");
    assert_eq!(feature(c, set, 0x81, 1), error(Status::COMMAND_SEQUENCE));
    assert_eq!(feature(c, get, 7 << 8 | 7, 0), error(Status::INVALID_FIELD), "reserved SEL");
}

#[test]
fn the_number_of_queues_is_fixed_while_any_exist() {
    let c = &mut io_controller();
    c.io_queue_connected();
    assert_eq!(feature(c, admin::SET_FEATURES, 7, 0), error(Status::COMMAND_SEQUENCE));
    assert_eq!(c.granted_io_queues(), 128);
    let disable = PropertyCmd { wide: Some(false), offset: property::CC, value: 0x0046_0000 };
    assert_eq!(c.property_set(&disable, 0), Ok(Effect::Reset));
    c.reset_done();
    enable(c);
    assert_eq!(feature(c, admin::SET_FEATURES, 7, 0), Outcome::result(0));
}

#[test]
fn only_the_composite_temperature_has_thresholds() {
    let (set, get) = (admin::SET_FEATURES, admin::GET_FEATURES);
    let c = &mut io_controller();
    let (over, under, sensor_1) = (0, 1 << 20, 1 << 16);
    assert_eq!(feature(c, get, 4, over), Outcome::result(0xffff));
    assert_eq!(feature(c, get, 4, under), Outcome::result(0));
    assert_eq!(feature(c, set, 4, over | 350), Outcome::SUCCESS);
    assert_eq!(feature(c, set, 4, under | 0xf << 16 | 270), Outcome::SUCCESS, "all sensors");
    assert_eq!(feature(c, get, 4, over), Outcome::result(350));
    assert_eq!(feature(c, get, 4, under), Outcome::result(270));
    for (opcode, cdw11) in [(set, sensor_1), (get, sensor_1), (set, 2 << 20), (get, 2 << 20)] {
        assert_eq!(feature(c, opcode, 4, cdw11), error(Status::INVALID_FIELD));
    }
}

#[test]
fn the_timestamp_counts_from_enabling_until_it_is_set() {
    let mut controller = controller(ControllerKind::Discovery);
    controller.params.kind = io_controller().params.kind.clone();
    let linux = PropertyCmd { wide: Some(false), offset: property::CC, value: 0x0046_0001 };
    assert_eq!(controller.property_set(&linux, 10 * SECOND), Ok(Effect::Enabled));
    let (get, set) = (Sqe::new(admin::GET_FEATURES, 0), Sqe::new(admin::SET_FEATURES, 0));
    let (get, set) = (get.with_cdw(10, 0x0e), set.with_cdw(10, 0x0e));
    assert_eq!((controller.controller_data_len(&get), controller.host_data_len(&set)), (Ok(8), Ok(8)));
    let read = |controller: &mut Controller, now_ns| {
        let mut out = [0; 8];
        assert_eq!(run_at(controller, &get, &[], &mut out, now_ns), Outcome::SUCCESS);
        out
    };
    assert_eq!(read(&mut controller, 12 * SECOND), 2000u64.to_le_bytes(), "origin 0: since the reset");
    let now = 1_700_000_000_000u64;
    assert_eq!(run_at(&mut controller, &set, &now.to_le_bytes(), &mut [], 20 * SECOND), Outcome::SUCCESS);
    let mut later = (now + 3000).to_le_bytes();
    later[6] = 2; // origin 1: set by the host
    assert_eq!(read(&mut controller, 23 * SECOND), later);
    assert_eq!(run_at(&mut controller, &set, &[0; 7], &mut [], 0), error(Status::SGL_LENGTH_INVALID));
}

#[test]
fn the_host_identifier_has_128_bits() {
    let mut controller = io_controller();
    let get = |cdw11| Sqe::new(admin::GET_FEATURES, 0).with_cdw(10, 0x81).with_cdw(11, cdw11);
    let mut out = [0; 16];
    assert_eq!(run(&mut controller, &get(1), &mut out), Outcome::SUCCESS);
    assert_eq!(out, [5; 16]);
    assert_eq!(run(&mut controller, &get(0), &mut out), error(Status::INVALID_FIELD), "EXHID cleared");
}

#[test]
fn keep_alive_expires_without_traffic() {
    let mut controller = io_controller();
    assert_eq!(controller.kato_ns(), Some(5 * SECOND));
    let timeout_ns = 5 * SECOND + 5 * SECOND / 4;
    assert!(!controller.expired(timeout_ns));
    assert!(controller.expired(timeout_ns + 1));
    controller.traffic(3 * SECOND);
    assert!(!controller.expired(3 * SECOND + timeout_ns));
    let keep_alive = Sqe::new(admin::KEEP_ALIVE, 0);
    assert_eq!(run_at(&mut controller, &keep_alive, &[], &mut [], 6 * SECOND), Outcome::SUCCESS);
    assert!(!controller.expired(6 * SECOND + timeout_ns));
    assert!(controller.expired(6 * SECOND + timeout_ns + 1));
    let none = feature(&mut controller, admin::SET_FEATURES, 0x0f, 0);
    assert_eq!(none, Outcome::SUCCESS);
    assert!(!controller.expired(u64::MAX));
}

#[test]
fn unknown_commands_and_discovery_refusals() {
    let unknown = run(&mut io_controller(), &Sqe::new(0x11, 0), &mut []);
    assert_eq!(unknown, error(Status::INVALID_OPCODE));
    let mut discovery = controller(ControllerKind::Discovery);
    enable(&mut discovery);
    let (_, id) = identify(&mut discovery, 1, 0);
    assert_eq!(id[111], 2);
    assert_eq!(id[92..96], [0, 0, 0, 0x80], "OAES: discovery log changes");
    assert_eq!(id[261], 4, "LPA: offsets, no effects log");
    assert_eq!(log_page(&mut discovery, 5, 0, 16).0, error(Status::INVALID_LOG_PAGE));
    assert_eq!(identify(&mut discovery, 2, 0).0, error(Status::INVALID_FIELD));
    assert_eq!(run(&mut discovery, &Sqe::new(admin::ABORT, 0), &mut []), error(Status::INVALID_OPCODE));
    assert_eq!(discovery.granted_io_queues(), 0);
    assert_eq!(log_page(&mut discovery, 0x70, 0, 1024).0, Outcome::SUCCESS);
}
