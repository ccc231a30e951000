//! Checks of the options of the program: reactors, the policy, the control socket.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{anyhow, ensure};
use pilotlight_nvmf_target::Capped;
use pilotlight_nvmf_target::config::SubsystemConfig;
use pilotlight_plant::{Goal, Goals, Scope, Tolerance};

use super::Checker;
use crate::admin::NONE;
use crate::admin::group::Group;
use crate::config::caps::{Cap, Priority, parse_cap, parse_minimum};
use crate::config::keys::{self, Class, Draft};
use crate::config::operation::{AdminSocket, Operation, Reactors, SleepAfter};
use crate::config::parse_energy_shares;
use crate::config::power::{SensorChoice, parse_budget, parse_power};
use crate::config::problem::{Number, Origin, Problem, Text};
use crate::config::schedule::Schedule;
use crate::config::storage::cause;
use crate::config::tolerance::{NamespaceTolerance, parse_tolerance};
use crate::config::units::{format_duration, parse_duration};
use crate::log;
use crate::policies::{BudgetDomain, ChoicePart, InvalidChoice, PolicyChoice, users_of};
use crate::privileges::files::read_text;
use crate::seccomp::Seccomp;

/// The most reactors of a test.
const TEST_REACTORS: RangeInclusive<u16> = 1..=256;
/// Idle timeouts after which the whole server sleeps.
const SLEEP_AFTER: RangeInclusive<Duration> = Duration::from_micros(10)..=Duration::from_secs(3600);
/// Longest path of a socket in bytes (unix(7), `sun_path` with the zero at its end).
const MAX_SOCKET_PATH: usize = 107;

impl Checker<'_> {
    /// Reactors in test mode; `None` where there are to be cores.
    pub(super) fn test_reactors(&mut self, draft: &Draft) -> Option<u16> {
        let written = draft.server.reactors.as_ref()?;
        let cores = draft.server.cores.first().map(|core| ("cores", &core.at));
        let main = draft.server.main_core.as_ref().map(|core| ("main_core", &core.at));
        if let Some((key, at)) = cores.or(main) {
            let (key, reactors) = match at {
                Origin::Flag(flag) => (*flag, "--reactors"),
                _ => (key, "reactors"),
            };
            let help = format!("in test mode reactors have no cores of their own: omit {reactors}, or {key}");
            self.problem(Problem::error(at, format!("cannot be used together with {reactors}")).help(help));
        }
        let count = self.number(Some(written), TEST_REACTORS, 1, "reactors");
        if i64::from(count) == written.value {
            let what = format!("{count} reactors without cores of their own: this is for tests");
            let help = "they share the CPUs, and their siblings are artificial; measurements are not valid";
            self.problem(Problem::warning(&written.at, what).help(help));
        }
        Some(count)
    }

    /// The settings in addition to [`pilotlight_nvmf_target::config::ServerConfig`].
    pub(super) fn operation(&mut self, draft: &Draft, reactors: Reactors, subsystems: &[SubsystemConfig]) -> Operation {
        let operation = Operation {
            reactors,
            sleep_after: self.sleep_after(draft.server.sleep_after.as_ref()),
            hotplug: draft.server.hotplug,
            keep_limits: draft.goals.keep_limits,
            roots: draft.roots.clone(),
            policy: self.policy(draft),
            goals: Goals { minimums: self.minimums(&draft.classes), ..self.goals(&draft.goals) },
            caps: self.caps(draft, subsystems),
            priorities: self.priorities(draft, subsystems),
            tolerances: self.tolerances(draft, subsystems),
            domain: self.parsed(draft.goals.domain.as_ref(), BudgetDomain::parse),
            schedule: {
                let base = self.base;
                self.parsed(draft.goals.schedule.as_ref(), |file| Schedule::read(&base.join(file)))
            },
            profile: self.profile(draft.goals.profile.as_ref()),
            sensor: {
                let base = self.base;
                self.parsed(draft.server.sensor.as_ref(), |text| SensorChoice::parse(text, base)).unwrap_or_default()
            },
            admin_socket: self.admin_socket(draft.admin.socket.as_ref(), draft.admin.read_group.as_ref()),
            state_file: self.path(draft.admin.state.as_ref(), self.machine.state_file.as_deref()),
            reservations: self.path(draft.server.reservations.as_ref(), self.machine.reservations.as_deref()),
            energy_shares: self.parsed(draft.server.energy_shares.as_ref(), parse_energy_shares).flatten(),
            log_format: self.parsed(draft.log.format.as_ref(), log::Format::parse).unwrap_or_default(),
            seccomp: self.parsed(draft.security.seccomp.as_ref(), Seccomp::parse),
            user: self.account(&draft.security),
            metrics: draft.metrics.listen.as_ref().and_then(|text| self.metrics(text)),
            mdns: draft.discovery.mdns,
            page: None,
            floor_uw: self.parsed(draft.goals.floor.as_ref(), parse_power),
        };
        let page = self.page(&draft.page, draft.page_tick_ms, operation.admin_socket.as_ref());
        let operation = Operation { page, ..operation };
        self.unused_goals(&draft.goals, &operation);
        operation
    }

    /// Bandwidth caps of namespaces and hosts.
    fn caps(&mut self, draft: &Draft, subsystems: &[SubsystemConfig]) -> Vec<Cap> {
        let mut caps = Vec::new();
        for (of, namespace) in namespaces(draft, subsystems) {
            let rate = self.parsed(namespace.max_bytes_per_s.as_ref(), parse_cap).flatten();
            caps.extend(of.zip(rate));
        }
        for host in &draft.hosts {
            if host.nqn.is_none() {
                let help = "name the host by its NQN, such as the one in its /etc/nvme/hostnqn";
                self.problem(Problem::error(&host.at, "`nqn` is missing").help(help));
            }
            host.nqn.iter().for_each(|nqn| self.nqn(nqn));
            let rate = self.parsed(host.max_bytes_per_s.as_ref(), parse_cap).flatten();
            caps.extend(host_name(host).zip(rate));
        }
        self.no_duplicates(draft.hosts.iter().filter_map(|host| host.nqn.as_ref()));
        caps
    }

    /// Priorities of namespaces and hosts.
    fn priorities(&mut self, draft: &Draft, subsystems: &[SubsystemConfig]) -> Vec<Priority> {
        let namespaces = namespaces(draft, subsystems).filter_map(|(of, ns)| of.zip(ns.priority.as_ref()));
        let hosts = draft.hosts.iter().filter_map(|host| host_name(host).zip(host.priority.as_ref()));
        namespaces.chain(hosts).map(|(of, written)| (of, self.priority(written))).collect()
    }

    /// Tolerances of namespaces.
    fn tolerances(&mut self, draft: &Draft, subsystems: &[SubsystemConfig]) -> Vec<NamespaceTolerance> {
        let mut tolerances = Vec::new();
        for (of, namespace) in namespaces(draft, subsystems) {
            let bound = self.parsed(namespace.tolerance.as_ref(), parse_tolerance).flatten();
            tolerances.extend(of.zip(bound));
        }
        tolerances
    }

    fn priority(&mut self, written: &Number) -> u8 {
        self.number(Some(written), 0..=u8::MAX, 0, "is not a priority")
    }

    /// Bandwidth that each class keeps under a budget.
    fn minimums(&mut self, classes: &[Class]) -> Vec<(u8, u64)> {
        let mut minimums = Vec::new();
        for class in classes {
            let Some(priority) = &class.priority else {
                let help =
                    "add the priority of the namespaces and hosts that keep this bandwidth, such as `priority = 5`";
                self.problem(Problem::error(&class.at, "`priority` is missing").help(help));
                continue;
            };
            let priority = self.priority(priority);
            let minimum = self.parsed(class.min_bytes_per_s.as_ref(), parse_minimum).flatten();
            minimums.extend(minimum.map(|bytes_per_s| (priority, bytes_per_s)));
        }
        self.no_duplicates(classes.iter().filter_map(|class| class.priority.as_ref()));
        minimums
    }

    fn goals(&mut self, written: &keys::Goals) -> Goals {
        Goals {
            budget_uw: self.parsed(written.budget.as_ref(), parse_budget).flatten(),
            tolerances: self.tolerance(written).into_iter().collect(),
            ..Goals::default()
        }
    }

    fn tolerance(&mut self, written: &keys::Goals) -> Option<Tolerance> {
        Some(self.parsed(written.tolerance.as_ref(), parse_tolerance)??.in_scope(Scope::Server))
    }

    /// The text of a profile that `pass` takes.
    fn profile(&mut self, written: Option<&Text>) -> Option<String> {
        let base = self.base;
        self.parsed(written, |file| {
            let path = base.join(file);
            let text = read_text(&path).map_err(|error| anyhow!("{}: {}", path.display(), cause(&error)))?;
            let (is_whole, path) = (pilotlight_policy::build("pass", &[("profile", &text)]).is_ok(), path.display());
            ensure!(
                is_whole,
                "{path}: this is no whole profile of a machine; `pilotlab profile --out {path} DRIVE` makes one"
            );
            Ok(text)
        })
    }

    /// Warns about a goal that the policy does not use. A budget is held by a wrapping policy (`serve/holder.rs`).
    fn unused_goals(&mut self, written: &keys::Goals, operation: &Operation) {
        let Ok(policy) = operation.policy.build() else { return };
        let is_unused = !operation.goals.tolerances.is_empty() && !policy.uses(Goal::Tolerance);
        let Some(text) = written.tolerance.as_ref().filter(|_| is_unused) else { return };
        let problem = Problem::warning(&text.at, format!("policy {} does not use a tolerance", policy.name()));
        let users = users_of(Goal::Tolerance);
        self.problem(problem.help(format!("nothing holds it; policies that do: {users}")));
    }

    /// A parsed text; `None` after an error, which is noted.
    pub(super) fn parsed<T, E: Display>(
        &mut self,
        written: Option<&Text>,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        let written = written?;
        parse(&written.value).map_err(|wrong| self.problem(Problem::error(&written.at, wrong))).ok()
    }

    fn sleep_after(&mut self, written: Option<&Text>) -> SleepAfter {
        let Some(text) = written else { return SleepAfter::default() };
        if let Some(named) =
            [SleepAfter::Policy, SleepAfter::Never].into_iter().find(|named| named.text() == text.value)
        {
            return named;
        }
        match parse_duration(&text.value) {
            Ok(timeout) if SLEEP_AFTER.contains(&timeout) => return SleepAfter::Time(timeout),
            Ok(_) => {
                let (least, most) = (format_duration(*SLEEP_AFTER.start()), format_duration(*SLEEP_AFTER.end()));
                let problem = Problem::error(&text.at, format!("an idle timeout of {}", text.value));
                self.problem(problem.help(format!("use {least} to {most}, never or policy")));
            }
            Err(wrong) => self.problem(Problem::error(&text.at, wrong).help("or write never or policy")),
        }
        SleepAfter::default()
    }

    fn policy(&mut self, draft: &Draft) -> PolicyChoice {
        let default = PolicyChoice::default();
        let written = draft.parameters.iter();
        let choice = PolicyChoice {
            name: draft.policy.name.as_ref().map_or(default.name, |name| name.value.clone()),
            parameters: written.map(|(key, value)| (key.value.clone(), value.value.clone())).collect(),
        };
        self.no_duplicates(draft.parameters.iter().map(|(key, _)| key));
        if let Err(unfit) = choice.build() {
            let problem = Problem::error(&place(draft, &unfit), unfit.what);
            self.problem(problem.help(unfit.help));
        }
        choice
    }

    /// A path, or `none`.
    fn path(&self, written: Option<&Text>, default: Option<&Path>) -> Option<PathBuf> {
        match written {
            Some(text) if text.value == NONE => None,
            Some(text) => Some(self.base.join(&text.value)),
            None => default.map(Path::to_path_buf),
        }
    }

    fn admin_socket(&mut self, written: Option<&Text>, group: Option<&Text>) -> Option<AdminSocket> {
        let read_group = group.and_then(|name| self.group(name));
        let (path, at) = match written {
            Some(text) if text.value == NONE => return None,
            Some(text) => (self.base.join(&text.value), text.at.clone()),
            None => (self.machine.socket.clone()?, Origin::Default),
        };
        self.socket_path(&path, &at);
        Some(AdminSocket { path, is_explicit: written.is_some(), read_group })
    }

    /// Checks the path of a Unix socket.
    pub(super) fn socket_path(&mut self, path: &Path, at: &Origin) {
        let length = path.as_os_str().len();
        if length > MAX_SOCKET_PATH {
            let what = format!("{} has {length} bytes, and a socket's path at most {MAX_SOCKET_PATH}", path.display());
            self.problem(Problem::error(at, what).help(format!("choose a shorter path, or {NONE}")));
        }
        if path.file_name().is_none() {
            let what = format!("`{}` names no socket", path.display());
            self.problem(
                Problem::error(at, what).help(format!("write a path such as /run/pilotlight/a.sock, or {NONE}")),
            );
        }
    }

    fn group(&mut self, name: &Text) -> Option<Group> {
        let found = Group::named(&name.value);
        let wrong = match found {
            Ok(Some(group)) => return Some(group),
            Ok(None) => format!("there is no group `{}`", name.value),
            Err(error) => format!("the group `{}` is not known: {}", name.value, cause(&error)),
        };
        self.problem(
            Problem::error(&name.at, wrong).help("`getent group` lists them, `groupadd --system NAME` makes one"),
        );
        None
    }
}

/// All namespaces; the name is `None` if the NSID is invalid.
fn namespaces<'a>(
    draft: &'a Draft,
    subsystems: &'a [SubsystemConfig],
) -> impl Iterator<Item = (Option<Capped>, &'a keys::Namespace)> {
    draft.subsystems.iter().zip(subsystems).flat_map(|(written, config)| {
        written.namespace.iter().map(|namespace| {
            let nsid = namespace.nsid.as_ref().and_then(|nsid| u32::try_from(nsid.value).ok());
            (nsid.map(|nsid| Capped::Namespace { nqn: config.nqn.clone(), nsid }), namespace)
        })
    })
}

fn host_name(host: &keys::Host) -> Option<Capped> {
    host.nqn.as_ref().map(|nqn| Capped::Host { nqn: nqn.value.clone() })
}

/// The origin of the invalid part.
fn place(draft: &Draft, unfit: &InvalidChoice) -> Origin {
    let last = |key: &str| draft.parameters.iter().rfind(|(other, _)| other.value == key);
    let found = match &unfit.part {
        ChoicePart::Name => draft.policy.name.as_ref().map(|name| &name.at),
        ChoicePart::Key(key) => last(key).map(|(key, _)| &key.at),
        ChoicePart::Value(key) => last(key).map(|(_, value)| &value.at),
        ChoicePart::Together => None,
    };
    found.unwrap_or(&draft.policy.at).clone()
}
