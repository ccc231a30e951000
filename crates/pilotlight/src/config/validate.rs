//! A draft becomes a [`ServerConfig`], or a list of everything that is wrong with it.
//!
//! Properties: a configuration that passes has no duplicate listener, NQN, NSID, UUID or medium, names only cores that
//! this process may run on and only files that can be opened, and lies within the bounds of the target's tables. The
//! machine is an argument, so that the result depends only on arguments and files.

mod background;
mod limits;
pub(crate) mod network;
mod operation;
mod page;
pub(super) mod security;
mod subsystems;

pub(super) use self::limits::overcommitment;
use self::network::Listeners;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::Path;

use anyhow::bail;
use pilotlight_nvmf_target::config::{NamespaceConfig, QueuePlacement, ServerConfig};

use super::NamespaceName;
use super::keys::{self, Draft};
use super::machine::Machine;
use super::operation::{Operation, Reactors};
use super::problem::{Located, Number, Origin, Problem};
use super::units::format_cores;

/// The most I/O threads that a server may have.
const MAX_IO_THREADS: u32 = 1024;

/// The result of the checks; the configuration is valid only if no problem is an error.
pub(crate) struct Checked {
    pub(crate) config: ServerConfig,
    pub(crate) operation: Operation,
    pub(crate) may_shrink: Vec<NamespaceName>,
    pub(crate) problems: Vec<Problem>,
}

/// What is bound to an I/O thread.
fn parse_placement(text: &str) -> anyhow::Result<QueuePlacement> {
    match text {
        "queue" => Ok(QueuePlacement::Queue),
        "host" => Ok(QueuePlacement::Host),
        _ => bail!("`{text}` is nothing that is bound to an I/O thread: use queue or host"),
    }
}

/// Checks `draft` against this `machine`; relative paths start at `base`.
pub(crate) fn validate(draft: &Draft, machine: &Machine, base: &Path) -> Checked {
    let mut checker = Checker { machine, base, problems: Vec::new() };
    let Listeners { plain: listeners, tls: tls_listeners, concat: concatenation_listeners } =
        checker.listeners(&draft.server);
    let all = [&listeners[..], &tls_listeners, &concatenation_listeners].concat();
    let authentication = checker.authentication(&draft.security);
    checker.note_tls(draft, &authentication);
    checker.note_open_subsystems(draft);
    let (reactors, main_core) = checker.reactors(draft);
    let io_threads = checker.io_threads(draft.server.io_threads.as_ref(), reactors.len());
    let mut config = ServerConfig {
        named_hosts: Vec::new(),
        advertise: checker.advertise(draft.server.advertise.as_ref()),
        tls_advertise: checker.advertise(draft.server.tls_advertise.as_ref()),
        kernel_tls: draft.security.kernel_tls,
        discovery_port: checker.discovery_port(draft.discovery.port.as_ref()),
        referrals: Vec::new(),
        paths: checker.paths(&draft.paths, &all),
        subsystems: checker.subsystems(&draft.subsystems, &all),
        limits: checker.limits(&draft.limits, io_threads),
        background: checker.background(&draft.background),
        authentication,
        listeners,
        tls_listeners,
        concatenation_listeners,
        cores: reactors.cores.iter().copied().flatten().collect(),
        main_core,
        io_threads,
        placement: checker.parsed(draft.server.placement.as_ref(), parse_placement).unwrap_or_default(),
        power_states: draft.server.power_states,
    };
    config.referrals = checker.referrals(&draft.discovery.referral, &config.all_listeners());
    checker.note_overcommitment(draft, &config);
    let operation = checker.operation(draft, reactors, &config.subsystems);
    Checked { config, operation, may_shrink: may_shrink(draft), problems: checker.problems }
}

/// Namespaces with `shrink = true`.
fn may_shrink(draft: &Draft) -> Vec<NamespaceName> {
    let mut names = Vec::new();
    for subsystem in &draft.subsystems {
        let Some(nqn) = &subsystem.nqn else { continue };
        let shrinking = subsystem.namespace.iter().filter(|namespace| namespace.shrink);
        let nsids = shrinking.filter_map(|namespace| u32::try_from(namespace.nsid.as_ref()?.value).ok());
        names.extend(nsids.map(|nsid| (nqn.value.clone(), nsid)));
    }
    names
}

/// Checks a namespace that is to join `others`.
pub(crate) fn validate_namespace<'a>(
    draft: &keys::Namespace,
    others: impl Iterator<Item = &'a NamespaceConfig>,
    machine: &Machine,
) -> (Option<NamespaceConfig>, Vec<Problem>) {
    let mut checker = Checker { machine, base: Path::new(""), problems: Vec::new() };
    let namespace = checker.joining_namespace(draft, others);
    (namespace, checker.problems)
}

/// The checks, and what they have found so far.
struct Checker<'a> {
    machine: &'a Machine,
    base: &'a Path,
    problems: Vec<Problem>,
}

impl Checker<'_> {
    fn problem(&mut self, problem: Problem) {
        self.problems.push(problem);
    }

    fn error(&mut self, at: &Origin, what: impl Display) {
        self.problem(Problem::error(at, what));
    }

    /// The reactors and the main core.
    fn reactors(&mut self, draft: &Draft) -> (Reactors, u32) {
        if let Some(count) = self.test_reactors(draft) {
            return (Reactors::for_tests(count), 0);
        }
        let cores = self.cores(&draft.server.cores);
        let main_core = self.main_core(draft.server.main_core.as_ref(), &cores);
        if cores.is_empty() {
            return (Reactors::for_tests(1), main_core); // refused already
        }
        (Reactors::pinned(&cores, main_core, &self.machine.siblings), main_core)
    }

    fn cores(&mut self, written: &[Number]) -> Vec<u32> {
        let Some(&first_allowed) = self.machine.cores.first() else { return Vec::new() };
        if written.is_empty() {
            return vec![first_allowed];
        }
        let mut cores: Vec<u32> = Vec::new();
        let mut absent: Vec<&Number> = Vec::new();
        for core in written {
            match u32::try_from(core.value) {
                Ok(id) if cores.contains(&id) => self.error(&core.at, format!("core {id} is a duplicate")),
                Ok(id) if self.machine.cores.contains(&id) => cores.push(id),
                _ => absent.push(core),
            }
        }
        if self.machine.online > 1 && cores.len() == self.machine.online {
            let what = format!("the server takes all {} CPUs of this machine", cores.len());
            let help = "leave one to other programs: cores that poll take their time, and a load beside them gets next to none";
            self.problem(Problem::warning(&written[0].at, what).help(help));
        }
        if let Some(first) = absent.first() {
            let listed: Vec<String> = absent.iter().map(|core| core.value.to_string()).collect();
            let what = format!("there is no core {} for this process", listed.join(", "));
            let allowed = format_cores(&self.machine.cores);
            let help = format!("it may run on {allowed} (see `taskset -cp $$`)");
            self.problem(Problem::error(&first.at, what).help(help));
        }
        cores
    }

    fn main_core(&mut self, written: Option<&Number>, cores: &[u32]) -> u32 {
        let default = cores.first().copied().unwrap_or(0);
        let Some(core) = written else { return default };
        match cores.iter().find(|&&id| i64::from(id) == core.value) {
            Some(&id) => id,
            None if cores.is_empty() => default,
            None => {
                let help = format!("the main core is one of them; cores are {}", format_cores(cores));
                self.problem(Problem::error(&core.at, format!("{} is not among the cores", core.value)).help(help));
                default
            }
        }
    }

    fn io_threads(&mut self, written: Option<&Number>, reactors: usize) -> u32 {
        let count = self.number(written, 1..=MAX_IO_THREADS, reactors as u32, "I/O threads");
        if let Some(written) = written
            && (count as usize) < reactors
        {
            let what = format!("{} of {reactors} cores have no I/O thread to run", reactors - count as usize);
            self.problem(Problem::warning(&written.at, what));
        }
        count
    }

    /// A number within `range`; `default` if it is missing or outside. `what` is the unit.
    fn number<T>(&mut self, written: Option<&Number>, range: RangeInclusive<T>, default: T, what: &str) -> T
    where
        T: TryFrom<i64> + PartialOrd + Display + Copy,
    {
        let Some(number) = written else { return default };
        match T::try_from(number.value) {
            Ok(value) if range.contains(&value) => value,
            _ => {
                let help = format!("use {} to {}", range.start(), range.end());
                self.problem(Problem::error(&number.at, format!("{} {what}", number.value)).help(help));
                default
            }
        }
    }

    /// Notes duplicates.
    fn no_duplicates<'v, T: PartialEq + Display + 'v>(&mut self, values: impl IntoIterator<Item = &'v Located<T>>) {
        let mut seen: Vec<&Located<T>> = Vec::new();
        for value in values {
            match seen.iter().find(|other| other.value == value.value) {
                Some(first) => {
                    let problem = Problem::error(&value.at, format!("{} is a duplicate", value.value));
                    self.problem(match &first.at {
                        Origin::File { key, .. } => problem.help(format!("first used in {key}")),
                        _ => problem,
                    });
                }
                None => seen.push(value),
            }
        }
    }
}
