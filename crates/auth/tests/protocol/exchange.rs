//! Host and controller against each other: every hash function and group, one way and both ways, and every refusal.

use std::sync::Arc;

use crate::support::{Pair, config, one_way, only, receive, secret};
use pilotlight_auth::message::{MAX_MESSAGE, Message};
use pilotlight_auth::{Config, Failure, Group, HashFunction, Policy, Received, Session, Status};

fn failed(failure: Failure) -> Status {
    Status::Failed { failure, reported: true }
}

#[test]
fn every_hash_function_and_group_authenticates() {
    for hash in HashFunction::ALL {
        for group in Group::ALL {
            for (bidirectional, config) in [(false, one_way()), (true, config())] {
                let config = Config { policy: only(hash, group), ..config };
                let mut pair = Pair::new(config.clone(), config);
                pair.authenticate(3);
                let session = Status::Authenticated(Session { hash, group, bidirectional });
                assert_eq!(pair.host.status(), session, "host");
                assert_eq!(pair.controller.status(), session, "controller");
                assert_eq!(pair.messages.len(), if bidirectional { 5 } else { 4 });
                assert!(pair.messages.iter().all(|message| message.len() <= MAX_MESSAGE));
            }
        }
    }
}

#[test]
fn transformed_secrets_authenticate() {
    for transform in [None, Some(HashFunction::Sha256), Some(HashFunction::Sha384), Some(HashFunction::Sha512)] {
        let config = Config { host_secret: secret(1, transform), ..config() };
        let mut pair = Pair::new(config.clone(), config);
        assert!(pair.authenticate(1).controller.is_authenticated(), "{transform:?}");
    }
}

#[test]
fn a_wrong_secret_or_name_fails() {
    let wrong = [
        Config { host_secret: secret(9, None), ..config() },
        Config { host_secret: secret(1, Some(HashFunction::Sha256)), ..config() },
        Config { hostnqn: "nqn.2014-08.org.nvmexpress:uuid:other".to_owned(), ..config() },
        Config { subnqn: "nqn.2026-01.example:other".to_owned(), ..config() },
    ];
    for group in [Group::Null, Group::Ffdhe2048] {
        for host in &wrong {
            let policy = only(HashFunction::Sha256, group);
            let mut pair = Pair::new(Config { policy: policy.clone(), ..host.clone() }, Config { policy, ..config() });
            pair.authenticate(1);
            assert_eq!(pair.host.status(), failed(Failure::Failed));
            assert_eq!(pair.controller.status(), failed(Failure::Failed));
        }
    }
}

#[test]
fn a_host_refuses_a_controller_with_another_secret() {
    let mut pair = Pair::new(config(), Config { controller_secret: Some(secret(9, None)), ..config() });
    pair.authenticate(1);
    assert_eq!(pair.host.status(), failed(Failure::Failed));
    assert_eq!(pair.controller.status(), failed(Failure::Failed), "the host reports it");
}

#[test]
fn a_controller_without_a_secret_cannot_be_challenged() {
    let mut pair = Pair::new(config(), one_way());
    pair.authenticate(1);
    assert_eq!(pair.controller.status(), failed(Failure::Failed));
    assert_eq!(pair.host.status(), failed(Failure::Failed));
}

#[test]
fn bidirectional_authentication_can_be_required() {
    let controller = Config { policy: Policy { require_bidirectional: true, ..config().policy }, ..config() };
    assert!(Pair::new(config(), controller.clone()).authenticate(1).controller.is_authenticated());
    let mut pair = Pair::new(one_way(), controller);
    assert_eq!(pair.authenticate(1).controller.status(), failed(Failure::Failed));
}

#[test]
fn the_controller_selects_its_first_choice() {
    let policy = |hashes: &[HashFunction], groups: &[Group]| Policy {
        hashes: hashes.to_vec(),
        groups: groups.to_vec(),
        ..Policy::default()
    };
    let host = policy(&[HashFunction::Sha256, HashFunction::Sha512], &[Group::Null, Group::Ffdhe2048]);
    let ours =
        policy(&[HashFunction::Sha512, HashFunction::Sha256], &[Group::Ffdhe3072, Group::Ffdhe2048, Group::Null]);
    let mut pair = Pair::new(Config { policy: host, ..one_way() }, Config { policy: ours, ..one_way() });
    let session = Session { hash: HashFunction::Sha512, group: Group::Ffdhe2048, bidirectional: false };
    assert_eq!(pair.authenticate(1).controller.status(), Status::Authenticated(session));
}

#[test]
fn nothing_in_common_is_refused() {
    let cases = [
        (only(HashFunction::Sha384, Group::Ffdhe2048), Failure::HashNotUsable),
        (only(HashFunction::Sha256, Group::Null), Failure::GroupNotUsable),
    ];
    for (offered, failure) in cases {
        let controller = Config { policy: only(HashFunction::Sha256, Group::Ffdhe2048), ..config() };
        let mut pair = Pair::new(Config { policy: offered, ..config() }, controller);
        pair.authenticate(1);
        assert_eq!(pair.controller.status(), failed(failure));
        assert_eq!(pair.host.status(), failed(failure));
    }
    assert!(!Policy::default().groups.contains(&Group::Null), "plain CHAP must be chosen");
}

#[test]
fn an_authenticated_queue_stays_so_until_a_reauthentication_fails() {
    let mut pair = Pair::new(config(), config());
    pair.authenticate(1);
    let session = pair.controller.status();
    let first = pair.messages.clone();
    let negotiate = pair.host.start(2);
    pair.send(&negotiate);
    assert_eq!(pair.controller.status(), session, "during the second transaction");
    let challenge = receive(&mut pair.controller);
    assert_ne!(challenge[16..48], first[1][16..48], "each challenge is used once");
    // The host's answer to the challenge of the first transaction is no answer to this one.
    let mut replay = first[2].clone();
    replay[4] = 2; // T_ID
    pair.send(&replay);
    assert_eq!(pair.controller.status(), Status::Failed { failure: Failure::Failed, reported: false });
    assert!(!pair.controller.is_authenticated());
    receive(&mut pair.controller);
    assert_eq!(pair.controller.status(), failed(Failure::Failed));
}

#[test]
fn a_replaced_secret_counts_from_the_next_transaction_on() {
    let mut pair = Pair::new(config(), config());
    let negotiate = pair.host.start(1);
    pair.send(&negotiate);
    pair.controller.replace_config(Arc::new(Config { host_secret: secret(9, None), ..config() }));
    let challenge = receive(&mut pair.controller);
    let reply = pair.answer(&challenge).expect("a reply");
    pair.send(&reply);
    let Ok(Message::Success1(_)) = Message::decode(&receive(&mut pair.controller)) else {
        panic!("the old secret counts")
    };
    pair.send(&Message::Success2 { t_id: 1 }.encode());
    assert!(pair.controller.is_authenticated());
    assert_eq!(pair.authenticate(2).controller.status(), failed(Failure::Failed), "now the new secret counts");
}

#[test]
fn a_short_buffer_loses_no_message() {
    let mut pair = Pair::new(one_way(), one_way());
    let negotiate = pair.host.start(1);
    pair.send(&negotiate);
    assert_eq!(pair.controller.receive(47), Received::TooShort(48));
    assert_eq!(receive(&mut pair.controller).len(), 48);
}

/// Linux's buffer is longer than the messages, and zero after them.
#[test]
fn bytes_after_a_message_are_ignored() {
    let mut pair = Pair::new(config(), config());
    let mut send = pair.host.start(1);
    loop {
        send.resize(4096, 0);
        pair.send(&send);
        if pair.controller.is_authenticated() {
            return;
        }
        let mut received = receive(&mut pair.controller);
        received.resize(4096, 0);
        send = pair.answer(&received).expect("a message until the controller is authenticated");
    }
}
