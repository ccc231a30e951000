//! How many cores are in use, which I/O threads are on them, and how they wait.

use pilotlight_plant::{
    Bound, Capabilities, Command, CompletionMode, CoreId, CoreState, Depth, LONGEST_PAUSE_NS, Limit, LongRound, NEVER,
    Next, Sample, SleepGoal, Stat, ThreadId,
};

use super::delay::{least_ns, of_cores_ns};
use super::parameters::Parameters;
use super::placement::{busiest, of_cores, place};
use super::{
    ACCUMULATES_NS, DEEPEST_NS, DEVIATIONS, Hold, LATE_ROUNDS, LONGEST_HOLD_NS, LONGEST_ROUND, NEEDED, OF_DRIVES,
    OF_PAUSE, OFTEN, OFTEN_ENOUGH, OTHER_PAUSE, PAUSES_BELOW, QUIET_NS, ROUND_OF, Running, SELDOM, SETTLE_NS,
    STEADY_NS, TOGETHER, WAIT_OF, WEIGHT,
};
use crate::background::Background;
use crate::sandman::consolidate::{Plan, commands};

impl Running {
    pub(super) fn homes(&self) -> Vec<CoreId> {
        (0..self.loads.len()).map(|thread| self.plant_state.home(ThreadId(thread as u16))).collect()
    }

    /// Cores in use.
    pub(super) fn in_use(&self) -> usize {
        self.topology.cores().filter(|&core| self.plant_state.owned(core) > 0).count()
    }

    /// Cores that can be in use, and that the budget carries.
    pub(super) fn most(&self) -> usize {
        self.order.len().min(self.loads.len().max(1)).min(self.wall.cores())
    }

    /// The load of each core.
    pub(super) fn on_cores(&self) -> Vec<f64> {
        of_cores(&self.loads, &self.homes())
    }

    /// The latency of cores with these loads, as the tolerance counts it.
    pub(super) fn delay_ns(&self, on_cores: &[f64]) -> f64 {
        of_cores_ns(self.stat, self.service_ns, on_cores)
    }

    /// The latency of polling on every core, as the tolerance counts it.
    pub(super) fn base_ns(&self, loads: &[f64]) -> f64 {
        let (_, on_all) = place(loads, &self.homes(), &self.order);
        self.delay_ns(&on_all) + self.feedback.unexplained_ns()
    }

    /// The allowed rise above `base_ns`.
    pub(super) fn allowed_ns(&self, base_ns: f64, parameters: &Parameters) -> f64 {
        match self.tolerance {
            Bound::LossPpm(ppm) => {
                let of_host_ns = f64::from(ppm) / 1e6 * (base_ns + parameters.outside_ns as f64);
                of_host_ns.max(parameters.floor_ns as f64)
            }
            Bound::LatencyNs(ns) => (ns as f64 - base_ns).max(0.0),
        }
    }

    /// Whether no latency may be lost. Where a budget does not carry cores that poll without work, they cost latency: then as with a tolerance that is small.
    pub(super) fn allows_nothing(&self) -> bool {
        self.tolerance == Bound::LossPpm(0) && !self.wall.is_met()
    }

    /// The fewest cores whose rise is allowed.
    fn needed(&self, loads: &[f64], parameters: &Parameters) -> usize {
        let most = self.most();
        if self.allows_nothing() || self.feedback.takes_all() || self.feedback.spreads() {
            return most;
        }
        self.estimated(loads, parameters)
    }

    /// The same by the estimate alone.
    fn estimated(&self, loads: &[f64], parameters: &Parameters) -> usize {
        let most = self.most();
        let base_ns = self.base_ns(loads);
        let explained_ns = base_ns - self.feedback.unexplained_ns();
        let allowed_ns = self.allowed_ns(base_ns, parameters) - self.drives.added_ns() as f64;
        let homes = self.homes();
        let allows = |delay_ns: f64| (delay_ns - explained_ns) * self.feedback.scale() <= allowed_ns;
        // What no placement undercuts says where to begin: only the last ones are tried.
        let load = (sum(loads), busiest(loads));
        let (mut few, mut enough) = (0, most);
        while few + 1 < enough {
            let middle = usize::midpoint(few, enough);
            if allows(least_ns(self.stat, self.service_ns, load, middle)) { enough = middle } else { few = middle }
        }
        let fits = |&cores: &usize| allows(self.delay_ns(&place(loads, &homes, &self.order[..cores]).1));
        (enough..most).find(fits).unwrap_or(most)
    }

    /// Takes the loads of a sample.
    pub(super) fn update(&mut self, sample: &Sample<'_>, check_ns: u64) {
        let whole = sample.elapsed_ns.max(1) as f64;
        let requests: u64 = sample.threads.iter().map(|thread| thread.requests).sum();
        let busy_ns: u64 = sample.threads.iter().map(|thread| thread.busy_ns).sum();
        self.has_requests = requests > 0;
        self.hold.requests += requests;
        if self.has_requests {
            self.requested_ns = sample.now_ns;
        }
        self.noise = (WEIGHT / (2.0 - WEIGHT) / requests.max(1) as f64).sqrt();
        let is_first = self.service_ns == 0.0;
        if let Some(service_ns) = busy_ns.checked_div(requests) {
            let weight = if is_first { 1.0 } else { WEIGHT * (requests as f64 / 64.0).min(1.0) };
            self.service_ns += weight * (service_ns as f64 - self.service_ns);
        }
        let weight = if is_first { 1.0 } else { WEIGHT * (whole / check_ns as f64).min(1.0) };
        for ((load, last), thread) in self.loads.iter_mut().zip(&mut self.last).zip(sample.threads) {
            *last = thread.busy_ns as f64 / whole;
            *load += weight * (*last - *load);
        }
    }

    /// Places the threads on this many cores.
    fn use_cores(&mut self, cores: usize, loads: &[f64], sample: &Sample<'_>, out: &mut Vec<Command>) {
        let (homes, _) = place(loads, &self.homes(), &self.order[..cores]);
        self.move_to(homes, sample, out);
    }

    fn move_to(&mut self, homes: Vec<CoreId>, sample: &Sample<'_>, out: &mut Vec<Command>) {
        let before = out.len();
        commands(&Plan { homes }, sample, &self.topology, |core| self.sleep_goal(core), out);
        if out.len() > before {
            self.feedback.changed();
        }
        for command in &out[before..] {
            self.plant_state.apply(command);
            self.counters.moves += u64::from(matches!(command, Command::Move { .. }));
        }
    }

    fn sleep_goal(&self, core: CoreId) -> SleepGoal {
        let is_kept = self.order[..self.kept()].contains(&core);
        if is_kept { SleepGoal::SHALLOWEST } else { SleepGoal::DEEPEST }
    }

    /// How many of the first cores may not sleep deep: whole physical cores, as one of two siblings saves nothing.
    pub(super) fn kept(&self) -> usize {
        let kept = self.reserve.kept(self.wall.cores()).min(self.order.len());
        let is_pair = |pair: &[CoreId]| self.topology.sibling(pair[0]) == Some(pair[1]);
        let splits = kept > 0 && self.order.get(kept - 1..=kept).is_some_and(is_pair);
        kept + usize::from(splits)
    }

    /// Wakes a physical core that left the reserve, so that the next check lets it sleep deep: all at once would draw what a burst does.
    pub(super) fn deepen(&mut self, sample: &Sample<'_>, out: &mut Vec<Command>) {
        let before = out.len();
        for &core in self.order.iter().skip(self.kept()) {
            if is_shallow(sample, core) && !self.plant_state.is_awake(core) && out.len() < before + 2 {
                let command = Command::Wake { core };
                self.plant_state.apply(&command);
                out.push(command);
            }
        }
    }

    /// Takes more cores, or gives some back.
    pub(super) fn adjust(&mut self, sample: &Sample<'_>, parameters: &Parameters, out: &mut Vec<Command>) {
        let (loads, used, now_ns) = (self.loads.clone(), self.in_use(), sample.now_ns);
        self.hold.peak = self.hold.peak.max(sum(&loads));
        let without_noise: Vec<f64> = loads.iter().map(|load| load / (1.0 + DEVIATIONS * self.noise)).collect();
        let needed = self.needed(&without_noise, parameters);
        // Without requests the smoothed load is of the time before, and drives may have taken all that is allowed.
        if needed > used && self.has_requests {
            self.take(needed, &loads, sample, parameters, out);
            return;
        }
        let enough = self.needed(&loads, parameters);
        // Of this check alone: the smoothed load of a short burst is less.
        let for_last = if self.allows_nothing() { self.most() } else { self.estimated(&self.last, parameters) };
        self.reserve.note(now_ns, for_last);
        if used > self.most() {
            self.use_cores(self.most(), &loads, sample, out); // the budget carries no more
        } else if enough < used && now_ns >= self.hold.until_ns {
            self.counters.given_back += (used - enough) as u64;
            let share = self.hold.peak / NEEDED / sum(&loads).max(f64::MIN_POSITIVE);
            let peak: Vec<f64> = loads.iter().map(|load| load * share).collect();
            let was_needed = self.needed(&peak, parameters) > self.hold.before;
            let longer_ns = self.hold.longest_ns + self.hold.longest_ns / 8;
            if self.hold.before == 0 {
                // the start, a trial, or another step of the same return: nothing to judge
            } else if was_needed {
                let shorter_ns = if self.hold.is_late { self.hold.length_ns } else { self.hold.length_ns / 2 };
                self.hold.length_ns = shorter_ns.max(parameters.hold_ns);
            } else if (1..=LONGEST_ROUND * self.shortest_round_ns(parameters)).contains(&longer_ns) {
                self.round_ns = self.round_ns.max(longer_ns);
                if self.hold.is_late {
                    self.hold.length_ns = (self.hold.length_ns / 2).max(parameters.hold_ns); // it was no burst
                }
            } else {
                self.hold.length_ns = (self.hold.length_ns * 2).min(LONGEST_HOLD_NS);
            }
            self.hold.before = 0;
            self.use_cores(enough, &loads, sample, out);
        } else {
            self.move_to(self.homes(), sample, out); // lets cores sleep that are awake without one: at the start, or after a refusal
        }
    }

    fn take(
        &mut self,
        cores: usize,
        loads: &[f64],
        sample: &Sample<'_>,
        parameters: &Parameters,
        out: &mut Vec<Command>,
    ) {
        let used = self.in_use();
        self.counters.taken += (cores - used) as u64;
        let length_ns = self.hold_ns(parameters);
        let before = if self.feedback.takes_all() || self.feedback.spreads() { 0 } else { used };
        self.hold =
            Hold { until_ns: sample.now_ns + length_ns, before, peak: 0.0, longest_ns: 0, is_late: false, ..self.hold };
        self.settled_ns = sample.now_ns + SETTLE_NS;
        self.use_cores(cores, loads, sample, out);
    }

    /// How long cores are held: not long where they poll.
    fn hold_ns(&self, parameters: &Parameters) -> u64 {
        if self.feedback.polls_few() { parameters.hold_ns } else { self.hold.length_ns.max(parameters.hold_ns) }
    }

    /// When drives may sleep deeper, and background work run, if no request comes; [`NEVER`] if they may.
    pub(super) fn idle_due_ns(&self, now_ns: u64) -> u64 {
        let due_ns = self.requested_ns.saturating_add(QUIET_NS);
        let is_used = !self.drives.is_empty() || self.background.has_backlog();
        if !is_used || !self.has_power || now_ns >= due_ns { NEVER } else { due_ns }
    }

    fn is_idle(&self, now_ns: u64) -> bool {
        now_ns >= self.requested_ns.saturating_add(QUIET_NS)
    }

    /// Finds background work, where power is measured.
    pub(super) fn find_background(&mut self, capabilities: &Capabilities) {
        if self.has_power {
            self.background.find(capabilities);
        } else {
            self.background = Background::default();
        }
    }

    /// Lets background work run while there are no requests.
    pub(super) fn set_background(&mut self, sample: &Sample<'_>, out: &mut Vec<Command>) {
        if sample.now_ns >= self.background_ns {
            self.background.update(sample.now_ns, sample.readings, (STEADY_NS, ACCUMULATES_NS));
            self.background_ns = sample.now_ns + QUIET_NS;
        }
        self.background.set(sample.now_ns, self.is_idle(sample.now_ns), out);
    }

    /// When background work must be looked at again without requests.
    pub(super) fn background_due_ns(&self, now_ns: u64) -> u64 {
        match () {
            () if !self.background.has_backlog() => NEVER,
            () if self.background.is_left() => self.background_ns,
            () => now_ns.saturating_add(ACCUMULATES_NS),
        }
    }

    /// Lets drives sleep as deep as the tolerance allows, where power is measured: deeper without requests.
    pub(super) fn limit_drives(&mut self, sample: &Sample<'_>, parameters: &Parameters, out: &mut Vec<Command>) {
        if self.drives.is_empty() || !self.has_power {
            return;
        }
        let is_idle = self.is_idle(sample.now_ns) && !self.background.is_left();
        let of_rise = if self.allows_nothing() {
            0.0
        } else if is_idle {
            1.0
        } else {
            OF_DRIVES
        };
        let base_ns = self.base_ns(&self.loads);
        // With a saturated core nothing is known of what is allowed.
        let most_ns = if base_ns.is_finite() { of_rise * self.allowed_ns(base_ns, parameters) } else { 0.0 };
        self.drives.allow(sample.now_ns, most_ns as u64, out);
    }

    /// Spreads the threads of a core that cannot follow over cores without any, those with the most work since the last sample first: over the shallow
    /// ones of the reserve, and over the others if there are none, so that a burst of a known size waits for no deep one.
    pub(super) fn spread(
        &mut self,
        long: LongRound,
        sample: &Sample<'_>,
        parameters: &Parameters,
        out: &mut Vec<Command>,
    ) {
        let used = self.in_use();
        let more = self.most().saturating_sub(used);
        let mut free: Vec<CoreId> =
            self.order.iter().copied().filter(|&core| self.plant_state.owned(core) == 0).collect();
        free.truncate(more);
        let is_near = |core: &CoreId| is_shallow(sample, *core) || self.plant_state.is_awake(*core);
        if free.iter().any(is_near) {
            free.retain(is_near);
        }
        let mut homes = self.homes();
        let mut threads: Vec<usize> = self.plant_state.threads_on(long.core).map(ThreadId::index).collect();
        threads.sort_by_key(|&thread| std::cmp::Reverse(sample.threads[thread].busy_ns));
        free.truncate(threads.len().saturating_sub(1)); // one stays
        self.counters.taken += free.len() as u64;
        for (place, &thread) in threads.iter().enumerate() {
            homes[thread] = free.get(place % (free.len() + 1)).copied().unwrap_or(long.core);
        }
        self.settled_ns = sample.now_ns + SETTLE_NS;
        let is_first = sample.now_ns >= self.hold.until_ns;
        let round_ns = long.round_ns.saturating_sub(self.pause_ns); // a round after a pause is longer by it
        if is_first {
            self.note_late(round_ns, parameters);
        }
        let length_ns = self.hold_ns(parameters);
        self.hold.until_ns = self.hold.until_ns.max(sample.now_ns + length_ns);
        self.hold.longest_ns = if is_first { round_ns } else { self.hold.longest_ns.max(round_ns) };
        if is_first {
            (self.hold.before, self.hold.peak) = (used, 0.0);
        }
        self.move_to(homes, sample, out);
    }

    /// Lengthens the hold if more requests are late than may be.
    fn note_late(&mut self, round_ns: u64, parameters: &Parameters) {
        if self.service_ns == 0.0 {
            return;
        }
        let late_ns = LATE_ROUNDS * round_ns as f64;
        let late = late_ns / self.service_ns / self.hold.requests.max(1) as f64;
        let may = match self.stat {
            Stat::P99 => 0.01,
            Stat::P50 => 0.5,
            Stat::Mean => self.allowed_ns(self.base_ns(&self.loads), parameters) / late_ns,
        };
        self.hold.is_late = late > SELDOM * may;
        if late > OFTEN * may {
            self.hold.length_ns = (self.hold.length_ns * 2).min(LONGEST_HOLD_NS);
        }
        self.hold.requests = 0;
    }

    /// The parameter, or longer where a few requests take that long.
    fn shortest_round_ns(&self, parameters: &Parameters) -> u64 {
        parameters.round_ns.max((ROUND_OF * self.service_ns) as u64)
    }

    /// Commands how threads wait, if that has changed.
    pub(super) fn set_mode(&mut self, parameters: &Parameters, out: &mut Vec<Command>) {
        let waits = parameters.waits && self.can_wait && !self.allows_nothing() && !self.feedback.polls();
        let mode = if waits { CompletionMode::Interrupt } else { CompletionMode::Poll };
        if mode != self.mode {
            self.mode = mode;
            self.feedback.changed();
            out.extend(
                (0..self.loads.len()).map(|thread| Command::Completions { thread: ThreadId(thread as u16), mode }),
            );
        }
    }

    pub(super) fn next(&self, parameters: &Parameters) -> Next {
        let waits = self.mode == CompletionMode::Interrupt;
        let on_main = self.plant_state.is_at_rest();
        let round_ns = self.round_ns.max(self.shortest_round_ns(parameters));
        Next {
            idle_timeout_ns: if waits && on_main { 0 } else { NEVER },
            round_ns: if self.in_use() < self.most() { round_ns + self.pause_ns } else { NEVER },
            wait_ns: if waits && self.has_requests { self.wait_ns(parameters) } else { NEVER },
            pause_ns: if waits { self.pause_ns } else { 0 },
            ..Next::at(self.needed_ns())
        }
    }

    /// The longest wait: the parameter, or longer where more is allowed, bursts aside that raise the measured baseline.
    fn wait_ns(&self, parameters: &Parameters) -> u64 {
        let base_ns = self.base_ns(&self.loads);
        if !base_ns.is_finite() {
            return parameters.wait_ns; // of a saturated core nothing is known
        }
        let explained_ns = base_ns - self.feedback.unexplained_ns();
        let [all, certain] = [base_ns, explained_ns].map(|base_ns| self.allowed_ns(base_ns, parameters));
        let allowed_ns = all.min(certain);
        let longest_ns = (parameters.wait_ns as f64).max(WAIT_OF * allowed_ns);
        // With many requests in that time hardly any wait is longer, and to limit it costs CPU time.
        let fewest = self.fewest_per_ns() * longest_ns;
        if allowed_ns >= DEEPEST_NS || fewest >= OFTEN_ENOUGH { NEVER } else { longest_ns as u64 }
    }

    /// How long cores pause after requests: as long as what is left of the tolerance allows, where more than one request comes meanwhile on each core,
    /// and has for a while.
    pub(super) fn choose_pause(&mut self, now_ns: u64, parameters: &Parameters) {
        let before_ns = std::mem::take(&mut self.pause_ns);
        let may = self.mode == CompletionMode::Interrupt && (self.latency.is_none() || self.feedback.may_pause(now_ns));
        let (rise_ns, allowed_ns) = self.rise_and_allowed_ns(parameters);
        let left_ns = (allowed_ns - rise_ns) / (2.0 * OF_PAUSE);
        let longest_ns = parameters.pause_ns.min(LONGEST_PAUSE_NS) as f64;
        let pause_ns = if may && left_ns.is_finite() { left_ns.min(longest_ns) } else { 0.0 };
        let come = pause_ns * self.fewest_per_ns();
        let (begins, ends) = TOGETHER;
        let is_worth_it = self.has_requests && come >= if before_ns > 0 { ends } else { begins };
        let (begins, ends) = PAUSES_BELOW;
        if !is_worth_it || busiest(&self.on_cores()) >= if before_ns > 0 { ends } else { begins } {
            self.alone_ns = now_ns;
        }
        if now_ns >= self.alone_ns.saturating_add(QUIET_NS) {
            let differs = (pause_ns - before_ns as f64).abs() > OTHER_PAUSE * before_ns as f64;
            self.pause_ns = if differs { pause_ns as u64 } else { before_ns };
        }
        if (self.pause_ns > 0) != (before_ns > 0) {
            self.feedback.paused();
        }
    }

    /// Requests of a nanosecond on the core with the fewest, of those with a hundred a second.
    fn fewest_per_ns(&self) -> f64 {
        let least = self.service_ns / 10e6;
        let cores = self.on_cores().into_iter().filter(|&load| load > least);
        let fewest = cores.fold(f64::INFINITY, f64::min) / self.service_ns;
        if fewest.is_finite() { fewest } else { 0.0 }
    }

    /// The rise that pauses add, by the estimate.
    pub(super) fn of_pause_ns(&self) -> f64 {
        OF_PAUSE * self.pause_ns as f64
    }

    /// The goal that keeps it from saving more, or why there is nothing more to save.
    pub(super) fn limited_by(
        &self,
        (rise_ns, allowed_ns): (f64, f64),
        parameters: &Parameters,
    ) -> (Limit, &'static str) {
        let used = self.in_use();
        let needs_more = used >= self.wall.cores() && rise_ns > allowed_ns;
        if self.wall.is_limiting() && (self.wall.binding().is_some() || needs_more) {
            return (Limit::Budget, "what it carries is used");
        }
        if self.allows_nothing() {
            return (Limit::Tolerance, "nothing may be lost");
        }
        if self.feedback.measures() {
            return (Limit::Measurement, "cores poll to measure the baseline");
        }
        if self.mode == CompletionMode::Poll && self.can_wait && parameters.waits {
            return (Limit::Tolerance, "waits in the kernel exceed it");
        }
        if self.feedback.spreads() {
            return (Limit::Tolerance, "fewer cores exceed it in bursts");
        }
        if used <= 1 {
            return if self.has_requests { (Limit::Load, "one core") } else { (Limit::Floor, "no requests") };
        }
        let (_, fewer) = place(&self.loads, &self.homes(), &self.order[..used - 1]);
        if self.delay_ns(&fewer).is_infinite() {
            (Limit::Load, "fewer cores cannot serve it")
        } else {
            (Limit::Tolerance, "fewer cores exceed it")
        }
    }

    /// What is left between the estimate and what is allowed.
    pub(super) fn unused(&self, parameters: &Parameters) -> String {
        let (rise_ns, allowed_ns) = self.rise_and_allowed_ns(parameters);
        if rise_ns.is_finite() && allowed_ns > 0.0 {
            format!("{:.0} us of {:.0} us", (allowed_ns - rise_ns).max(0.0) / 1e3, allowed_ns / 1e3)
        } else {
            "none".to_owned()
        }
    }

    /// The estimated rise of latency above that of polling, and what is allowed.
    pub(super) fn rise_and_allowed_ns(&self, parameters: &Parameters) -> (f64, f64) {
        let base_ns = self.base_ns(&self.loads);
        let now_ns = self.delay_ns(&self.on_cores()) + self.feedback.unexplained_ns();
        let allowed_ns = if self.allows_nothing() { 0.0 } else { self.allowed_ns(base_ns, parameters) };
        ((now_ns - base_ns) * self.feedback.scale() + self.of_pause_ns() + self.drives.added_ns() as f64, allowed_ns)
    }
}

fn is_shallow(sample: &Sample<'_>, core: CoreId) -> bool {
    sample.cores[core.index()].state == CoreState::Asleep(Depth::MonitorWait)
}

fn sum(loads: &[f64]) -> f64 {
    loads.iter().sum()
}
