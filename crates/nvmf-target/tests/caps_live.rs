//! Bandwidth caps of a running server, over loopback: a cap limits the bytes of its host only, the caps of a policy end with
//! the policy, and changes of caps under verified load lose no data.
//!
//! Independent of the machine's speed: bytes are compared with the elapsed time.

#[path = "support/servers.rs"]
mod servers;

use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use pilotlight_host::load::{LoadSpec, Report, run};
use pilotlight_host::{Buffers, ConnectOptions, Controller, QueueSpec, Transfer};
use pilotlight_nvme::Sqe;
use pilotlight_nvme::command::opcode::io;
use pilotlight_nvmf_target::caps::CAPS;
use pilotlight_nvmf_target::{Capped, NamespaceConfig, Server, ServerConfig};
use pilotlight_plant::{
    Capabilities, Command, Kind, Knob, KnobId, Next, Policy, Refusal, Scope, Start, Unsupported, Wants,
};
use pilotlight_reactor::{Idle, Knobs, RuntimeOptions};
use pilotlight_storage::{BackendSpec, Random};

const NQN: &str = "nqn.2026-01.test:caps";
const TIMEOUT: Duration = Duration::from_secs(60);
const LARGEST: u64 = 128 << 10;

/// Two namespaces in memory, on two reactors that share CPUs.
fn server() -> Server {
    let backend = || BackendSpec::Memory(64 << 20);
    let namespaces = [1, 2].map(|nsid| servers::namespace(nsid, backend()));
    let subsystem = servers::subsystem(NQN, namespaces.into());
    let config = ServerConfig { io_threads: 2, ..servers::config(vec![subsystem]) };
    servers::start(config, 2)
}

fn namespace(nsid: u32) -> Capped {
    Capped::Namespace { nqn: NQN.into(), nsid }
}

fn host_nqn(host: u8) -> String {
    format!("nqn.2026-01.test:host-{host}")
}

fn host(host: u8) -> Capped {
    Capped::Host { nqn: host_nqn(host) }
}

/// A load of one host on the namespace of its number, until `stop` is set.
fn load(server: &Server, host: u8, spec: LoadSpec, stop: &AtomicBool) -> Report {
    let mut options = ConnectOptions::new(server.local_addrs()[0], NQN);
    (options.hostnqn, options.hostid) = (host_nqn(host), [host; 16]);
    options.timeout_ms = TIMEOUT.as_millis() as u64;
    let spec = LoadSpec {
        nsid: u32::from(host),
        jobs: 2,
        yield_when_idle: true,
        timeout_ms: TIMEOUT.as_millis() as u64,
        runtime_ns: Some(10 * TIMEOUT.as_nanos() as u64),
        ..spec
    };
    let report = run(&options, &spec, stop, &mut |_| {}).expect("the run ends well");
    assert!(report.is_clean(), "{:?}", report.faults);
    report
}

/// Bytes admitted under a cap.
fn bytes(server: &Server, of: &Capped) -> u64 {
    server.stats().caps.iter().find(|cap| cap.of == *of).map_or(0, |cap| cap.stats.bytes)
}

#[test]
fn a_capped_host_stays_below_its_cap_and_another_is_not_delayed() {
    const CAP: u64 = 20_000_000;
    let server = server();
    server.set_cap(&host(1), Some(CAP)).expect("a cap");
    server.set_cap(&namespace(2), Some(*CAPS.end())).expect("a cap above the load");
    let stop = AtomicBool::new(false);
    let spec = || LoadSpec { depth: 16, block_bytes: 65_536, read_percent: 50, ..LoadSpec::default() };
    std::thread::scope(|scope| {
        let capped = scope.spawn(|| load(&server, 1, spec(), &stop));
        let other = scope.spawn(|| load(&server, 2, spec(), &stop));
        servers::eventually("throttled commands", || server.stats().caps.iter().any(|cap| cap.stats.throttled > 0));
        let (began, from) = (Instant::now(), [bytes(&server, &host(1)), bytes(&server, &namespace(2))]);
        // 1.5 s at the cap
        servers::eventually("progress of the capped host", || bytes(&server, &host(1)) - from[0] > CAP * 3 / 2);
        let had = [bytes(&server, &host(1)) - from[0], bytes(&server, &namespace(2)) - from[1]];
        let most = CAP as f64 * began.elapsed().as_secs_f64() * 1.02 + LARGEST as f64;
        println!("capped host {} bytes, at most {most:.0}; the other {} bytes", had[0], had[1]);
        assert!((had[0] as f64) <= most, "{} bytes, at most {most}", had[0]);
        assert!(had[1] > 0, "the other host makes progress");
        stop.store(true, Relaxed);
        server.set_cap(&host(1), None).expect("no cap");
        assert!(capped.join().expect("no panic").total.ios > 0);
        assert!(other.join().expect("no panic").total.ios > 0);
    });
    let stats = server.stats();
    assert!(stats.caps.iter().all(|cap| cap.stats.throttled_now == 0), "{:?}", stats.caps);
    let waits: u64 = stats.threads.iter().map(|thread| thread.cap_waits.count()).sum();
    let throttled: u64 = stats.caps.iter().map(|cap| cap.stats.throttled).sum();
    assert_eq!(waits, throttled);
    server.stop(TIMEOUT).expect("it stops");
}

/// A throttled command does not delay later commands of the queue pair to another namespace.
#[test]
fn throttled_commands_do_not_delay_other_namespaces_of_the_queue_pair() {
    let server = server();
    server.set_cap(&namespace(1), Some(*CAPS.start())).expect("a cap");
    let mut options = ConnectOptions::new(server.local_addrs()[0], NQN);
    (options.hostnqn, options.timeout_ms) = (host_nqn(1), TIMEOUT.as_millis() as u64);
    let controller = Controller::connect(options).expect("a host");
    let spec = QueueSpec { qid: 1, depth: 8, max_io: LARGEST as u32, buffers: Buffers::PerCommand };
    let mut queue = controller.open_queue(&spec).expect("a queue");
    // At this cap the first takes 131 ms. All three are sent at once.
    let blocks = (LARGEST / 4096) as u32;
    let sent = [(1, blocks), (1, blocks), (2, 1)].map(|(nsid, blocks)| {
        let cid = queue.queue().reserve().expect("a slot");
        queue.queue().issue(cid, Sqe::block_io(io::READ, nsid, 0, blocks), Transfer::In(blocks * 4096));
        cid
    });
    queue.flush().expect("they are sent");
    let answered = [(); 3].map(|()| {
        let answer = queue.take_completion(TIMEOUT.as_millis() as u64).expect("an answer").expect("in time");
        assert!(answer.0.status.is_success(), "{}", answer.0.status);
        answer.0.cid
    });
    assert_eq!(answered, [sent[0], sent[2], sent[1]]);
    drop((queue, controller));
    server.stop(TIMEOUT).expect("it stops");
}

/// Every kind of change under a load that verifies its reads, and all writes at the end.
#[test]
fn ten_thousand_changes_of_caps_under_verified_load_lose_no_data() {
    const CHANGES: u64 = 10_000;
    let server = server();
    let stop = AtomicBool::new(false);
    let spec = || LoadSpec {
        depth: 16,
        block_bytes: 8192,
        read_percent: 50,
        trim_percent: 10,
        verify: true,
        flush_every: 64,
        ..LoadSpec::default()
    };
    let ios: u64 = std::thread::scope(|scope| {
        let loads = [1, 2].map(|host| {
            let (server, stop) = (&server, &stop);
            scope.spawn(move || load(server, host, spec(), stop))
        });
        servers::eventually("load", || server.stats().totals.writes > 100);
        let mut random = Random::new(16);
        for change in 0..CHANGES {
            let of = match random.below(4) {
                at @ 0..2 => namespace(at as u32 + 1),
                at => host(at as u8 - 1),
            };
            let cap = match random.below(4) {
                0 => None,
                1 => Some(*CAPS.end()),
                _ => Some(5_000_000 + random.below(500_000_000)),
            };
            server.set_cap(&of, cap).expect("a cap");
            if change % 100 == 0 {
                let before = server.stats().totals;
                servers::eventually("progress", || server.stats().totals.reads > before.reads);
            }
        }
        for of in [namespace(1), namespace(2), host(1), host(2)] {
            server.set_cap(&of, None).expect("no cap");
        }
        stop.store(true, Relaxed);
        loads.map(|load| load.join().expect("no panic").total.ios).iter().sum()
    });
    let stats = server.stats();
    let throttled: u64 = stats.caps.iter().map(|cap| cap.stats.throttled).sum();
    println!("{ios} I/Os verified, {throttled} of them throttled, over {CHANGES} changes");
    assert!(throttled > 0 && stats.caps.iter().all(|cap| cap.stats.throttled_now == 0), "{:?}", stats.caps);
    server.stop(TIMEOUT).expect("it stops");
}

/// Sets these caps as soon as their knobs exist.
struct Capping(Vec<(Scope, u64)>);

impl Capping {
    fn cap(&self, capabilities: &Capabilities, out: &mut Vec<Command>) {
        for (knob, of) in (0..).map(KnobId).zip(capabilities.knobs.iter().map(|knob| (knob.scope, knob.kind))) {
            let cap = self.0.iter().find(|cap| (cap.0, Kind::BytesPerS) == of);
            out.extend(cap.map(|&(_, value)| Command::Set { knob, value }));
        }
    }
}

impl Policy for Capping {
    fn name(&self) -> &'static str {
        "capping"
    }

    fn wants(&self) -> Wants {
        Wants::default()
    }

    fn start(&mut self, start: &Start<'_>, out: &mut Vec<Command>) -> Result<Next, Unsupported> {
        self.cap(start.capabilities, out);
        Ok(Next::NEVER)
    }

    fn on_plant(&mut self, _now_ns: u64, capabilities: &Capabilities, out: &mut Vec<Command>) {
        self.cap(capabilities, out);
    }
}

#[test]
fn the_caps_of_a_policy_end_with_it() {
    let server = server();
    server.set_cap(&namespace(1), Some(300_000_000)).expect("a cap");
    let caps = |nsid: u32| {
        let stats = server.stats().caps.into_iter().find(|cap| cap.of == namespace(nsid)).map(|cap| cap.stats);
        stats.map(|stats| (stats.operator, stats.policy)).unwrap_or_default()
    };
    let policy = Capping(vec![
        (Scope::Namespace(0), 50_000_000),
        (Scope::Namespace(1), 70_000_000),
        (Scope::Host(0), 90_000_000),
    ]);
    server.set_policy(Box::new(policy)).expect("a policy");
    servers::eventually("the policy's caps", || caps(2) == (None, Some(70_000_000)));
    assert_eq!(caps(1), (Some(300_000_000), Some(50_000_000)));
    load(&server, 1, LoadSpec { ios: Some(10), ..LoadSpec::default() }, &AtomicBool::new(false));
    let of_host = || server.stats().caps.iter().find(|cap| cap.of == host(1)).and_then(|cap| cap.stats.policy);
    servers::eventually("the policy's cap of a host that has connected since", || of_host() == Some(90_000_000));
    server.set_policy(Box::new(Capping(Vec::new()))).expect("another policy");
    servers::eventually("the end of the policy's caps", || caps(2) == (None, None));
    assert_eq!(caps(1), (Some(300_000_000), None), "the operator's cap remains");
    server.stop(TIMEOUT).expect("it stops");
}

/// A machine whose drives are numbered by folder names.
#[derive(Debug)]
struct Drives;

impl Knobs for Drives {
    fn knobs(&self) -> Vec<Knob> {
        Vec::new()
    }

    fn drive_of(&self, path: &Path) -> Option<u16> {
        path.parent()?.file_name()?.to_str()?.parse().ok()
    }

    fn set(&self, _knob: KnobId, _value: u64) -> Result<(), Refusal> {
        Err(Refusal::Unknown)
    }

    fn restore(&self) {}
}

/// Records the drive of each namespace.
struct DriveRecorder(Arc<Mutex<Vec<(u32, u16)>>>);

impl Policy for DriveRecorder {
    fn name(&self) -> &'static str {
        "noting"
    }

    fn wants(&self) -> Wants {
        Wants::default()
    }

    fn start(&mut self, start: &Start<'_>, _out: &mut Vec<Command>) -> Result<Next, Unsupported> {
        self.0.lock().expect("no panic").clone_from(&start.capabilities.drives);
        Ok(Next::NEVER)
    }

    fn on_plant(&mut self, _now_ns: u64, capabilities: &Capabilities, _out: &mut Vec<Command>) {
        self.0.lock().expect("no panic").clone_from(&capabilities.drives);
    }
}

#[test]
fn policies_get_the_drive_of_each_namespace() {
    let folder = tempfile::tempdir().expect("a folder");
    for drive in ["3", "8"] {
        std::fs::create_dir(folder.path().join(drive)).expect("a folder");
    }
    let file = |nsid: u32, drive: &str| {
        let path = folder.path().join(drive).join(nsid.to_string());
        let backend = BackendSpec::File { path, size: Some(1 << 20) };
        servers::namespace(nsid, backend)
    };
    let memory = NamespaceConfig { backend: BackendSpec::Memory(1 << 20), ..file(1, "") };
    let namespaces = vec![memory, file(2, "3"), file(3, "3"), file(4, "8")];
    let subsystem = servers::subsystem(NQN, namespaces);
    let listeners = vec![(Ipv4Addr::LOCALHOST, 0).into()];
    let config = ServerConfig { listeners, subsystems: vec![subsystem], ..ServerConfig::default() };
    let options = RuntimeOptions { knobs: Some(Arc::new(Drives)), ..RuntimeOptions::new(vec![None], Idle::Yield) };
    let server = Server::start_on(config, options).expect("the server starts");
    let noted = Arc::new(Mutex::new(Vec::new()));
    server.set_policy(Box::new(DriveRecorder(Arc::clone(&noted)))).expect("a policy");
    let drives = |expected: &[(u32, u16)]| {
        let mut drives = noted.lock().expect("no panic").clone();
        drives.sort_unstable(); // a namespace gets the place of one that is gone
        drives == expected
    };
    servers::eventually("the drives of the configuration", || drives(&[(1, 3), (2, 3), (3, 8)]));
    server.remove_namespace(NQN, 3).expect("it was there");
    servers::eventually("one less", || drives(&[(1, 3), (3, 8)]));
    server.add_namespace(NQN, &file(3, "8")).expect("there is room");
    servers::eventually("the drive of the added namespace", || drives(&[(1, 3), (3, 8), (4, 8)]));
    server.stop(TIMEOUT).expect("it stops");
}
