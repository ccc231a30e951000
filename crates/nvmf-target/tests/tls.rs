//! TLS over sockets: only hosts with a key are served on a TLS listener, and only under the NQNs of the key.

#[path = "support/servers.rs"]
mod servers;

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use pilotlight_auth::tls::{ConfiguredPsk, Derivation, PskHash};
use pilotlight_auth::{Config, HashFunction, Policy, Secret, SecretLen, SequenceNumbers};
use pilotlight_host::load::{LoadSpec, run};
use pilotlight_host::{
    Buffers, ConnectOptions, Connection, Controller, Handshake, HostError, Key, QueueSpec, Sizes, SocketLimits,
    TlsOptions, discover,
};
use pilotlight_nvme::command::opcode::io as opcode;
use pilotlight_nvme::pdu::Digests;
use pilotlight_nvme::{Sqe, Status};
use pilotlight_nvmf_target::RefusalReason;
use pilotlight_nvmf_target::hosts::authentication::{AuthenticationConfig, HostSecrets};
use pilotlight_nvmf_target::{Limits, Server, ServerConfig};
use pilotlight_peers::raw::RawPeer;
use pilotlight_storage::BackendSpec;
use pilotlight_tls::{Alert, Failure};

const NQN: &str = "nqn.2026-01.test:encrypted";
const HOST: &str = "nqn.2026-01.test:host";
const OTHER: &str = "nqn.2026-01.test:other";

fn key(hash: PskHash, byte: u8) -> ConfiguredPsk {
    let fill = &mut |bytes: &mut [u8]| {
        bytes.fill(byte);
        Ok(())
    };
    ConfiguredPsk::generate(hash, true, fill).unwrap()
}

fn sha256(byte: u8) -> ConfiguredPsk {
    key(PskHash::Sha256, byte)
}

/// Keys of [`HOST`] and no other host.
fn keys(key: ConfiguredPsk) -> AuthenticationConfig {
    AuthenticationConfig { tls_keys: [(HOST.to_owned(), key)].into(), ..AuthenticationConfig::default() }
}

fn start(authentication: AuthenticationConfig, limits: Limits) -> Server {
    let subsystem = servers::subsystem(NQN, vec![servers::namespace(1, BackendSpec::Memory(16 << 20))]);
    let config = servers::config(vec![subsystem]);
    let tls_listeners = config.listeners.clone();
    servers::start(ServerConfig { authentication, limits, tls_listeners, io_threads: 2, ..config }, 1)
}

fn server(authentication: AuthenticationConfig) -> Server {
    start(authentication, Limits::default())
}

/// A host at an address, with a key or without.
fn options(addr: SocketAddr, hostnqn: &str, key: Option<ConfiguredPsk>) -> ConnectOptions {
    let tls =
        key.map(|key| TlsOptions { key: Key::Configured(key), derivation: Derivation::Specification, as_host: None });
    ConnectOptions { hostnqn: hostnqn.to_owned(), tls, timeout_ms: 60_000, ..ConnectOptions::new(addr, NQN) }
}

fn encrypted(server: &Server, hostnqn: &str, key: ConfiguredPsk) -> ConnectOptions {
    options(server.tls_addrs()[0], hostnqn, Some(key))
}

fn plain(server: &Server, hostnqn: &str) -> ConnectOptions {
    options(server.local_addrs()[0], hostnqn, None)
}

fn read(options: ConnectOptions) -> Result<(), HostError> {
    let mut controller = Controller::connect(options)?;
    controller.set_queue_count(1)?;
    let spec = QueueSpec { qid: 1, depth: 4, max_io: 4096, buffers: Buffers::PerCommand };
    let mut queue = controller.open_queue(&spec)?;
    queue.execute("Read", Sqe::block_io(opcode::READ, 1, 0, 1), &[], &mut [0; 4096]).map(drop)
}

fn is_invalid_host(result: &Result<(), HostError>) -> bool {
    matches!(result, Err(HostError::Status { status, .. }) if *status == Status::CONNECT_INVALID_HOST.dnr())
}

fn is_refused(result: &Result<(), HostError>) -> bool {
    matches!(result, Err(HostError::Tls(Failure::Alert(Alert(51)))))
}

/// Verified writes and reads of this many bytes.
fn load(options: &ConnectOptions, block_bytes: u32) {
    let spec = LoadSpec {
        read_percent: 50,
        block_bytes,
        depth: 16,
        jobs: 4,
        threads: 1,
        ios: Some(if block_bytes > 65_536 { 20 } else { 200 }),
        verify: true,
        yield_when_idle: true,
        ..LoadSpec::default()
    };
    let report = run(options, &spec, &AtomicBool::new(false), &mut |_| ()).expect("the load ends without an error");
    assert!(report.is_clean(), "{:?}", report.faults);
}

#[test]
fn data_is_verified_with_keys_of_both_hashes_and_io_of_all_sizes() {
    for hash in [PskHash::Sha256, PskHash::Sha384] {
        let server = server(keys(key(hash, 1)));
        for block_bytes in [4096, 65_536, 131_072] {
            load(&encrypted(&server, HOST, key(hash, 1)), block_bytes);
        }
    }
}

#[test]
fn data_is_verified_in_pieces_through_small_buffers_with_digests() {
    let server = server(keys(sha256(1)));
    let socket_limits =
        SocketLimits { send_buffer: Some(4096), receive_buffer: Some(4096), segment: Some(1000), piece: Some(5000) };
    let handshake = Handshake { digests: Digests { header: true, data: true }, ..Handshake::default() };
    load(&ConnectOptions { socket_limits, handshake, ..encrypted(&server, HOST, sha256(1)) }, 65_536);
}

#[test]
fn another_key_another_host_and_no_tls_are_refused_and_the_reason_is_counted() {
    let server = server(keys(sha256(1)));
    assert!(is_refused(&read(encrypted(&server, HOST, sha256(2)))), "another key");
    assert!(is_refused(&read(encrypted(&server, OTHER, sha256(1)))), "a host without a key");
    let plain = read(options(server.tls_addrs()[0], HOST, None));
    assert!(matches!(plain, Err(HostError::Closed("waiting for ICResp"))), "{plain:?}");
    let counts = server.stats().refusals;
    assert!(counts.contains(&(RefusalReason::TlsHandshake, 3)), "{counts:?}");
    let to_plain = read(options(server.local_addrs()[0], HOST, Some(sha256(1))));
    assert!(matches!(to_plain, Err(HostError::Tls(_))), "{to_plain:?}");
    read(encrypted(&server, HOST, sha256(1))).expect("the right key is accepted");
}

#[test]
fn a_host_with_a_key_is_refused_without_tls_unless_that_is_allowed() {
    let authentication = keys(sha256(1));
    let server = server(authentication.clone());
    assert!(is_invalid_host(&read(plain(&server, HOST))));
    read(plain(&server, OTHER)).expect("a host without a key is served without TLS");
    assert_eq!(discover(&plain(&server, HOST)).unwrap().len(), 2, "the discovery service is open");
    server.set_authentication(AuthenticationConfig { for_discovery: true, ..authentication.clone() });
    assert!(is_invalid_host(&discover(&plain(&server, HOST)).map(drop)));
    server.set_authentication(AuthenticationConfig { allows_plain: true, ..authentication });
    read(plain(&server, HOST)).expect("plain connections are allowed");
}

#[test]
fn a_key_is_good_for_its_host_only() {
    let authentication = AuthenticationConfig {
        tls_keys: [(HOST.to_owned(), sha256(1)), (OTHER.to_owned(), sha256(2))].into(),
        ..AuthenticationConfig::default()
    };
    let server = server(authentication);
    let as_host = Some(HOST.to_owned());
    let tls = TlsOptions { key: Key::Configured(sha256(1)), derivation: Derivation::Specification, as_host };
    let stolen = ConnectOptions { tls: Some(tls), ..encrypted(&server, OTHER, sha256(1)) };
    assert!(is_invalid_host(&read(stolen)), "the key of one host, and Connect as another");
    read(encrypted(&server, OTHER, sha256(2))).expect("its own key");
}

#[test]
fn keys_of_old_libnvme_are_accepted_only_where_that_is_switched_on() {
    let server = server(keys(sha256(1)));
    let old = || {
        let tls = Some(TlsOptions {
            key: Key::Configured(sha256(1)),
            derivation: Derivation::LibnvmeBefore1_16,
            as_host: None,
        });
        ConnectOptions { tls, ..encrypted(&server, HOST, sha256(1)) }
    };
    assert!(is_refused(&read(old())));
    server.set_authentication(AuthenticationConfig { accepts_old_libnvme: true, ..keys(sha256(1)) });
    read(old()).expect("accepted");
    read(encrypted(&server, HOST, sha256(1))).expect("the specified derivation is accepted too");
}

#[test]
fn a_replaced_key_is_for_new_connections_and_kept_ones_go_on() {
    let server = server(keys(sha256(1)));
    let mut controller = Controller::connect(encrypted(&server, HOST, sha256(1))).unwrap();
    server.set_authentication(keys(sha256(2)));
    controller.identify_controller().expect("the connection is kept");
    assert!(is_refused(&read(encrypted(&server, HOST, sha256(1)))));
    read(encrypted(&server, HOST, sha256(2))).expect("the new key");
}

#[test]
fn a_host_authenticates_within_tls() {
    let fill = &mut |bytes: &mut [u8]| {
        bytes.fill(7);
        Ok(())
    };
    let secret = Secret::generate(Some(HashFunction::Sha256), SecretLen::Bytes32, fill).unwrap();
    let hosts = [(HOST.to_owned(), HostSecrets { host: secret.clone(), controller: None })].into();
    let policy = Policy { groups: vec![pilotlight_auth::Group::Ffdhe2048], ..Policy::default() };
    let server = server(AuthenticationConfig { hosts, policy: policy.clone(), ..keys(sha256(1)) });
    let without = read(encrypted(&server, HOST, sha256(1)));
    assert!(matches!(without, Err(HostError::AuthenticationRequired)), "{without:?}");
    let config = Config {
        hostnqn: HOST.to_owned(),
        subnqn: NQN.to_owned(),
        host_secret: secret,
        controller_secret: None,
        policy,
        sequence: std::sync::Arc::new(SequenceNumbers::new(1)),
    };
    read(ConnectOptions { authentication: Some(config.into()), ..encrypted(&server, HOST, sha256(1)) }).unwrap();
}

#[test]
fn commands_go_on_after_the_host_has_changed_its_key() {
    let server = server(keys(sha256(1)));
    let mut controller = Controller::connect(encrypted(&server, HOST, sha256(1))).unwrap();
    for _ in 0..50 {
        controller.admin().update_key().unwrap();
        controller.identify_controller().unwrap();
    }
}

#[test]
fn the_discovery_log_says_which_addresses_need_tls() {
    let server = server(keys(sha256(1)));
    let entries = discover(&encrypted(&server, HOST, sha256(1))).unwrap();
    let ports: Vec<String> = entries.iter().map(|entry| entry.trsvcid.clone()).collect();
    let [plain, tls] = [server.local_addrs()[0], server.tls_addrs()[0]].map(|addr| addr.port().to_string());
    assert_eq!(ports, [plain, tls]);
    assert_eq!(entries.iter().map(|entry| (entry.treq, entry.security_type)).collect::<Vec<_>>(), [(0, 0), (1, 2)]);
}

#[test]
fn a_connection_without_a_handshake_is_closed_in_time_and_others_are_served() {
    let silent = |server: &Server| {
        let connect = |_| TcpStream::connect(server.tls_addrs()[0]).unwrap();
        let mut silent: Vec<TcpStream> = (0..20).map(connect).collect();
        // the beginning of a ClientHello
        silent.iter_mut().step_by(2).for_each(|stream| stream.write_all(&[22, 3, 1, 2, 0, 1, 0]).unwrap());
        silent
    };
    let server = start(keys(sha256(1)), Limits { icreq_timeout: Duration::from_secs(60), ..Limits::default() });
    let held = silent(&server);
    read(encrypted(&server, HOST, sha256(1))).expect("served meanwhile");
    drop(held);
    let server = start(keys(sha256(1)), Limits { icreq_timeout: Duration::from_millis(300), ..Limits::default() });
    for mut stream in silent(&server) {
        assert_eq!(stream.read(&mut [0; 16]).unwrap_or(0), 0, "closed without an answer");
    }
}

/// The address of attackers.
const ATTACKER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));

/// Memory for two sessions of an address before Connect.
fn small() -> Limits {
    Limits { queue_memory: 4 << 20, icreq_timeout: Duration::from_secs(60), ..Limits::default() }
}

fn refused(server: &Server, reason: RefusalReason) -> u64 {
    server.stats().refusals.into_iter().find(|(one, _)| *one == reason).map_or(0, |(_, count)| count)
}

#[test]
fn the_memory_of_handshakes_is_bounded_and_returned() {
    let server = start(keys(sha256(1)), small());
    let address = server.tls_addrs()[0];
    let connect = |from| RawPeer::connect_from(from, address, Duration::from_secs(60)).expect("the kernel accepts");
    let held: Vec<RawPeer> = (0..16).map(|_| connect(ATTACKER)).collect();
    servers::eventually("refusals", || refused(&server, RefusalReason::NoQueueMemory) == 14);
    load(&encrypted(&server, HOST, sha256(1)), 4096);
    drop(held);
    let held = [connect(address.ip()), connect(address.ip())];
    servers::eventually("no memory", || read(encrypted(&server, HOST, sha256(1))).is_err());
    drop(held);
    servers::eventually("memory", || read(encrypted(&server, HOST, sha256(1))).is_ok());
}

#[test]
fn a_session_before_its_connect_takes_memory_as_well() {
    let server = start(keys(sha256(1)), small());
    let options = encrypted(&server, HOST, sha256(1));
    let open = || {
        let sizes = Sizes { depth: 31, max_io: 8192, buffers: Buffers::PerCommand, timeout_ms: 60_000 };
        let tls = options.tls_config().expect("a configuration");
        Connection::open(options.addr, tls.as_ref(), &Handshake::default(), &sizes)
    };
    let held = [open().expect("a session"), open().expect("a session")];
    assert!(open().is_err() && refused(&server, RefusalReason::NoQueueMemory) == 1);
    drop(held);
    servers::eventually("memory", || read(options.clone()).is_ok());
}
