//! `pilotlab fleet RACK agent NAME`: the agent of a server, which has its share of the rack's budget set over the server's control socket.
//!
//! A share is set with a deadline, three quarters of the lease after the request to etcd that kept it was sent. So whatever happens to the agent, the
//! server itself falls to its floor when the share is no longer valid. The membership lasts as long as the connection to the server.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use clap::Args;
use pilotlight_fleet::{Etcd, Fleet, MemberConfig};
use pilotlight_input::quantity::{self, TIMES};
use pilotlight_policy::fleet::{Work, estimate};
use pilotlight_policy::pass::profile::Profile;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tracing::{info, warn};

use super::control::{Connection, Control};
use super::need::Server;
use super::{FleetArgs, check_name, doubt, etcd, watts};
use crate::exit::Exit;

pub(super) const EXAMPLES: &str = "\
Examples:
  pilotlab fleet rack-7 agent storage-1 --profile machine.toml --etcd http://192.0.2.11:2379
  pilotlab fleet rack-7 agent storage-1 --full 400W --lease 10s --etcd http://192.0.2.11:2379

The configuration of the server needs `floor` in [goals]: its power without a share. The agent runs as the user of the server or as root, until
SIGTERM; then it sets the floor, and gives the share back once power is within it. It waits for a server that does not run, and for etcd.

Exit codes:
  0  ended by SIGTERM or SIGINT
  1  an option or a file is wrong";

/// Time of a lease; etcd's least is 2 s.
const LEASES: RangeInclusive<Duration> = Duration::from_secs(2)..=Duration::from_secs(3600);
/// Longest wait for an answer of the server.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause before another connection to the server.
const RECONNECT_PAUSE: Duration = Duration::from_secs(1);

/// Options of the agent.
#[derive(Args, Clone, Debug)]
pub(super) struct AgentArgs {
    /// Name of the server, unique in the rack
    name: String,

    /// The server's control socket
    #[arg(long, value_name = "PATH", env = "PILOTLIGHT_SOCKET", default_value = "/run/pilotlight/pilotlight.sock")]
    socket: PathBuf,

    /// Power above which the server gains nothing, such as 400W [default: that of the profile]
    #[arg(long, value_name = "POWER", required_unless_present = "profile")]
    full: Option<String>,

    /// Profile of this machine, as `pilotlab profile` makes it: what each watt is worth
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,

    /// Priority of the server in the rack, 0 (the lowest) to 255
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    priority: u8,

    /// Time without etcd until others get the server's share, 2s to 1h, in whole seconds; after three quarters of it the floor is in force
    #[arg(long, value_name = "TIME", default_value = "20s")]
    lease: String,
}

/// What ends a connection.
enum Event {
    Stop,
    Lost(String),
}

struct Agent {
    /// Without a floor, which the server has.
    member: MemberConfig,
    socket: PathBuf,
    profile: Option<Profile>,
    events: (Sender<Event>, Receiver<Event>),
}

pub(super) fn run(fleet: &FleetArgs, args: &AgentArgs) -> anyhow::Result<ExitCode> {
    let mut agent = Agent::new(fleet, args)?;
    let mut signals = Signals::new([SIGTERM, SIGINT]).context("cannot handle signals")?;
    let events = agent.events.0.clone();
    let stop = move || signals.forever().try_for_each(|_| events.send(Event::Stop)).unwrap_or_default();
    std::thread::Builder::new().name("signals".to_owned()).spawn(stop).context("cannot handle signals")?;
    let mut failure = String::new();
    loop {
        match agent.serve() {
            Ok(Event::Stop) => return Ok(Exit::Clean.into()),
            Ok(Event::Lost(why)) => {
                warn!("no share is set: {why}");
                failure = why;
            }
            Err(error) => {
                let why = format!("{error:#}");
                if why != failure {
                    warn!("no share is set: {why}");
                    failure = why;
                }
            }
        }
        match agent.events.1.recv_timeout(RECONNECT_PAUSE) {
            Ok(Event::Stop) => return Ok(Exit::Clean.into()),
            Ok(Event::Lost(_)) | Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
        }
    }
}

impl Agent {
    fn new(fleet: &FleetArgs, args: &AgentArgs) -> anyhow::Result<Self> {
        check_name(&args.name)?;
        let profile = args.profile.as_deref().map(read_profile).transpose()?;
        let full_of = |profile: &Profile| estimate(profile, 1_000_000, Work::default()).full_uw();
        let full_uw = args.full.as_deref().map(watts).transpose()?.or(profile.as_ref().map(full_of));
        let lease =
            quantity::parse(&args.lease, TIMES).ok().map(Duration::from_nanos).filter(|lease| LEASES.contains(lease));
        let lease = lease.with_context(|| format!("`{}` is not the time of a lease: use 2s to 1h", args.lease))?;
        let etcd: Etcd = etcd(fleet)?;
        doubt(fleet).into_iter().for_each(|doubt| warn!("{doubt}"));
        let member = MemberConfig {
            etcd,
            rack: fleet.rack.clone(),
            name: args.name.clone(),
            floor_uw: 0,
            reserved_uw: None,
            full_uw: full_uw.unwrap_or(0),
            priority: args.priority,
            lease: Duration::from_secs(lease.as_secs()),
        };
        Ok(Self { member, socket: args.socket.clone(), profile, events: channel() })
    }

    /// A member of the rack for as long as the server answers.
    fn serve(&mut self) -> anyhow::Result<Event> {
        let timeout = (self.member.lease / 2).min(ANSWER_TIMEOUT);
        let mut connection = Connection::open(&self.socket, timeout)?;
        let limit = connection.counters(false)?.limit;
        let limit = limit.context("the server has no floor: add `floor = \"120W\"` to its [goals], and restart it")?;
        let floor_uw = limit.floor_uw;
        ensure!(floor_uw <= self.member.full_uw, "the floor of the server is above its full power: raise --full");
        // a floor that was raised may have no room yet
        let reserved_uw = Some(limit.then_uw).filter(|then_uw| *then_uw < floor_uw);
        let member = MemberConfig { floor_uw, reserved_uw, ..self.member.clone() };
        let events = self.events.0.clone();
        let lost = move |why| _ = events.send(Event::Lost(why)); // else the agent ends
        let control = Control::start(connection, lost).context("cannot start a thread for the server")?;
        info!(rack = %member.rack, name = %member.name, "connected to the server at {}", self.socket.display());
        let server = Server::new(control.shared(), &member, self.profile.clone());
        let fleet = Fleet::start(member, Box::new(server), || ()).context("cannot start a thread for the rack")?;
        let event = loop {
            match self.events.1.recv_timeout(RECONNECT_PAUSE) {
                Ok(event) => break event,
                Err(_) if fleet.has_ended() => break Event::Lost("a fault of the agent (see above)".to_owned()),
                Err(_) => {}
            }
        };
        drop(fleet); // sets the floor
        drop(control);
        Ok(event)
    }
}

fn read_profile(path: &Path) -> anyhow::Result<Profile> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    Profile::parse(&text).map_err(|why| anyhow::anyhow!("{}: {why}", path.display()))
}
