//! Secure channel concatenation: both sides generate the same key, and only where both want it.

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use crate::support::{HOST, Pair, SUBSYSTEM, config, one_way, only, receive};
use pilotlight_auth::message::{Message, Negotiate, Offer, Reply};
use pilotlight_auth::tls::{Derivation, IdentityVersion, RetainedPsk, TlsPsk};
use pilotlight_auth::{Concatenation, Config, Failure, Group, HashFunction, Policy, Status};

fn with(concatenation: Concatenation, hash: HashFunction, group: Group, config: Config) -> Config {
    Config { policy: Policy { concatenation, ..only(hash, group) }, ..config }
}

fn tls(psk: &RetainedPsk) -> TlsPsk {
    psk.tls_psk(IdentityVersion::V1, HOST, SUBSYSTEM, Derivation::Specification).expect("short NQNs")
}

#[test]
fn both_sides_generate_the_same_key_once() {
    for concatenation in [Concatenation::New, Concatenation::Replace] {
        for (hash, number, len) in [(HashFunction::Sha256, "01", 32), (HashFunction::Sha384, "02", 48)] {
            for base in [one_way(), config()] {
                let config = with(concatenation, hash, Group::Ffdhe2048, base);
                let mut pair = Pair::new(config.clone(), config);
                pair.authenticate(1);
                assert!(pair.controller.is_authenticated());
                let (host, (controller, _)) =
                    (tls(&pair.host.take_psk().unwrap()), pair.controller.take_key().unwrap());
                assert!(host.identity().starts_with(&format!("NVMe1G{number} {HOST} {SUBSYSTEM} ")));
                assert_eq!((host.identity(), host.key()), (controller.identity(), controller.key()));
                assert_eq!(host.key().len(), len);
                assert!(pair.host.take_psk().is_none() && pair.controller.take_key().is_none());
                pair.authenticate(2);
                let (next, _) = pair.controller.take_key().expect("another");
                assert_ne!(next.identity(), controller.identity());
            }
        }
    }
}

/// HMAC with the session key over C1 and C2, from the messages alone.
#[test]
fn the_key_is_that_of_the_specification() {
    let config = with(Concatenation::New, HashFunction::Sha256, Group::Ffdhe2048, one_way());
    let mut pair = Pair::new(config.clone(), config);
    pair.authenticate(1);
    let [_, challenge, reply, _] = &pair.messages[..] else { panic!("four messages") };
    let (Ok(Message::Challenge(challenge)), Ok(Message::Reply(reply))) =
        (Message::decode(challenge), Message::decode(reply))
    else {
        panic!("a Challenge and a Reply")
    };
    assert_eq!((reply.is_challenge, reply.seqnum), (true, 0), "C2 for the key alone");
    let (key, _) = pair.controller.take_key().expect("a key");
    let of = |session_key: &[u8]| {
        let mut hmac = Hmac::<Sha256>::new_from_slice(session_key).unwrap();
        hmac.update(challenge.challenge);
        hmac.update(reply.c2);
        hmac.finalize().into_bytes().to_vec()
    };
    let generated = |c1, c2| {
        let psk = RetainedPsk::generated(pilotlight_auth::tls::PskHash::Sha256, &[7; 32], c1, c2);
        tls(&psk).identity().to_owned()
    };
    // the session key is not seen; with one that is known, the key is what the formula gives
    let mut digest = Hmac::<Sha256>::new_from_slice(&of(&[7; 32])).unwrap();
    digest.update(format!("{HOST} {SUBSYSTEM} NVMe-over-Fabrics").as_bytes());
    let digest = base64(&digest.finalize().into_bytes());
    assert_eq!(generated(challenge.challenge, reply.c2), format!("NVMe1G01 {HOST} {SUBSYSTEM} {digest}"));
    assert_ne!(key.identity(), generated(challenge.challenge, reply.c2), "another session key");
}

fn base64(bytes: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

#[test]
fn each_side_refuses_what_it_did_not_ask_for() {
    use Concatenation::{New, None, Replace};
    let group = Group::Ffdhe2048;
    for (host, controller, is_accepted) in [
        (None, None, true),
        (None, New, false),
        (None, Replace, true),
        (New, None, false),
        (New, New, true),
        (New, Replace, false),
        (Replace, None, false),
        (Replace, New, false),
        (Replace, Replace, true),
    ] {
        let side = |concatenation| with(concatenation, HashFunction::Sha256, group, one_way());
        let mut pair = Pair::new(side(host), side(controller));
        pair.authenticate(1);
        assert_eq!(pair.controller.is_authenticated(), is_accepted, "{host:?} {controller:?}");
        if !is_accepted {
            let failure = Failure::ConcatenationMismatch;
            assert_eq!(pair.host.status(), Status::Failed { failure, reported: true });
        }
        let has_key = is_accepted && host != None;
        assert_eq!((pair.host.take_psk().is_some(), pair.controller.take_key().is_some()), (has_key, has_key));
    }
}

#[test]
fn it_takes_a_group_and_a_hash_function_of_tls() {
    let policy = Policy { concatenation: Concatenation::New, ..config().policy };
    let controller = Config { policy: Policy { groups: Group::ALL.to_vec(), ..policy }, ..one_way() };
    for (hashes, groups, failure) in [
        (&[1_u8][..], &[0_u8][..], Some(Failure::GroupNotUsable)),
        (&[3], &[1], Some(Failure::HashNotUsable)),
        (&[3, 1], &[0, 1], None),
    ] {
        let mut pair = Pair::new(controller.clone(), controller.clone());
        let negotiate = Negotiate { t_id: 1, sc_c: 2, offer: Some(Offer { hashes, groups }) };
        pair.send(&Message::Negotiate(negotiate).encode());
        match (Message::decode(&receive(&mut pair.controller)), failure) {
            (Ok(Message::Challenge(challenge)), None) => assert_eq!((challenge.hash_id, challenge.group_id), (1, 1)),
            (Ok(Message::Failure1(report)), Some(failure)) => assert_eq!(report.failure(), failure),
            (other, _) => panic!("{other:?}"),
        }
    }
}

/// Linux sends zeros for C2, without CVALID, if it does not know the controller's secret.
#[test]
fn a_second_challenge_that_is_not_valid_is_used_as_sent() {
    let config = with(Concatenation::New, HashFunction::Sha256, Group::Ffdhe2048, one_way());
    let mut pair = Pair::new(config.clone(), config);
    let negotiate = pair.host.start(1);
    pair.send(&negotiate);
    let challenge = receive(&mut pair.controller);
    let reply = pair.answer(&challenge).expect("a Reply");
    let Ok(Message::Reply(reply)) = Message::decode(&reply) else { panic!("a Reply") };
    let zeros = Message::Reply(Reply { c2: &[0; 32], is_challenge: false, ..reply }).encode();
    pair.send(&zeros);
    receive(&mut pair.controller);
    assert!(pair.controller.is_authenticated());
    assert!(pair.controller.take_key().is_some());
}
