//! Floods from one address: another host's load goes on, and it can connect. Attackers come from 127.0.0.2.

#[path = "support/servers.rs"]
mod servers;

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use pilotlight_auth::{Config, Group, HashFunction, Initiator, Policy, Secret, SecretLen, SequenceNumbers, Step};
use pilotlight_host::load::{LoadSpec, run};
use pilotlight_host::{Buffers, ConnectOptions, Controller, Handshake, QueueSpec};
use pilotlight_nvme::Sqe;
use pilotlight_nvme::command::Sgl;
use pilotlight_nvme::command::opcode::{admin, io};
use pilotlight_nvme::fabrics::{AuthenticationCmd, CNTLID_DYNAMIC, ConnectCmd, ConnectData, DISCOVERY_NQN, fctype};
use pilotlight_nvmf_target::RefusalReason;
use pilotlight_nvmf_target::hosts::authentication::{AuthenticationConfig, HostSecrets};
use pilotlight_nvmf_target::{Limits, Server, ServerConfig};
use pilotlight_peers::raw::{RawPeer, Reply};
use pilotlight_storage::BackendSpec;
use zerocopy::IntoBytes;

const NQN: &str = "nqn.2026-01.test:flooded";
const HOST: &str = "nqn.2026-01.test:host";
const ATTACKER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
/// Timeout of peers, and of connections without a first PDU: longer than any test.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Transaction identifier of guesses.
const GUESS: u16 = 7;
/// Guesses that each of four attackers waits for.
const HELD: usize = 3;
/// Connections of one address that are not admitted.
const MOST: u32 = 16;

fn secret() -> Secret {
    let fill = &mut |bytes: &mut [u8]| {
        bytes.fill(1);
        Ok(())
    };
    Secret::generate(Some(HashFunction::Sha256), SecretLen::Bytes32, fill).unwrap()
}

fn policy() -> Policy {
    Policy { groups: vec![Group::Ffdhe2048], ..Policy::default() }
}

/// A server on which [`HOST`] has a secret.
fn server(limits: &Limits) -> Server {
    let limits = Limits { icreq_timeout: TIMEOUT, max_address_pending: MOST, ..limits.clone() };
    let subsystem = servers::subsystem(NQN, vec![servers::namespace(1, BackendSpec::Memory(16 << 20))]);
    let hosts = [(HOST.to_owned(), HostSecrets { host: secret(), controller: None })].into();
    let authentication = AuthenticationConfig { hosts, policy: policy(), ..AuthenticationConfig::default() };
    servers::start(ServerConfig { authentication, limits, io_threads: 2, ..servers::config(vec![subsystem]) }, 1)
}

/// [`HOST`], which knows its secret.
fn honest(address: SocketAddr) -> ConnectOptions {
    let config = Config {
        hostnqn: HOST.to_owned(),
        subnqn: NQN.to_owned(),
        host_secret: secret(),
        controller_secret: None,
        policy: policy(),
        sequence: Arc::new(SequenceNumbers::new(1)),
    };
    let (hostnqn, authentication) = (HOST.to_owned(), Some(Arc::new(config)));
    ConnectOptions { hostnqn, authentication, timeout_ms: 60_000, ..ConnectOptions::new(address, NQN) }
}

/// Verified load of the honest host over new connections, and then another connection.
fn the_honest_host_is_served(server: &Server) {
    let began = Instant::now();
    let options = honest(server.local_addrs()[0]);
    let spec = LoadSpec {
        read_percent: 50,
        depth: 8,
        jobs: 2,
        ios: Some(200),
        verify: true,
        yield_when_idle: true,
        ..LoadSpec::default()
    };
    let report = run(&options, &spec, &AtomicBool::new(false), &mut |_| ()).expect("the load ends without an error");
    assert!(report.is_clean(), "{:?}", report.faults);
    Controller::connect(options).expect("connected").keep_alive().expect("served");
    println!("four connections and 200 requests of the honest host: {:?}", began.elapsed());
}

fn attacker(server: &Server) -> RawPeer {
    RawPeer::connect_from(ATTACKER, server.local_addrs()[0], TIMEOUT).expect("a TCP connection")
}

fn refused(server: &Server, reason: RefusalReason) -> u64 {
    server.stats().refusals.into_iter().find(|(one, _)| *one == reason).map_or(0, |(_, count)| count)
}

fn command(number: u8) -> ConnectCmd {
    ConnectCmd { recfmt: 0, qid: 0, sqsize: 31 + u16::from(number), cattr: 0, kato_ms: 0 }
}

#[test]
fn half_open_handshakes_take_the_places_of_their_address_alone() {
    let server = server(&Limits::default());
    let icreq = Handshake::default().request();
    let held: Vec<RawPeer> = (0..2 * MOST)
        .map(|number| {
            let mut peer = attacker(&server);
            let _ = peer.send(&icreq.as_bytes()[..number as usize]); // refused ones are closed
            peer
        })
        .collect();
    servers::eventually("refusals", || refused(&server, RefusalReason::TooManyPending) == u64::from(MOST));
    the_honest_host_is_served(&server);
    drop(held);
    servers::eventually("free places", || attacker(&server).shake_hands(&Handshake::default()).is_ok());
}

/// Attackers keep what they get. In total there is room for the attackers' address and a few more.
#[test]
fn a_flood_of_connects_leaves_others_their_places() {
    let server = server(&Limits { max_pending: MOST + 8, ..Limits::default() });
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut held = Vec::new();
                while !stop.load(Relaxed) {
                    let mut peer = attacker(&server);
                    if peer.shake_hands(&Handshake::default()).is_ok() {
                        held.push(peer); // others are refused
                    }
                    done.fetch_add(1, Relaxed);
                }
            });
        }
        servers::eventually("a flood", || done.load(Relaxed) > 100);
        the_honest_host_is_served(&server);
        stop.store(true, Relaxed);
    });
    assert_eq!(refused(&server, RefusalReason::TooManyConnections), 0);
}

/// Hosts without a secret, on the discovery service and on a subsystem, keep their queues: they need no keep-alive timeout.
#[test]
fn an_address_without_a_secret_leaves_their_places_to_hosts_with_one() {
    const PLACES: u32 = 256;
    let server = server(&Limits { max_connections: PLACES, ..Limits::default() });
    let connect = |number: u32| {
        let mut peer = attacker(&server);
        peer.shake_hands(&Handshake::default()).ok()?;
        let nqn = if number.is_multiple_of(2) { DISCOVERY_NQN } else { NQN };
        let data = ConnectData::new([1; 16], CNTLID_DYNAMIC, nqn, &format!("{HOST}-{number}"));
        let cqe = peer.connect_queue(&command(0), &data).ok()?;
        cqe.status().is_success().then_some(peer)
    };
    let held: Vec<RawPeer> = (0..PLACES).filter_map(connect).collect();
    the_honest_host_is_served(&server);
    let refused = refused(&server, RefusalReason::TooManyConnections);
    assert!((4..PLACES as usize / 8).contains(&held.len()) && refused > 0, "{} held, {refused} refused", held.len());
    Controller::connect(ConnectOptions::new(server.local_addrs()[0], NQN)).expect("another address has its own places");
    drop(held);
    servers::eventually("free places", || connect(0).is_some());
}

/// With room for three queues of a host, and with the memory of claims used up.
#[test]
fn whoever_claims_to_be_a_host_takes_nothing_that_it_needs() {
    let server = server(&Limits { max_host_queues: 3, queue_memory: 4 << 20, ..Limits::default() });
    let claim = |_| {
        let mut peer = attacker(&server);
        peer.shake_hands(&Handshake::default()).expect("an ICResp");
        let data = ConnectData::new(honest(server.local_addrs()[0]).hostid, CNTLID_DYNAMIC, NQN, HOST);
        let status = peer.connect_queue(&command(96), &data).expect("a response").status();
        (peer, status.is_success())
    };
    let mut claims: Vec<(RawPeer, bool)> = (0..MOST).map(claim).collect();
    let count = claims.iter().filter(|(_, is_connected)| *is_connected).count();
    assert!(count > 3, "{count} claims are more than the queues of a host");
    the_honest_host_is_served(&server);
    // messages that are none
    for (peer, _) in claims.iter_mut().filter(|(_, is_connected)| *is_connected) {
        let sqe = AuthenticationCmd::encode(fctype::AUTHENTICATION_SEND, 16);
        let pdu = peer.capsule(Sqe { sgl: Sgl::in_capsule(16), ..sqe }, &[0xff; 16]);
        peer.send(&pdu).expect("the target takes commands");
        assert!(matches!(peer.read_pdu(), Ok(Reply::Pdu(_))));
    }
    the_honest_host_is_served(&server);
}

/// The honest host connects, authenticates, and reads over an I/O queue.
fn log_in(server: &Server) -> Controller {
    let mut controller = Controller::connect(honest(server.local_addrs()[0])).expect("authenticated");
    controller.set_queue_count(1).expect("an I/O queue");
    let spec = QueueSpec { qid: 1, depth: 4, max_io: 4096, buffers: Buffers::PerCommand };
    let mut queue = controller.open_queue(&spec).expect("an authenticated I/O queue");
    queue.execute("Read", Sqe::block_io(io::READ, 1, 0, 1), &[], &mut [0; 4096]).expect("data");
    controller
}

/// Its attackers know its NQN and identifier. One has gone, one holds a connection that is not authenticated, and one whose exchange has
/// failed does not close its connection.
#[test]
fn a_host_reconnects_while_associations_of_attackers_last() {
    let server = server(&Limits::default());
    let first = log_in(&server);
    let claim = || claimed(&server).expect("connected as the host");
    let stays = claim();
    let peer = stays.stream().local_addr().expect("an address");
    let held = || server.associations().iter().find(|one| one.peer == peer).map(|one| one.cntlid);
    let cntlid = held().expect("an association that is not authenticated");
    drop(first);
    drop(claim());
    log_in(&server);
    assert_eq!(held(), Some(cntlid), "it has lasted");
    // an ended association lasts as long as its connection, which the target closes after a time: on a slow machine before the login has ended
    servers::eventually("a login while an ended association lasts", || {
        servers::eventually("one association", || server.stats().associations == 1);
        let mut failed = claim();
        send(&mut failed, &[0xff; 16]).expect("taken");
        receive(&mut failed).expect("the reason");
        let _host = log_in(&server);
        server.stats().associations == 3
    });
    assert_eq!(held(), Some(cntlid), "it has lasted");
}

/// An admin queue that an attacker has connected as [`HOST`]; `None` if the connection is refused.
fn claimed(server: &Server) -> Option<RawPeer> {
    let mut peer = attacker(server);
    peer.shake_hands(&Handshake::default()).ok()?;
    let data = ConnectData::new(honest(server.local_addrs()[0]).hostid, CNTLID_DYNAMIC, NQN, HOST);
    let cqe = peer.connect_queue(&command(0), &data).ok()?;
    cqe.status().is_success().then_some(peer)
}

/// Sends a message of authentication, and waits for its completion.
fn send(peer: &mut RawPeer, message: &[u8]) -> Option<()> {
    let len = message.len() as u32;
    let sqe = AuthenticationCmd::encode(fctype::AUTHENTICATION_SEND, len);
    peer.send(&peer.capsule(Sqe { sgl: Sgl::in_capsule(len), ..sqe }, message)).ok()?;
    peer.read_pdu().ok()?.completion().map(drop)
}

/// The message that the target has for the peer.
fn receive(peer: &mut RawPeer) -> Option<Vec<u8>> {
    let sqe = AuthenticationCmd::encode(fctype::AUTHENTICATION_RECEIVE, 4096);
    peer.send(&peer.capsule(Sqe { sgl: Sgl::transport(4096), ..sqe }, &[])).ok()?;
    let Reply::Pdu(mut data) = peer.read_pdu().ok()? else { return None };
    peer.read_pdu().ok()?.completion()?;
    let message_at = usize::from(data[3]); // PDO
    Some(data.split_off(message_at))
}

/// A reply to the target's challenge, with a secret that is not [`HOST`]'s.
fn wrong_reply(server: &Server) -> Vec<u8> {
    let config = honest(server.local_addrs()[0]).authentication.expect("a secret");
    let other = Secret::generate(Some(HashFunction::Sha256), SecretLen::Bytes32, &mut |bytes| {
        bytes.fill(2);
        Ok(())
    });
    let mut initiator = Initiator::new(Arc::new(Config { host_secret: other.expect("a secret"), ..(*config).clone() }));
    let mut peer = claimed(server).expect("connected");
    send(&mut peer, &initiator.start(GUESS)).expect("taken");
    let challenge = receive(&mut peer).expect("a challenge");
    let Step::Compute(work) = initiator.on_receive(&challenge) else { panic!("a challenge: {challenge:?}") };
    let Step::Send(reply) = initiator.on_done(work.run(&mut |bytes| {
        bytes.fill(3);
        Ok(())
    })) else {
        panic!("a reply");
    };
    reply
}

/// Guesses cost the attackers nothing, as all send the same one, and the target a Diffie-Hellman exchange each. They do not wait for results,
/// which are delayed.
#[test]
fn a_host_is_served_beside_a_flood_of_wrong_secrets() {
    let server = server(&Limits::default());
    the_honest_host_is_served(&server);
    let reply = wrong_reply(&server);
    let negotiate = Initiator::new(honest(server.local_addrs()[0]).authentication.expect("a secret")).start(GUESS);
    let (stop, guesses) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut held = VecDeque::new(); // a command is not executed once its connection is closed
                while !stop.load(Relaxed) {
                    held.truncate(HELD);
                    let Some(mut peer) = claimed(&server) else { continue };
                    let is_challenged = send(&mut peer, &negotiate).and_then(|()| receive(&mut peer)).is_some();
                    let len = reply.len() as u32;
                    let sqe = AuthenticationCmd::encode(fctype::AUTHENTICATION_SEND, len);
                    let pdu = peer.capsule(Sqe { sgl: Sgl::in_capsule(len), ..sqe }, &reply);
                    guesses.fetch_add(u64::from(is_challenged && peer.send(&pdu).is_ok()), Relaxed);
                    held.push_front(peer);
                }
            });
        }
        servers::eventually("guesses", || guesses.load(Relaxed) > 100);
        the_honest_host_is_served(&server);
        stop.store(true, Relaxed);
    });
    println!("{} guesses", guesses.load(Relaxed));
}

#[test]
fn a_flood_of_admin_commands_is_held_to_its_rate() {
    const RATE: u32 = 200;
    let server = server(&Limits { admin_rate: RATE, ..Limits::default() });
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    let began = Instant::now();
    std::thread::scope(|scope| {
        for number in 0..4 {
            let (server, stop, done) = (&server, &stop, &done);
            scope.spawn(move || {
                let mut options = ConnectOptions::new(server.local_addrs()[0], NQN);
                options.hostid = [number; 16]; // of one host NQN
                let mut controller = Controller::connect(options).expect("connected");
                while !stop.load(Relaxed) {
                    let sqe = Sqe::new(admin::IDENTIFY, 0).with_cdw(10, 1);
                    controller.admin().execute("Identify", sqe, &[], &mut [0; 4096]).expect("served, if late");
                    done.fetch_add(1, Relaxed);
                }
            });
        }
        servers::eventually("the end of the burst", || done.load(Relaxed) > u64::from(RATE));
        the_honest_host_is_served(&server);
        stop.store(true, Relaxed);
    });
    let most = f64::from(RATE) * (began.elapsed().as_secs_f64() + 1.1);
    assert!((done.load(Relaxed) as f64) <= most, "{done:?} commands, at most {most}");
}
