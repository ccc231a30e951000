//! Two sides of an exchange that talk to each other, with random numbers that repeat.

use std::sync::Arc;

use pilotlight_auth::{
    Config, Done, Group, HashFunction, Initiator, Policy, RandomUnavailable, Received, Responder, Secret, SecretLen,
    SequenceNumbers, Status, Step, Work,
};

pub(crate) const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:host";
pub(crate) const SUBSYSTEM: &str = "nqn.2026-01.example:subsystem";
/// A buffer of Authentication Receive, as long as that of Linux.
pub(crate) const ALLOCATION: usize = 4096;

/// A generator that is not secure, but repeats.
pub(crate) struct Numbers(pub(crate) u64);

impl Numbers {
    pub(crate) fn fill(&mut self, bytes: &mut [u8]) -> Result<(), RandomUnavailable> {
        for byte in bytes {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            *byte = (self.0 >> 56) as u8;
        }
        Ok(())
    }

    pub(crate) fn run(&mut self, work: Work) -> Done {
        work.run(&mut |bytes: &mut [u8]| self.fill(bytes))
    }
}

pub(crate) fn secret(seed: u64, transform: Option<HashFunction>) -> Secret {
    let mut numbers = Numbers(seed);
    Secret::generate(transform, SecretLen::Bytes48, &mut |bytes: &mut [u8]| numbers.fill(bytes)).expect("random bytes")
}

/// A configuration for both sides: the host's secret, and the controller's too.
pub(crate) fn config() -> Config {
    Config {
        hostnqn: HOST.to_owned(),
        subnqn: SUBSYSTEM.to_owned(),
        host_secret: secret(1, None),
        controller_secret: Some(secret(2, Some(HashFunction::Sha256))),
        policy: Policy { groups: vec![Group::Null, Group::Ffdhe2048], ..Policy::default() },
        sequence: Arc::new(SequenceNumbers::new(77)),
    }
}

/// Without the controller's secret.
pub(crate) fn one_way() -> Config {
    Config { controller_secret: None, ..config() }
}

/// Only this hash function and this group.
pub(crate) fn only(hash: HashFunction, group: Group) -> Policy {
    Policy { hashes: vec![hash], groups: vec![group], ..Policy::default() }
}

/// A host and a controller, and all messages between them.
pub(crate) struct Pair {
    pub(crate) host: Initiator,
    pub(crate) controller: Responder,
    pub(crate) numbers: Numbers,
    pub(crate) messages: Vec<Vec<u8>>,
}

impl Pair {
    pub(crate) fn new(host: Config, controller: Config) -> Self {
        Self {
            host: Initiator::new(Arc::new(host)),
            controller: Responder::new(Arc::new(controller)),
            numbers: Numbers(5),
            messages: Vec::new(),
        }
    }

    /// Runs one transaction to its end.
    pub(crate) fn authenticate(&mut self, t_id: u16) -> &mut Self {
        let mut send = Some(self.host.start(t_id));
        while let Some(message) = send {
            self.send(&message);
            send = if self.is_final() { None } else { self.receive() };
        }
        self
    }

    /// Whether the host's side is over.
    fn is_final(&self) -> bool {
        matches!(self.host.status(), Status::Authenticated(_) | Status::Failed { .. })
    }

    pub(crate) fn send(&mut self, message: &[u8]) {
        self.messages.push(message.to_vec());
        if let Some(work) = self.controller.on_send(message) {
            assert_eq!(self.controller.receive(ALLOCATION), Received::Pending);
            let done = self.numbers.run(work);
            self.controller.on_done(done);
        }
    }

    /// The controller's message, and the host's answer.
    fn receive(&mut self) -> Option<Vec<u8>> {
        let message = receive(&mut self.controller);
        self.messages.push(message.clone());
        self.answer(&message)
    }

    /// The host's answer to a message.
    pub(crate) fn answer(&mut self, message: &[u8]) -> Option<Vec<u8>> {
        let step = match self.host.on_receive(message) {
            Step::Compute(work) => {
                let done = self.numbers.run(work);
                self.host.on_done(done)
            }
            step => step,
        };
        match step {
            Step::Send(message) => Some(message),
            Step::End => None,
            Step::Compute(_) => panic!("one computation a message"),
        }
    }
}

/// The message that the controller has for the host.
pub(crate) fn receive(controller: &mut Responder) -> Vec<u8> {
    match controller.receive(ALLOCATION) {
        Received::Message(message) => message,
        other => panic!("expected a message, not {other:?}"),
    }
}
