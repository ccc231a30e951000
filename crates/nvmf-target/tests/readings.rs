//! Readings of bytes per second of namespaces and hosts in a policy of a running server, over loopback. Independent of the
//! machine's speed.

#[path = "support/servers.rs"]
mod servers;

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pilotlight_host::ConnectOptions;
use pilotlight_host::load::{LoadSpec, run};
use pilotlight_nvmf_target::{Capped, Server, ServerConfig};
use pilotlight_plant::{
    Capabilities, Command, Goals, Next, Policy, Quantity, Reading, ReadingId, Sample, Scope, Source, Start, Stat,
    Unsupported, Wants,
};
use pilotlight_storage::BackendSpec;

const NQN: &str = "nqn.2026-01.test:readings";
const TIMEOUT: Duration = Duration::from_secs(60);

fn server() -> Server {
    let namespace = |nsid| servers::namespace(nsid, BackendSpec::Memory(16 << 20));
    let namespaces = [1, 2].map(namespace).into();
    let config = ServerConfig { io_threads: 2, ..servers::config(vec![servers::subsystem(NQN, namespaces)]) };
    servers::start(config, 2)
}

#[derive(Debug, Default)]
struct Record {
    sources: Vec<Source>,
    readings: Vec<Reading>,
}

/// Requests all readings while a budget is set, and records the last ones.
struct Reader {
    record: Arc<Mutex<Record>>,
    has_budget: bool,
}

impl Reader {
    fn record_sources(&self, capabilities: &Capabilities) {
        self.record.lock().unwrap().sources.clone_from(&capabilities.sources);
    }
}

impl Policy for Reader {
    fn name(&self) -> &'static str {
        "reader"
    }

    fn wants(&self) -> Wants {
        let sources = self.record.lock().unwrap().sources.len() as u16;
        let readings = if self.has_budget { (0..sources).map(ReadingId).collect() } else { Vec::new() };
        Wants { interval_ns: Some(10_000_000), readings, ..Wants::default() }
    }

    fn start(&mut self, start: &Start<'_>, _out: &mut Vec<Command>) -> Result<Next, Unsupported> {
        self.record_sources(start.capabilities);
        Ok(Next::at(start.now_ns))
    }

    fn on_interval(&mut self, sample: &Sample<'_>, _out: &mut Vec<Command>) -> Next {
        self.record.lock().unwrap().readings = sample.readings.to_vec();
        Next::at(sample.now_ns)
    }

    fn on_goals(&mut self, _now_ns: u64, goals: &Goals, _out: &mut Vec<Command>) {
        self.has_budget = goals.budget_uw.is_some();
    }

    fn on_plant(&mut self, _now_ns: u64, capabilities: &Capabilities, _out: &mut Vec<Command>) {
        self.record_sources(capabilities);
    }
}

/// The last value of a source.
fn value(record: &Mutex<Record>, scope: Scope, quantity: Quantity) -> Option<u64> {
    let record = record.lock().unwrap();
    let at = record.sources.iter().position(|source| (source.scope, source.quantity) == (scope, quantity))?;
    record.readings.iter().find(|reading| reading.id.index() == at)?.value
}

#[test]
fn a_policy_reads_bytes_of_namespaces_and_hosts_on_request() {
    let server = server();
    let record = Arc::<Mutex<Record>>::default();
    server.set_policy(Box::new(Reader { record: Arc::clone(&record), has_budget: false })).expect("a policy");
    let stop = AtomicBool::new(false);
    let load = |host: u8, read_percent: u8| {
        let mut options = ConnectOptions::new(server.local_addrs()[0], NQN);
        (options.hostnqn, options.hostid) = (format!("nqn.2026-01.test:host-{host}"), [host; 16]);
        options.timeout_ms = TIMEOUT.as_millis() as u64;
        let spec = LoadSpec {
            nsid: u32::from(host),
            read_percent,
            yield_when_idle: true,
            timeout_ms: options.timeout_ms,
            runtime_ns: Some(10 * TIMEOUT.as_nanos() as u64),
            ..LoadSpec::default()
        };
        let report = run(&options, &spec, &stop, &mut |_| {}).expect("the run ends well");
        assert!(report.is_clean(), "{:?}", report.faults);
    };
    let read = |of| value(&record, of, Quantity::ReadBytesPerS);
    let written = |of| value(&record, of, Quantity::WrittenBytesPerS);
    std::thread::scope(|scope| {
        scope.spawn(|| load(1, 100));
        servers::eventually("the first host", || server.stats().totals.reads > 0);
        scope.spawn(|| load(2, 0));
        servers::eventually("the second host", || server.stats().totals.writes > 0);
        assert_eq!(read(Scope::Namespace(0)), None, "not requested");
        server.set_goals(Goals { budget_uw: Some(1), ..Goals::default() });
        for of in [Scope::Namespace(0), Scope::Host(0)] {
            servers::eventually("bytes of reads", || read(of) > Some(0) && written(of) == Some(0));
        }
        for of in [Scope::Namespace(1), Scope::Host(1)] {
            servers::eventually("bytes of writes", || read(of) == Some(0) && written(of) > Some(0));
        }
        // The rate of a capped namespace is its cap. Within a window the burst size adds to it.
        const CAP: u64 = 20_000_000;
        server.set_cap(&Capped::Namespace { nqn: NQN.into(), nsid: 1 }, Some(CAP)).expect("a cap");
        servers::eventually("the cap", || {
            read(Scope::Namespace(0)).is_some_and(|rate| (CAP * 4 / 5..=CAP * 6 / 5).contains(&rate))
        });
        server.set_goals(Goals::default());
        servers::eventually("the end of the request", || read(Scope::Namespace(0)).is_none());
        stop.store(true, Relaxed);
    });
    server.stop(TIMEOUT).expect("it stops");
}

#[test]
fn a_policy_reads_latencies_from_the_socket_on_request() {
    let server = server();
    let record = Arc::<Mutex<Record>>::default();
    server.set_policy(Box::new(Reader { record: Arc::clone(&record), has_budget: false })).expect("a policy");
    let stop = AtomicBool::new(false);
    let load = || {
        let mut options = ConnectOptions::new(server.local_addrs()[0], NQN);
        options.timeout_ms = TIMEOUT.as_millis() as u64;
        let runtime_ns = Some(10 * TIMEOUT.as_nanos() as u64);
        let spec =
            LoadSpec { yield_when_idle: true, timeout_ms: options.timeout_ms, runtime_ns, ..LoadSpec::default() };
        let report = run(&options, &spec, &stop, &mut |_| {}).expect("the run ends well");
        assert!(report.is_clean(), "{:?}", report.faults);
    };
    let latency = |of, stat| value(&record, of, Quantity::LatencyNs(stat));
    let stamped = || server.stats().threads.iter().map(|thread| thread.from_socket.stamped).sum::<u64>();
    std::thread::scope(|scope| {
        scope.spawn(load);
        servers::eventually("requests", || server.stats().totals.reads > 0);
        assert_eq!((latency(Scope::Server, Stat::Mean), stamped()), (None, 0), "not requested");
        server.set_goals(Goals { budget_uw: Some(1), ..Goals::default() });
        for of in [Scope::Server, Scope::Namespace(0)] {
            servers::eventually("latencies", || Stat::ALL.iter().all(|&stat| latency(of, stat) > Some(0)));
        }
        assert_eq!(latency(Scope::Namespace(1), Stat::Mean), None, "no load");
        servers::eventually("receive timestamps", || stamped() > 0);
        server.set_goals(Goals::default());
        servers::eventually("the end of the request", || latency(Scope::Server, Stat::Mean).is_none());
        stop.store(true, Relaxed);
    });
    server.stop(TIMEOUT).expect("it stops");
}

#[test]
fn sources_keep_their_numbers_when_hosts_and_namespaces_change() {
    let server = server();
    let record = Arc::<Mutex<Record>>::default();
    server.set_policy(Box::new(Reader { record: Arc::clone(&record), has_budget: false })).expect("a policy");
    server.set_goals(Goals { budget_uw: Some(1), ..Goals::default() });
    let sources = || record.lock().unwrap().sources.clone();
    let first = sources();
    let of: Vec<_> = first.iter().map(|source| source.scope).collect();
    let namespaces = [0, 0, 0, 0, 0, 1, 1, 1, 1, 1].map(Scope::Namespace);
    assert_eq!(of, [&[Scope::Server; 3][..], &namespaces].concat());
    let namespace = |nsid| servers::namespace(nsid, BackendSpec::Null(1 << 20));
    server.add_namespace(NQN, &namespace(3)).expect("a namespace");
    servers::eventually("its sources", || sources().len() == 18);
    server.remove_namespace(NQN, 1).expect("it was there");
    servers::eventually("a stale reading", || value(&record, Scope::Namespace(0), Quantity::ReadBytesPerS).is_none());
    servers::eventually("a reading", || value(&record, Scope::Namespace(2), Quantity::ReadBytesPerS) == Some(0));
    assert_eq!(sources()[..13], first);
    server.stop(TIMEOUT).expect("it stops");
}
