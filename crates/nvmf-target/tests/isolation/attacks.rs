//! Attacks, each on a thread that can be stopped.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

use pilotlight_host::rng::Rng;
use pilotlight_host::{ConnectOptions, Controller, Handshake};
use pilotlight_nvme::Sqe;
use pilotlight_nvme::command::Sgl;
use pilotlight_nvme::command::opcode::io::{READ, WRITE};
use pilotlight_nvme::fabrics::{ConnectCmd, ConnectData};
use pilotlight_peers::raw::RawPeer;
use zerocopy::IntoBytes;

use crate::host_support::{NQN, Target};
use crate::isolation::victim::VICTIM_BYTES;

const TIMEOUT: Duration = Duration::from_secs(10);
/// Blocks per command: 128 KiB, which is MDTS.
const LARGE: u32 = 32;
/// Outstanding commands of one attacker.
const DEPTH: u16 = 64;
/// First block that attackers write.
const LBA: u64 = VICTIM_BYTES / 4096;

/// An attack in progress.
pub(crate) struct Attack {
    name: String,
    done: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    /// Connections that are kept open.
    _held: Vec<(Controller, RawPeer)>,
}

impl Attack {
    fn holding(name: String, held: Vec<(Controller, RawPeer)>) -> Self {
        Self { name, done: Arc::default(), stop: Arc::default(), threads: Vec::new(), _held: held }
    }

    fn acting(
        name: &str,
        threads: usize,
        act: impl Fn(usize, &AtomicBool, &AtomicU64) + Send + Sync + 'static,
    ) -> Self {
        let (act, done, stop) = (Arc::new(act), Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
        let spawn = |number| {
            let (act, done, stop) = (Arc::clone(&act), Arc::clone(&done), Arc::clone(&stop));
            std::thread::spawn(move || act(number, &stop, &done))
        };
        let threads = (0..threads).map(spawn).collect();
        Self { name: name.to_owned(), done, stop, threads, _held: Vec::new() }
    }

    /// Ends the attack and returns its description.
    pub(crate) fn end(self) -> String {
        self.stop.store(true, Relaxed);
        let acting = !self.threads.is_empty();
        for thread in self.threads {
            thread.join().expect("an attacker runs until it is stopped");
        }
        if !acting {
            return self.name;
        }
        let done = self.done.load(Relaxed);
        assert!(done > 0, "{}: no operation", self.name);
        format!("{done} {}", self.name)
    }
}

/// A separate host for each attacker.
fn attacker(target: &Target, number: usize) -> ConnectOptions {
    let mut options = ConnectOptions::new(target.addr, NQN);
    options.hostid = (1 + number as u128).to_le_bytes();
    options.hostnqn = format!("nqn.2026-01.test:attacker-{number}");
    options
}

/// An I/O queue of attacker `number`, and its controller.
fn queue(target: &Target, number: usize) -> (Controller, RawPeer) {
    let options = attacker(target, number);
    let controller = Controller::connect(options.clone()).expect("attackers can connect");
    let mut peer = RawPeer::connect(target.addr, TIMEOUT).expect("connected");
    peer.shake_hands(&Handshake { max_r2t: 4, ..Handshake::default() }).expect("an ICResp");
    let cmd = ConnectCmd { recfmt: 0, qid: 1, sqsize: 255, cattr: ConnectCmd::DISABLE_SQ_FLOW, kato_ms: 0 };
    let data = ConnectData::new(options.hostid, controller.cntlid(), NQN, &options.hostnqn);
    assert!(peer.connect_queue(&cmd, &data).expect("an answer").status().is_success());
    (controller, peer)
}

fn send(peer: &mut RawPeer, cid: u16, sqe: Sqe, data: &[u8]) {
    let pdu = peer.capsule(Sqe { cid: cid.into(), ..sqe }, data);
    peer.send(&pdu).expect("the target takes commands");
}

fn large(opcode: u8, lba: u64) -> Sqe {
    Sqe { sgl: Sgl::transport(LARGE * 4096), ..Sqe::block_io(opcode, 1, lba, LARGE) }
}

/// Requests 8 MiB and does not receive it.
fn request_without_reading(target: &Target, number: usize) -> (Controller, RawPeer) {
    let (controller, mut peer) = queue(target, number);
    (0..DEPTH).for_each(|cid| send(&mut peer, cid, large(READ, 0), &[]));
    (controller, peer)
}

/// Hosts that do not receive the data of their reads.
pub(crate) fn never_read(target: &Target, hosts: usize) -> Attack {
    let held = (0..hosts).map(|number| request_without_reading(target, number)).collect();
    Attack::holding(format!("{hosts} hosts that do not receive {DEPTH} reads of 128 KiB"), held)
}

/// The same, with writes and in-capsule data behind the reads.
pub(crate) fn never_read_but_write(target: &Target, hosts: usize) -> Attack {
    let held = (0..hosts)
        .map(|number| {
            let (controller, mut peer) = request_without_reading(target, number);
            for cid in DEPTH..3 * DEPTH {
                let write = Sqe { sgl: Sgl::in_capsule(8192), ..Sqe::block_io(WRITE, 1, LBA, 2) };
                send(&mut peer, cid, write, &[0xbb; 8192]);
            }
            (controller, peer)
        })
        .collect();
    Attack::holding(format!("{hosts} hosts that do not receive their reads, with writes of 8 KiB behind them"), held)
}

/// Hosts that do not respond to R2Ts.
pub(crate) fn never_answer(target: &Target, hosts: usize) -> Attack {
    let held = (0..hosts)
        .map(|number| {
            let (controller, mut peer) = queue(target, number);
            (0..DEPTH).for_each(|cid| send(&mut peer, cid, large(WRITE, LBA), &[]));
            (controller, peer)
        })
        .collect();
    Attack::holding(format!("{hosts} hosts that do not respond to R2Ts for {DEPTH} writes of 128 KiB"), held)
}

/// Peers that send random bytes at full speed and reconnect when they are disconnected.
pub(crate) fn garbage(target: &Target, threads: usize) -> Attack {
    let address = target.addr;
    Attack::acting("connections with garbage", threads, move |number, stop, done| {
        let mut rng = Rng::fork(7, number as u64);
        while !stop.load(Relaxed) {
            send_garbage(address, &mut rng);
            done.fetch_add(1, Relaxed);
        }
    })
}

fn send_garbage(address: SocketAddr, rng: &mut Rng) {
    let Ok(mut peer) = RawPeer::connect(address, TIMEOUT) else { return };
    let kind = rng.next_u64() % 4;
    if kind > 0 && peer.shake_hands(&Handshake::default()).is_err() {
        return;
    }
    let mut bytes: Vec<u8> = (0..8192).flat_map(|_| rng.next_u64().to_le_bytes()).collect();
    if kind == 2 {
        // commands before Connect
        let capsule = peer.capsule(Sqe::new(0xee, 1), &[]);
        bytes = capsule.repeat(1000);
    } else if kind == 3 {
        bytes[..8].copy_from_slice(&[4, 0, 72, 72, 0xff, 0x20, 0, 0]);
    }
    let _ = peer.send(&bytes); // the target may close the connection first
    let _ = peer.stream().shutdown(std::net::Shutdown::Write);
    let mut rest = Vec::new();
    let _ = peer.stream().take(1 << 20).read_to_end(&mut rest);
}

/// Hosts that send single bytes: ICReq, Connect, writes.
pub(crate) fn one_byte_at_a_time(target: &Target, hosts: usize) -> Attack {
    let options: Vec<_> = (0..hosts).map(|number| attacker(target, number)).collect();
    let address = target.addr;
    Attack::acting("single bytes", 1, move |_, stop, done| {
        let controllers: Vec<_> =
            options.iter().map(|options| Controller::connect(options.clone()).expect("a controller")).collect();
        let mut lines: Vec<(TcpStream, Vec<u8>)> = options
            .iter()
            .zip(&controllers)
            .map(|(options, controller)| {
                let stream = TcpStream::connect(address).expect("connected");
                stream.set_nodelay(true).expect("an option");
                let cmd = ConnectCmd { recfmt: 0, qid: 1, sqsize: 31, cattr: 0, kato_ms: 0 };
                let data = ConnectData::new(options.hostid, controller.cntlid(), NQN, &options.hostnqn);
                let peer = RawPeer::connect(address, TIMEOUT).expect("connected"); // for its way with capsules
                let mut script = Handshake::default().request().as_bytes().to_vec();
                script.extend(peer.capsule(cmd.encode(), data.as_bytes()));
                let write = Sqe { sgl: Sgl::in_capsule(8192), ..Sqe::block_io(WRITE, 1, LBA, 2) };
                (0..100).for_each(|_| script.extend(peer.capsule(write, &[0xcc; 8192])));
                (stream, script)
            })
            .collect();
        let mut at = 0;
        while !stop.load(Relaxed) {
            for (stream, script) in &mut lines {
                let byte = script[at % script.len()];
                stream.write_all(&[byte]).expect("slow hosts are served");
                done.fetch_add(1, Relaxed);
            }
            at += 1;
            std::thread::sleep(Duration::from_micros(100)); // slow by design
        }
    })
}
