//! Notifications of reservations, their mask, and persistence.

use pilotlight_nvme::reservation::Notification;

use super::*;

const MASK: u32 = 0x82;
const PERSISTENCE: u32 = 0x83;

fn set(controller: &mut Controller, id: u32, nsid: u32, value: u32) -> Outcome {
    run(controller, &Sqe::new(admin::SET_FEATURES, nsid).with_cdw(10, id).with_cdw(11, value), &mut [])
}

fn get(controller: &mut Controller, id: u32, nsid: u32) -> Outcome {
    run(controller, &Sqe::new(admin::GET_FEATURES, nsid).with_cdw(10, id), &mut [])
}

fn value(value: u64) -> Outcome {
    Outcome::Complete { status: Status::SUCCESS, result: value }
}

/// Reads log page 80h: count, type, further pages, namespace.
fn page(controller: &mut Controller, retain: bool) -> (u64, u8, u8, u32) {
    let mut out = [0xff; 64];
    let sqe = Sqe::new(admin::GET_LOG_PAGE, 0).with_cdw(10, 0x80 | 15 << 16 | u32::from(retain) << 15);
    assert_eq!(run(controller, &sqe, &mut out), Outcome::SUCCESS);
    assert_eq!(out[16..], [0; 48]);
    let word = |at: usize| u32::from_le_bytes([out[at], out[at + 1], out[at + 2], out[at + 3]]);
    (u64::from(word(0)) | u64::from(word(4)) << 32, out[8], out[9], word(12))
}

fn park(controller: &mut Controller, cid: u16) {
    let mut sqe = Sqe::new(admin::ASYNC_EVENT_REQUEST, 0);
    sqe.cid.set(cid);
    assert_eq!(run(controller, &sqe, &mut []), Outcome::Parked);
}

#[test]
fn notifications_are_read_one_by_one_and_reported_until_all_are_read() {
    let mut controller = io_controller();
    assert_eq!(page(&mut controller, false), (0, 0, 0, 0));
    park(&mut controller, 5);
    park(&mut controller, 6);
    assert_eq!(controller.take_event_completion(), None);
    controller.reservation_notified(3, Notification::ReservationReleased);
    controller.reservation_notified(1, Notification::RegistrationPreempted);
    assert_eq!(controller.take_event_completion(), Some((5, 0x0080_0006)), "type 6h, information 0, log page 80h");
    assert_eq!(controller.take_event_completion(), None, "until it is read");
    assert_eq!(page(&mut controller, true), (1, 2, 1, 3));
    assert_eq!(controller.take_event_completion(), None, "RAE retains it");
    assert_eq!(page(&mut controller, false), (1, 2, 1, 3));
    assert_eq!(controller.take_event_completion(), Some((6, 0x0080_0006)), "another is unread");
    assert_eq!(page(&mut controller, false), (2, 1, 0, 1));
    assert_eq!(page(&mut controller, false), (0, 0, 0, 0));
    controller.reservation_notified(1, Notification::ReservationPreempted);
    assert_eq!(page(&mut controller, false), (3, 3, 0, 1));
}

#[test]
fn unread_notifications_are_bounded_and_lost_ones_counted() {
    let mut controller = io_controller();
    for _ in 0..300 {
        controller.reservation_notified(1, Notification::ReservationPreempted);
    }
    for number in 1..=255 {
        assert_eq!(page(&mut controller, false), (number, 3, (255 - number) as u8, 1));
    }
    assert_eq!(page(&mut controller, false), (0, 0, 0, 0));
    controller.reservation_notified(1, Notification::ReservationPreempted);
    assert_eq!(page(&mut controller, false).0, 301, "45 are lost");
}

#[test]
fn a_masked_kind_is_not_reported() {
    let mut controller = io_controller();
    let kinds =
        [Notification::RegistrationPreempted, Notification::ReservationReleased, Notification::ReservationPreempted];
    for (bit, kind) in (1..).zip(kinds) {
        assert_eq!(set(&mut controller, MASK, 3, 1 << bit), Outcome::SUCCESS);
        assert_eq!(get(&mut controller, MASK, 3), value(1 << bit));
        controller.reservation_notified(3, kind);
        assert_eq!(page(&mut controller, false).1, 0, "{kind:?}");
        controller.reservation_notified(1, kind);
        assert_eq!(page(&mut controller, false).1, bit as u8, "not of namespace 1");
    }
    assert_eq!(set(&mut controller, MASK, u32::MAX, u32::MAX), Outcome::SUCCESS);
    assert_eq!([1, 3].map(|nsid| get(&mut controller, MASK, nsid)), [value(0xe); 2], "reserved bits are not kept");
    let disable = PropertyCmd { wide: Some(false), offset: property::CC, value: 0x0046_0000 };
    assert_eq!(controller.property_set(&disable, 0), Ok(Effect::Reset));
    controller.reset_done();
    enable(&mut controller);
    assert_eq!(get(&mut controller, MASK, 3), value(0));
}

#[test]
fn features_of_reservations_belong_to_namespaces() {
    let mut controller = io_controller();
    for id in [MASK, PERSISTENCE] {
        for nsid in [0, 2, 4, 1025, u32::MAX - 1] {
            assert_eq!(set(&mut controller, id, nsid, 0), error(Status::INVALID_NAMESPACE), "{nsid}");
            assert_eq!(get(&mut controller, id, nsid), error(Status::INVALID_NAMESPACE), "{nsid}");
        }
        assert_eq!(get(&mut controller, id, u32::MAX), error(Status::INVALID_NAMESPACE));
        assert_eq!(set(&mut controller, id | 1 << 31, 1, 0), error(Status::FEATURE_NOT_SAVEABLE));
        assert_eq!(get(&mut controller, id | 3 << 8, 1), value(0b110), "changeable, of a namespace");
        assert_eq!(get(&mut controller, id | 1 << 8, 1), value(0));
        assert_eq!(get(&mut controller, id | 4 << 8, 1), error(Status::INVALID_FIELD));
        let mut discovery = super::controller(ControllerKind::Discovery);
        enable(&mut discovery);
        assert_eq!(get(&mut discovery, id, 1), error(Status::INVALID_FIELD));
    }
    assert_eq!(set(&mut controller, PERSISTENCE, 1, 1), error(Status::INVALID_FIELD), "nothing keeps it");
    assert_eq!(set(&mut controller, PERSISTENCE, 1, 0), Outcome::Persist { persists: false });
    assert_eq!(set(&mut controller, PERSISTENCE, u32::MAX, 0), Outcome::Persist { persists: false });
}

#[test]
fn identify_reports_the_capabilities() {
    let mut controller = io_controller();
    let (_, namespace) = identify(&mut controller, 0, 1);
    let (_, independent) = identify(&mut controller, 8, 1);
    assert_eq!((namespace[31], independent[2]), (0xfe, 0xfe), "all types, IEKEY as of 1.3, no PTPL");
    let (_, inactive) = identify(&mut controller, 0, 2);
    assert_eq!(inactive[31], 0);
}
