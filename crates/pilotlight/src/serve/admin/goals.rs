//! Goals of a running server: set over the control socket, ended by their time, exchanged by the schedule, and watched.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use pilotlight_nvmf_target::CapStats;
use pilotlight_plant::{Goal, Goals};
use pilotlight_reactor::clock;
use tracing::{info, warn};

use super::Admin;
use super::namespaces::find_target;
use crate::admin::refusal::Refusal;
use crate::admin::request::GoalsRequest;
use crate::config::{
    BudgetRequest, NamespaceTolerance, Operation, format_budget, name_of, parse_budget_request, parse_duration,
    parse_tolerance,
};
use crate::policies::{BudgetDomain, PolicyChoice, users_of};
use crate::serve::budget::{
    self, BudgetOverride, GoalOverrides, NO_SENSOR, NO_SENSOR_HELP, Named, Observation, Verdict,
};
use crate::serve::holder::{self, refresh};
use crate::serve::running::Running;
use crate::serve::state::State;
use crate::status::measure;
use crate::status::report::{BudgetReport, GoalsResponse, NameAndValue, ScheduleEntryReport};

/// Interval of checks of a budget: half a window of the sensor.
const CHECK_INTERVAL: Duration = Duration::from_millis(250);
/// Longest wait for the end of a budget, so that a clock that is set is noticed.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// Wakes the thread that watches the budget, or ends it.
#[derive(Debug, Default)]
pub(super) struct Watch {
    state: Mutex<WatchState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct WatchState {
    is_stopped: bool,
    is_changed: bool,
}

impl Watch {
    fn note(&self, note: impl FnOnce(&mut WatchState)) {
        note(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_all();
    }

    /// Waits for a change of goals or a timeout; `false` at the end.
    fn wait(&self, longest: Option<Duration>) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if !state.is_stopped && !state.is_changed {
            state = match longest {
                Some(time) => self.changed.wait_timeout(state, time).unwrap_or_else(PoisonError::into_inner).0,
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
        state.is_changed = false;
        !state.is_stopped
    }
}

/// Goals that a request leads to.
struct Planned {
    overrides: GoalOverrides,
    goals: Goals,
    tolerances: Vec<NamespaceTolerance>,
    domain: BudgetDomain,
    policy: PolicyChoice,
}

impl Admin {
    /// Keeps goals in force and checks whether power stays within the budget, until [`Admin::stop_watching`].
    pub(in crate::serve) fn watch_budget(&self) {
        while self.watch.wait(self.check_budget_state()) {}
    }

    /// Ends [`Admin::watch_budget`] and [`Admin::watch_limit`].
    pub(in crate::serve) fn stop_watching(&self) {
        self.watch.note(|state| state.is_stopped = true);
        self.stop_limit();
    }

    /// Wakes the watching thread.
    pub(super) fn goals_have_changed(&self) {
        self.watch.note(|state| state.is_changed = true);
    }

    /// Time until the next check; `None`: until goals are changed.
    fn check_budget_state(&self) -> Option<Duration> {
        let mut state = self.state();
        let now_s = budget::now_s();
        if state.goal_overrides.expire(now_s) {
            info!("the time of the budget that was set manually is over");
            self.keep(&state);
        }
        self.follow_limit(&mut state);
        self.follow(&mut state, now_s);
        self.update_verdict(&mut state);
        if state.operation.goals.budget_uw.is_some() {
            return Some(CHECK_INTERVAL);
        }
        let until_s = state.configured.budget(&state.goal_overrides, now_s).until_s?;
        Some(Duration::from_secs(until_s.saturating_sub(now_s).max(1)).min(LONGEST_WAIT))
    }

    /// The lowest power, if the policy reports the budget as unreachable. Wakes the main core.
    fn policy_floor_uw(&self) -> Option<u64> {
        self.server.unreachable().filter(|unreachable| unreachable.goal == Goal::Budget).map(|floor| floor.reached)
    }

    fn update_verdict(&self, state: &mut State) {
        let domain = domain_in_force(state, self.server.as_ref());
        let budget_uw = state.operation.goals.budget_uw;
        let seen = Observation {
            now_ns: clock::now_ns(),
            budget_uw,
            is_used: state.active_policy.uses(Goal::Budget),
            window: self.server.window(domain),
        };
        let changed = state.monitor.update(seen, || self.policy_floor_uw());
        let (Some(verdict), Some(budget_uw)) = (changed, seen.budget_uw) else { return };
        let is_good = verdict == Verdict::Held;
        match verdict.log_line(budget_uw) {
            Some(line) if is_good => info!("{line}"),
            Some(line) => warn!("{line}"),
            None => {}
        }
        if is_good {
            state.strict_before = None;
        }
        if let Verdict::Unreachable(floor_uw) = verdict {
            state.floor = Some((domain, state.active_policy.name.clone(), floor_uw));
            let is_own =
                state.configured.budget(&state.goal_overrides, budget::now_s()).origin != budget::Origin::Limit;
            if let Some(before) = state.strict_before.take_if(|_| is_own) {
                warn!("the budget of {} is taken back (--strict)", format_budget(Some(budget_uw)));
                state.withdrawn_uw = Some(budget_uw);
                state.goal_overrides = before;
                self.follow(state, budget::now_s());
                self.keep(state);
            }
        }
    }

    /// Changes the goals of the active policy and of later ones; or only reports the effect.
    pub(super) fn set_goals(&self, request: &GoalsRequest) -> Result<GoalsResponse, Refusal> {
        let now_s = budget::now_s();
        let mut state = self.state();
        let planned = self.plan(&state, request, now_s)?;
        let before_uw = state.operation.goals.budget_uw;
        if !request.dry_run {
            self.apply(&mut state, &planned, request, now_s)?;
        }
        let policy = if request.dry_run { &planned.policy } else { &state.active_policy };
        let goals = measure::goals(&planned.goals, &planned.tolerances, policy, None);
        let report = self.budget_report(&state, &planned.overrides, planned.domain, now_s);
        let mut report = report.map(|report| self.with_bottleneck(report));
        if let Some(report) = report.as_mut().filter(|_| request.dry_run) {
            report.headroom_uw = headroom(planned.goals.budget_uw, report.power_uw);
            report.state = "not set: dry run".to_owned();
        }
        Ok(GoalsResponse {
            policy: policy.name.clone(),
            inner_policy: (policy.name != state.operation.policy.name).then(|| state.operation.policy.name.clone()),
            help: holder::help(policy, &state.operation),
            dry_run: request.dry_run,
            goals,
            before_uw,
            budget: report.filter(|_| planned.goals.budget_uw.is_some()),
            kept_in: self.store.place(),
            power: self.server.power(),
        })
    }

    fn plan(&self, state: &State, request: &GoalsRequest, now_s: u64) -> Result<Planned, Refusal> {
        let mut overrides = state.goal_overrides.clone();
        if let Some(text) = &request.budget {
            let budget = parse_budget_request(text).map_err(|what| Refusal::for_field("budget", what))?;
            overrides.budget = budget_override(budget, request.duration.as_deref(), now_s)?;
            if budget == BudgetRequest::Default {
                overrides.domain = None;
            }
        }
        if let Some(text) = &request.domain {
            overrides.domain = Some(BudgetDomain::parse(text).map_err(|what| Refusal::for_field("domain", what))?);
        }
        if let Some(text) = &request.tolerance {
            let bound = parse_tolerance(text).map_err(|what| Refusal::for_field("tolerance", what))?;
            let of = request.target().map(|target| find_target(state, target)).transpose()?.map(Named::from);
            overrides.tolerances.retain(|(set, _)| *set != of);
            overrides.tolerances.push((of, bound));
        }
        let goals = state.configured.goals(&overrides, now_s);
        let wanted = overrides.domain.or(state.configured.domain);
        let operation = Operation { goals: goals.clone(), domain: wanted, ..state.operation.clone() };
        let mut candidates = holder::candidates_for(&operation, self.server.as_ref());
        // Where the choice is as before it is known which of them this machine can have.
        let is_known = candidates == state.candidates;
        let policy = if is_known { state.active_policy.clone() } else { candidates.swap_remove(0) };
        let domain = policy.domain().unwrap_or_else(|| budget::domain(wanted, &self.server.sources()));
        let tolerances = state.configured.tolerances(&overrides);
        let planned = Planned { overrides, goals, tolerances, domain, policy };
        if request.budget.is_some() && planned.goals.budget_uw.is_some() {
            self.check_budget(state, &planned, request.strict)?;
        }
        Ok(planned)
    }

    /// Refuses a budget that nothing can measure, and with `strict` one that is known not to be held.
    fn check_budget(&self, state: &State, planned: &Planned, strict: bool) -> Result<(), Refusal> {
        let sources = self.server.sources();
        if sources.is_empty() {
            return Err(Refusal::for_field("budget", NO_SENSOR).help(NO_SENSOR_HELP));
        }
        if !sources.iter().any(|source| budget::belongs(source, planned.domain)) {
            let what = format!("no sensor measures the domain {}", planned.domain.name());
            return Err(Refusal::for_field("domain", what).help("`pilotlight status` shows what is measured"));
        }
        if !strict {
            return Ok(());
        }
        check_holder(&planned.policy)?;
        let floor_uw = self.floor_uw(state, planned.domain, &planned.policy.name);
        match (floor_uw, planned.goals.budget_uw) {
            (Some(floor_uw), Some(budget_uw)) if budget_uw < floor_uw => {
                let what = format!("{} is unreachable", format_budget(Some(budget_uw)));
                Err(Refusal::for_field("budget", what).help(format!("the floor is {:.1} W", floor_uw as f64 / 1e6)))
            }
            _ => Ok(()),
        }
    }

    /// The known minimum power: found unreachable with this policy, or the minimum of the sensor.
    fn floor_uw(&self, state: &State, domain: BudgetDomain, policy: &str) -> Option<u64> {
        let found = state.floor.as_ref().filter(|(of, by, _)| *of == domain && by == policy);
        found.map(|(.., floor_uw)| *floor_uw).or_else(|| self.server.floor_uw(domain))
    }

    fn apply(&self, state: &mut State, planned: &Planned, request: &GoalsRequest, now_s: u64) -> Result<(), Refusal> {
        let before = std::mem::replace(&mut state.goal_overrides, planned.overrides.clone());
        let mut refused = refresh(state, self.server.as_ref(), now_s).map_err(|why| Refusal::for_field("domain", why));
        if refused.is_ok() && request.strict && planned.goals.budget_uw.is_some() {
            refused = check_holder(&state.active_policy);
        }
        if let Err(refusal) = refused {
            state.goal_overrides = before;
            self.follow(state, now_s);
            return Err(refusal);
        }
        state.withdrawn_uw = None;
        if request.budget.is_some() {
            state.strict_before = request.strict.then_some(before);
        }
        self.keep(state);
        self.update_verdict(state);
        self.goals_have_changed();
        Ok(())
    }

    /// Keeps goals in force, and the policy that holds them.
    pub(super) fn follow(&self, state: &mut State, now_s: u64) {
        if let Err(why) = refresh(state, self.server.as_ref(), now_s) {
            warn!("policy {} stays: {why}", state.active_policy.name);
        }
    }

    pub(super) fn keep(&self, state: &State) {
        if let Err(why) = self.store.save(&state.goal_overrides, &state.configured) {
            warn!("goals that were set manually will be lost at a restart: {why}");
        }
    }

    /// Knobs of the machine that are set below what was found, and bandwidth that the policy caps, with its priority.
    fn throttled(&self, state: &State) -> Vec<NameAndValue> {
        let capped = |cap: CapStats| {
            let rate = cap.stats.policy?;
            let named = state.operation.priorities.iter().find(|(of, _)| *of == cap.of);
            let priority = named.map_or(String::new(), |(_, priority)| format!(" (priority {priority})"));
            let value = format!("{:.1} MB/s", rate as f64 / 1e6);
            Some(NameAndValue { name: format!("bandwidth of {}{priority}", name_of(&cap.of)), value })
        };
        let caps = self.server.stats().caps.into_iter().filter_map(capped);
        self.server.throttled().into_iter().chain(caps).collect()
    }

    /// How the budget does; `None` where there is none, and no schedule.
    pub(super) fn budget_status(&self, state: &State) -> Option<BudgetReport> {
        let domain = domain_in_force(state, self.server.as_ref());
        self.budget_report(state, &state.goal_overrides, domain, budget::now_s())
    }

    /// Adds the component that limits throughput. Asking wakes the main core.
    pub(super) fn with_bottleneck(&self, report: BudgetReport) -> BudgetReport {
        let bottleneck = self.server.bottleneck().map(|component| component.name().to_owned());
        BudgetReport { bottleneck, ..report }
    }

    fn budget_report(
        &self,
        state: &State,
        overrides: &GoalOverrides,
        domain: BudgetDomain,
        now_s: u64,
    ) -> Option<BudgetReport> {
        let in_force = state.configured.budget(overrides, now_s);
        let next = state.configured.schedule.as_ref().and_then(|schedule| schedule.next(now_s));
        if in_force.budget_uw.is_none() && next.is_none() && state.withdrawn_uw.is_none() {
            return None;
        }
        let window = self.server.published_window(domain);
        let power_uw = window.map(|(.., power_uw)| power_uw);
        let is_manual = in_force.origin == budget::Origin::Manual;
        Some(BudgetReport {
            domain: domain.name().to_owned(),
            origin: in_force.origin.name().to_owned(),
            until_unix_s: in_force.until_s.filter(|_| is_manual),
            next: next.map(|next| ScheduleEntryReport { at_unix_s: next.at_s, budget: next.budget.text() }),
            state: state.monitor.verdict().name().to_owned(),
            held: holder::reason(&state.active_policy, &state.operation).map(str::to_owned),
            power_uw,
            headroom_uw: headroom(in_force.budget_uw, power_uw),
            floor_uw: self.floor_uw(state, domain, &state.active_policy.name),
            age_ns: window.map(|(_, ended_ns, _)| clock::now_ns().saturating_sub(ended_ns)),
            sensor: self
                .server
                .power()
                .map(|power| power.modelled.map_or(power.sensor, |profile| format!("modelled, profile {profile}"))),
            bottleneck: None,
            throttled: self.throttled(state),
            withdrawn_uw: state.withdrawn_uw,
        })
    }
}

fn headroom(budget_uw: Option<u64>, power_uw: Option<u64>) -> Option<i64> {
    Some(i64::try_from(budget_uw?).ok()? - i64::try_from(power_uw?).ok()?)
}

fn domain_in_force(state: &State, server: &dyn Running) -> BudgetDomain {
    state.active_policy.domain().unwrap_or_else(|| budget::domain(state.operation.domain, &server.sources()))
}

/// That a policy holds budgets.
fn check_holder(policy: &PolicyChoice) -> Result<(), Refusal> {
    if policy.uses(Goal::Budget) {
        return Ok(());
    }
    let what = format!("policy {} does not use a budget", policy.name);
    Err(Refusal::for_field("budget", what).help(format!("policies that do: {}", users_of(Goal::Budget))))
}

/// The override for a requested budget; `None` for `default`.
fn budget_override(budget: BudgetRequest, time: Option<&str>, now_s: u64) -> Result<Option<BudgetOverride>, Refusal> {
    let wrong = |what: &str| Refusal::for_field("for", what);
    let time = time.map(parse_duration).transpose().map_err(|what| Refusal::for_field("for", what))?;
    if time.is_some_and(|time| time < Duration::from_secs(1)) {
        return Err(wrong("a budget holds for a second at least"));
    }
    let until_s = time.map(|time| now_s.saturating_add(time.as_secs()));
    match budget {
        BudgetRequest::Default if time.is_some() => Err(wrong("`default` has no end")),
        BudgetRequest::Default => Ok(None),
        BudgetRequest::Off => Ok(Some(BudgetOverride { budget_uw: None, until_s })),
        BudgetRequest::Power(uw) => Ok(Some(BudgetOverride { budget_uw: Some(uw), until_s })),
    }
}
