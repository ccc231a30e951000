//! In-band authentication over sockets: a host with a secret is served only after it has proved to know it.

#[path = "support/servers.rs"]
mod servers;

use std::sync::Arc;
use std::time::{Duration, Instant};

use pilotlight_auth::{Config, Group, HashFunction, Initiator, Policy, Secret, SecretLen, SequenceNumbers, Step};
use pilotlight_host::{Buffers, ConnectOptions, Connection, Controller, Handshake, HostError, QueueSpec, Sizes};
use pilotlight_nvme::command::opcode::io as opcode;
use pilotlight_nvme::fabrics::{
    AuthenticationCmd, CNTLID_DYNAMIC, ConnectCmd, ConnectData, DISCOVERY_NQN, PropertyCmd, authreq, fctype, property,
};
use pilotlight_nvme::{Sqe, Status};
use pilotlight_nvmf_target::hosts::authentication::{AuthenticationConfig, HostSecrets};
use pilotlight_nvmf_target::{Limits, Server};
use pilotlight_storage::BackendSpec;
use zerocopy::IntoBytes;

const NQN: &str = "nqn.2026-01.test:authenticated";
const HOST: &str = "nqn.2026-01.test:host";
const OTHER: &str = "nqn.2026-01.test:other";

fn secret(byte: u8) -> Secret {
    let fill = &mut |bytes: &mut [u8]| {
        bytes.fill(byte);
        Ok(())
    };
    Secret::generate(Some(HashFunction::Sha256), SecretLen::Bytes32, fill).unwrap()
}

fn small() -> Policy {
    Policy { groups: vec![Group::Ffdhe2048], ..Policy::default() }
}

/// Authentication of [`HOST`] with these secrets, and of no other host.
fn authentication(host: Secret, controller: Option<Secret>) -> AuthenticationConfig {
    let hosts = [(HOST.to_owned(), HostSecrets { host, controller })].into();
    AuthenticationConfig { hosts, policy: small(), ..AuthenticationConfig::default() }
}

fn server(authentication: AuthenticationConfig) -> Server {
    let subsystem = servers::subsystem(NQN, vec![servers::namespace(1, BackendSpec::Memory(1 << 20))]);
    let config =
        pilotlight_nvmf_target::ServerConfig { authentication, io_threads: 2, ..servers::config(vec![subsystem]) };
    servers::start(config, 1)
}

/// Options of a host with these secrets.
fn options(server: &Server, hostnqn: &str, secrets: Option<(Secret, Option<Secret>)>) -> ConnectOptions {
    let authentication = secrets.map(|(host_secret, controller_secret)| {
        let (hostnqn, subnqn, sequence) = (hostnqn.to_owned(), NQN.to_owned(), Arc::new(SequenceNumbers::new(1)));
        Arc::new(Config { hostnqn, subnqn, host_secret, controller_secret, policy: small(), sequence })
    });
    let options = ConnectOptions::new(server.local_addrs()[0], NQN);
    ConnectOptions { hostnqn: hostnqn.to_owned(), authentication, timeout_ms: 60_000, ..options }
}

fn read(controller: &mut Controller) -> Result<(), HostError> {
    controller.set_queue_count(1)?;
    let spec = QueueSpec { qid: 1, depth: 4, max_io: 4096, buffers: Buffers::PerCommand };
    let mut queue = controller.open_queue(&spec)?;
    queue.execute("Read", Sqe::block_io(opcode::READ, 1, 0, 1), &[], &mut [0; 4096]).map(drop)
}

#[test]
fn a_host_that_knows_the_secret_is_served_one_way_and_both_ways() {
    for controller in [None, Some(secret(2))] {
        let server = server(authentication(secret(1), Some(secret(2))));
        let options = options(&server, HOST, Some((secret(1), controller)));
        let mut controller = Controller::connect(options).unwrap();
        read(&mut controller).unwrap();
    }
}

#[test]
fn a_host_without_a_secret_at_the_target_is_served_as_before() {
    let server = server(authentication(secret(1), None));
    read(&mut Controller::connect(options(&server, OTHER, None)).unwrap()).unwrap();
}

#[test]
fn a_host_without_the_secret_or_with_another_is_refused() {
    let server = server(authentication(secret(1), None));
    let without = Controller::connect(options(&server, HOST, None));
    assert!(matches!(without, Err(HostError::AuthenticationRequired)), "{without:?}");
    let wrong = Controller::connect(options(&server, HOST, Some((secret(3), None))));
    assert!(matches!(wrong, Err(HostError::Authentication(pilotlight_auth::Failure::Failed))), "{wrong:?}");
    // the controller has another secret than the host expects
    let server = self::server(authentication(secret(1), Some(secret(2))));
    let wrong = Controller::connect(options(&server, HOST, Some((secret(1), Some(secret(3))))));
    assert!(matches!(wrong, Err(HostError::Authentication(pilotlight_auth::Failure::Failed))), "{wrong:?}");
}

/// An admin queue that has connected as [`HOST`] and not authenticated.
fn unauthenticated(server: &Server, subnqn: &str) -> (Connection, u32) {
    let sizes = Sizes { depth: 31, max_io: 8192, buffers: Buffers::PerCommand, timeout_ms: 60_000 };
    let mut admin = Connection::open(server.local_addrs()[0], None, &Handshake::default(), &sizes).unwrap();
    let connect = ConnectCmd { recfmt: 0, qid: 0, sqsize: 31, cattr: 0, kato_ms: 0 };
    let data = ConnectData::new([1; 16], CNTLID_DYNAMIC, subnqn, HOST);
    let result = admin.execute("Connect", connect.encode(), data.as_bytes(), &mut []).unwrap();
    (admin, result as u32)
}

fn status(result: Result<u64, HostError>) -> Status {
    match result {
        Ok(_) => Status::SUCCESS,
        Err(HostError::Status { status, .. }) => status,
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn no_command_but_authentication_is_served_before_it_has_succeeded() {
    let server = server(authentication(secret(1), None));
    let (mut admin, result) = unauthenticated(&server, NQN);
    assert_ne!(result & authreq::ATR, 0);
    let required = Status::AUTHENTICATION_REQUIRED.dnr();
    for sqe in
        [PropertyCmd::get(property::CAP, true), PropertyCmd::set(property::CC, 1), Sqe::new(0x06, 0), Sqe::new(0x18, 0)]
    {
        assert_eq!(status(admin.execute("a command", sqe, &[], &mut [])), required, "{sqe:?}");
    }
    let other_protocol = AuthenticationCmd::encode(fctype::AUTHENTICATION_SEND, 16).with_cdw(10, 0);
    assert_eq!(
        status(admin.execute("another protocol", other_protocol, &[0; 16], &mut [])),
        Status::INVALID_FIELD.dnr()
    );
    // a malformed message: the reason, then the end
    let send = AuthenticationCmd::encode(fctype::AUTHENTICATION_SEND, 16);
    assert_eq!(status(admin.execute("a message", send, &[0xff; 16], &mut [])), Status::SUCCESS);
    let mut reason = [0; 4096];
    let receive = AuthenticationCmd::encode(fctype::AUTHENTICATION_RECEIVE, 4096);
    assert_eq!(status(admin.execute("the reason", receive, &[], &mut reason)), Status::SUCCESS);
    assert_eq!(reason[..2], [0x00, 0xf1], "AUTH_Failure1 of the common messages");
    let after = admin.execute("a command", PropertyCmd::get(property::CAP, true), &[], &mut []);
    assert!(!matches!(after, Ok(_) | Err(HostError::Status { .. })), "{after:?}");
}

#[test]
fn the_discovery_service_has_its_own_rule() {
    for for_discovery in [false, true] {
        let server = server(AuthenticationConfig { for_discovery, ..authentication(secret(1), None) });
        let (mut admin, result) = unauthenticated(&server, DISCOVERY_NQN);
        assert_eq!(result & authreq::ATR != 0, for_discovery);
        let expected = if for_discovery { Status::AUTHENTICATION_REQUIRED.dnr() } else { Status::SUCCESS };
        assert_eq!(status(admin.execute("a command", PropertyCmd::get(property::CAP, true), &[], &mut [])), expected);
    }
}

#[test]
fn failures_are_answered_late_and_do_not_lock_the_host_out() {
    let server = server(authentication(secret(1), None));
    let wrong = || Controller::connect(options(&server, HOST, Some((secret(3), None))));
    assert!(wrong().is_err());
    let start = Instant::now();
    assert!(matches!(wrong(), Err(HostError::Authentication(pilotlight_auth::Failure::Failed))));
    assert!(start.elapsed() >= Duration::from_millis(200), "the second failure: {:?}", start.elapsed());
    Controller::connect(options(&server, HOST, Some((secret(1), None)))).unwrap();
}

/// What a host with this configuration sends with Authentication Send after the Challenge.
fn reply(connection: &mut Connection, initiator: &mut Initiator, t_id: u16) -> Vec<u8> {
    send(connection, &initiator.start(t_id)).unwrap();
    let challenge = receive(connection).unwrap();
    let Step::Compute(work) = initiator.on_receive(&challenge) else { panic!("a challenge") };
    let mut byte = 0u8;
    let mut random = |bytes: &mut [u8]| {
        bytes.fill_with(|| {
            byte = byte.wrapping_add(37);
            byte
        });
        Ok(())
    };
    let Step::Send(reply) = initiator.on_done(work.run(&mut random)) else { panic!("a reply") };
    reply
}

fn send(connection: &mut Connection, message: &[u8]) -> Result<u64, HostError> {
    let sqe = AuthenticationCmd::encode(fctype::AUTHENTICATION_SEND, message.len() as u32);
    connection.execute("Authentication Send", sqe, message, &mut [])
}

fn receive(connection: &mut Connection) -> Result<Vec<u8>, HostError> {
    let mut message = vec![0; 4096];
    let sqe = AuthenticationCmd::encode(fctype::AUTHENTICATION_RECEIVE, 4096);
    connection.execute("Authentication Receive", sqe, &[], &mut message).map(|_| message)
}

fn initiator(host_secret: Secret) -> Initiator {
    let (hostnqn, subnqn, sequence) = (HOST.to_owned(), NQN.to_owned(), Arc::new(SequenceNumbers::new(7)));
    let config = Config { hostnqn, subnqn, host_secret, controller_secret: None, policy: small(), sequence };
    Initiator::new(Arc::new(config))
}

/// Authenticates the queue again.
fn again(connection: &mut Connection, host_secret: Secret, t_id: u16) -> Status {
    let mut initiator = initiator(host_secret);
    let reply = reply(connection, &mut initiator, t_id);
    assert_eq!(status(send(connection, &reply)), Status::SUCCESS);
    let last = receive(connection);
    match last {
        Ok(message) => {
            assert!(matches!(initiator.on_receive(&message), Step::End));
            let is_authenticated = matches!(initiator.status(), pilotlight_auth::Status::Authenticated(_));
            if is_authenticated { Status::SUCCESS } else { Status::AUTHENTICATION_REQUIRED }
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn queues_authenticate_again_and_end_if_that_fails() {
    let server = server(authentication(secret(1), None));
    let mut controller = Controller::connect(options(&server, HOST, Some((secret(1), None)))).unwrap();
    controller.set_queue_count(1).unwrap();
    let spec = QueueSpec { qid: 1, depth: 4, max_io: 4096, buffers: Buffers::PerCommand };
    let mut queue = controller.open_queue(&spec).unwrap();
    assert_eq!(again(controller.admin(), secret(1), 50), Status::SUCCESS);
    assert_eq!(again(&mut queue, secret(1), 51), Status::SUCCESS);
    controller.keep_alive().unwrap();
    queue.execute("Read", Sqe::block_io(opcode::READ, 1, 0, 1), &[], &mut [0; 4096]).unwrap();
    // too soon after the last one: refused, and the queue is served as before
    let soon = send(controller.admin(), &initiator(secret(1)).start(52));
    assert_eq!(status(soon), Status::COMMAND_INTERRUPTED);
    controller.keep_alive().unwrap();
    let mut controller = Controller::connect(options(&server, HOST, Some((secret(1), None)))).unwrap();
    assert_eq!(again(controller.admin(), secret(3), 53), Status::AUTHENTICATION_REQUIRED);
    let after = controller.keep_alive();
    assert!(!matches!(after, Ok(()) | Err(HostError::Status { .. })), "{after:?}");
}

#[test]
fn a_delayed_result_has_no_effect_before_its_time() {
    let server = server(authentication(secret(1), None));
    for _ in 0..2 {
        assert!(Controller::connect(options(&server, HOST, Some((secret(3), None)))).is_err());
    }
    let (mut admin, _) = unauthenticated(&server, NQN);
    let reply = reply(&mut admin, &mut initiator(secret(3)), 1);
    let sqe = AuthenticationCmd::encode(fctype::AUTHENTICATION_SEND, reply.len() as u32);
    let start = Instant::now();
    let _send = admin.submit(sqe, &reply, 0).unwrap();
    while let Err(HostError::Status { status, .. }) = receive(&mut admin) {
        assert_eq!(status, Status::COMMAND_SEQUENCE.dnr());
    }
    assert!(start.elapsed() >= Duration::from_millis(400), "the third failure: {:?}", start.elapsed());
}

#[test]
fn an_io_queue_serves_nothing_before_it_has_authenticated() {
    let server = server(authentication(secret(1), None));
    let options = options(&server, HOST, Some((secret(1), None)));
    let mut controller = Controller::connect(options.clone()).unwrap();
    controller.set_queue_count(1).unwrap();
    let sizes = Sizes { depth: 4, max_io: 8192, buffers: Buffers::PerCommand, timeout_ms: 60_000 };
    let mut queue = Connection::open(server.local_addrs()[0], None, &Handshake::default(), &sizes).unwrap();
    let connect = ConnectCmd { recfmt: 0, qid: 1, sqsize: 4, cattr: 0, kato_ms: 0 };
    let data = ConnectData::new(options.hostid, controller.cntlid(), NQN, HOST);
    let result = queue.execute("Connect", connect.encode(), data.as_bytes(), &mut []).unwrap();
    assert_ne!(result as u32 & authreq::ATR, 0);
    for opcode in [opcode::READ, opcode::WRITE, opcode::FLUSH] {
        let out: &[u8] = if opcode == opcode::WRITE { &[7; 4096] } else { &[] };
        let mut into = vec![0; if opcode == opcode::READ { 4096 } else { 0 }];
        let refused = status(queue.execute("a command", Sqe::block_io(opcode, 1, 0, 1), out, &mut into));
        assert_eq!(refused, Status::AUTHENTICATION_REQUIRED.dnr(), "{opcode:#x}");
    }
}

#[test]
fn replaced_secrets_keep_connections_and_hold_for_new_ones() {
    let server = server(authentication(secret(1), None));
    let mut first = Controller::connect(options(&server, HOST, Some((secret(1), None)))).unwrap();
    server.set_authentication(authentication(secret(4), None));
    first.keep_alive().unwrap();
    let old = Controller::connect(options(&server, HOST, Some((secret(1), None))));
    assert!(matches!(old, Err(HostError::Authentication(pilotlight_auth::Failure::Failed))), "{old:?}");
    Controller::connect(options(&server, HOST, Some((secret(4), None)))).unwrap();
}

/// The peer does not close: the target does.
#[test]
fn a_host_beyond_its_queues_is_closed_after_it_has_authenticated() {
    let subsystem = servers::subsystem(NQN, vec![servers::namespace(1, BackendSpec::Memory(1 << 20))]);
    let limits = Limits { max_host_queues: 1, ..Limits::default() };
    let authentication = authentication(secret(1), None);
    let config = pilotlight_nvmf_target::ServerConfig { authentication, limits, ..servers::config(vec![subsystem]) };
    let server = servers::start(config, 1);
    let options = ConnectOptions { hostid: [1; 16], ..options(&server, HOST, Some((secret(1), None))) };
    let mut first = Controller::connect(options.clone()).unwrap();
    let (mut second, _) = unauthenticated(&server, NQN);
    let reply = reply(&mut second, &mut initiator(secret(1)), 1);
    send(&mut second, &reply).unwrap_or_default();
    receive(&mut second).expect("the result");
    let after = second.execute("a command", PropertyCmd::get(property::CAP, true), &[], &mut []);
    assert!(!matches!(after, Ok(_) | Err(HostError::Status { .. })), "{after:?}");
    first.keep_alive().expect("the first one is served");
    drop(first);
    servers::eventually("a free place", || Controller::connect(options.clone()).is_ok());
}
