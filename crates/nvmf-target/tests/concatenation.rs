//! Secure channel concatenation over sockets: a host authenticates without TLS, and is served with TLS and the key that this generates.

#[path = "support/servers.rs"]
mod servers;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use pilotlight_auth::tls::{Derivation, PskHash, RetainedPsk};
use pilotlight_auth::{
    Concatenation, Config, Failure, Group, HashFunction, Policy, Secret, SecretLen, SequenceNumbers,
};
use pilotlight_host::load::{LoadSpec, run};
use pilotlight_host::{
    Buffers, ConnectOptions, Connection, Controller, Handshake, HostError, Key, QueueSpec, Sizes, TlsOptions, discover,
};
use pilotlight_nvme::Status;
use pilotlight_nvme::fabrics::{CNTLID_DYNAMIC, ConnectCmd, ConnectData, authreq};
use pilotlight_nvmf_target::hosts::authentication::{AuthenticationConfig, HostSecrets};
use pilotlight_nvmf_target::{Server, ServerConfig};
use pilotlight_storage::BackendSpec;
use pilotlight_tls::{Alert, Failure as TlsFailure};
use zerocopy::IntoBytes;

const NQN: &str = "nqn.2026-01.test:concatenated";
const HOST: &str = "nqn.2026-01.test:host";
const OTHER: &str = "nqn.2026-01.test:other";

fn secret(byte: u8) -> Secret {
    let fill = &mut |bytes: &mut [u8]| {
        bytes.fill(byte);
        Ok(())
    };
    Secret::generate(Some(HashFunction::Sha256), SecretLen::Bytes32, fill).unwrap()
}

fn policy(concatenation: Concatenation) -> Policy {
    Policy { groups: vec![Group::Ffdhe2048], concatenation, ..Policy::default() }
}

/// Authentication of [`HOST`] with this secret, and of no other host.
fn authentication(host: Secret) -> AuthenticationConfig {
    let hosts = [(HOST.to_owned(), HostSecrets { host, controller: None })].into();
    AuthenticationConfig { hosts, policy: policy(Concatenation::None), ..AuthenticationConfig::default() }
}

/// A server that listens in all three ways.
fn server() -> Server {
    let subsystem = servers::subsystem(NQN, vec![servers::namespace(1, BackendSpec::Memory(16 << 20))]);
    let config = servers::config(vec![subsystem]);
    let (tls_listeners, concatenation_listeners) = (config.listeners.clone(), config.listeners.clone());
    let authentication = authentication(secret(1));
    let config = ServerConfig { authentication, tls_listeners, concatenation_listeners, io_threads: 2, ..config };
    servers::start(config, 1)
}

fn address(server: &Server) -> SocketAddr {
    server.concatenation_addrs()[0]
}

fn options(addr: SocketAddr, hostnqn: &str, secret: Secret, policy: Policy) -> ConnectOptions {
    let config = Config {
        hostnqn: hostnqn.to_owned(),
        subnqn: NQN.to_owned(),
        host_secret: secret,
        controller_secret: None,
        policy,
        sequence: Arc::new(SequenceNumbers::new(1)),
    };
    let (hostnqn, authentication) = (hostnqn.to_owned(), Some(Arc::new(config)));
    ConnectOptions { hostnqn, authentication, timeout_ms: 60_000, ..ConnectOptions::new(addr, NQN) }
}

fn concatenated(server: &Server) -> ConnectOptions {
    options(address(server), HOST, secret(1), policy(Concatenation::New))
}

fn is_invalid_host(result: &Result<u64, HostError>) -> bool {
    matches!(result, Err(HostError::Status { status, .. }) if *status == Status::CONNECT_INVALID_HOST.dnr())
}

fn open_queue(controller: &mut Controller) -> Result<Connection, HostError> {
    controller.set_queue_count(1)?;
    controller.open_queue(&QueueSpec { qid: 1, depth: 4, max_io: 4096, buffers: Buffers::PerCommand })
}

/// A connection before Connect.
fn open(options: &ConnectOptions) -> Result<Connection, HostError> {
    let sizes = Sizes { depth: 31, max_io: 8192, buffers: Buffers::PerCommand, timeout_ms: 60_000 };
    Connection::open(options.addr, options.tls_config()?.as_ref(), &Handshake::default(), &sizes)
}

/// Connect without TLS.
fn connect_plain(server: &Server, hostnqn: &str, qid: u16, cntlid: u16) -> Result<u64, HostError> {
    let options = concatenated(server);
    send_connect(&mut open(&options)?, &options, hostnqn, qid, cntlid)
}

fn send_connect(
    queue: &mut Connection,
    options: &ConnectOptions,
    hostnqn: &str,
    qid: u16,
    cntlid: u16,
) -> Result<u64, HostError> {
    let connect = ConnectCmd { recfmt: 0, qid, sqsize: 31, cattr: 0, kato_ms: 0 };
    let data = ConnectData::new(options.hostid, cntlid, NQN, hostnqn);
    queue.execute("Connect", connect.encode(), data.as_bytes(), &mut [])
}

#[test]
fn data_is_verified_with_a_generated_key() {
    let server = server();
    for hash in [HashFunction::Sha256, HashFunction::Sha384] {
        let policy = Policy { hashes: vec![hash], ..policy(Concatenation::New) };
        let options = options(address(&server), HOST, secret(1), policy);
        let spec = LoadSpec {
            read_percent: 50,
            depth: 16,
            jobs: 4,
            threads: 1,
            ios: Some(200),
            verify: true,
            yield_when_idle: true,
            ..LoadSpec::default()
        };
        let report =
            run(&options, &spec, &AtomicBool::new(false), &mut |_| ()).expect("the load ends without an error");
        assert!(report.is_clean(), "{:?}", report.faults);
    }
    // with digests, so that ICReq is followed by more
    let handshake =
        Handshake { digests: pilotlight_nvme::pdu::Digests { header: true, data: true }, ..Handshake::default() };
    let mut controller = Controller::connect(ConnectOptions { handshake, ..concatenated(&server) }).unwrap();
    open_queue(&mut controller).unwrap();
}

#[test]
fn without_tls_an_address_for_it_is_good_for_authentication_alone() {
    let server = server();
    let result = connect_plain(&server, HOST, 0, CNTLID_DYNAMIC).expect("connected");
    assert_eq!(result as u32 & (authreq::ATR | authreq::ASCR), authreq::ATR | authreq::ASCR);
    assert!(is_invalid_host(&connect_plain(&server, OTHER, 0, CNTLID_DYNAMIC)), "a host without a secret");
    let mut controller = Controller::connect(concatenated(&server)).unwrap();
    assert!(is_invalid_host(&connect_plain(&server, HOST, 1, controller.cntlid())), "an I/O queue");
    open_queue(&mut controller).expect("with TLS");
    let discovered = discover(&options(address(&server), OTHER, secret(1), policy(Concatenation::New)));
    assert!(is_invalid_host(&discovered.map(|_| 0)), "the discovery service");
    // a host that does not request it, and one that requests it elsewhere
    let mismatch = |options| match Controller::connect(options) {
        Err(HostError::Authentication(failure)) => failure == Failure::ConcatenationMismatch,
        _ => false,
    };
    assert!(mismatch(options(address(&server), HOST, secret(1), policy(Concatenation::None))));
    assert!(mismatch(options(server.local_addrs()[0], HOST, secret(1), policy(Concatenation::New))));
}

#[test]
fn another_secret_and_another_key_are_refused() {
    let server = server();
    let wrong = Controller::connect(options(address(&server), HOST, secret(3), policy(Concatenation::New)));
    assert!(matches!(wrong, Err(HostError::Authentication(Failure::Failed))), "{wrong:?}");
    let guessed = RetainedPsk::generated(PskHash::Sha256, &[7; 32], &[7; 32], &[7; 32]);
    let tls = TlsOptions { key: Key::Generated(guessed), derivation: Derivation::Specification, as_host: None };
    let guessed = Controller::connect(ConnectOptions { tls: Some(tls), ..concatenated(&server) });
    assert!(matches!(guessed, Err(HostError::Tls(TlsFailure::Alert(Alert(51))))), "{guessed:?}");
}

#[test]
fn a_key_ends_with_the_secret_of_its_host() {
    let server = server();
    let mut kept = Controller::connect(concatenated(&server)).unwrap();
    let mut other = Controller::connect(concatenated(&server)).unwrap();
    server.set_authentication(authentication(secret(1)));
    open_queue(&mut kept).expect("the secret is the same");
    server.set_authentication(authentication(secret(2)));
    kept.keep_alive().expect("connections are kept");
    let queue = open_queue(&mut other);
    assert!(matches!(queue, Err(HostError::Tls(TlsFailure::Alert(Alert(51))))), "{queue:?}");
    let replaced = options(address(&server), HOST, secret(2), policy(Concatenation::New));
    open_queue(&mut Controller::connect(replaced).unwrap()).expect("a key of the new secret");
}

/// A handshake and its Connect can be a minute apart.
#[test]
fn a_key_that_has_ended_since_the_handshake_admits_no_queue() {
    let server = server();
    let controller = Controller::connect(concatenated(&server)).unwrap();
    let options = controller.options();
    let mut queues = [open(options).unwrap(), open(options).unwrap()];
    server.set_authentication(authentication(secret(2)));
    for (qid, queue) in (0..).zip(&mut queues) {
        let cntlid = if qid == 0 { CNTLID_DYNAMIC } else { controller.cntlid() };
        let refused = send_connect(queue, options, HOST, qid, cntlid);
        let expected = Status::CONNECT_INVALID_HOST; // without DNR: another key may do
        assert!(matches!(refused, Err(HostError::Status { status, .. }) if status == expected), "{qid}: {refused:?}");
    }
}

#[test]
fn a_renewed_key_replaces_the_one_before_it() {
    let server = server();
    let mut controller = Controller::connect(concatenated(&server)).unwrap();
    let path = Controller::connect(concatenated(&server)).unwrap();
    let mut keys = vec![controller.options().clone()];
    for _ in 0..2 {
        open_queue(&mut controller).expect("a queue with the key in force");
        controller.replace_tls_key().expect("another key");
        keys.push(controller.options().clone());
        controller = Controller::connect(controller.options().clone()).expect("the newest key");
    }
    let newest = keys.pop().unwrap();
    for old in keys {
        let refused = Controller::connect(old);
        assert!(matches!(refused, Err(HostError::Tls(TlsFailure::Alert(Alert(51))))), "{refused:?}");
    }
    Controller::connect(newest).expect("the newest key");
    Controller::connect(path.options().clone()).expect("the key of another connection");
}

/// As in Linux: only the admin queue renews it.
#[test]
fn an_io_queue_generates_no_key() {
    let server = server();
    let mut controller = Controller::connect(concatenated(&server)).unwrap();
    let mut queue = open_queue(&mut controller).unwrap();
    let config = controller.options().authentication.clone().unwrap();
    let wanted = |concatenation| Arc::new(Config { policy: policy(concatenation), ..(*config).clone() });
    assert!(queue.authenticate(&wanted(Concatenation::None), 1).expect("authenticated again").is_none());
    let mut other = Controller::connect(concatenated(&server)).unwrap();
    let mut queue = open_queue(&mut other).unwrap();
    let refused = queue.authenticate(&wanted(Concatenation::Replace), 1);
    assert!(matches!(refused, Err(HostError::Authentication(Failure::ConcatenationMismatch))), "{refused:?}");
}

#[test]
fn a_generated_key_is_for_its_host_only() {
    let server = server();
    let controller = Controller::connect(concatenated(&server)).unwrap();
    let tls = controller.options().tls.clone().map(|tls| TlsOptions { as_host: Some(HOST.to_owned()), ..tls });
    let other = ConnectOptions { hostnqn: OTHER.to_owned(), authentication: None, tls, ..controller.options().clone() };
    assert!(is_invalid_host(&Controller::connect(other).map(|_| 0)));
}

#[test]
fn the_discovery_log_has_the_address_with_tls() {
    let server = server();
    let log = discover(&ConnectOptions::new(server.local_addrs()[0], NQN)).unwrap();
    let port = address(&server).port().to_string();
    let entry = log.iter().find(|entry| entry.trsvcid == port).expect("listed");
    assert_eq!((entry.treq, entry.security_type), (1, 2), "required, TLS 1.3");
}

/// Whoever changes packets could clear the bit that requires authentication.
#[test]
fn a_host_that_wants_a_key_does_not_go_on_without_tls() {
    let server = server();
    let other = options(server.local_addrs()[0], OTHER, secret(1), policy(Concatenation::New));
    let plain = Controller::connect(other);
    assert!(matches!(&plain, Err(HostError::Unsupported(why)) if why.contains("TLS")), "{plain:?}");
}
