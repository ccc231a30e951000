//! Each message by its bytes, each refusal by its field, and any bytes without a panic.

use proptest::prelude::*;

use super::*;

/// AUTH_Negotiate as Linux 6.12 sends it: three hash functions, six groups.
fn linux_negotiate() -> Vec<u8> {
    let mut bytes = vec![0x00, 0x00, 0, 0, 0x34, 0x12, 0x00, 0x01, 0x01, 0x00, 3, 6];
    bytes.extend([1, 2, 3]);
    bytes.resize(12 + 30, 0);
    bytes.extend([0, 1, 2, 3, 4, 5]);
    bytes.resize(72, 0);
    bytes
}

#[test]
fn negotiate() {
    let offer = Offer { hashes: &[1, 2, 3], groups: &[0, 1, 2, 3, 4, 5] };
    let expected = Message::Negotiate(Negotiate { t_id: 0x1234, sc_c: 0, offer: Some(offer) });
    assert_eq!(Message::decode(&linux_negotiate()), Ok(expected.clone()));
    assert_eq!(expected.encode(), linux_negotiate());
}

#[test]
fn negotiate_with_other_protocols() {
    let mut bytes = linux_negotiate();
    bytes[7] = 2; // NAPD
    let mut descriptors = vec![0; 64];
    descriptors[0] = 2; // a protocol that does not exist, with lengths that only DH-HMAC-CHAP has
    descriptors[2] = 0xff;
    descriptors.extend_from_slice(&bytes[8..]);
    bytes.splice(8.., descriptors);
    let Ok(Message::Negotiate(message)) = Message::decode(&bytes) else { panic!("a Negotiate message") };
    assert_eq!(message.offer.map(|offer| offer.hashes.len()), Some(3));
    bytes[72] = 3; // now neither is DH-HMAC-CHAP
    let Ok(Message::Negotiate(message)) = Message::decode(&bytes) else { panic!("a Negotiate message") };
    assert_eq!(message.offer, None);
}

#[test]
fn challenge() {
    let mut bytes = vec![0x01, 0x01, 0, 0, 0x34, 0x12, 3, 0, 0x01, 0x05, 2, 0, 0x78, 0x56, 0x34, 0x12];
    bytes.extend([0xc1, 0xc2, 0xc3, 0xd1, 0xd2]);
    let expected = Message::Challenge(Challenge {
        t_id: 0x1234,
        hash_id: 1,
        group_id: 5,
        seqnum: 0x1234_5678,
        challenge: &[0xc1, 0xc2, 0xc3],
        public_value: &[0xd1, 0xd2],
    });
    assert_eq!(Message::decode(&bytes), Ok(expected.clone()));
    assert_eq!(expected.encode(), bytes);
}

#[test]
fn reply() {
    let mut bytes = vec![0x01, 0x02, 0, 0, 0x34, 0x12, 2, 0, 0x01, 0, 3, 0, 0x78, 0x56, 0x34, 0x12];
    bytes.extend([0xa1, 0xa2, 0xc1, 0xc2, 0xd1, 0xd2, 0xd3]);
    let reply = Reply {
        t_id: 0x1234,
        seqnum: 0x1234_5678,
        response: &[0xa1, 0xa2],
        c2: &[0xc1, 0xc2],
        is_challenge: true,
        public_value: &[0xd1, 0xd2, 0xd3],
    };
    assert_eq!(Message::decode(&bytes), Ok(Message::Reply(reply.clone())));
    assert_eq!(Message::Reply(reply.clone()).encode(), bytes);
    // Without a challenge its place stays.
    bytes[8] = 0;
    bytes[18..20].fill(0);
    let one_way = Message::Reply(Reply { c2: &[0, 0], is_challenge: false, ..reply });
    assert_eq!(Message::decode(&bytes), Ok(one_way.clone()));
    assert_eq!(one_way.encode(), bytes);
}

#[test]
fn success1() {
    let mut bytes = vec![0x01, 0x03, 0, 0, 0x34, 0x12, 2, 0, 0x01, 0, 0, 0, 0, 0, 0, 0, 0xa1, 0xa2];
    let both = Message::Success1(Success1 { t_id: 0x1234, hl: 2, response: Some(&[0xa1, 0xa2]) });
    assert_eq!(Message::decode(&bytes), Ok(both.clone()));
    assert_eq!(both.encode(), bytes);
    bytes[8] = 0;
    bytes.truncate(16);
    let one_way = Message::Success1(Success1 { t_id: 0x1234, hl: 2, response: None });
    assert_eq!(Message::decode(&bytes), Ok(one_way.clone()));
    assert_eq!(one_way.encode(), bytes);
}

#[test]
fn success2() {
    let bytes = [0x01, 0x04, 0, 0, 0x34, 0x12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(Message::decode(&bytes), Ok(Message::Success2 { t_id: 0x1234 }));
    assert_eq!(Message::Success2 { t_id: 0x1234 }.encode(), bytes);
}

#[test]
fn failures() {
    for (auth_id, message) in [(0xf1, Message::Failure1 as fn(_) -> _), (0xf0, Message::Failure2)] {
        let bytes = [0x00, auth_id, 0, 0, 0x34, 0x12, 0x01, 0x06];
        let report = FailureReport::new(0x1234, Failure::IncorrectPayload);
        assert_eq!(Message::decode(&bytes), Ok(message(report)));
        assert_eq!(message(report).encode(), bytes);
        assert_eq!(report.failure(), Failure::IncorrectPayload);
    }
    let reserved = FailureReport { t_id: 0, reason: 9, explanation: 99 };
    assert_eq!(reserved.failure(), Failure::Failed);
}

#[test]
fn explanations_have_the_codes_of_the_specification() {
    for code in 1..=7 {
        assert_eq!(Failure::from_code(code).map(|failure| failure as u8), Some(code));
    }
    assert_eq!((Failure::from_code(0), Failure::from_code(8)), (None, None));
}

#[test]
fn refused_fields_are_named() {
    let change = |mut bytes: Vec<u8>, at: usize, value: u8| {
        bytes[at] = value;
        bytes
    };
    let negotiate = linux_negotiate();
    let reply = Message::Reply(Reply {
        t_id: 1,
        seqnum: 1,
        response: &[1; 32],
        c2: &[0; 32],
        is_challenge: false,
        public_value: &[],
    })
    .encode();
    let success1 = Message::Success1(Success1 { t_id: 1, hl: 32, response: None }).encode();
    let cases = [
        (change(negotiate.clone(), 7, 0), DecodeError::Field("Negotiate", "NAPD", 0)),
        (change(negotiate.clone(), 7, 2), DecodeError::Truncated("Negotiate", "protocol descriptors")),
        (change(negotiate.clone(), 10, 31), DecodeError::Field("Negotiate", "HALEN", 31)),
        (change(negotiate.clone(), 11, 255), DecodeError::Field("Negotiate", "DHLEN", 255)),
        (change(reply.clone(), 8, 2), DecodeError::Field("Reply", "CVALID", 2)),
        (change(reply.clone(), 6, 65), DecodeError::Truncated("Reply", "response")),
        (change(reply.clone(), 6, 33), DecodeError::Truncated("Reply", "challenge")),
        (change(reply, 10, 1), DecodeError::Truncated("Reply", "DH value")),
        (change(success1.clone(), 8, 2), DecodeError::Field("Success1", "RVALID", 2)),
        (change(success1, 8, 1), DecodeError::Truncated("Success1", "response")),
        (change(negotiate.clone(), 0, 2), DecodeError::Unknown(2, 0)),
        (change(negotiate, 1, 1), DecodeError::Unknown(0, 1)),
        (vec![1, 4, 0, 0, 0], DecodeError::Truncated("a message", "header")),
        (vec![1, 4, 0, 0, 0, 0, 0], DecodeError::Truncated("Success2", "fields")),
    ];
    for (bytes, expected) in cases {
        assert_eq!(Message::decode(&bytes), Err(expected));
    }
    assert_eq!(DecodeError::Unknown(0, 1).failure(), Failure::IncorrectMessage);
    assert_eq!(DecodeError::Field("Reply", "CVALID", 2).failure(), Failure::IncorrectPayload);
}

proptest! {
    #[test]
    fn no_bytes_panic_and_messages_encode_to_what_decodes_to_them(
        kind in prop::sample::select(vec![(0, 0), (1, 1), (1, 2), (1, 3), (1, 4), (0, 0xf0), (0, 0xf1), (7, 7)]),
        rest in prop::collection::vec(any::<u8>(), 0..300),
        small in 0_u8..4,
    ) {
        let (auth_type, auth_id): (u8, u8) = kind;
        let mut bytes = vec![auth_type, auth_id];
        bytes.extend(rest);
        if bytes.len() > 8 {
            bytes[8] %= 2; // so that the flags are often allowed
            bytes[6] = small * 16;
        }
        if let Ok(message) = Message::decode(&bytes) {
            prop_assert_eq!(message.t_id(), Message::transaction(&bytes));
            let encoded = message.encode();
            prop_assert_eq!(Message::decode(&encoded), Ok(message));
        }
    }
}
