//! Three servers that share the budget of a rack, with three `etcd` processes and load: halved and restored, and faults. At no time do grants
//! together exceed the budget.
//!
//! Each server runs on a machine made by the test: its power is what the test sets, up to the RAPL limit that policy `rapl-only` sets. With
//! `FLEET_FIGURE=FILE.svg` a figure of the run is written.

#[path = "../../../fleet/tests/support/etcd.rs"]
#[allow(dead_code, reason = "its simulated servers are for another test")]
mod etcd;

use std::fs;
use std::os::unix::fs::{FileExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use pilotlight_fleet::view::Rack;
use pilotlight_report::chart::{Axis, Chart, Line, Lines, Place, picture};
use serde_json::Value;
use tempfile::TempDir;

pub(crate) use self::etcd::wait_for;
use self::etcd::{Cluster, W};
use crate::process::{Server, run, spawn};

const NAMES: [&str; 3] = ["a", "b", "c"];
const FLOOR_UW: u64 = 40 * W;
const FULL_UW: u64 = 200 * W;
const BUDGET_UW: u64 = 420 * W;
const ZONE: &str = "sys/class/powercap/intel-rapl:0";

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

    fn serve(&self, cluster: &Cluster, name: &str) -> Server {
        let path = self.dir.path().join("server.toml");
        let etcd = format!("{:?}", cluster.etcd.endpoints);
        let socket = self.dir.path().join("control.sock");
        let text = format!(
            "[server]\nlisten = \"127.0.0.1:0\"\nreactors = 1\nsensor = \"rapl\"\n[policy]\nname = \"rapl-only\"\n[goals]\ndomain = \"cpu\"\n\
             [fleet]\netcd = {etcd}\nrack = \"r\"\nname = \"{name}\"\nfloor = \"40W\"\nfull = \"200W\"\nlease = \"4s\"\n\
             [admin]\nsocket = {socket:?}\nstate = \"none\"\n\
             [[subsystem]]\nnqn = \"nqn.2024-05.com.example:{name}\"\n[[subsystem.namespace]]\nnsid = 1\nbackend = \"mem:16MiB\"\n"
        );
        fs::write(&path, text).unwrap();
        let roots = format!("--roots={}", self.dir.path().display());
        Server::start(&["--config", path.to_str().unwrap(), &roots])
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

fn share_of(status: &Value) -> u64 {
    status["fleet"]["share_uw"].as_u64().unwrap() / W
}

fn wait_for_shares(what: &str, servers: &[&Server], expected: &[u64]) {
    let mut last = Vec::new();
    wait_for(&format!("{what}: {expected:?}"), || {
        last = servers.iter().map(|server| share_of(&server.request(&["status"]))).collect();
        last == expected
    });
}

/// That power is within the budget, and uses it.
fn wait_until_held(what: &str, machines: &[Machine], budget_uw: u64) {
    let all = || machines.iter().map(Machine::power_uw).sum::<u64>();
    wait_for(what, || (budget_uw * 8 / 10..=budget_uw).contains(&all()));
}

/// Names of the metrics of a rack in the reference.
fn documented_metrics() -> Vec<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics-server.md");
    let page = fs::read_to_string(page).unwrap();
    let names = page.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    names.filter(|name| name.starts_with("pilotlight_fleet_")).map(str::to_owned).collect()
}

#[test]
#[ignore = "slow: .ci/run test runs it"]
fn three_servers_share_a_budget_under_load() {
    let Some(cluster) = Cluster::start() else { return };
    let mut rack = etcd::rack(&cluster);
    rack.set_budget(BUDGET_UW).unwrap();
    NAMES.iter().for_each(|name| rack.reserve(name, FLOOR_UW).unwrap());
    let machines: Vec<Machine> = [200, 120, 60].map(|watts| Machine::new(watts * W)).into();
    let mut servers: Vec<Server> =
        machines.iter().zip(NAMES).map(|(machine, name)| machine.serve(&cluster, name)).collect();
    let power = machines.iter().map(|machine| Arc::clone(&machine.power_uw)).collect();
    let watch = Watch::start(etcd::rack_again(&cluster), power);
    let load = |server: &Server| {
        let (address, nqn) =
            (server.address().to_string(), server.message()["subsystems"][0]["nqn"].as_str().unwrap().to_owned());
        spawn(&[
            "load",
            "--target",
            &address,
            "--nqn",
            &nqn,
            "--rw=randread",
            "--runtime=600s",
            "--rate_iops=2000",
            "--timeout=300s",
            "--keep-alive-tmo=0",
        ])
    };
    let mut loads: Vec<_> = servers.iter().map(load).collect();
    let of = |servers: &[Server], at: usize| servers[at].request(&["status"]);
    wait_for("all serve load", || {
        (0..3).all(|at| of(&servers, at)["io"]["iops"].as_f64().is_some_and(|iops| iops > 0.0))
    });
    let shares = |servers: &[Server]| (0..3).map(|at| share_of(&of(servers, at))).collect::<Vec<u64>>();
    wait_for("the whole budget is granted", || (415..=420).contains(&shares(&servers).iter().sum::<u64>()));
    wait_until_held("power is within the budget", &machines, BUDGET_UW);
    rack.set_budget(BUDGET_UW / 2).unwrap();
    wait_for("half", || (205..=210).contains(&shares(&servers).iter().sum::<u64>()));
    wait_until_held("power is within half of it", &machines, BUDGET_UW / 2 * 102 / 100);
    rack.set_budget(BUDGET_UW).unwrap();
    wait_for("all of it again", || (415..=420).contains(&shares(&servers).iter().sum::<u64>()));
    watch.check();

    // etcd is away, longer than shares are valid
    cluster.signal(&[0, 1, 2], "-STOP");
    wait_for_shares("floors", &servers.iter().collect::<Vec<_>>(), &[40, 40, 40]);
    wait_until_held("power is within the floors", &machines, 3 * FLOOR_UW * 102 / 100);
    let status = of(&servers, 0);
    assert_eq!((&status["fleet"]["granted"], &status["budget"]["origin"]), (&false.into(), &"fleet".into()));
    assert!(status["fleet"]["failure"].as_str().is_some_and(|why| why.contains("etcd")), "{status}");
    cluster.signal(&[0, 1, 2], "-CONT");
    wait_for("etcd is back", || (415..=420).contains(&shares(&servers).iter().sum::<u64>()));

    // the leader is paused: another one leads, and the share of the paused server goes to others
    let leads = |servers: &[Server], at: usize| of(servers, at)["fleet"]["leader"] == true;
    let is_granted = |servers: &[Server], at: usize| of(servers, at)["fleet"]["granted"] == true;
    let mut leader = 3;
    wait_for("a leader", || {
        leader = (0..3).find(|&at| leads(&servers, at)).unwrap_or(3);
        leader < 3
    });
    let others: Vec<usize> = (0..3).filter(|at| *at != leader).collect();
    servers[leader].signal("STOP");
    wait_for("another leader", || others.iter().any(|&at| leads(&servers, at)));
    wait_for("its share is with the others", || {
        others.iter().map(|&at| share_of(&of(&servers, at))).sum::<u64>() >= 375
    });
    servers[leader].signal("CONT");
    wait_for("it is back", || is_granted(&servers, leader) && !leads(&servers, leader));

    // a server dies; its machine is off
    servers[0].kill();
    machines[0].asked_uw.store(0, Relaxed);
    wait_for("its share is with the others", || share_of(&of(&servers, 1)) + share_of(&of(&servers, 2)) >= 375);
    machines[0].asked_uw.store(200 * W, Relaxed);
    fs::write(machines[0].dir.path().join(ZONE).join("constraint_0_power_limit_uw"), format!("{FLOOR_UW}\n")).unwrap();
    servers[0] = machines[0].serve(&cluster, "a");
    wait_for("it has a share again", || is_granted(&servers, 0));
    watch.check_grants();
    for (at, load) in loads.iter_mut().enumerate().skip(1) {
        assert!(load.try_wait().unwrap().is_none(), "the load of {at} goes on");
    }
    loads.iter_mut().for_each(|load| _ = load.kill());
    loads.into_iter().for_each(|mut load| _ = load.wait());
    let metrics =
        String::from_utf8(run(&["status", "--metrics", "--socket", servers[1].socket().to_str().unwrap()]).stdout)
            .unwrap();
    let documented = documented_metrics();
    assert!(documented.contains(&"pilotlight_fleet_share_watts".to_owned()), "{documented:?}");
    for name in documented {
        let is_it = |line: &str| line.starts_with(&format!("{name} ")) && line.ends_with(" rack=\"r\"");
        assert!(metrics.lines().any(is_it), "{name} is missing: {metrics}");
    }
    if let Some(path) = std::env::var_os("FLEET_FIGURE") {
        watch.figure(Path::new(&path));
    }
}
