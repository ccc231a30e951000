//! User-space instructions of an I/O thread per command, from socket to socket. Reproducible, unlike times.
//!
//! `cargo bench -p pilotlight-nvmf-target --bench instructions -- [--only read-4k,...] [--sampled]`; needs valgrind.
//!
//! The I/O thread runs on the bench of `testing.rs`: no reactor, a socket pair, a filled namespace in memory. The program runs itself
//! under callgrind with N and with 2 N commands and prints the difference over N. Only `TargetThread::step`, a poll, and its callees
//! count, neither client nor bench. A batch of commands is sent at once, and the thread is polled until all complete. A system call
//! counts as one instruction. `memcpy` does not use `rep movsb` here, which would count once per byte.
//!
//! A socket pair holds about 200 KiB, so 128 KiB commands take several polls and calls each.

#[path = "../tests/waiting/host.rs"]
mod host;

use std::process::{Command, exit};
use std::sync::Arc;

use host::{BLOCK, Host, bench, capsule, connect_cmd, connect_data};
use pilotlight_nvme::Sqe;
use pilotlight_nvme::command::Sgl;
use pilotlight_nvme::command::opcode::io as opcode;
use pilotlight_nvme::pdu::{C2HData, CapsuleResp, CommonHeader, Digests, Flags, H2CData, PduType, R2T, data_offset};
use pilotlight_nvmf_target::testing::{Bench, Peer};
use pilotlight_storage::{Backend, MemoryBackend, MemoryBudget};
use zerocopy::{FromBytes, IntoBytes};

/// Blocks of the namespace.
const BLOCKS: u64 = 8192;
const POOL_BYTES: usize = 64 << 20;
const ENTRIES: u16 = 128;
/// Simulated time between two polls.
const POLL_NS: u64 = 1_000;
/// The counted function; valgrind treats the name as a pattern.
const COUNTED: &str = "*TargetThread*::step";
/// Enables latency samples from the socket.
const SAMPLED: &str = "--sampled";
const BATCHES: [u16; 2] = [1, 32];

struct Case {
    name: &'static str,
    opcode: u8,
    blocks: u32,
    /// N, a multiple of the largest batch.
    commands: u32,
}

const CASES: [Case; 4] = [
    Case { name: "read-4k", opcode: opcode::READ, blocks: 1, commands: 3200 },
    Case { name: "write-4k", opcode: opcode::WRITE, blocks: 1, commands: 3200 },
    Case { name: "read-128k", opcode: opcode::READ, blocks: 32, commands: 320 },
    Case { name: "write-128k", opcode: opcode::WRITE, blocks: 32, commands: 320 },
];

/// A host with one I/O queue.
struct Client {
    bench: Bench,
    _admin: Host,
    peer: Peer,
    unsent: Vec<u8>,
    received: Vec<u8>,
    chunk: Vec<u8>,
    next_lba: u64,
    in_flight: u16,
}

impl Client {
    fn new() -> Self {
        let memory = MemoryBackend::new(BLOCK, BLOCKS, Arc::new(MemoryBudget::unlimited())).expect("memory");
        let memory: Arc<dyn Backend> = Arc::new(memory);
        let mut bench = bench(&memory, POOL_BYTES);
        let (admin, cntlid) = Host::admin(&mut bench, 1, 0);
        let mut queue = Host::shaken(&mut bench, false);
        let connected = queue.try_connect(&mut bench, connect_cmd(1, ENTRIES), &connect_data(1, cntlid));
        assert!(connected.status().is_success(), "{}", connected.status());
        Self {
            bench,
            _admin: admin,
            peer: queue.into_peer(),
            unsent: Vec::new(),
            received: Vec::new(),
            chunk: vec![0; 1 << 20],
            next_lba: 0,
            in_flight: 0,
        }
    }

    /// Runs `commands` commands, `batch` at a time.
    fn run(&mut self, case: &Case, batch: u16, commands: u32) {
        for _ in 0..commands / u32::from(batch) {
            (0..batch).for_each(|cid| self.submit(case, cid));
            while self.in_flight > 0 {
                self.exchange();
            }
        }
    }

    fn submit(&mut self, case: &Case, cid: u16) {
        let len = case.blocks * BLOCK;
        let mut sqe = Sqe::block_io(case.opcode, 1, self.next_lba, case.blocks);
        let in_capsule = case.opcode == opcode::WRITE && case.blocks == 1;
        sqe.sgl = if in_capsule { Sgl::in_capsule(len) } else { Sgl::transport(len) };
        let data = vec![9; if in_capsule { len as usize } else { 0 }];
        self.unsent.extend_from_slice(&capsule(cid, sqe, &data));
        self.next_lba = (self.next_lba + 7 * u64::from(case.blocks)) % (BLOCKS - u64::from(case.blocks) + 1);
        self.in_flight += 1;
    }

    /// Sends as much as the socket accepts, polls the thread once, and receives available data.
    fn exchange(&mut self) {
        let sent = self.peer.send(&self.unsent);
        self.unsent.drain(..sent);
        self.bench.step(POLL_NS);
        loop {
            let bytes = self.peer.receive(&mut self.chunk).expect("the connection is open");
            if bytes == 0 {
                break;
            }
            self.received.extend_from_slice(&self.chunk[..bytes]);
        }
        let mut at = 0;
        while let Ok((header, _)) = CommonHeader::read_from_prefix(&self.received[at..]) {
            let end = at + header.plen.get() as usize;
            if end > self.received.len() {
                break;
            }
            let pdu = self.received[at..end].to_vec();
            self.on_pdu(&pdu);
            at = end;
        }
        self.received.drain(..at);
    }

    fn on_pdu(&mut self, pdu: &[u8]) {
        let kind = pdu[0];
        if kind == PduType::R2T as u8 {
            let (r2t, _) = R2T::read_from_prefix(pdu).expect("an R2T");
            return self.answer(&r2t);
        }
        if kind == PduType::C2HData as u8 {
            let (data, _) = C2HData::read_from_prefix(pdu).expect("data");
            self.in_flight -= u16::from(Flags::from_bits_retain(data.ch.flags).contains(Flags::SUCCESS));
            return;
        }
        assert_eq!(kind, PduType::CapsuleResp as u8);
        let (response, _) = CapsuleResp::read_from_prefix(pdu).expect("a response");
        assert!(response.cqe.status().is_success(), "{}", response.cqe.status());
        self.in_flight -= 1;
    }

    fn answer(&mut self, r2t: &R2T) {
        let none = Digests::default();
        let (pdo, len) = (data_offset(PduType::H2CData, none, 0), r2t.r2tl.get());
        let header = H2CData::new(r2t.cccid.get(), r2t.ttag.get(), r2t.r2to.get(), len, pdo, Flags::LAST_PDU, none);
        self.unsent.extend_from_slice(header.as_bytes());
        self.unsent.resize(self.unsent.len() + usize::from(pdo) - header.as_bytes().len() + len as usize, 5);
    }
}

/// The program under callgrind: writes all blocks, then runs the commands of the case.
fn work(case: &Case, batch: u16, commands: u32, sampled: bool) {
    let mut client = Client::new();
    if sampled {
        client.bench.sample_latency();
    }
    let fill = Case { name: "fill", opcode: opcode::WRITE, blocks: 32, commands: 0 };
    for first in (0..BLOCKS).step_by(32) {
        client.next_lba = first;
        client.run(&fill, 1, 1);
    }
    client.next_lba = 0;
    client.run(case, batch, commands);
}

/// Instructions of this program with these arguments.
fn count(case: &Case, batch: u16, commands: u32, option: &str) -> u64 {
    let this = std::env::current_exe().expect("this program has a path");
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null", &format!("--toggle-collect={COUNTED}")])
        .arg(this)
        .env("GLIBC_TUNABLES", "glibc.cpu.x86_rep_movsb_threshold=1073741824")
        .args(["--work", case.name, &batch.to_string(), &commands.to_string(), option])
        .output()
        .unwrap_or_else(|error| fail(&format!("valgrind does not run: {error}")));
    let text = String::from_utf8_lossy(&output.stderr);
    let collected = text.lines().find_map(|line| line.split_once("Collected : ")).map(|(_, rest)| rest.trim().parse());
    match collected {
        Some(Ok(count)) if output.status.success() && count > 0 => count,
        _ => fail(&format!("valgrind ({}) counted nothing in {COUNTED}: {text}", output.status)),
    }
}

fn fail(message: &str) -> ! {
    eprintln!("{message}");
    exit(1)
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let after = |name: &str| args.iter().position(|arg| arg == name).map(|at| &args[at + 1..]);
    if let Some([name, batch, commands, option, ..]) = after("--work") {
        let case = CASES.iter().find(|case| case.name == name).expect("a case");
        return work(case, batch.parse().expect("a number"), commands.parse().expect("a number"), option == SAMPLED);
    }
    let option = args.iter().find(|arg| *arg == SAMPLED).map_or("", String::as_str);
    let only: Option<Vec<&str>> = after("--only").and_then(<[String]>::first).map(|names| names.split(',').collect());
    println!("| instructions a command | in batches of 1 | of 32 |\n|---|---|---|");
    for case in CASES.iter().filter(|case| only.as_ref().is_none_or(|only| only.contains(&case.name))) {
        let [one, many] = BATCHES.map(|batch| {
            let (once, twice) =
                (count(case, batch, case.commands, option), count(case, batch, 2 * case.commands, option));
            (twice - once) / u64::from(case.commands)
        });
        println!("| {} | {one} | {many} |", case.name);
    }
}
