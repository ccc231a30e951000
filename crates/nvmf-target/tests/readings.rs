//! Bytes a second of namespaces and hosts, as a policy of a running server reads them, over loopback.
//!
//! Nothing here depends on how fast the machine is: what was read is compared with what the hosts were answered.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use pilotlight_host::ConnectOptions;
use pilotlight_host::load::{LoadSpec, run};
use pilotlight_nvmf_target::backend::BackendSpec;
use pilotlight_nvmf_target::{Capped, NamespaceConfig, Server, ServerConfig, SubsystemConfig};
use pilotlight_plant::{
    Capabilities, Command, Goals, Next, Policy, Quantity, Reading, ReadingId, Sample, Scope, Source, Start, Stat,
    Unsupported, Wants,
};
use pilotlight_reactor::{Idle, RuntimeOptions};

const NQN: &str = "nqn.2026-01.test:readings";
const PATIENCE: Duration = Duration::from_secs(60);

fn server() -> Server {
    let namespace = |nsid| NamespaceConfig {
        nsid,
        backend: BackendSpec::Memory(16 << 20),
        block_size: 4096,
        uuid: None,
        hosts: Vec::new(),
    };
    let namespaces = [1, 2].map(namespace).into();
    let config = ServerConfig {
        listeners: vec![(Ipv4Addr::LOCALHOST, 0).into()],
        subsystems: vec![SubsystemConfig {
            nqn: NQN.into(),
            serial: None,
            allowed_hosts: Vec::new(),
            controller_ids: None,
            namespaces,
        }],
        io_threads: 2,
        ..ServerConfig::default()
    };
    Server::start_on(config, RuntimeOptions::new(vec![None; 2], Idle::Yield)).expect("the server starts")
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < until, "{what} did not come about within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[derive(Debug, Default)]
struct Seen {
    sources: Vec<Source>,
    readings: Vec<Reading>,
}

/// Wants every reading while there is a budget, and shows the last.
struct Reader {
    seen: Arc<Mutex<Seen>>,
    has_budget: bool,
}

impl Reader {
    fn note(&self, capabilities: &Capabilities) {
        self.seen.lock().unwrap().sources.clone_from(&capabilities.sources);
    }
}

impl Policy for Reader {
    fn name(&self) -> &'static str {
        "reader"
    }

    fn wants(&self) -> Wants {
        let sources = self.seen.lock().unwrap().sources.len() as u16;
        let readings = if self.has_budget { (0..sources).map(ReadingId).collect() } else { Vec::new() };
        Wants { interval_ns: Some(10_000_000), readings, ..Wants::default() }
    }

    fn start(&mut self, start: &Start<'_>, _out: &mut Vec<Command>) -> Result<Next, Unsupported> {
        self.note(start.capabilities);
        Ok(Next::at(start.now_ns))
    }

    fn on_interval(&mut self, sample: &Sample<'_>, _out: &mut Vec<Command>) -> Next {
        self.seen.lock().unwrap().readings = sample.readings.to_vec();
        Next::at(sample.now_ns)
    }

    fn on_goals(&mut self, _now_ns: u64, goals: &Goals, _out: &mut Vec<Command>) {
        self.has_budget = goals.budget_uw.is_some();
    }

    fn on_plant(&mut self, _now_ns: u64, capabilities: &Capabilities, _out: &mut Vec<Command>) {
        self.note(capabilities);
    }
}

/// The last value of a source.
fn value(seen: &Mutex<Seen>, scope: Scope, quantity: Quantity) -> Option<u64> {
    let seen = seen.lock().unwrap();
    let at = seen.sources.iter().position(|source| (source.scope, source.quantity) == (scope, quantity))?;
    seen.readings.iter().find(|reading| reading.id.index() == at)?.value
}

#[test]
fn a_policy_reads_the_bytes_of_namespaces_and_hosts_while_it_wants_them() {
    let server = server();
    let seen = Arc::<Mutex<Seen>>::default();
    server.set_policy(Box::new(Reader { seen: Arc::clone(&seen), has_budget: false })).expect("a policy");
    let stop = AtomicBool::new(false);
    let load = |host: u8, read_percent: u8| {
        let mut options = ConnectOptions::new(server.local_addrs()[0], NQN);
        (options.hostnqn, options.hostid) = (format!("nqn.2026-01.test:host-{host}"), [host; 16]);
        options.timeout_ms = PATIENCE.as_millis() as u64;
        let spec = LoadSpec {
            nsid: u32::from(host),
            read_percent,
            yield_when_idle: true,
            timeout_ms: options.timeout_ms,
            runtime_ns: Some(10 * PATIENCE.as_nanos() as u64),
            ..LoadSpec::default()
        };
        let report = run(&options, &spec, &stop, &mut |_| {}).expect("the run ends well");
        assert!(report.is_clean(), "{:?}", report.faults);
    };
    let read = |of| value(&seen, of, Quantity::ReadBytesPerS);
    let written = |of| value(&seen, of, Quantity::WrittenBytesPerS);
    std::thread::scope(|scope| {
        scope.spawn(|| load(1, 100));
        eventually("the first host", || server.stats().totals.reads > 0);
        scope.spawn(|| load(2, 0));
        eventually("the second host", || server.stats().totals.writes > 0);
        assert_eq!(read(Scope::Namespace(0)), None, "nobody has asked");
        server.set_goals(Goals { budget_uw: Some(1), ..Goals::default() });
        for of in [Scope::Namespace(0), Scope::Host(0)] {
            eventually("bytes of reads", || read(of) > Some(0) && written(of) == Some(0));
        }
        for of in [Scope::Namespace(1), Scope::Host(1)] {
            eventually("bytes of writes", || read(of) == Some(0) && written(of) > Some(0));
        }
        // A capped namespace reads what its cap is: within a window the cap's depth comes on top.
        const CAP: u64 = 20_000_000;
        server.set_cap(&Capped::Namespace { nqn: NQN.into(), nsid: 1 }, Some(CAP)).expect("a cap");
        eventually("the cap", || {
            read(Scope::Namespace(0)).is_some_and(|rate| (CAP * 4 / 5..=CAP * 6 / 5).contains(&rate))
        });
        server.set_goals(Goals::default());
        eventually("that nobody asks", || read(Scope::Namespace(0)).is_none());
        stop.store(true, Relaxed);
    });
    server.stop(PATIENCE).expect("it stops");
}

#[test]
fn a_policy_reads_latencies_from_the_socket_on_while_it_wants_them() {
    let server = server();
    let seen = Arc::<Mutex<Seen>>::default();
    server.set_policy(Box::new(Reader { seen: Arc::clone(&seen), has_budget: false })).expect("a policy");
    let stop = AtomicBool::new(false);
    let load = || {
        let mut options = ConnectOptions::new(server.local_addrs()[0], NQN);
        options.timeout_ms = PATIENCE.as_millis() as u64;
        let runtime_ns = Some(10 * PATIENCE.as_nanos() as u64);
        let spec =
            LoadSpec { yield_when_idle: true, timeout_ms: options.timeout_ms, runtime_ns, ..LoadSpec::default() };
        let report = run(&options, &spec, &stop, &mut |_| {}).expect("the run ends well");
        assert!(report.is_clean(), "{:?}", report.faults);
    };
    let latency = |of, stat| value(&seen, of, Quantity::LatencyNs(stat));
    let stamped = || server.stats().threads.iter().map(|thread| thread.from_socket.stamped).sum::<u64>();
    std::thread::scope(|scope| {
        scope.spawn(load);
        eventually("requests", || server.stats().totals.reads > 0);
        assert_eq!((latency(Scope::Server, Stat::Mean), stamped()), (None, 0), "nobody has asked");
        server.set_goals(Goals { budget_uw: Some(1), ..Goals::default() });
        for of in [Scope::Server, Scope::Namespace(0)] {
            eventually("latencies", || Stat::ALL.iter().all(|&stat| latency(of, stat) > Some(0)));
        }
        assert_eq!(latency(Scope::Namespace(1), Stat::Mean), None, "nobody reads from it");
        eventually("times of the kernel", || stamped() > 0);
        server.set_goals(Goals::default());
        eventually("that nobody asks", || latency(Scope::Server, Stat::Mean).is_none());
        stop.store(true, Relaxed);
    });
    server.stop(PATIENCE).expect("it stops");
}

#[test]
fn sources_keep_their_numbers_while_hosts_and_namespaces_come_and_go() {
    let server = server();
    let seen = Arc::<Mutex<Seen>>::default();
    server.set_policy(Box::new(Reader { seen: Arc::clone(&seen), has_budget: false })).expect("a policy");
    server.set_goals(Goals { budget_uw: Some(1), ..Goals::default() });
    let sources = || seen.lock().unwrap().sources.clone();
    let first = sources();
    let of: Vec<_> = first.iter().map(|source| source.scope).collect();
    let namespaces = [0, 0, 0, 0, 0, 1, 1, 1, 1, 1].map(Scope::Namespace);
    assert_eq!(of, [&[Scope::Server; 3][..], &namespaces].concat());
    let namespace = |nsid| NamespaceConfig {
        nsid,
        backend: BackendSpec::Null(1 << 20),
        block_size: 4096,
        uuid: None,
        hosts: Vec::new(),
    };
    server.add_namespace(NQN, &namespace(3)).expect("a namespace");
    eventually("its sources", || sources().len() == 18);
    server.remove_namespace(NQN, 1).expect("it was there");
    eventually("a stale reading", || value(&seen, Scope::Namespace(0), Quantity::ReadBytesPerS).is_none());
    eventually("a reading", || value(&seen, Scope::Namespace(2), Quantity::ReadBytesPerS) == Some(0));
    assert_eq!(sources()[..13], first);
    server.stop(PATIENCE).expect("it stops");
}
