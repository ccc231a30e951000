//! A peer without secrets against both sides of DH-HMAC-CHAP: nothing panics, nobody is authenticated, work and messages are
//! bounded. And any text as a secret, a TLS key or a file of secrets.

use std::sync::Arc;

use pilotlight_auth::message::{MAX_MESSAGE, Message};
use pilotlight_auth::tls::ConfiguredPsk;
use pilotlight_auth::{
    Concatenation, Config, Group, HashFunction, Initiator, Policy, RandomUnavailable, Received, Responder, Secret,
    SecretLen, SequenceNumbers, Status, Step, Work, secrets_file,
};

/// Runs the script in `bytes`: a byte of options, then actions.
pub fn check(bytes: &[u8]) {
    check_message(bytes);
    if let Ok(text) = std::str::from_utf8(bytes) {
        check_text(text);
    }
    let Some((options, script)) = bytes.split_first() else { return };
    let mut controller = Controller::new(*options);
    let mut host = Host::new(*options);
    let mut script = script;
    while let Some((action, argument)) = next(&mut script) {
        match action % 4 {
            0 => controller.send(argument),
            1 => controller.receive(argument.len() * 8),
            2 => controller.compute(),
            _ => host.receive(argument),
        }
    }
}

/// An action: its number, the length of its argument in two bytes, the argument.
fn next<'a>(script: &mut &'a [u8]) -> Option<(u8, &'a [u8])> {
    let (&[action, low, high], rest) = script.split_first_chunk()?;
    let (argument, rest) = rest.split_at(rest.len().min(usize::from(u16::from_le_bytes([low, high]))));
    *script = rest;
    Some((action, argument))
}

fn check_message(bytes: &[u8]) {
    let Ok(message) = Message::decode(bytes) else { return };
    assert_eq!(message.t_id(), Message::transaction(bytes));
    assert_eq!(Message::decode(&message.encode()), Ok(message));
}

fn check_text(text: &str) {
    if let Ok(secret) = Secret::parse(text) {
        assert_eq!(*secret.to_text(), text);
    }
    if let Ok(key) = ConfiguredPsk::parse(text) {
        assert_eq!(*key.to_text(), text);
    }
    if let Ok(hosts) = secrets_file::parse(text) {
        assert!(hosts.len() <= text.lines().count());
    }
}

fn random(bytes: &mut [u8]) -> Result<(), RandomUnavailable> {
    bytes.fill(0x5a);
    Ok(())
}

/// Bit 0 of `options`: a group, or none; bit 1: the controller has a secret; bit 2: bidirectional authentication is required; from bit 3 on:
/// secure channel concatenation.
fn config(options: u8) -> Arc<Config> {
    let secret = || Secret::generate(None, SecretLen::Bytes32, &mut random).expect("random bytes");
    let group = if options & 1 == 0 { Group::Null } else { Group::Ffdhe2048 };
    Arc::new(Config {
        hostnqn: "nqn.2026-01.example:host".to_owned(),
        subnqn: "nqn.2026-01.example:subsystem".to_owned(),
        host_secret: secret(),
        controller_secret: (options & 2 != 0).then(secret),
        policy: Policy {
            hashes: HashFunction::ALL.to_vec(),
            groups: vec![group],
            require_bidirectional: options & 4 != 0,
            concatenation: [Concatenation::None, Concatenation::New, Concatenation::Replace]
                [usize::from(options >> 3) % 3],
        },
        sequence: Arc::new(SequenceNumbers::new(1)),
    })
}

struct Controller {
    responder: Responder,
    work: Option<Work>,
    computed: u32,
}

impl Controller {
    fn new(options: u8) -> Self {
        Self { responder: Responder::new(config(options)), work: None, computed: 0 }
    }

    fn send(&mut self, message: &[u8]) {
        let before = self.responder.status();
        if let Some(work) = self.responder.on_send(message) {
            assert!(self.work.replace(work).is_none(), "one computation at a time");
        }
        self.verify(before);
    }

    fn receive(&mut self, allocation: usize) {
        let before = self.responder.status();
        match self.responder.receive(allocation) {
            Received::Pending => assert!(self.work.is_some(), "there is something to wait for"),
            Received::Message(message) => {
                assert!(message.len() <= allocation.min(MAX_MESSAGE));
                assert!(Message::decode(&message).is_ok());
            }
            Received::TooShort(needed) => assert!((allocation + 1..=MAX_MESSAGE).contains(&needed)),
        }
        self.verify(before);
    }

    fn compute(&mut self) {
        let before = self.responder.status();
        let Some(work) = self.work.take() else { return };
        self.computed += 1;
        assert!(self.computed <= 2, "a connection has one attempt");
        self.responder.on_done(work.run(&mut random));
        self.verify(before);
    }

    fn verify(&self, before: Status) {
        let after = self.responder.status();
        assert!(!self.responder.is_authenticated(), "the peer knows no secret");
        if let Status::Failed { failure, .. } = before {
            assert!(matches!(after, Status::Failed { failure: now, .. } if now == failure), "failed for good");
        }
    }
}

struct Host {
    initiator: Initiator,
    authenticates_controller: bool,
}

impl Host {
    fn new(options: u8) -> Self {
        let config = config(options);
        let authenticates_controller = config.controller_secret.is_some();
        let mut initiator = Initiator::new(config);
        assert!(Message::decode(&initiator.start(1)).is_ok());
        Self { initiator, authenticates_controller }
    }

    fn receive(&mut self, message: &[u8]) {
        let step = match self.initiator.on_receive(message) {
            Step::Compute(work) => self.initiator.on_done(work.run(&mut random)),
            step => step,
        };
        if let Step::Send(message) = step {
            assert!(message.len() <= MAX_MESSAGE && Message::decode(&message).is_ok());
        }
        let is_authenticated = matches!(self.initiator.status(), Status::Authenticated(_));
        assert!(!is_authenticated || !self.authenticates_controller, "the peer knows no secret");
    }
}
