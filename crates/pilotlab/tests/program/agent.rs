//! Three servers that share the budget of a rack through their agents, with three `etcd` processes: halved and restored, and faults of etcd, agents
//! and servers. At no time do grants together exceed the budget.
//!
//! Each server runs on a machine made by the test: its power is what the test sets, up to the RAPL limit that policy `rapl-only` sets. With
//! `FLEET_FIGURE=FILE.svg` a figure of the run is written.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::{FileExt as _, symlink};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use pilotlight_fleet::view::Rack;
use pilotlight_report::chart::{Axis, Chart, Line, Lines, Place, picture};
use serde_json::Value;
use tempfile::TempDir;

use super::fleet::etcd::{self, Cluster, W, wait_for};
use super::process::{command, text};
use super::run::server;

const NAMES: [&str; 3] = ["a", "b", "c"];
const FLOOR_UW: u64 = 40 * W;
const FULL_UW: u64 = 200 * W;
const BUDGET_UW: u64 = 420 * W;
const ZONE: &str = "sys/class/powercap/intel-rapl:0";

/// A process, killed at the end of the test.
struct Process(Child);

impl Process {
    fn signal(&self, signal: &str) {
        let status = Command::new("kill").args([signal, &self.0.id().to_string()]).status();
        assert!(status.unwrap().success(), "{signal}");
    }

    fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A machine whose power is what is asked, up to its limit.
struct Machine {
    dir: TempDir,
    asked_uw: Arc<AtomicU64>,
    power_uw: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    model: Option<JoinHandle<()>>,
}

impl Machine {
    fn new(asked_uw: u64) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let zone = dir.path().join(ZONE);
        fs::create_dir_all(&zone).unwrap();
        for (name, value) in [
            ("name", "package-0".to_owned()),
            ("enabled", "1".to_owned()),
            ("energy_uj", format!("{:020}", 0)),
            ("max_energy_range_uj", u64::MAX.to_string()),
            ("constraint_0_name", "long_term".to_owned()),
            ("constraint_0_power_limit_uw", (2 * FULL_UW).to_string()),
            ("constraint_0_max_power_uw", (2 * FULL_UW).to_string()),
        ] {
            fs::write(zone.join(name), value + "\n").unwrap();
        }
        symlink("/proc", dir.path().join("proc")).unwrap();
        let (asked_uw, power_uw, stop) = (Arc::new(AtomicU64::new(asked_uw)), Arc::default(), Arc::default());
        let model = Some(thread::spawn(model(zone, Arc::clone(&asked_uw), Arc::clone(&power_uw), Arc::clone(&stop))));
        Self { dir, asked_uw, power_uw, stop, model }
    }

    fn power_uw(&self) -> u64 {
        self.power_uw.load(Relaxed)
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("control.sock")
    }

    /// Starts its server, and a host that loads it.
    fn serve(&self, program: &Path, name: &str) -> (Process, Process) {
        let path = self.dir.path().join("server.toml");
        let socket = self.socket();
        let text = format!(
            "[server]\nlisten = \"127.0.0.1:0\"\nreactors = 1\nsensor = \"rapl\"\n[policy]\nname = \"rapl-only\"\n\
             [goals]\ndomain = \"cpu\"\nfloor = \"40W\"\n[admin]\nsocket = {socket:?}\nstate = \"none\"\n\
             [[subsystem]]\nnqn = \"nqn.2024-05.com.example:{name}\"\n[[subsystem.namespace]]\nnsid = 1\nbackend = \"mem:16MiB\"\n"
        );
        fs::write(&path, text).unwrap();
        let mut serve = Command::new(program);
        serve.args(["serve", "--json", "--config", path.to_str().unwrap()]);
        serve.arg(format!("--roots={}", self.dir.path().display())).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = serve.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let server = Process(child);
        let message: Value =
            serde_json::from_str(&line).unwrap_or_else(|_| panic!("the server of {name} does not start"));
        let nqn = format!("--nqn=nqn.2024-05.com.example:{name}");
        let mut load = Command::new(program);
        load.args([
            "load",
            "--target",
            message["listening"][0].as_str().unwrap(),
            &nqn,
            "--rw=randread",
            "--runtime=600s",
        ]);
        load.args(["--rate_iops=2000", "--timeout=300s", "--keep-alive-tmo=0"])
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        (server, Process(load.spawn().unwrap()))
    }

    /// Starts the agent of its server.
    fn join(&self, cluster: &Cluster, name: &str) -> Process {
        let socket = self.socket();
        let args = ["fleet", "r", "agent", name, "--full=200W", "--lease=4s", "--socket", socket.to_str().unwrap()];
        let mut command = command(&args);
        Process(command.env("PILOTLIGHT_ETCD", cluster.etcd.endpoints.join(",")).spawn().unwrap())
    }

    /// The status of its server.
    fn status(&self) -> Value {
        let mut stream = BufReader::new(UnixStream::connect(self.socket()).unwrap());
        stream.get_mut().write_all(b"{\"version\":1,\"command\":\"status\"}\n").unwrap();
        let mut line = String::new();
        stream.read_line(&mut line).unwrap();
        serde_json::from_str::<Value>(&line).unwrap()["ok"].take()
    }

    /// The limit of its server in watts, and whether it has a deadline that is to come.
    fn limit(&self) -> (u64, bool) {
        let limit = &self.status()["limit"];
        (limit["power_uw"].as_u64().unwrap() / W, limit["until_boottime_ns"].is_u64())
    }

    fn share(&self) -> u64 {
        self.limit().0
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        let _ = self.model.take().map(JoinHandle::join);
    }
}

/// Counts energy at the power of the moment.
fn model(
    zone: PathBuf,
    asked_uw: Arc<AtomicU64>,
    power_uw: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
) -> impl FnOnce() + Send {
    move || {
        let file = fs::OpenOptions::new().write(true).open(zone.join("energy_uj")).unwrap();
        let (mut energy_uj, mut then) = (0_f64, Instant::now());
        while !stop.load(Relaxed) {
            let limit = fs::read_to_string(zone.join("constraint_0_power_limit_uw")).unwrap_or_default();
            let limit_uw: u64 = limit.trim().parse().unwrap_or(u64::MAX);
            let now_uw = asked_uw.load(Relaxed).min(limit_uw).max(10 * W);
            let now = Instant::now();
            energy_uj += now_uw as f64 * (now - then).as_secs_f64();
            then = now;
            power_uw.store(now_uw, Relaxed);
            // in place, at once and of one length: the sensor keeps the file open
            file.write_all_at(format!("{:020}\n", energy_uj as u64).as_bytes(), 0).unwrap();
            thread::sleep(Duration::from_millis(10)); // step of the model
        }
    }
}

/// A sample: seconds, budget, bounds of grants, power together, shares of the servers.
type Sample = (f64, u64, u64, u64, [u64; 3]);

/// Looks at the rack all the time.
struct Watch {
    samples: Arc<Mutex<Vec<Sample>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Time after which a server confirms that it is within its share.
const SETTLES_S: f64 = 3.0;

impl Watch {
    fn start(mut rack: Rack, power: Vec<Arc<AtomicU64>>) -> Self {
        let (samples, stop): (Arc<Mutex<Vec<Sample>>>, Arc<AtomicBool>) = (Arc::default(), Arc::default());
        let (theirs, ends, began) = (Arc::clone(&samples), Arc::clone(&stop), Instant::now());
        let body = move || {
            while !ends.load(Relaxed) {
                if let Ok(documents) = rack.read() {
                    let share = |name: &str| documents.statuses.get(name).map_or(0, |status| status.in_force_uw);
                    let drawn_uw = power.iter().map(|uw| uw.load(Relaxed)).sum();
                    let at_s = began.elapsed().as_secs_f64();
                    let sample =
                        (at_s, documents.budget_uw.unwrap_or(0), documents.bounds_uw(), drawn_uw, NAMES.map(share));
                    theirs.lock().unwrap().push(sample);
                }
                thread::sleep(Duration::from_millis(20)); // between two samples
            }
        };
        Self { samples, stop, thread: Some(thread::spawn(body)) }
    }

    /// That bounds were within the budget, or fell to it after it was lowered; and that power, once it had come to rest within the bounds, was
    /// at most 2 % above them. A sample's power was read between its bounds and the next ones.
    fn check(&self) {
        self.check_grants();
        let samples = self.samples.lock().unwrap();
        let mut within_since_s = None;
        let mut has_begun = false;
        for pair in samples.windows(2) {
            let (at_s, _, bounds_uw, drawn_uw, _) = pair[0];
            let most_uw = bounds_uw.max(pair[1].2) * 102 / 100;
            // policies begin with their lowest limits, and then go beyond the share for a moment
            let since_s = (drawn_uw <= most_uw).then(|| within_since_s.unwrap_or(at_s));
            within_since_s = since_s;
            has_begun |= since_s.is_some_and(|since_s| at_s - since_s >= SETTLES_S);
            assert!(
                drawn_uw <= most_uw || !has_begun,
                "power of {drawn_uw} uW at {at_s:.3} s, grants of {bounds_uw} uW"
            );
        }
        assert!(has_begun, "power has not come to rest within the bounds");
    }

    /// The first of these alone: a quarter of the short lease is too little for power to come to rest.
    fn check_grants(&self) {
        let samples = self.samples.lock().unwrap();
        let mut ceiling_uw = u64::MAX;
        for (at_s, budget_uw, bounds_uw, ..) in samples.iter().copied() {
            assert!(bounds_uw <= ceiling_uw.max(budget_uw), "grants of {bounds_uw} uW at {at_s:.3} s");
            ceiling_uw = ceiling_uw.min(bounds_uw).max(budget_uw);
        }
        assert!(samples.len() > 10, "{}", samples.len());
    }

    fn figure(&self, path: &Path) {
        let samples = self.samples.lock().unwrap();
        let line = |name: &str, of: &dyn Fn(&Sample) -> u64| {
            let place = |sample: &Sample| Place { x: sample.0, y: Some(of(sample) as f64 / 1e6), band: None };
            Line { name: name.to_owned(), places: samples.iter().step_by(5).map(place).collect() }
        };
        let lines = vec![
            line("budget", &|sample| sample.1),
            line("grants together", &|sample| sample.2),
            line("power (modelled)", &|sample| sample.3),
            line("share of a", &|sample| sample.4[0]),
            line("share of b", &|sample| sample.4[1]),
            line("share of c", &|sample| sample.4[2]),
        ];
        let axis = |name: &str| Axis { label: name.to_owned(), ..Axis::default() };
        let chart = Lines {
            title: "One budget for three servers".to_owned(),
            x: axis("time (s)"),
            y: axis("power (W)"),
            lines,
        };
        fs::write(path, picture(&[Chart::Lines(chart)]).unwrap()).unwrap();
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn shares(machines: &[Machine]) -> u64 {
    machines.iter().map(Machine::share).sum()
}

/// That power is within the budget, and uses it.
fn wait_until_held(what: &str, machines: &[Machine], budget_uw: u64) {
    let all = || machines.iter().map(Machine::power_uw).sum::<u64>();
    wait_for(what, || (budget_uw * 8 / 10..=budget_uw).contains(&all()));
}

/// A rack of three servers with their agents, once the whole budget is granted.
struct Setup {
    cluster: Cluster,
    rack: Rack,
    program: PathBuf,
    machines: Vec<Machine>,
    servers: Vec<Process>,
    loads: Vec<Process>,
    agents: Vec<Process>,
    watch: Watch,
}

impl Setup {
    fn start() -> Option<Self> {
        let (cluster, program) = (Cluster::start()?, server()?);
        let mut rack = etcd::rack(&cluster);
        rack.set_budget(BUDGET_UW).unwrap();
        NAMES.iter().for_each(|name| rack.reserve(name, FLOOR_UW).unwrap());
        let machines: Vec<Machine> = [200, 120, 60].map(|watts| Machine::new(watts * W)).into();
        let (servers, loads) = machines.iter().zip(NAMES).map(|(machine, name)| machine.serve(&program, name)).unzip();
        machines.iter().for_each(|machine| assert_eq!(machine.limit(), (40, false), "the floor, without an agent"));
        let power = machines.iter().map(|machine| Arc::clone(&machine.power_uw)).collect();
        let watch = Watch::start(etcd::rack_again(&cluster), power);
        let agents = machines.iter().zip(NAMES).map(|(machine, name)| machine.join(&cluster, name)).collect();
        let setup = Self { cluster, rack, program, machines, servers, loads, agents, watch };
        setup.wait_for_all(BUDGET_UW);
        wait_until_held("power is within the budget", &setup.machines, BUDGET_UW);
        Some(setup)
    }

    /// Waits until all of a budget is granted, but for what rounding leaves.
    fn wait_for_all(&self, budget_uw: u64) {
        let budget = budget_uw / W;
        wait_for("the whole budget is granted", || (budget - 5..=budget).contains(&shares(&self.machines)));
    }

    /// Waits until the others of this server share what it has lost.
    fn wait_for_others(&self, at: usize) {
        let others = || (0..3).filter(|other| *other != at).map(|other| self.machines[other].share()).sum::<u64>();
        wait_for("its share is with the others", || others() >= 375);
    }

    /// Waits until the limit of this server has passed its deadline, or has ended.
    fn wait_for_floor(&self, at: usize) {
        let why = format!("the floor of {}", NAMES[at]);
        wait_for(&why, || self.machines[at].limit() == (40, false));
    }

    fn wait_for_share(&self, at: usize) {
        wait_for(&format!("{} has a share again", NAMES[at]), || self.machines[at].limit().0 > 40);
    }

    fn leader(&mut self) -> usize {
        let mut leader = None;
        wait_for("a leader", || {
            let documents = self.rack.read().unwrap_or_default();
            leader = documents.leader().and_then(|name| NAMES.iter().position(|one| *one == name));
            leader.is_some()
        });
        leader.unwrap()
    }
}

#[test]
#[ignore = "slow: .ci/run test runs it"]
fn three_servers_share_a_budget_through_their_agents() {
    let Some(mut setup) = Setup::start() else { return };
    setup.rack.set_budget(BUDGET_UW / 2).unwrap();
    setup.wait_for_all(BUDGET_UW / 2);
    wait_until_held("power is within half of it", &setup.machines, BUDGET_UW / 2 * 102 / 100);
    setup.rack.set_budget(BUDGET_UW).unwrap();
    setup.wait_for_all(BUDGET_UW);
    setup.watch.check();

    // etcd is away, longer than shares are valid
    setup.cluster.signal(&[0, 1, 2], "-STOP");
    (0..3).for_each(|at| wait_for("floors", || setup.machines[at].share() == 40));
    wait_until_held("power is within the floors", &setup.machines, 3 * FLOOR_UW * 102 / 100);
    assert_eq!(setup.machines[0].status()["budget"]["origin"], "limit");
    setup.cluster.signal(&[0, 1, 2], "-CONT");
    setup.wait_for_all(BUDGET_UW);

    // the agent that leads is paused beyond its lease: its server falls to its floor by itself, and another agent leads
    let leader = setup.leader();
    setup.agents[leader].signal("-STOP");
    setup.wait_for_floor(leader);
    setup.wait_for_others(leader);
    assert_ne!(setup.leader(), leader);
    let settings = setup.machines[leader].status()["limit"]["settings"].clone();
    assert_eq!(setup.machines[leader].limit(), (40, false), "it is paused");
    setup.agents[leader].signal("-CONT");
    setup.wait_for_share(leader);
    assert!(setup.machines[leader].status()["limit"]["settings"].as_u64() > settings.as_u64());
    setup.watch.check_grants();
    for load in &mut setup.loads {
        assert!(load.0.try_wait().unwrap().is_none(), "the load goes on");
    }
    if let Some(path) = std::env::var_os("FLEET_FIGURE") {
        setup.watch.figure(Path::new(&path));
    }
}

#[test]
#[ignore = "slow: .ci/run test runs it"]
fn agents_and_servers_that_end_lead_to_the_floor() {
    let Some(mut setup) = Setup::start() else { return };
    // an agent dies
    setup.agents[0].kill();
    setup.wait_for_floor(0);
    assert!(setup.machines[0].status()["limit"]["expiries"].as_u64() >= Some(1), "by the deadline");
    setup.wait_for_others(0);
    setup.agents[0] = setup.machines[0].join(&setup.cluster, "a");
    setup.wait_for_share(0);

    // an agent is stopped: it gives its share back
    setup.agents[1].signal("-TERM");
    assert_eq!(setup.agents[1].0.wait().unwrap().code(), Some(0));
    assert_eq!(setup.machines[1].share(), 40);
    setup.wait_for_others(1);
    setup.agents[1] = setup.machines[1].join(&setup.cluster, "b");
    setup.wait_for_share(1);

    // a server dies, and its machine is off; after a restart the floor holds until its agent, which has run on, has a share again
    setup.servers[0].kill();
    setup.machines[0].asked_uw.store(0, Relaxed);
    wait_for("its share is with the others", || setup.machines[1].share() + setup.machines[2].share() >= 375);
    setup.machines[0].asked_uw.store(200 * W, Relaxed);
    let limit = setup.machines[0].dir.path().join(ZONE).join("constraint_0_power_limit_uw");
    fs::write(limit, format!("{FLOOR_UW}\n")).unwrap();
    setup.agents[0].signal("-STOP");
    (setup.servers[0], setup.loads[0]) = setup.machines[0].serve(&setup.program, "a");
    assert_eq!(setup.machines[0].limit(), (40, false), "after the restart");
    setup.agents[0].signal("-CONT");
    setup.wait_for_share(0);

    // a server is paused: it goes on at its floor
    setup.servers[0].signal("-STOP");
    wait_for("its share is with the others", || setup.machines[1].share() + setup.machines[2].share() >= 375);
    setup.servers[0].signal("-CONT");
    wait_for("it goes on at its floor", || setup.machines[0].share() == 40);
    setup.wait_for_share(0);
    setup.watch.check_grants();
}

#[test]
fn wrong_options_of_an_agent_are_refused() {
    let ends = |options: &[&str], code: i32, expected: &str| {
        let args = [&["fleet", "r", "agent", "a", "--etcd=http://127.0.0.1:1"], options].concat();
        let output = command(&args).env_remove("PILOTLIGHT_ETCD").output().unwrap();
        let message = text(&output.stderr);
        assert!(output.status.code() == Some(code) && message.contains(expected), "{options:?}: {message}");
    };
    ends(&[], 2, "--full");
    ends(&["--full=many"], 1, "write one such as 300W");
    ends(&["--full=200W", "--lease=1s"], 1, "use 2s to 1h");
    ends(&["--profile=/nowhere.toml"], 1, "cannot read /nowhere.toml");
    ends(&["--full=200W", "--priority=256"], 2, "256");
    let secret = tempfile::NamedTempFile::new().unwrap();
    fs::set_permissions(secret.path(), std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    let file = format!("--password-file={}", secret.path().display());
    ends(&["--full=200W", "--user=a", &file], 1, "is accessible to other users (mode 0644): chmod 600");
}
