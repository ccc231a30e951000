//! A cluster of three `etcd` processes, and servers that draw what they may.

use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use pilotlight_fleet::view::Rack;
use pilotlight_fleet::{Etcd, Fleet, Limit, MemberConfig, Report, Target, Tls};

pub(crate) const W: u64 = 1_000_000;
/// Budget of the rack at first.
pub(crate) const BUDGET_UW: u64 = 300 * W;
/// A generous limit: machines that run tests are busy.
const TIMEOUT: Duration = Duration::from_secs(120);
/// Time of a lease. etcd's least is 2 s.
pub(crate) const LEASE: Duration = Duration::from_secs(4);
/// How long power takes to fall.
const FALL: Duration = Duration::from_millis(150);

/// Waits for a condition.
pub(crate) fn wait_for(what: &str, mut is_met: impl FnMut() -> bool) {
    let end = Instant::now() + TIMEOUT;
    while !is_met() {
        assert!(Instant::now() < end, "timed out: {what}");
        std::thread::sleep(Duration::from_millis(5)); // between two looks at the condition
    }
}

/// A loopback address that no other cluster has: between the choice of a port and the start of etcd another process could else take it, or a
/// connection from 127.0.0.1 could, and servers would find the etcd of another test.
fn own_address() -> Ipv4Addr {
    static CLUSTERS: AtomicU8 = AtomicU8::new(1);
    let [.., high, low] = std::process::id().to_be_bytes();
    Ipv4Addr::new(127, 1 + high % 254, low, CLUSTERS.fetch_add(1, Relaxed))
}

/// The file, in a folder of certificates, with the address that they are for.
const ADDRESS: &str = "address";

/// A running cluster.
pub(crate) struct Cluster {
    children: Vec<Child>,
    pub(crate) etcd: Etcd,
    _dir: tempfile::TempDir,
}

impl Cluster {
    /// Starts it; `None`, with the reason, where there is no etcd.
    pub(crate) fn start() -> Option<Self> {
        Self::start_with(None)
    }

    /// With TLS by the authority, certificate and key in this folder.
    pub(crate) fn start_with(certificates: Option<&Path>) -> Option<Self> {
        if Command::new("etcd").arg("--version").stdout(Stdio::null()).status().is_err() {
            eprintln!("SKIPPED: the program `etcd` is missing (Debian: etcd-server)");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let read = |folder: &Path, name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
        let address = certificates.map_or_else(own_address, |folder| read(folder, ADDRESS).parse().unwrap());
        let sockets: Vec<TcpListener> = (0..6).map(|_| TcpListener::bind((address, 0)).unwrap()).collect();
        let ports: Vec<u16> = sockets.iter().map(|socket| socket.local_addr().unwrap().port()).collect();
        drop(sockets);
        let (clients, peers) = ports.split_at(3);
        let scheme = if certificates.is_some() { "https" } else { "http" };
        let client = |at: usize| format!("{scheme}://{address}:{}", clients[at]);
        let peer = |at: usize| format!("http://{address}:{}", peers[at]);
        let all = (0..3).map(|at| format!("e{at}={}", peer(at))).collect::<Vec<_>>().join(",");
        let start = |at: usize| {
            let mut command = Command::new("etcd");
            command.args(["--name", &format!("e{at}"), "--log-level", "error", "--unsafe-no-fsync"]);
            command.arg("--data-dir").arg(dir.path().join(at.to_string()));
            command.args(["--listen-client-urls", &client(at), "--advertise-client-urls", &client(at)]);
            command.args(["--listen-peer-urls", &peer(at), "--initial-advertise-peer-urls", &peer(at)]);
            command.args(["--initial-cluster", &all, "--initial-cluster-state", "new"]);
            if let Some(folder) = certificates {
                command.arg("--client-cert-auth");
                for (option, file) in
                    [("--trusted-ca-file", "ca.pem"), ("--cert-file", "cert.pem"), ("--key-file", "key.pem")]
                {
                    command.arg(option).arg(folder.join(file));
                }
            }
            command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
        };
        let children = (0..3).map(start).collect();
        let endpoints = (0..3).map(client).collect();
        let tls = certificates.map_or_else(Tls::default, |folder| {
            let read = |name: &str| read(folder, name);
            Tls { ca: Some(read("ca.pem")), identity: Some((read("cert.pem"), read("key.pem"))) }
        });
        Some(Self { children, etcd: Etcd { endpoints, tls, user: None }, _dir: dir })
    }

    /// Sends a signal to these processes.
    pub(crate) fn signal(&self, which: &[usize], signal: &str) {
        for &at in which {
            let id = self.children[at].id().to_string();
            assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
        }
    }

    /// Runs `etcdctl`; `None`, with the reason, where it is missing.
    pub(crate) fn etcdctl(&self, args: &[&str]) -> Option<()> {
        let mut etcdctl = Command::new("etcdctl");
        etcdctl.env("ETCDCTL_API", "3").args(["--endpoints", &self.etcd.endpoints.join(",")]).args(args);
        let Ok(output) = etcdctl.output() else {
            eprintln!("SKIPPED: the program `etcdctl` is missing (Debian: etcd-client)");
            return None;
        };
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        Some(())
    }

    /// From now on access needs the user `root` with the password `hidden`; `None` as of `etcdctl`.
    pub(crate) fn enable_users(&self) -> Option<()> {
        ["user add root:hidden", "user grant-role root root", "auth enable"]
            .iter()
            .try_for_each(|command| self.etcdctl(&command.split(' ').collect::<Vec<_>>()))
    }
}

/// A folder with an authority, a certificate and a key; `None`, with the reason, where they cannot be made.
pub(crate) fn certificates() -> Option<tempfile::TempDir> {
    let folder = tempfile::tempdir().unwrap();
    let script = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=test-ca -keyout ca.key -out ca.pem 2>/dev/null &&
        openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=test -keyout key.pem -out cert.csr 2>/dev/null &&
        printf 'subjectAltName=IP:%s\\nextendedKeyUsage=serverAuth,clientAuth\\nbasicConstraints=CA:FALSE\\n' $(cat address) >ext &&
        openssl x509 -req -in cert.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile ext -out cert.pem 2>/dev/null";
    std::fs::write(folder.path().join(ADDRESS), own_address().to_string()).unwrap();
    let made = Command::new("sh").args(["-c", script]).current_dir(folder.path()).status();
    if !made.is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED: the program `openssl` is missing or made no certificates");
        return None;
    }
    Some(folder)
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The rack `r`, with a budget, once etcd answers.
pub(crate) fn rack(cluster: &Cluster) -> Rack {
    let mut connected = None;
    wait_for("etcd answers", || {
        let mut rack = Rack::connect(&cluster.etcd, "r").ok();
        let answers = rack.as_mut().is_some_and(|rack| rack.set_budget(BUDGET_UW).is_ok());
        connected = rack.filter(|_| answers);
        connected.is_some()
    });
    connected.unwrap()
}

/// Another access to the rack `r`.
pub(crate) fn rack_again(cluster: &Cluster) -> Rack {
    Rack::connect(&cluster.etcd, "r").unwrap()
}

/// What servers draw together.
#[derive(Clone)]
pub(crate) struct Meter(Arc<Mutex<Draws>>);

struct Draws {
    servers: Vec<u64>,
    most: u64,
}

impl Meter {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Mutex::new(Draws { servers: Vec::new(), most: 0 })))
    }

    fn add(&self) -> usize {
        let mut draws = self.0.lock().unwrap();
        draws.servers.push(0);
        draws.servers.len() - 1
    }

    fn set(&self, at: usize, uw: u64) {
        let mut draws = self.0.lock().unwrap();
        draws.servers[at] = uw;
        draws.most = draws.most.max(draws.servers.iter().sum());
    }

    pub(crate) fn sum(&self) -> u64 {
        self.0.lock().unwrap().servers.iter().sum()
    }

    /// The most at any time since the last call.
    pub(crate) fn take_most(&self) -> u64 {
        let mut draws = self.0.lock().unwrap();
        let now = draws.servers.iter().sum();
        std::mem::replace(&mut draws.most, now)
    }
}

/// What a test sets of a server.
#[derive(Clone)]
pub(crate) struct Needs {
    /// Bytes per second at full power.
    pub(crate) rate: u64,
    /// Instead of what it draws.
    pub(crate) measured_uw: Option<u64>,
    /// Its next report panics.
    pub(crate) panics: bool,
}

struct Server {
    meter: Meter,
    at: usize,
    share_uw: u64,
    drawn_uw: u64,
    lowered: Instant,
    needs: Arc<Mutex<Needs>>,
    range_uw: (u64, u64),
}

/// It is off.
impl Drop for Server {
    fn drop(&mut self) {
        self.meter.set(self.at, 0);
    }
}

impl Target for Server {
    fn report(&mut self) -> Report {
        let needs = self.needs.lock().unwrap().clone();
        assert!(!needs.panics, "as the test wants");
        if self.lowered.elapsed() >= FALL {
            self.drawn_uw = self.share_uw;
            self.meter.set(self.at, self.drawn_uw);
        }
        Report {
            measured_uw: Some(needs.measured_uw.unwrap_or(self.drawn_uw)),
            source: "modelled: a test".to_owned(),
            bottleneck: None,
            curve: vec![(self.range_uw.0, 0), (self.range_uw.1, needs.rate)],
            is_within: self.drawn_uw <= self.share_uw,
        }
    }

    fn set_limit(&mut self, Limit { power_uw, .. }: Limit) {
        if power_uw < self.drawn_uw {
            self.lowered = Instant::now();
        }
        self.share_uw = power_uw;
        self.drawn_uw = self.drawn_uw.max(power_uw);
        self.meter.set(self.at, self.drawn_uw);
    }
}

/// A member of the rack `r`.
pub(crate) struct Member {
    pub(crate) fleet: Fleet,
    pub(crate) needs: Arc<Mutex<Needs>>,
}

impl Member {
    pub(crate) fn start(
        cluster: &Cluster,
        meter: &Meter,
        name: &str,
        (floor_uw, full_uw): (u64, u64),
        rate: u64,
    ) -> Self {
        Self::start_on(&cluster.etcd, meter, name, (floor_uw, full_uw), rate, (100, 0))
    }

    /// With a clock of this rate in percent, and this offset.
    pub(crate) fn start_on(
        etcd: &Etcd,
        meter: &Meter,
        name: &str,
        range_uw: (u64, u64),
        rate: u64,
        clock: (u64, u64),
    ) -> Self {
        let needs = Arc::new(Mutex::new(Needs { rate, measured_uw: None, panics: false }));
        let server = Server {
            meter: meter.clone(),
            at: meter.add(),
            share_uw: range_uw.0,
            drawn_uw: range_uw.0,
            lowered: Instant::now(),
            needs: Arc::clone(&needs),
            range_uw,
        };
        let config = MemberConfig {
            reserved_uw: None,
            etcd: etcd.clone(),
            rack: "r".to_owned(),
            name: name.to_owned(),
            floor_uw: range_uw.0,
            full_uw: range_uw.1,
            priority: 0,
            lease: LEASE,
        };
        let began = Instant::now();
        let clock = move || began.elapsed().as_nanos() as u64 * clock.0 / 100 + clock.1;
        let fleet = Fleet::start_with(config, Box::new(server), || (), Arc::new(clock)).unwrap();
        Self { fleet, needs }
    }

    pub(crate) fn share_uw(&self) -> u64 {
        self.fleet.state().share_uw
    }

    pub(crate) fn needs(&self, change: impl FnOnce(&mut Needs)) {
        change(&mut self.needs.lock().unwrap());
    }
}
