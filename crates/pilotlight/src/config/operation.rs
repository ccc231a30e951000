//! Settings of the program, in addition to [`pilotlight_nvmf_target::config::ServerConfig`].

use pilotlight_power::shares::Idle;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use pilotlight_plant::{CoreId, Goals, Topology};
use pilotlight_reactor::IdleTimeout;

use super::{Cap, NamespaceTolerance, Priority, Schedule, SensorChoice, format_duration};
use crate::admin::group::Group;
use crate::log;
use crate::policies::{BudgetDomain, PolicyChoice};
use crate::privileges::Account;
use crate::seccomp::Seccomp;

/// Reactors, what decides over them, and where the program takes requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Operation {
    /// On what reactors run.
    pub(crate) reactors: Reactors,
    /// How long after the last request the whole server waits in the kernel.
    pub(crate) sleep_after: SleepAfter,
    /// Whether cores that the policy does not use may be taken out of the system.
    pub(crate) hotplug: bool,
    /// Whether power limits stay when the server is killed.
    pub(crate) keep_limits: bool,
    /// Below which folder the kernel's files are; `None`: at their places.
    pub(crate) roots: Option<PathBuf>,
    /// The policy.
    pub(crate) policy: PolicyChoice,
    /// Goals.
    pub(crate) goals: Goals,
    /// Bandwidth caps at the start; later values are only in the server.
    pub(crate) caps: Vec<Cap>,
    /// Priorities of namespaces and hosts; those of [`Goals`] are empty here.
    pub(crate) priorities: Vec<Priority>,
    /// Tolerances of namespaces; that of the server is in [`Goals`].
    pub(crate) tolerances: Vec<NamespaceTolerance>,
    /// The domain of the budget; `None`: the server if it is measured, else the CPU packages.
    pub(crate) domain: Option<BudgetDomain>,
    /// Budgets by time, which take the place of that of `goals`.
    pub(crate) schedule: Option<Schedule>,
    /// The text of a profile of this machine, by which `pass` holds budgets.
    pub(crate) profile: Option<String>,
    /// Where goals that were set manually are kept over a restart.
    pub(crate) state_file: Option<PathBuf>,
    /// Folder that keeps reservations over a restart.
    pub(crate) reservations: Option<PathBuf>,
    /// The power sensor.
    pub(crate) sensor: SensorChoice,
    /// The control socket; `None`: there is none.
    pub(crate) admin_socket: Option<AdminSocket>,
    /// Who gets idle energy, where energy is divided among hosts; `None`: it is not divided.
    pub(crate) energy_shares: Option<Idle>,
    /// Where metrics are served over HTTP; `None`: not served.
    pub(crate) metrics: Option<SocketAddr>,
    /// Whether the discovery service is announced by multicast DNS.
    pub(crate) mdns: bool,
    /// Handling of system calls that the server does not need; `None`: they kill it where the kernel has seccomp filters.
    pub(crate) seccomp: Option<Seccomp>,
    /// The user as which the server runs after its start; `None`: the one that started it.
    pub(crate) user: Option<Account>,
    /// How the log is written.
    pub(crate) log_format: log::Format,
    /// The live page; `None`: there is none.
    pub(crate) page: Option<Page>,
    /// Limit of all budgets until the first one with a deadline, in microwatts; `None`: those are refused.
    pub(crate) floor_uw: Option<u64>,
}

/// The live page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Page {
    /// Where it is served.
    pub(crate) listen: PageAddress,
    /// Accepted host names, in addition to `localhost` and addresses.
    pub(crate) hosts: Vec<String>,
    /// The token for logging in.
    pub(crate) token: TokenFile,
    /// Time between two samples.
    pub(crate) tick: Duration,
}

/// Where the page is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PageAddress {
    /// Over TCP.
    Tcp(SocketAddr),
    /// On a Unix socket of this user.
    Unix(PathBuf),
}

impl std::fmt::Display for PageAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "http://{address}/"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// The file of the page's token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TokenFile {
    /// The server makes it, with another token at each start.
    Generated(PathBuf),
    /// The operator has made it.
    Configured(PathBuf),
}

impl TokenFile {
    pub(crate) fn path(&self) -> &std::path::Path {
        let (Self::Generated(path) | Self::Configured(path)) = self;
        path
    }
}

/// `sleep_after`: idle timeout after which the whole server sleeps in the kernel, if the policy allows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum SleepAfter {
    /// The policy decides.
    #[default]
    Policy,
    /// So long.
    Time(Duration),
    /// It never does.
    Never,
}

impl SleepAfter {
    /// As reactors take it.
    pub(crate) fn idle_timeout(self) -> IdleTimeout {
        match self {
            Self::Policy => IdleTimeout::FromPolicy,
            Self::Time(time) => IdleTimeout::Fixed(time.as_nanos() as u64),
            Self::Never => IdleTimeout::Never,
        }
    }

    /// As it is written in the configuration.
    pub(crate) fn text(self) -> String {
        match self {
            Self::Policy => "policy".to_owned(),
            Self::Time(time) => format_duration(time),
            Self::Never => "never".to_owned(),
        }
    }

    /// The setting as a sentence.
    pub(crate) fn sentence(text: &str) -> String {
        match text {
            "policy" => "the policy decides when the server sleeps".to_owned(),
            "never" => "the server never sleeps".to_owned(),
            time => format!("the server may sleep after {time} without requests"),
        }
    }
}

/// The control socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AdminSocket {
    /// Where it is.
    pub(crate) path: PathBuf,
    /// Whether it was configured. Without it, a server starts without a control socket if the default path cannot be used.
    pub(crate) is_explicit: bool,
    /// The group whose members may read what the server is and does.
    pub(crate) read_group: Option<Group>,
}

/// The reactors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reactors {
    /// The core of each; `None`: it runs wherever the system puts it (test mode).
    pub(crate) cores: Vec<Option<u32>>,
    /// Which is the main core, and which are siblings.
    pub(crate) topology: Topology,
}

impl Reactors {
    /// One pinned to each of `cores`, which are not empty. Each of `groups` is one physical core; of
    /// more than two such cores the first is the sibling of the second, and so on.
    pub(crate) fn pinned(cores: &[u32], main_core: u32, groups: &[Vec<u32>]) -> Self {
        let index = |core: u32| cores.iter().position(|&other| other == core);
        let mut siblings = vec![None; cores.len()];
        for group in groups {
            let chosen: Vec<usize> = group.iter().filter_map(|&core| index(core)).collect();
            for pair in chosen.chunks_exact(2) {
                siblings[pair[0]] = Some(CoreId(pair[1] as u16));
                siblings[pair[1]] = Some(CoreId(pair[0] as u16));
            }
        }
        let main = CoreId(index(main_core).unwrap_or(0) as u16);
        let topology = Topology::new(main, siblings).unwrap_or_else(|_| unreachable!("pairs name each other"));
        Self { cores: cores.iter().map(|&core| Some(core)).collect(), topology }
    }

    /// `count` reactors without cores of their own, for tests on small machines: 0 and 1, 2 and 3, and so on count as
    /// siblings.
    pub(crate) fn for_tests(count: u16) -> Self {
        let topology = Topology::paired(count.max(1)).unwrap_or_else(|_| unreachable!("there is a reactor"));
        Self { cores: vec![None; topology.len()], topology }
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.cores.len()
    }

    /// Whether they have no cores of their own. Such a server yields no valid measurements.
    pub(crate) fn is_test_mode(&self) -> bool {
        self.cores.iter().all(Option::is_none)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn siblings(reactors: &Reactors) -> Vec<Option<u16>> {
        reactors.topology.cores().map(|core| reactors.topology.sibling(core).map(|sibling| sibling.0)).collect()
    }

    #[test]
    fn siblings_are_reactors_whose_cores_were_both_chosen() {
        let reactors = Reactors::pinned(&[1, 2, 5, 9], 5, &[vec![0, 4], vec![1, 5], vec![2, 6]]);
        assert_eq!(siblings(&reactors), [Some(2), None, Some(0), None]);
        assert_eq!(reactors.topology.main(), CoreId(2));
        let four = Reactors::pinned(&[0, 1, 2, 3], 0, &[vec![0, 1, 2, 3]]);
        assert_eq!(siblings(&four), [Some(1), Some(0), Some(3), Some(2)]);
    }

    #[test]
    fn reactors_for_tests_have_virtual_siblings_and_no_cores() {
        let reactors = Reactors::for_tests(3);
        assert!(reactors.is_test_mode() && reactors.len() == 3);
        assert_eq!(siblings(&reactors), [Some(1), Some(0), None]);
    }
}
