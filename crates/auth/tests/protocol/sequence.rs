//! Messages out of sequence and with refused fields, for both sides: each fails with the explanation of the specification.

use std::sync::Arc;

use crate::support::{ALLOCATION, Numbers, Pair, config, one_way, only, receive, secret};
use pilotlight_auth::message::{Challenge, FailureReport, Message, Negotiate, Offer, Reply, Success1};
use pilotlight_auth::{Config, Failure, Group, HashFunction, Initiator, Received, Responder, Status, Step};

const T_ID: u16 = 7;

/// Where a controller stands.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Point {
    Idle,
    Computing,
    ChallengeReady,
    AwaitsReply,
    Verifying,
    Success1Ready,
    AwaitsSuccess2,
    Authenticated,
}

const POINTS: [Point; 8] = [
    Point::Idle,
    Point::Computing,
    Point::ChallengeReady,
    Point::AwaitsReply,
    Point::Verifying,
    Point::Success1Ready,
    Point::AwaitsSuccess2,
    Point::Authenticated,
];

/// A controller at `point`, and the Reply that the host has for it.
fn controller_at(point: Point) -> (Responder, Vec<u8>) {
    let config = Config { policy: only(HashFunction::Sha256, Group::Null), ..config() };
    let mut numbers = Numbers(5);
    let mut pair = Pair::new(config.clone(), config);
    let negotiate = pair.host.start(T_ID);
    if point == Point::Idle {
        return (pair.controller, vec![]);
    }
    let work = pair.controller.on_send(&negotiate).expect("a computation");
    if point == Point::Computing {
        return (pair.controller, vec![]);
    }
    pair.controller.on_done(numbers.run(work));
    if point == Point::ChallengeReady {
        return (pair.controller, vec![]);
    }
    let challenge = receive(&mut pair.controller);
    let reply = pair.answer(&challenge).expect("a reply");
    if point == Point::AwaitsReply {
        return (pair.controller, reply);
    }
    let work = pair.controller.on_send(&reply).expect("a computation");
    if point == Point::Verifying {
        return (pair.controller, reply);
    }
    pair.controller.on_done(numbers.run(work));
    if point == Point::Success1Ready {
        return (pair.controller, reply);
    }
    receive(&mut pair.controller);
    if point == Point::AwaitsSuccess2 {
        return (pair.controller, reply);
    }
    pair.send(&Message::Success2 { t_id: T_ID }.encode());
    assert!(pair.controller.is_authenticated());
    (pair.controller, reply)
}

fn negotiate(t_id: u16) -> Vec<u8> {
    Message::Negotiate(Negotiate { t_id, sc_c: 0, offer: Some(Offer { hashes: &[1], groups: &[0] }) }).encode()
}

fn assert_fails(controller: &mut Responder, failure: Failure, what: &str) {
    assert_eq!(controller.status(), Status::Failed { failure, reported: false }, "{what}");
    let Received::Message(message) = controller.receive(ALLOCATION) else { panic!("Failure1 at once: {what}") };
    let Ok(Message::Failure1(report)) = Message::decode(&message) else { panic!("Failure1, not {message:?}: {what}") };
    assert_eq!((report.failure(), report.reason), (failure, 1), "{what}");
    assert_eq!(controller.status(), Status::Failed { failure, reported: true }, "{what}");
}

#[test]
fn every_message_out_of_sequence_fails() {
    for point in POINTS {
        let reply = controller_at(Point::AwaitsReply).1;
        let messages = [
            (negotiate(T_ID), [Point::Idle, Point::Authenticated].as_slice()),
            (reply, &[Point::AwaitsReply]),
            (Message::Success2 { t_id: T_ID }.encode(), &[Point::AwaitsSuccess2]),
            // A host sends neither of these.
            (Message::Success1(Success1 { t_id: T_ID, hl: 32, response: None }).encode(), &[]),
            (Message::Failure1(FailureReport::new(T_ID, Failure::Failed)).encode(), &[]),
        ];
        for (message, expected_at) in messages {
            let (mut controller, _) = controller_at(point);
            let _work = controller.on_send(&message);
            let what = format!("{:?} at {point:?}", Message::decode(&message));
            if expected_at.contains(&point) {
                assert!(!matches!(controller.status(), Status::Failed { .. }), "{what}");
            } else {
                assert_fails(&mut controller, Failure::IncorrectMessage, &what);
            }
        }
    }
}

#[test]
fn a_host_can_give_up_at_any_time() {
    for point in POINTS {
        let (mut controller, _) = controller_at(point);
        let report = FailureReport::new(T_ID, Failure::GroupNotUsable);
        assert!(controller.on_send(&Message::Failure2(report).encode()).is_none());
        let status = Status::Failed { failure: Failure::GroupNotUsable, reported: true };
        assert_eq!(controller.status(), status, "{point:?}");
    }
}

#[test]
fn receiving_out_of_sequence_fails() {
    for point in POINTS {
        let (mut controller, _) = controller_at(point);
        match point {
            Point::Computing | Point::Verifying => assert_eq!(controller.receive(ALLOCATION), Received::Pending),
            Point::ChallengeReady | Point::Success1Ready => {
                receive(&mut controller);
                assert!(!matches!(controller.status(), Status::Failed { .. }));
            }
            _ => {
                receive(&mut controller);
                let status = Status::Failed { failure: Failure::IncorrectMessage, reported: true };
                assert_eq!(controller.status(), status, "{point:?}");
            }
        }
    }
}

#[test]
fn a_failed_controller_stays_failed() {
    let (mut controller, reply) = controller_at(Point::AwaitsReply);
    assert!(controller.on_send(&[]).is_none());
    for message in [negotiate(T_ID), negotiate(8), reply, Message::Success2 { t_id: T_ID }.encode(), vec![]] {
        assert!(controller.on_send(&message).is_none());
        assert_eq!(controller.status(), Status::Failed { failure: Failure::IncorrectPayload, reported: false });
    }
    assert_fails(&mut controller, Failure::IncorrectPayload, "the first failure");
    assert_eq!(controller.receive(7), Received::TooShort(8));
}

#[test]
fn another_transaction_is_refused() {
    for (point, message) in [
        (Point::AwaitsReply, Message::Reply(Reply { t_id: 8, ..reply_fields() }).encode()),
        (Point::AwaitsSuccess2, Message::Success2 { t_id: 8 }.encode()),
    ] {
        let (mut controller, _) = controller_at(point);
        controller.on_send(&message);
        assert_fails(&mut controller, Failure::IncorrectPayload, &format!("{point:?}"));
    }
}

fn reply_fields() -> Reply<'static> {
    Reply { t_id: T_ID, seqnum: 1, response: &[0; 32], c2: &[1; 32], is_challenge: true, public_value: &[] }
}

#[test]
fn refused_fields_of_a_negotiation() {
    let offer = |hashes: &'static [u8], groups: &'static [u8]| Some(Offer { hashes, groups });
    let cases = [
        (Negotiate { t_id: 1, sc_c: 1, offer: offer(&[1], &[0]) }, Failure::ConcatenationMismatch),
        (Negotiate { t_id: 1, sc_c: 0, offer: offer(&[], &[0]) }, Failure::HashNotUsable),
        (Negotiate { t_id: 1, sc_c: 0, offer: offer(&[0, 4, 255], &[0]) }, Failure::HashNotUsable),
        (Negotiate { t_id: 1, sc_c: 0, offer: offer(&[1], &[]) }, Failure::GroupNotUsable),
        (Negotiate { t_id: 1, sc_c: 0, offer: offer(&[1], &[1, 6]) }, Failure::GroupNotUsable),
    ];
    for (message, failure) in cases {
        let (mut controller, _) = controller_at(Point::Idle);
        assert!(controller.on_send(&Message::Negotiate(message.clone()).encode()).is_none());
        assert_fails(&mut controller, failure, &format!("{message:?}"));
    }
    let (mut controller, _) = controller_at(Point::Idle);
    let mut other_protocol = negotiate(1);
    other_protocol[8] = 2; // AUTHID
    controller.on_send(&other_protocol);
    assert_fails(&mut controller, Failure::ProtocolNotUsable, "another protocol");
}

#[test]
fn refused_fields_of_a_reply() {
    let cases = [
        Reply { response: &[0; 31], c2: &[1; 31], ..reply_fields() },
        Reply { response: &[0; 48], c2: &[1; 48], ..reply_fields() },
        Reply { response: &[], c2: &[], ..reply_fields() },
        Reply { public_value: &[2], ..reply_fields() },
        Reply { seqnum: 0, ..reply_fields() },
    ];
    for reply in cases {
        let (mut controller, _) = controller_at(Point::AwaitsReply);
        assert!(controller.on_send(&Message::Reply(reply.clone()).encode()).is_none());
        assert_fails(&mut controller, Failure::IncorrectPayload, &format!("{reply:?}"));
    }
}

/// 0, 1 and values of p - 1 and more would let a peer choose the session key.
#[test]
fn public_values_are_checked_on_both_sides() {
    let config = Config { policy: only(HashFunction::Sha256, Group::Ffdhe2048), ..one_way() };
    let mut one = vec![0; 256];
    one[255] = 1;
    for value in [vec![], vec![0; 256], one, vec![0xff; 256], vec![1; 255], vec![1; 257]] {
        let mut pair = Pair::new(config.clone(), config.clone());
        let negotiate = pair.host.start(T_ID);
        pair.send(&negotiate);
        receive(&mut pair.controller);
        let reply = Reply { is_challenge: false, public_value: &value, ..reply_fields() };
        assert!(pair.controller.on_send(&Message::Reply(reply).encode()).is_none());
        assert_fails(&mut pair.controller, Failure::IncorrectPayload, &format!("{} bytes", value.len()));
        let challenge = Challenge { public_value: &value, group_id: 1, ..challenge_fields() };
        assert_host_refuses(&mut pair.host, &Message::Challenge(challenge), Failure::IncorrectPayload);
    }
}

fn challenge_fields() -> Challenge<'static> {
    Challenge { t_id: T_ID, hash_id: 1, group_id: 0, seqnum: 1, challenge: &[3; 32], public_value: &[] }
}

fn assert_host_refuses(host: &mut Initiator, message: &Message<'_>, failure: Failure) {
    let Step::Send(report) = host.on_receive(&message.encode()) else { panic!("Failure2 for {message:?}") };
    let expected = Message::Failure2(FailureReport::new(T_ID, failure));
    assert_eq!(Message::decode(&report), Ok(expected), "{message:?}");
    assert_eq!(host.status(), Status::Failed { failure, reported: true });
    assert!(matches!(host.on_receive(&message.encode()), Step::End), "it reports once");
}

#[test]
fn a_host_refuses_what_it_did_not_offer() {
    let cases = [
        (Challenge { hash_id: 2, challenge: &[3; 48], ..challenge_fields() }, Failure::HashNotUsable),
        (Challenge { hash_id: 9, ..challenge_fields() }, Failure::HashNotUsable),
        (Challenge { group_id: 1, ..challenge_fields() }, Failure::GroupNotUsable),
        (Challenge { group_id: 6, ..challenge_fields() }, Failure::GroupNotUsable),
        (Challenge { challenge: &[3; 31], ..challenge_fields() }, Failure::IncorrectPayload),
        (Challenge { seqnum: 0, ..challenge_fields() }, Failure::IncorrectPayload),
        (Challenge { t_id: 8, ..challenge_fields() }, Failure::IncorrectPayload),
        (Challenge { public_value: &[2], ..challenge_fields() }, Failure::IncorrectPayload),
    ];
    for (challenge, failure) in cases {
        let policy = only(HashFunction::Sha256, Group::Null);
        let mut host = Initiator::new(Arc::new(Config { policy, ..config() }));
        host.start(T_ID);
        assert_host_refuses(&mut host, &Message::Challenge(challenge), failure);
    }
}

/// A controller that does not know its secret might leave its response out, or skip the exchange.
#[test]
fn a_host_insists_on_the_response_of_the_controller() {
    let absent = Success1 { t_id: T_ID, hl: 32, response: None };
    let wrong = Success1 { response: Some(&[0; 32]), ..absent.clone() };
    let short = Success1 { hl: 31, response: Some(&[0; 31]), ..absent.clone() };
    for (success, failure) in
        [(absent.clone(), Failure::Failed), (wrong, Failure::Failed), (short, Failure::IncorrectPayload)]
    {
        let mut pair = Pair::new(config(), config());
        let negotiate = pair.host.start(T_ID);
        pair.send(&negotiate);
        let challenge = receive(&mut pair.controller);
        pair.answer(&challenge).expect("a reply");
        assert_host_refuses(&mut pair.host, &Message::Success1(success), failure);
    }
    let mut host = Initiator::new(Arc::new(config()));
    host.start(T_ID);
    assert_host_refuses(&mut host, &Message::Success1(absent), Failure::IncorrectMessage);
}

#[test]
fn a_result_after_the_end_of_its_transaction_is_ignored() {
    let mut controller = Responder::new(Arc::new(one_way()));
    let work = controller.on_send(&negotiate(T_ID)).expect("a computation");
    controller.on_send(&[]);
    controller.on_done(Numbers(1).run(work));
    assert_fails(&mut controller, Failure::IncorrectPayload, "the challenge comes too late");
}

#[test]
fn a_host_that_starts_again_ignores_the_result_of_the_earlier_transaction() {
    let policy = only(HashFunction::Sha256, Group::Null);
    let mut host = Initiator::new(Arc::new(Config { policy, ..one_way() }));
    let compute = |host: &mut Initiator, t_id| {
        host.start(t_id);
        match host.on_receive(&Message::Challenge(Challenge { t_id, ..challenge_fields() }).encode()) {
            Step::Compute(work) => work,
            _ => panic!("a computation"),
        }
    };
    let first = compute(&mut host, 1);
    let second = compute(&mut host, 2);
    assert!(matches!(host.on_done(Numbers(1).run(first)), Step::End));
    let Step::Send(reply) = host.on_done(Numbers(1).run(second)) else { panic!("a reply") };
    assert_eq!(Message::transaction(&reply), 2);
}

#[test]
fn a_failed_source_of_random_bytes_fails_the_transaction() {
    let mut controller = Responder::new(Arc::new(one_way()));
    let work = controller.on_send(&negotiate(T_ID)).expect("a computation");
    controller.on_done(work.run(&mut |_: &mut [u8]| Err(pilotlight_auth::RandomUnavailable)));
    assert_fails(&mut controller, Failure::Failed, "no random bytes");
}

#[test]
fn states_do_not_print_secrets() {
    assert_eq!(format!("{:?}", secret(1, None)), "Secret");
    assert!(format!("{:?}", config()).contains("host_secret: Secret,"));
}
