//! F6xx: Set Features and Get Features.

use pilotlight_host::ConnectOptions;
use pilotlight_nvme::Sqe;
use pilotlight_nvme::command::Sgl;
use pilotlight_nvme::command::opcode::admin::{GET_FEATURES, SET_FEATURES};
use pilotlight_nvme::fabrics::DISCOVERY_NQN;
use pilotlight_nvme::feature::{SAVE, fid};
use pilotlight_peers::raw::RawPeer;

use super::answer::{Answer, completed};
use super::fixture::{enabled, enabled_of, host, with_cid};
use super::rows;

fn set(id: u8, value: u32) -> Sqe {
    with_cid(Sqe::new(SET_FEATURES, 0).with_cdw(10, u32::from(id)).with_cdw(11, value), 1)
}

fn get(id: u8, select: u32) -> Sqe {
    let sqe = Sqe::new(GET_FEATURES, 0).with_cdw(10, u32::from(id) | select << 8);
    with_cid(Sqe { sgl: Sgl::transport(4096), ..sqe }, 1)
}

fn each(mut peer: RawPeer, commands: impl IntoIterator<Item = Sqe>) -> Answer {
    let answers: Vec<Answer> = commands.into_iter().map(|sqe| completed(&mut peer, sqe, &[])).collect();
    assert!(answers.iter().all(|&answer| answer == answers[0]), "responses of one row differ: {answers:?}");
    answers[0]
}

/// Unsupported features and reserved identifiers.
const UNKNOWN: [u8; 9] = [0x00, 0x03, 0x08, 0x09, 0x0c, 0x0d, 0x10, 0x78, 0xff];

rows! {
    fn f601_set_unknown_feature() -> Answer {
        each(enabled(), UNKNOWN.map(|id| set(id, 1)))
    }

    fn f602_get_unknown_feature() -> Answer {
        each(enabled(), UNKNOWN.into_iter().flat_map(|id| [0, 1, 3].map(|select| get(id, select))))
    }

    fn f603_feature_of_an_io_controller_on_a_discovery_controller() -> Answer {
        let peer = enabled_of(&ConnectOptions { subnqn: DISCOVERY_NQN.to_owned(), ..host() });
        let queues = [set(fid::NUMBER_OF_QUEUES, 0), get(fid::NUMBER_OF_QUEUES, 0), get(fid::TIMESTAMP, 0)];
        each(peer, queues)
    }

    fn f604_feature_to_be_saved() -> Answer {
        let save = |id: u8| set(id, 1).with_cdw(10, u32::from(id) | SAVE);
        each(enabled(), [save(fid::ARBITRATION), save(fid::NUMBER_OF_QUEUES), save(fid::KEEP_ALIVE_TIMER)])
    }

    fn f605_reserved_select() -> Answer {
        each(enabled(), [4, 5, 6, 7].map(|select| get(fid::ARBITRATION, select)))
    }

    fn f606_power_state_that_does_not_exist() -> Answer {
        each(enabled(), [1, 31].map(|state| set(fid::POWER_MANAGEMENT, state)))
    }

    fn f607_deallocated_block_errors() -> Answer {
        each(enabled(), [set(fid::ERROR_RECOVERY, 1 << 16)])
    }

    fn f608_number_of_queues() -> Answer {
        each(enabled(), [0xffff, 0xffff_0000, u32::MAX].map(|value| set(fid::NUMBER_OF_QUEUES, value)))
    }

    fn f609_write_cache_off() -> Answer {
        each(enabled(), [set(fid::VOLATILE_WRITE_CACHE, 0)])
    }

    fn f610_host_identifier() -> Answer {
        each(enabled(), [set(fid::HOST_IDENTIFIER, 1)])
    }

    fn f611_timestamp_of_another_length() -> Answer {
        let mut peer = enabled();
        let answers = [0u32, 4, 12, 4096].map(|len| {
            let sqe = Sqe { sgl: Sgl::in_capsule(len), ..set(fid::TIMESTAMP, 0) };
            completed(&mut peer, sqe, &vec![0; len as usize])
        });
        let transported = [0u32, 4, 12].map(|len| completed(&mut peer, Sqe { sgl: Sgl::transport(len), ..set(fid::TIMESTAMP, 0) }, &[]));
        assert!(answers.iter().chain(&transported).all(|&answer| answer == answers[0]), "{answers:?} {transported:?}");
        answers[0]
    }

    fn f612_timestamp_in_a_shorter_sgl() -> Answer {
        each(enabled(), [0, 4].map(|len| Sqe { sgl: Sgl::transport(len), ..get(fid::TIMESTAMP, 0) }))
    }

    fn f613_number_of_queues_too_late() -> Answer {
        let io = super::fixture::io();
        let mut controller = io.controller;
        let refused = controller.admin().execute("Set Features", set(fid::NUMBER_OF_QUEUES, 1 << 16 | 1), &[], &mut []);
        let Err(pilotlight_host::HostError::Status { status, .. }) = refused else { panic!("{refused:?}") };
        Answer::Completed(status, 0)
    }

    fn f614_feature_of_a_namespace() -> Answer {
        each(enabled(), [1, 7].map(|nsid| Sqe { nsid: nsid.into(), ..set(fid::ARBITRATION, 0) }))
    }

    fn f615_temperature_sensor_that_does_not_exist() -> Answer {
        // sensor 1; a reserved threshold
        let values = [1 << 16, 2 << 20];
        let get = values.map(|value| get(fid::TEMPERATURE_THRESHOLD, 0).with_cdw(11, value));
        each(enabled(), values.map(|value| set(fid::TEMPERATURE_THRESHOLD, value)).into_iter().chain(get))
    }

    fn f616_host_identifier_of_64_bits() -> Answer {
        each(enabled(), [get(fid::HOST_IDENTIFIER, 0), get(fid::HOST_IDENTIFIER, 1)])
    }
}
