//! Discovery controllers.

use super::*;
use crate::subsystems::config::Advertised;

#[test]
fn a_discovery_controller_reports_changes_of_its_log() {
    let mut discovery = controller(ControllerKind::Discovery);
    enable(&mut discovery);
    assert_eq!(feature(&mut discovery, admin::SET_FEATURES, 0x0b, 1 << 31), Outcome::SUCCESS);
    let mut sqe = Sqe::new(admin::ASYNC_EVENT_REQUEST, 0);
    sqe.cid.set(77);
    assert_eq!(run(&mut discovery, &sqe, &mut []), Outcome::Parked);
    discovery.forget_parked(77);
    discovery.discovery_changed();
    assert_eq!(discovery.take_event_completion(), None, "the request was aborted");
    assert_eq!(run(&mut discovery, &sqe, &mut []), Outcome::Parked);
    assert_eq!(discovery.take_event_completion(), Some((77, 0x0070_f002)));
}

#[test]
fn a_discovery_log_that_shrinks_while_it_is_read_ends_in_zeroes() {
    let referrals = ["192.0.2.1", "192.0.2.2"].map(|address| (address.to_owned(), 8009));
    let long = Directory::default().with_reach(Advertised::default(), referrals.to_vec());
    let short = long.clone().with_reach(Advertised::default(), Vec::new());
    let mut discovery = controller(ControllerKind::Discovery);
    enable(&mut discovery);
    let mut read = |directory: &Directory, offset| {
        let sqe = Sqe::new(admin::GET_LOG_PAGE, 0).with_cdw(10, 0x70 | 3 << 16).with_cdw(12, offset);
        let mut out = [0; 16];
        (run_with(&mut discovery, &sqe, (&[], &mut out), 0, directory), out)
    };
    assert_eq!(read(&short, 2048).0, error(Status::INVALID_FIELD), "this host has not seen the long one");
    let (outcome, header) = read(&long, 0);
    assert_eq!((outcome, header[8]), (Outcome::SUCCESS, 2), "two records");
    assert_eq!(read(&short, 2048), (Outcome::SUCCESS, [0; 16]));
    assert_eq!(read(&short, 3076).0, error(Status::INVALID_FIELD), "beyond both");
    let (_, header) = read(&short, 0);
    assert_eq!((header[0], header[8]), (2, 0), "the generation says that it has changed");
}

#[test]
fn a_discovery_controller_without_a_keep_alive_timeout_has_one_of_120_s() {
    let mut discovery = controller_with(ControllerKind::Discovery, 0);
    let timeout_ns = 120 * SECOND + 120 * SECOND / 4;
    assert!(!discovery.expired(timeout_ns) && discovery.expired(timeout_ns + 1));
    discovery.traffic(SECOND);
    assert!(!discovery.expired(timeout_ns + SECOND));
    assert_eq!(controller(ControllerKind::Discovery).kato_ns(), Some(5 * SECOND), "the host's value");
}
