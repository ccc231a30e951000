//! Handles requests of the control socket.

use std::sync::PoisonError;

use pilotlight_nvmf_target::{CapStats, ServerStats};
use pilotlight_plant::View;
use pilotlight_reactor::RuntimeStats;
use pilotlight_storage::background::control::Class;
use serde::Serialize;
use tracing::warn;

use super::Admin;
use super::audit::{self, Author};
use super::namespaces::{Visibility, find_target};
use super::priorities::priorities;
use crate::admin::listener::{RequestHandler, User};
use crate::admin::refusal::Refusal;
use crate::admin::request::{BackgroundClass, BackgroundState, CapRequest, NamespaceShow, Request};
use crate::admin::response::to_line;
use crate::config::parse_cap;
use crate::metrics;
use crate::policies::{ChoicePart, InvalidChoice, PolicyChoice};
use crate::serve::holder::choose;
use crate::serve::notify;
use crate::status::background::background;
use crate::status::health::HealthReport;
use crate::status::measure::{self, Snapshot};
use crate::status::report::{BackgroundReport, CapReport, PolicyReport, Report, ServerFacts};

impl RequestHandler for Admin {
    type Session = Session;

    fn session(&self, user: User) -> Session {
        Session { user, previous: Snapshot::default(), first: None }
    }

    fn answer(&self, line: &[u8], session: &mut Session) -> String {
        let request = match Request::parse(line) {
            Ok(Request::Status {}) => return to_line(Ok(self.status(&mut session.previous))),
            Ok(Request::Health {}) => return to_line(Ok(self.health(session))),
            Ok(request) => request,
            Err(refusal) => return to_line::<()>(Err(refusal)),
        };
        let by = Author::User(session.user.uid);
        if request.is_read_only() {
            return self.carry_out(request, &by);
        }
        if !session.user.may_change {
            return log::<()>(&by, "a change by a user that may only read", Err(read_only()));
        }
        match request {
            // not after a request that waits
            Request::SetLimit(limit) => log(&by, "set-limit", self.set_limit(&limit, &by)),
            request => self.carry_out_and_log(request, &by),
        }
    }

    fn refusal(&self, what: &str) -> String {
        to_line::<()>(Err(Refusal::new(what)))
    }
}

/// A connection to the control socket.
pub(in crate::serve) struct Session {
    /// Who is at its other end.
    user: User,
    /// The counters at its previous status request.
    previous: Snapshot,
    /// Counters of the reactors at its first health request.
    first: Option<RuntimeStats>,
}

impl Admin {
    /// The response to a request that may change something; changes are logged.
    pub(super) fn carry_out_and_log(&self, request: Request, by: &Author) -> String {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        audit::note(by, &request);
        let before = self.values();
        let answer = self.carry_out(request, by);
        audit::log(by, &before, &self.values());
        answer
    }

    fn carry_out(&self, request: Request, by: &Author) -> String {
        match request {
            Request::Status {} | Request::Health {} => self.refusal("it changes nothing"), // handled in `answer`
            Request::SetPolicy(choice) => log(by, "set-policy", self.set_policy(&choice)),
            Request::SetGoals(goals) => log(by, "set-goals", self.set_goals(&goals)),
            Request::SetLimit(limit) => log(by, "set-limit", self.set_limit(&limit, by)),
            Request::Counters { bottleneck } => to_line(Ok(self.counters(bottleneck))),
            Request::SetCap(cap) => log(by, "set-cap", self.set_cap(&cap)),
            Request::SetPriority(priority) => log(by, "set-priority", self.set_priority(&priority)),
            Request::SetMinimum(minimum) => log(by, "set-minimum", self.set_minimum(&minimum)),
            Request::SetBackground { class, state } => log(by, "set-background", self.set_background(class, state)),
            Request::HostList { nqn } => log(by, "host-list", self.list_hosts(nqn.as_deref())),
            Request::HostAdd(request) => log(by, "host-add", self.add_host(&request)),
            Request::HostRemove(request) => log(by, "host-remove", self.remove_host(&request)),
            Request::ConfigSave(request) => log(by, "config-save", self.save(&request)),
            Request::Connections {} => to_line(Ok(self.connections())),
            Request::Disconnect(request) => log(by, "disconnect", self.disconnect(&request)),
            Request::NamespaceList { nqn } => log(by, "namespace-list", self.list_namespaces(nqn.as_deref())),
            Request::NamespaceAdd(request) => log(by, "namespace-add", self.add_namespace(&request)),
            Request::NamespaceRemove { nqn, nsid } => {
                log(by, "namespace-remove", self.remove_namespace(nqn.as_deref(), nsid))
            }
            Request::NamespaceResize(request) => log(by, "namespace-resize", self.resize_namespace(&request)),
            Request::NamespaceShow(NamespaceShow { nqn, nsid, hosts, all, only }) => {
                let change = Visibility::of_show(hosts, all, only);
                log(by, "namespace-show", self.set_visibility(nqn.as_deref(), nsid, &change))
            }
            Request::ListenerList {} => log(by, "listener-list", Ok(self.listeners())),
            Request::ListenerAdd { address, security } => {
                log(by, "listener-add", self.add_listener(&address, security))
            }
            Request::ListenerRemove { address } => log(by, "listener-remove", self.remove_listener(&address)),
            Request::PathList {} => log(by, "path-list", Ok(self.paths())),
            Request::PathSet { address, state, group } => log(by, "path-set", self.set_path(&address, &state, group)),
            Request::SubsystemList {} => log(by, "subsystem-list", Ok(self.subsystems())),
            Request::SubsystemAdd(request) => log(by, "subsystem-add", self.add_subsystem(&request)),
            Request::SubsystemRemove { nqn } => log(by, "subsystem-remove", self.remove_subsystem(&nqn)),
            Request::SubsystemListen { nqn, listen } => {
                log(by, "subsystem-listen", self.set_subsystem_listen(&nqn, &listen))
            }
            Request::NamespaceHide(request) => {
                let change = Visibility::Remove(request.hosts);
                log(by, "namespace-hide", self.set_visibility(request.nqn.as_deref(), request.nsid, &change))
            }
        }
    }
}

/// The refusal for users that may only read.
fn read_only() -> Refusal {
    Refusal::new("you may read (status, lists, connections), and change nothing")
        .help("the user that runs the server, and root, may")
}

/// The response line; a refusal is also logged.
fn log<T: Serialize>(by: &Author, what: &str, outcome: Result<T, Refusal>) -> String {
    if let Err(refusal) = &outcome {
        warn!(command = what, reason = %refusal.message, "{} request refused", by.name());
    }
    to_line(outcome)
}

impl Admin {
    /// The status, with rates since the previous request of this connection.
    fn status(&self, session: &mut Snapshot) -> Report {
        self.server.watch_latency();
        let now = self.take_snapshot();
        // after the counters, as this wakes the main core
        let report = self.report_of(session, &now, true);
        let metrics = metrics::samples(&self.facts_with(now.stats.clone()));
        *session = now;
        Report { metrics, ..report }
    }

    /// Its counters.
    pub(super) fn take_snapshot(&self) -> Snapshot {
        let uptime_ns = self.started.elapsed().as_nanos() as u64;
        Snapshot { uptime_ns, stats: self.server.stats() }
    }

    /// The status between two snapshots, without metrics. Data of the main core only if that `may_wake` it.
    pub(super) fn report_of(&self, before: &Snapshot, now: &Snapshot, may_wake: bool) -> Report {
        let (operation, active_policy, priorities, view, budget, unreachable) = {
            let state = self.state();
            (
                state.operation.clone(),
                state.active_policy.clone(),
                priorities(&state),
                if may_wake { self.server.view() } else { View::new() },
                self.budget_status(&state).map(|budget| if may_wake { self.with_bottleneck(budget) } else { budget }),
                may_wake.then(|| self.server.unreachable()).flatten(),
            )
        };
        let facts = ServerFacts {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            uptime_ns: now.uptime_ns,
            listening: self.listening().all(),
            test_mode: operation.reactors.is_test_mode(),
            sleep_after: operation.sleep_after.text(),
        };
        let policy = measure::policy(&active_policy, view);
        let report = measure::report(before, now, facts, policy, &operation.reactors);
        let goals = measure::goals(&operation.goals, &operation.tolerances, &active_policy, unreachable);
        let (power, page) = (self.server.power(), self.page.get().cloned());
        let (energy_shares, limit) = (self.energy_shares(), self.limit_report());
        Report { goals, priorities, budget, power, page, energy_shares, limit, ..report }
    }

    /// The health, from counters only: no core is woken.
    fn health(&self, session: &mut Session) -> HealthReport {
        let now = self.server.runtime_stats();
        let first = session.first.get_or_insert_with(|| now.clone());
        notify::health(first, &now, self.listening().all().len())
    }

    /// Lets another policy decide; what is not set has its default.
    fn set_policy(&self, choice: &PolicyChoice) -> Result<PolicyReport, Refusal> {
        let mut state = self.state();
        choice.build().map_err(refusal)?;
        choose(&mut state, choice, self.server.as_ref()).map_err(|why| Refusal::for_field("policy", why))?;
        let active_policy = state.active_policy.clone();
        drop(state);
        self.goals_have_changed();
        Ok(measure::policy(&active_policy, self.server.view()))
    }

    /// Pauses a class of background work, or resumes it.
    fn set_background(&self, class: BackgroundClass, state: BackgroundState) -> Result<BackgroundReport, Refusal> {
        let class = Class::from(class);
        let has_class = |stats: &ServerStats| stats.background.iter().any(|one| one.class == class);
        if !has_class(&self.server.stats()) {
            let what = format!("no namespace of this server has work of the class {}", class.name());
            return Err(Refusal::for_field("class", what).help("see docs/background.md"));
        }
        self.server.set_paused(class, state == BackgroundState::Pause);
        Ok(background(&self.server.stats()))
    }

    /// Caps the bandwidth of a namespace or a host from now on.
    fn set_cap(&self, request: &CapRequest) -> Result<CapReport, Refusal> {
        let rate = parse_cap(&request.max_bytes_per_s).map_err(|what| Refusal::for_field("max_bytes_per_s", what))?;
        let of = find_target(&self.state(), request.target()?)?;
        self.server.set_cap(&of, rate).map_err(Refusal::new)?;
        let caps = self.server.stats().caps;
        let stats = caps.into_iter().find(|cap| cap.of == of).map(|cap| cap.stats);
        Ok(measure::cap(&CapStats { of, stats: stats.unwrap_or_default() }))
    }
}

fn refusal(unfit: InvalidChoice) -> Refusal {
    let field = match &unfit.part {
        ChoicePart::Name => "policy".to_owned(),
        ChoicePart::Key(key) | ChoicePart::Value(key) => format!("parameters[{key}]"),
        ChoicePart::Together => "parameters".to_owned(),
    };
    Refusal::for_field(&field, unfit.what).help(unfit.help)
}
