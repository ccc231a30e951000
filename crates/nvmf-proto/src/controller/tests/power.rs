//! Power states of a controller.

use pilotlight_nvme::power::{TABLE_LEN, Transition};

use super::*;

const POWER: u32 = 0x02;
const TRANSITIONS: u32 = 0x0c;
const MS: u64 = 1_000_000;

fn with_power_states() -> Controller {
    let mut params = io_controller().params;
    params.power_states = true;
    let mut controller = Controller::new(params);
    enable(&mut controller);
    controller
}

fn set(controller: &mut Controller, cdw10: u32, cdw11: u32, data: &[u8], now_ns: u64) -> Outcome {
    let sqe = Sqe::new(admin::SET_FEATURES, 0).with_cdw(10, cdw10).with_cdw(11, cdw11);
    let expected = if cdw10 as u8 == 0x0c { TABLE_LEN as u32 } else { 0 };
    assert_eq!(controller.host_data_len(&sqe), Ok(expected));
    run_at(controller, &sqe, data, &mut [], now_ns)
}

fn get(controller: &mut Controller, cdw10: u32, now_ns: u64) -> (Outcome, Vec<u8>) {
    let sqe = Sqe::new(admin::GET_FEATURES, 0).with_cdw(10, cdw10);
    let mut out = vec![0; controller.controller_data_len(&sqe).unwrap() as usize];
    (run_at(controller, &sqe, &[], &mut out, now_ns), out)
}

fn state(controller: &mut Controller, now_ns: u64) -> Outcome {
    get(controller, POWER, now_ns).0
}

#[test]
fn by_default_there_is_one_fixed_state() {
    let mut controller = io_controller();
    let (_, id) = identify(&mut controller, 1, 0);
    assert_eq!((id[263], id[265]), (0, 0));
    assert!(id[2048..3072].iter().all(|&byte| byte == 0));
    assert_eq!(feature(&mut controller, admin::SET_FEATURES, POWER, 0), Outcome::SUCCESS);
    assert_eq!(feature(&mut controller, admin::SET_FEATURES, POWER, 1), error(Status::INVALID_FIELD));
    assert_eq!(get(&mut controller, POWER | 3 << 8, 0).0, Outcome::result(0), "not changeable");
    assert_eq!(get(&mut controller, TRANSITIONS, 0), (error(Status::INVALID_FIELD), vec![]));
    let transitions = Sqe::new(admin::SET_FEATURES, 0).with_cdw(10, TRANSITIONS);
    assert_eq!(controller.host_data_len(&transitions), Ok(0));
    assert_eq!(run(&mut controller, &transitions, &mut []), error(Status::INVALID_FIELD));
}

#[test]
fn identify_reports_five_states_if_configured() {
    let (outcome, id) = identify(&mut with_power_states(), 1, 0);
    assert_eq!((outcome, id[263], id[265]), (Outcome::SUCCESS, 4, 1));
    let state = |number: usize| &id[2048 + 32 * number..2080 + 32 * number];
    assert_eq!(state(0)[..4], [0x51, 0x03, 0, 0], "8.49 W");
    assert_eq!(state(2)[8..16], [0xe8, 0x03, 0, 0, 2, 2, 2, 2], "exit latency of 1,000 us; ranks");
    assert_eq!(state(4)[..8], [50, 0, 0, 3, 0xf4, 0x01, 0, 0], "0.005 W, non-operational, entry latency of 500 us");
    assert!(id[2048 + 5 * 32..3072].iter().all(|&byte| byte == 0));
}

#[test]
fn states_are_set_and_read() {
    let c = &mut with_power_states();
    assert_eq!(state(c, 0), Outcome::result(0));
    for value in [2, 1 | 1 << 5, 4] {
        assert_eq!(set(c, POWER, value, &[], 0), Outcome::SUCCESS);
        assert_eq!(state(c, 0), Outcome::result(value));
    }
    assert_eq!(set(c, POWER, 5, &[], 0), error(Status::INVALID_FIELD));
    assert_eq!(set(c, POWER | 1 << 31, 1, &[], 0), error(Status::FEATURE_NOT_SAVEABLE));
    assert_eq!(state(c, 0), Outcome::result(4));
    for id in [POWER, TRANSITIONS] {
        assert_eq!(get(c, id | 3 << 8, 0), (Outcome::result(4), vec![]), "changeable");
    }
    assert_eq!(get(c, POWER | 1 << 8, 0).0, Outcome::result(0), "the default");
    let off = PropertyCmd { wide: Some(false), offset: property::CC, value: 0x0046_0000 };
    assert_eq!(c.property_set(&off, 0), Ok(Effect::Reset));
    c.reset_done();
    enable(c);
    assert_eq!(state(c, 0), Outcome::result(0), "cleared by a reset");
}

#[test]
fn only_io_leaves_a_non_operational_state() {
    let c = &mut with_power_states();
    set(c, POWER, 1, &[], 0);
    set(c, POWER, 3, &[], 0);
    assert_eq!(identify(c, 1, 0).0, Outcome::SUCCESS);
    assert_eq!(state(c, MS), Outcome::result(3));
    c.io_traffic(2 * MS);
    assert_eq!(state(c, 3 * MS), Outcome::result(1));
}

#[test]
fn autonomous_transitions_follow_the_table() {
    let c = &mut with_power_states();
    let mut table = vec![0; TABLE_LEN];
    let rest = Transition { to: 3, idle_ms: 100 };
    table[..8].copy_from_slice(&rest.encode());
    assert_eq!(set(c, TRANSITIONS, 1, &table, 0), Outcome::SUCCESS);
    assert_eq!(get(c, TRANSITIONS, 0), (Outcome::result(1), table));
    assert_eq!((state(c, 99 * MS), state(c, 100 * MS)), (Outcome::result(0), Outcome::result(3)));
    c.io_traffic(150 * MS);
    assert_eq!((state(c, 249 * MS), state(c, 250 * MS)), (Outcome::result(0), Outcome::result(3)));
    let operational = Transition { to: 1, idle_ms: 100 }.encode().repeat(32);
    assert_eq!(set(c, TRANSITIONS, 1, &operational, 0), error(Status::INVALID_FIELD));
    assert_eq!(get(c, TRANSITIONS | 1 << 8, 0), (Outcome::result(0), vec![0; TABLE_LEN]), "the default");
}

#[test]
fn a_discovery_controller_has_no_power_states() {
    let mut c = controller(ControllerKind::Discovery);
    enable(&mut c);
    let (_, id) = identify(&mut c, 1, 0);
    assert_eq!((id[263], id[265]), (0, 0));
    assert_eq!(get(&mut c, POWER, 0).0, error(Status::INVALID_FIELD));
    assert_eq!(get(&mut c, TRANSITIONS, 0).0, error(Status::INVALID_FIELD));
}
