//! A power limiter around another policy: its limits are ceilings for the commands of the other.
//!
//! The *limiter* enforces the budget with its own knobs and with the number of cores. The *inner* policy sees a plant without those knobs and
//! with the remaining cores ([`inner`]), and without the budget; its other commands pass through. Ticks and intervals are those that either of
//! them wants; an interval without requests that neither needs changes nothing, whether the plant skips it or not.

pub(crate) mod inner;
mod separate;
mod sum;

use pilotlight_plant::{
    Capabilities, Command, Component, DEFAULT_IDLE_TIMEOUT_NS, Goal, Goals, Kind, KnobId, LongRound, Next, Policy,
    ReadingId, Refusal, Sample, Start, Tick, Unreachable, Unsupported, View, Wants,
};

use self::inner::Inner;
use crate::load::is_quiet;
use crate::schedule::Schedule;

/// Enforces a budget.
pub(crate) trait Limiter: Send {
    /// The name by which an operator chooses it.
    fn name(&self) -> &'static str;
    /// The kinds of knobs that it sets; the inner policy has none of them.
    fn kinds(&self) -> &'static [Kind];
    /// Time between two of its intervals, in nanoseconds.
    fn interval_ns(&self) -> u64;
    /// Its wanted interval; `None` if it has no goal and has set nothing.
    fn wanted_interval_ns(&self) -> Option<u64>;
    /// The readings that it wants.
    fn readings(&self) -> Vec<ReadingId>;
    /// As [`Policy::start`].
    fn start(&mut self, start: &Start<'_>, out: &mut Vec<Command>) -> Result<(), Unsupported>;
    /// The end of an interval.
    fn on_interval(&mut self, sample: &Sample<'_>, out: &mut Vec<Command>);
    /// Whether I/O threads of the highest class get separate cores.
    fn separates(&self) -> bool {
        false
    }
    /// As [`Policy::unreachable`].
    fn unreachable(&self) -> Option<Unreachable>;
    /// As [`Policy::bottleneck`].
    fn bottleneck(&self) -> Option<Component> {
        None
    }
    /// As [`Policy::uses`].
    fn uses(&self, goal: Goal) -> bool {
        goal == Goal::Budget
    }
    /// As [`Policy::on_goals`].
    fn on_goals(&mut self, now_ns: u64, goals: &Goals, out: &mut Vec<Command>);
    /// As [`Policy::on_plant`].
    fn on_plant(&mut self, now_ns: u64, capabilities: &Capabilities, out: &mut Vec<Command>);
    /// Handles a refused setting; whether the knob is one of the limiter's.
    fn on_refused(&mut self, now_ns: u64, set: (KnobId, u64), refusal: Refusal) -> bool;
    /// The first time at which an interval may change anything; 0 for the next one.
    fn acts_ns(&self, now_ns: u64) -> u64;
    /// Most cores that the inner policy may use; at least 1.
    fn cores(&self) -> usize;
    /// The component limited for the budget, for display; `None` if none is.
    fn limited(&self) -> Option<&'static str>;
    /// State for display.
    fn view(&self) -> View;
}

/// A limiter and its inner policy.
pub(crate) struct Limited<L> {
    limiter: L,
    inner: Inner,
    schedule: Schedule,
    /// The limiter gets the first interval that ends from then on.
    due_ns: u64,
    /// The last returned value.
    answer: Next,
    /// The time, and the time since which something is limited for the budget.
    now_ns: u64,
    limited_since_ns: Option<u64>,
}

impl<L: Limiter> Limited<L> {
    pub(crate) fn new(limiter: L, policy: Box<dyn Policy>) -> Self {
        let schedule = Schedule { start_ns: 0, period_ns: limiter.interval_ns() };
        Self {
            inner: Inner::new(policy, limiter.kinds()),
            limiter,
            schedule,
            due_ns: 0,
            answer: Next::at(0),
            now_ns: 0,
            limited_since_ns: None,
        }
    }

    fn next(&mut self, now_ns: u64) -> Next {
        self.now_ns = now_ns;
        self.limited_since_ns = self.limiter.limited().map(|_| self.limited_since_ns.unwrap_or(now_ns));
        let inner = self.inner.next();
        let has_cores = self.inner.cores() == self.inner.clamp(self.limiter.cores());
        let acts_ns = if has_cores { self.limiter.acts_ns(now_ns) } else { 0 };
        let own_ns = self.schedule.at_or_after(acts_ns).max(self.due_ns);
        // A budget exists to save power: the server sleeps also if the inner policy alone would keep it awake.
        self.answer = Next {
            idle_timeout_ns: inner.idle_timeout_ns.min(DEFAULT_IDLE_TIMEOUT_NS),
            worker_idle_timeout_ns: inner.worker_idle_timeout_ns.min(DEFAULT_IDLE_TIMEOUT_NS),
            needed_ns: inner.needed_ns.min(own_ns),
            ..inner
        };
        self.answer
    }
}

impl<L: Limiter> Limited<L> {
    /// Whether the budget overrides the tolerance, if the inner policy uses one.
    fn tolerance_view(&self) -> Option<(&'static str, String)> {
        if !self.inner.uses(Goal::Tolerance) {
            return None;
        }
        let state = match (self.limiter.limited(), self.limited_since_ns) {
            (Some(what), Some(since_ns)) => {
                let s = self.now_ns.saturating_sub(since_ns) / 1_000_000_000;
                format!("gives way to the budget ({what} limited for {s} s); kept relative to the limited performance")
            }
            _ => "not limited by the budget".to_owned(),
        };
        Some(("tolerance", state))
    }
}

impl<L: Limiter> Policy for Limited<L> {
    fn name(&self) -> &'static str {
        self.limiter.name()
    }

    fn wants(&self) -> Wants {
        let mut wants = self.inner.wants().clone();
        wants.interval_ns = [wants.interval_ns, self.limiter.wanted_interval_ns()].into_iter().flatten().min();
        wants.service = self.inner.wants().interval_ns.is_some(); // needed to recognize intervals without requests
        let more = self.limiter.readings().into_iter().filter(|id| !self.inner.wants().readings.contains(id));
        wants.readings.extend(more);
        wants
    }

    fn start(&mut self, start: &Start<'_>, out: &mut Vec<Command>) -> Result<Next, Unsupported> {
        let mut own = Vec::new();
        self.limiter.start(start, &mut own)?;
        self.inner.start(start, self.limiter.cores(), self.limiter.interval_ns(), out)?;
        self.inner.clear_hidden(out);
        out.append(&mut own);
        self.schedule.start_ns = start.now_ns;
        self.due_ns = self.schedule.after(start.now_ns);
        Ok(self.next(start.now_ns))
    }

    fn on_tick(&mut self, tick: &Tick<'_>, out: &mut Vec<Command>) -> Next {
        self.inner.on_tick(tick, out);
        self.next(tick.now_ns)
    }

    fn on_interval(&mut self, sample: &Sample<'_>, out: &mut Vec<Command>) -> Next {
        if is_quiet(sample) && sample.now_ns < self.answer.needed_ns {
            return self.answer;
        }
        self.inner.update_state(sample);
        let is_due = sample.now_ns >= self.due_ns;
        if is_due {
            self.due_ns = self.schedule.after(sample.now_ns);
            self.limiter.on_interval(sample, out);
        }
        if !(is_due && self.inner.limit_cores(sample.now_ns, self.limiter.cores(), out)) {
            self.inner.on_interval(sample, out);
        }
        if is_due {
            self.inner.clear_hidden(out);
            if self.limiter.separates() && !is_quiet(sample) {
                self.inner.separate(sample.threads, out);
            }
        }
        self.next(sample.now_ns)
    }

    /// The limiter decides at its next interval.
    fn on_long_round(&mut self, long: LongRound, sample: &Sample<'_>, out: &mut Vec<Command>) -> Next {
        self.inner.update_state(sample);
        self.inner.on_long_round(long, sample, out);
        self.next(sample.now_ns)
    }

    fn unreachable(&self) -> Option<Unreachable> {
        self.limiter.unreachable().or(self.inner.unreachable())
    }

    fn bottleneck(&self) -> Option<Component> {
        self.limiter.bottleneck().or(self.inner.bottleneck())
    }

    fn uses(&self, goal: Goal) -> bool {
        self.limiter.uses(goal) || self.inner.uses(goal)
    }

    /// Knobs are set at once, the number of cores at the next interval.
    fn on_goals(&mut self, now_ns: u64, goals: &Goals, out: &mut Vec<Command>) {
        self.inner.on_goals(now_ns, goals, out);
        self.limiter.on_goals(now_ns, goals, out);
        (self.due_ns, self.answer.needed_ns) = (now_ns, now_ns);
    }

    fn on_plant(&mut self, now_ns: u64, capabilities: &Capabilities, out: &mut Vec<Command>) {
        self.inner.on_plant(now_ns, capabilities, out);
        self.limiter.on_plant(now_ns, capabilities, out);
        (self.due_ns, self.answer.needed_ns) = (now_ns, now_ns);
    }

    fn on_refused(&mut self, now_ns: u64, command: &Command, refusal: Refusal) {
        if let Command::Set { knob, value } = *command
            && self.limiter.on_refused(now_ns, (knob, value), refusal)
        {
            return;
        }
        self.inner.on_refused(now_ns, command, refusal);
    }

    fn on_resume(&mut self, now_ns: u64) {
        self.inner.on_resume(now_ns);
    }

    fn view(&self) -> View {
        let mut view = self.limiter.view();
        view.push(("inner policy", self.inner.name().to_owned()));
        view.extend(self.tolerance_view());
        view.extend(self.inner.view());
        view
    }
}
