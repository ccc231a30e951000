//! Priority classes over loopback: each class has its own I/O threads, policies get the classes, and priorities follow names.

#[path = "support/servers.rs"]
mod servers;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use pilotlight_host::{Buffers, ConnectOptions, Connection, Controller, QueueSpec};
use pilotlight_nvme::Sqe;
use pilotlight_nvme::command::opcode::io;
use pilotlight_nvmf_target::{Capped, NamespaceConfig, Server, ServerConfig};
use pilotlight_plant::{
    Bound, Command, Goals, Next, Policy, Sample, Scope, Start, Stat, Tolerance, Unsupported, Wants,
};
use pilotlight_storage::BackendSpec;

const NQN: &str = "nqn.2026-01.test:classes";
const TIMEOUT: Duration = Duration::from_secs(60);
/// I/O queues of each host.
const QUEUES: u16 = 4;

fn namespace(nsid: u32) -> NamespaceConfig {
    servers::namespace(nsid, BackendSpec::Memory(1 << 20))
}

fn server(io_threads: u32) -> Server {
    let namespaces = vec![namespace(1), namespace(2)];
    let config = ServerConfig { io_threads, ..servers::config(vec![servers::subsystem(NQN, namespaces)]) };
    servers::start(config, 2)
}

fn host_nqn(host: u8) -> String {
    format!("nqn.2026-01.test:host-{host}")
}

fn host(host: u8) -> Capped {
    Capped::Host { nqn: host_nqn(host) }
}

fn of_namespace(nsid: u32) -> Capped {
    Capped::Namespace { nqn: NQN.into(), nsid }
}

/// A host with its I/O queues.
fn connect(server: &Server, host: u8, queues: u16) -> (Controller, Vec<Connection>) {
    let mut options = ConnectOptions::new(server.local_addrs()[0], NQN);
    (options.hostnqn, options.hostid) = (host_nqn(host), [host; 16]);
    options.timeout_ms = TIMEOUT.as_millis() as u64;
    let mut controller = Controller::connect(options).expect("an admin queue");
    controller.set_queue_count(queues).expect("queues");
    let spec = |qid| QueueSpec { qid, depth: 8, max_io: 4096, buffers: Buffers::Shared };
    let queues = (1..=queues).map(|qid| controller.open_queue(&spec(qid)).expect("an I/O queue")).collect();
    (controller, queues)
}

fn connections(server: &Server) -> Vec<u64> {
    server.stats().threads.iter().map(|thread| thread.totals.connections).collect()
}

#[test]
fn each_class_has_its_own_io_threads() {
    let server = server(4);
    server.set_priorities(vec![(host(1), 5)]);
    let one = connect(&server, 1, QUEUES);
    servers::eventually("the class of the first host", || server.stats().classes == [None, None, Some(5), Some(5)]);
    let two = connect(&server, 2, QUEUES);
    servers::eventually("both classes", || server.stats().classes == [Some(0), Some(0), Some(5), Some(5)]);
    let all = connections(&server);
    assert_eq!(all[0] + all[1], u64::from(QUEUES) + 1, "{all:?}");
    assert_eq!(all[2] + all[3], u64::from(QUEUES) + 1, "{all:?}");
    assert!(all.iter().all(|&one| one > 0), "distributed over the I/O threads of the class: {all:?}");
    drop(one);
    servers::eventually("the end of a class", || server.stats().classes == [Some(0), Some(0), None, None]);
    server.set_priorities(vec![(host(2), 7)]);
    servers::eventually("another priority", || server.stats().classes == [Some(7), Some(7), None, None]);
    drop(two);
    servers::eventually("the end", || server.stats().classes == [None; 4]);
    server.stop(TIMEOUT).expect("it stops");
}

#[test]
fn without_priorities_the_connections_of_a_host_use_all_io_threads() {
    let server = server(4);
    let connected = connect(&server, 1, QUEUES);
    servers::eventually("classes", || server.stats().classes == [Some(0); 4]);
    assert!(connections(&server).iter().all(|&one| one > 0), "{:?}", connections(&server));
    drop(connected);
    server.stop(TIMEOUT).expect("it stops");
}

#[test]
fn hosts_with_one_io_queue_each_use_all_io_threads() {
    let server = server(2);
    let mut hosts: Vec<_> = (1..=4).map(|number| connect(&server, number, 1)).collect();
    for (_, queues) in &mut hosts {
        let read = Sqe::block_io(io::READ, 1, 0, 1);
        queues[0].execute("Read", read, &[], &mut [0; 4096]).expect("a read");
    }
    let reads = || -> Vec<u64> { server.stats().threads.iter().map(|thread| thread.totals.reads).collect() };
    servers::eventually("reads on both I/O threads", || reads() == [2, 2]);
    drop(hosts);
    server.stop(TIMEOUT).expect("it stops");
}

/// Records the last goals and classes.
struct GoalRecorder {
    goals: Arc<Mutex<Goals>>,
    classes: Arc<Mutex<Vec<Option<u8>>>>,
}

impl Policy for GoalRecorder {
    fn name(&self) -> &'static str {
        "told"
    }

    fn wants(&self) -> Wants {
        Wants { interval_ns: Some(1_000_000), ..Wants::default() }
    }

    fn start(&mut self, start: &Start<'_>, _out: &mut Vec<Command>) -> Result<Next, Unsupported> {
        self.goals.lock().unwrap().clone_from(start.goals);
        Ok(Next::at(start.now_ns))
    }

    fn on_goals(&mut self, _now_ns: u64, goals: &Goals, _out: &mut Vec<Command>) {
        self.goals.lock().unwrap().clone_from(goals);
    }

    fn on_interval(&mut self, sample: &Sample<'_>, _out: &mut Vec<Command>) -> Next {
        *self.classes.lock().unwrap() = sample.threads.iter().map(|thread| thread.class).collect();
        Next::at(sample.now_ns)
    }
}

#[test]
fn a_policy_gets_tolerances_of_namespaces_by_number() {
    let server = server(1);
    let (goals, classes) = (Arc::<Mutex<Goals>>::default(), Arc::default());
    server.set_policy(Box::new(GoalRecorder { goals: Arc::clone(&goals), classes })).expect("a policy");
    let bound = |scope, ns| Tolerance { scope, stat: Stat::P99, bound: Bound::LatencyNs(ns) };
    let has_goals = |want: &[Tolerance]| goals.lock().unwrap().tolerances == want;
    server.set_goals(Goals { tolerances: vec![Tolerance::mean_loss(7)], ..Goals::default() });
    server.set_tolerances(vec![(of_namespace(1), bound(Scope::Server, 5)), (of_namespace(9), bound(Scope::Server, 6))]);
    servers::eventually("the tolerance of the first namespace", || {
        has_goals(&[Tolerance::mean_loss(7), bound(Scope::Namespace(0), 5)])
    });
    server.add_namespace(NQN, &namespace(9)).expect("a namespace");
    let both = [Tolerance::mean_loss(7), bound(Scope::Namespace(0), 5), bound(Scope::Namespace(2), 6)];
    servers::eventually("the value of the new namespace", || has_goals(&both));
    server.remove_namespace(NQN, 1).expect("it was there");
    servers::eventually("the removal of the old tolerance", || {
        has_goals(&[Tolerance::mean_loss(7), bound(Scope::Namespace(2), 6)])
    });
    server.set_tolerances(Vec::new());
    servers::eventually("only the server's tolerance", || has_goals(&[Tolerance::mean_loss(7)]));
    server.stop(TIMEOUT).expect("it stops");
}

#[test]
fn a_policy_gets_priorities_by_number_and_the_classes_of_io_threads() {
    let server = server(2);
    let (goals, classes) = (Arc::<Mutex<Goals>>::default(), Arc::default());
    let policy = GoalRecorder { goals: Arc::clone(&goals), classes: Arc::clone(&classes) };
    server.set_policy(Box::new(policy)).expect("a policy");
    let priorities = |want: &[(Scope, u8)]| {
        let mut found = goals.lock().unwrap().priorities.clone();
        found.sort_unstable();
        found == want
    };
    server.set_goals(Goals { tolerances: vec![Tolerance::mean_loss(7)], ..Goals::default() });
    server.set_priorities(vec![(host(1), 5), (of_namespace(1), 3), (of_namespace(9), 4)]);
    servers::eventually("priorities", || priorities(&[(Scope::Namespace(0), 3), (Scope::Host(0), 5)]));
    assert_eq!(goals.lock().unwrap().tolerances, [Tolerance::mean_loss(7)]);
    server.add_namespace(NQN, &namespace(9)).expect("a namespace");
    servers::eventually("the value of the new namespace", || {
        priorities(&[(Scope::Namespace(0), 3), (Scope::Namespace(2), 4), (Scope::Host(0), 5)])
    });
    server.remove_namespace(NQN, 1).expect("it was there");
    servers::eventually("the removal of the old priority", || {
        priorities(&[(Scope::Namespace(2), 4), (Scope::Host(0), 5)])
    });
    let connected = connect(&server, 1, QUEUES);
    servers::eventually("a class", || classes.lock().unwrap()[..] == [None, Some(5)]);
    drop(connected);
    server.stop(TIMEOUT).expect("it stops");
}
