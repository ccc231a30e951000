//! `pass` on a server, and what a leader would exchange with it.

use std::sync::mpsc::{Receiver, Sender};

use pilotlight_plant::{
    Capabilities, Command, Component, Goal, Goals, Next, Policy, Quantity, ReadingId, Refusal, Sample, Scope, Start,
    Tick, Unreachable, Unsupported, View, Wants,
};
use pilotlight_policy::fleet::Grant;

use super::server::INTERVAL_NS;

/// What a server reports.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Report {
    /// Number of its grant, once a window of the power meter that began after the change is within the grant and its 2 %.
    pub(crate) confirmed: Option<u64>,
    /// Since the report before.
    pub(crate) requests: u64,
    /// CPU time in poll steps that found work, likewise.
    pub(crate) busy_ns: u64,
    /// Mean power of its CPU, likewise, in microwatts.
    pub(crate) cpu_uw: u64,
    pub(crate) elapsed_ns: u64,
    /// Power of the last window that began after its grant.
    pub(crate) measured_uw: Option<u64>,
    /// Requests in progress, integrated over the same time, in request-nanoseconds.
    pub(crate) in_progress_ns: u64,
}

/// A policy that reports and takes a budget every [`INTERVAL_NS`].
pub(crate) struct Agent {
    inner: Box<dyn Policy>,
    to: Sender<Report>,
    from: Receiver<Option<Grant>>,
    next_ns: u64,
    grant: Grant,
    since_ns: u64,
    meter: Option<ReadingId>,
    package: Option<ReadingId>,
    report: Report,
    cpu_uw: (u64, u64),
}

impl Agent {
    pub(crate) fn new(inner: Box<dyn Policy>, to: Sender<Report>, from: Receiver<Option<Grant>>, grant: Grant) -> Self {
        let (report, cpu_uw) = (Report::default(), (0, 0));
        Self { inner, to, from, next_ns: INTERVAL_NS, grant, since_ns: 0, meter: None, package: None, report, cpu_uw }
    }

    fn note(&mut self, sample: &Sample<'_>) {
        let report = &mut self.report;
        report.requests += sample.threads.iter().map(|thread| thread.requests).sum::<u64>();
        report.busy_ns += sample.threads.iter().map(|thread| thread.busy_ns).sum::<u64>();
        report.elapsed_ns += sample.elapsed_ns;
        report.in_progress_ns += sample.threads.iter().map(|thread| thread.in_progress_ns).sum::<u64>();
        let reading = |id: Option<ReadingId>| sample.readings.iter().find(|reading| Some(reading.id) == id);
        if let Some(cpu_uw) = reading(self.package).and_then(|reading| reading.value) {
            self.cpu_uw = (self.cpu_uw.0 + cpu_uw, self.cpu_uw.1 + 1);
        }
        let window = reading(self.meter).and_then(|reading| Some((reading.value?, reading.age_ns)));
        if let Some((power_uw, age_ns)) = window
            && sample.now_ns.saturating_sub(age_ns) >= self.since_ns + INTERVAL_NS
        {
            report.measured_uw = Some(power_uw);
            if power_uw <= self.grant.power_uw + self.grant.power_uw / 50 {
                report.confirmed = Some(self.grant.number);
            }
        }
    }

    /// Reports, and waits for the answer.
    fn exchange(&mut self, now_ns: u64, out: &mut Vec<Command>) {
        let mut report = std::mem::take(&mut self.report);
        let (sum_uw, count) = std::mem::take(&mut self.cpu_uw);
        report.cpu_uw = sum_uw.checked_div(count).unwrap_or(0);
        let answer = self.to.send(report).ok().and_then(|()| self.from.recv().ok());
        if let Some(grant) = answer.flatten() {
            (self.grant, self.since_ns) = (grant, now_ns);
            self.inner.on_goals(now_ns, &Goals { budget_uw: Some(grant.power_uw), ..Goals::default() }, out);
        }
    }
}

impl Policy for Agent {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn wants(&self) -> Wants {
        Wants { service: true, ..self.inner.wants() }
    }

    fn start(&mut self, start: &Start<'_>, out: &mut Vec<Command>) -> Result<Next, Unsupported> {
        let power = |scope: Scope| start.capabilities.find_source(scope, Quantity::PowerUw).map(|(id, _)| id);
        (self.meter, self.package) = (power(Scope::Server), power(Scope::Package(0)));
        self.inner.start(start, out)
    }

    fn on_tick(&mut self, tick: &Tick<'_>, out: &mut Vec<Command>) -> Next {
        self.inner.on_tick(tick, out)
    }

    fn on_interval(&mut self, sample: &Sample<'_>, out: &mut Vec<Command>) -> Next {
        let next = self.inner.on_interval(sample, out);
        self.note(sample);
        while sample.now_ns >= self.next_ns {
            self.next_ns += INTERVAL_NS;
            self.exchange(sample.now_ns, out);
        }
        Next { needed_ns: next.needed_ns.min(self.next_ns), ..next }
    }

    fn uses(&self, goal: Goal) -> bool {
        self.inner.uses(goal)
    }

    fn unreachable(&self) -> Option<Unreachable> {
        self.inner.unreachable()
    }

    fn bottleneck(&self) -> Option<Component> {
        self.inner.bottleneck()
    }

    fn on_goals(&mut self, now_ns: u64, goals: &Goals, out: &mut Vec<Command>) {
        self.inner.on_goals(now_ns, goals, out);
    }

    fn on_plant(&mut self, now_ns: u64, capabilities: &Capabilities, out: &mut Vec<Command>) {
        self.inner.on_plant(now_ns, capabilities, out);
    }

    fn on_refused(&mut self, now_ns: u64, command: &Command, refusal: Refusal) {
        self.inner.on_refused(now_ns, command, refusal);
    }

    fn on_resume(&mut self, now_ns: u64) {
        self.inner.on_resume(now_ns);
    }

    fn view(&self) -> View {
        self.inner.view()
    }
}
