//! A simulated logical core: a polling loop over its I/O threads.
//!
//! **Terms.** A *loop* is a fixed part and one *poll step* for each I/O thread in the core's *ring*. At the *boundary* between two loops the
//! core reads messages, calls the policy (main core), or goes to sleep.
//!
//! **Rules.** A poll step sees the state at its beginning, so a core can advance alone up to the time of the next external event. Messages
//! are read at boundaries; a new speed applies from the next step on.
//!
//! **Speed.** Empty loops are skipped: their number follows from the time at which each thread is next due, with one division
//! ([`EmptyLoop`]). While only polling can be due at a boundary, nothing else is checked there ([`Core::plain_until_ns`]).

mod kernel;
mod rest;
mod round;

use std::collections::VecDeque;

use pilotlight_plant::{CompletionMode, Rounds};

use super::quota::CoreQuota;
use super::shared::{Change, CoreTime, Message, MessageKind, Shared, scaled};
use crate::rng::Stream;
use crate::trace::{RecordKind, State, THROTTLED};

/// Mode of a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// Polling.
    Polls,
    /// Asleep by command; with the exit latency.
    Sleeps { since_ns: u64, exit_ns: u64 },
    /// Waiting in the kernel for events of its threads.
    Idles { since_ns: u64, exit_ns: u64 },
    /// Throttled by the quota; with the exit latency.
    Throttled { since_ns: u64, exit_ns: u64 },
}

/// A logical core.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) id: u16,
    is_main: bool,
    /// Whether a loop has begun since the last call of the policy: at least one loop runs between two calls.
    looped_since_policy: bool,
    mode: Mode,
    /// Begin of its next step.
    pub(crate) now_ns: u64,
    /// Index of the next I/O thread in the ring; `None` at a boundary.
    place: Option<usize>,
    /// Whether the policy is called before the next I/O thread is polled.
    calls_policy: bool,
    ring: Vec<u16>,
    /// Whether the current loop has found work.
    found: bool,
    rounds: Rounds,
    /// Whether a whole loop since the last wake-up was empty.
    loop_was_empty: bool,
    inbox: VecDeque<Message>,
    /// Pending sleep: deep or not, and exit latency.
    to_sleep: Option<(bool, u64)>,
    /// Whether it is offline or going offline.
    leaves: bool,
    /// Cost of a nanosecond at full speed, in 1/65536.
    factor: u32,
    /// The empty loop for the current ring, speed and completion modes.
    empty_loop: Option<EmptyLoop>,
    /// Changes of state not yet read by the meter.
    pub(crate) changes: VecDeque<Change>,
    state: State,
    /// Time in rests without a command that have ended, and whether it is in one.
    quiet_rest_ns: u64,
    rests_quietly: bool,
    /// Delays of its wake-ups.
    delays: Stream,
    /// Predicted idle time of the kernel.
    expected_idle_ns: u64,
    /// The running I/O thread and the end of the last interrupt, if cores take interrupts of others.
    runs: Option<u16>,
    interrupted_ns: u64,
    /// End of its last poll step with work (in the server: with requests), on a worker also the arrival of an I/O thread or a wake-up. Main core:
    /// whether it asks for a sleep of the whole server, waits in it, until when without an event, and whether it has ended.
    last_request_ns: u64,
    /// End of its last poll step that received requests.
    received_ns: u64,
    idle_timed_out: bool,
    is_last: bool,
    idle_until_ns: u64,
    /// End of the timer of short waits.
    limit_ns: u64,
    resumed: bool,
    quota: CoreQuota,
    /// Next check of the quota; never without one.
    quota_ns: u64,
    pub(crate) busy_ns: u64,
    /// Time not awake until `now_ns`.
    rested_ns: u64,
}

/// Durations of an empty loop at the core's speed.
#[derive(Clone, Copy, Debug)]
struct EmptyLoop {
    /// Whether all threads of the ring poll; otherwise the core may rest after such a loop.
    polls: bool,
    fixed_ns: u64,
    step_ns: u64,
    loop_ns: u64,
}

impl EmptyLoop {
    fn new(ring: &[u16], factor: u32, shared: &Shared<'_>) -> Self {
        let fixed_ns = scaled(shared.machine.poll.loop_ns.max(1), factor).max(1);
        let step_ns = scaled(shared.empty_step_ns, factor);
        let polls = !shared.interrupts.is_active()
            && ring.iter().all(|&thread| shared.threads[usize::from(thread)].how() == CompletionMode::Poll);
        Self { polls, fixed_ns, step_ns, loop_ns: fixed_ns + step_ns * ring.len() as u64 }
    }

    /// Duration of the empty loops from `now_ns` on that can be skipped: each begins before `boundary_ns`, its steps before `until_ns`, and each
    /// step before its thread is due.
    #[inline]
    fn pass_ns(&self, now_ns: u64, ring: &[u16], due_ns: &[u64], boundary_ns: u64, until_ns: u64) -> u64 {
        let (mut begin_ns, mut offset_ns) = (boundary_ns, self.fixed_ns);
        for &thread in ring {
            begin_ns = begin_ns.min(due_ns[usize::from(thread)].saturating_sub(offset_ns));
            offset_ns += self.step_ns;
        }
        // 0 if a thread is due at once; a branch would often be mispredicted.
        let by_begin_ns = begin_ns.saturating_sub(now_ns).saturating_add(self.loop_ns);
        let by_end_ns = until_ns - now_ns + if ring.is_empty() { 0 } else { self.step_ns };
        (by_begin_ns.min(by_end_ns) - 1) / self.loop_ns * self.loop_ns
    }
}

/// Result of a boundary.
enum Boundary {
    /// A loop begins.
    Loop,
    /// Check the boundary again.
    Again,
    /// Nothing to do before the end time of [`Core::advance`].
    Wait,
    /// Call the policy now.
    CallPolicy,
}

impl Core {
    pub(crate) fn new(id: u16, is_main: bool, ring: Vec<u16>, delays: Stream) -> Self {
        Self {
            id,
            is_main,
            looped_since_policy: true,
            mode: Mode::Polls,
            now_ns: 0,
            place: None,
            calls_policy: false,
            ring,
            found: false,
            rounds: Rounds::default(),
            loop_was_empty: false,
            inbox: VecDeque::new(),
            to_sleep: None,
            leaves: false,
            factor: 1 << 16,
            empty_loop: None,
            changes: VecDeque::new(),
            state: State::Awake,
            quiet_rest_ns: 0,
            rests_quietly: false,
            delays,
            expected_idle_ns: 0,
            runs: None,
            interrupted_ns: 0,
            last_request_ns: 0,
            received_ns: 0,
            idle_timed_out: false,
            is_last: false,
            idle_until_ns: u64::MAX,
            limit_ns: 0,
            resumed: false,
            quota: CoreQuota::default(),
            quota_ns: u64::MAX,
            busy_ns: 0,
            rested_ns: 0,
        }
    }

    pub(crate) fn is_asleep(&self) -> bool {
        matches!(self.mode, Mode::Sleeps { .. })
    }

    /// Total time awake.
    pub(crate) fn awake_ns(&self) -> u64 {
        self.now_ns - self.rested_ns
    }

    pub(crate) fn factor(&self) -> u32 {
        self.factor
    }

    pub(crate) fn set_factor(&mut self, factor: u32) {
        self.factor = factor;
        self.empty_loop = None;
    }

    /// A completion mode has changed.
    pub(crate) fn reset_empty_loop(&mut self) {
        self.empty_loop = None;
    }

    pub(crate) fn has_messages(&self) -> bool {
        !self.inbox.is_empty()
    }

    pub(crate) fn deliver(&mut self, message: Message) {
        let at = self.inbox.partition_point(|other| other.at_ns <= message.at_ns);
        self.inbox.insert(at, message);
    }

    /// A changed quota applies to this core from `at_ns` on.
    pub(crate) fn follow_quota(&mut self, at_ns: u64) {
        self.quota.limit();
        self.quota_ns = self.quota_ns.min(at_ns);
    }

    /// Whether it is under a quota.
    pub(crate) fn is_limited(&self) -> bool {
        self.quota.is_limited()
    }

    /// Whether it may take from or return to the quota before `until_ns`.
    pub(crate) fn uses_quota(&mut self, shared: &Shared<'_>, until_ns: u64) -> bool {
        if !self.quota.is_limited() {
            return false;
        }
        let polls = self.mode == Mode::Polls;
        let next_ns = if polls { self.quota_ns } else { self.next_ns(shared) };
        let may_rest = polls
            && (self.to_sleep.is_some() || !self.empty_loop(shared).polls || self.rest_begins_ns(shared) < until_ns);
        next_ns < until_ns || may_rest || self.has_messages()
    }

    /// Returns its slice of the quota before going to sleep.
    fn return_quota(&mut self, shared: &mut Shared<'_>) {
        if self.quota.is_limited() && shared.quota.is_active() {
            self.quota.return_slice(&mut shared.quota, self.now_ns, self.awake_ns());
            self.quota_ns = self.now_ns;
        }
    }

    /// Whether the quota allows it to continue.
    fn has_quota(&mut self, shared: &mut Shared<'_>) -> bool {
        let (now_ns, awake_ns) = (self.now_ns, self.awake_ns());
        let next_ns = self.quota.check(&mut shared.quota, self.id, now_ns, awake_ns);
        self.quota_ns = next_ns.unwrap_or(now_ns);
        next_ns.is_some()
    }

    /// Spends time at a boundary on deciding or commanding.
    pub(crate) fn spend(&mut self, cost_ns: u32) -> u64 {
        let took_ns = scaled(cost_ns, self.factor);
        self.busy_ns += took_ns; // as SPDK counts events
        self.now_ns += took_ns;
        self.now_ns
    }

    /// The time that [`Core::spend`] takes.
    pub(crate) fn price_ns(&self, cost_ns: u32) -> u64 {
        scaled(cost_ns, self.factor)
    }

    /// Duration of an empty loop, for a polling core at a boundary without other work.
    pub(crate) fn steady_loop_ns(&mut self, shared: &Shared<'_>) -> Option<u64> {
        let at_boundary = self.mode == Mode::Polls && self.place.is_none() && self.to_sleep.is_none();
        let empty = self.empty_loop(shared);
        (at_boundary && empty.polls && self.inbox.is_empty()).then_some(empty.loop_ns)
    }

    /// The first boundary at or after `due_ns`, at least one loop from now.
    pub(crate) fn next_boundary_ns(&self, loop_ns: u64, due_ns: u64) -> u64 {
        Self::boundary_after_ns(self.now_ns, loop_ns, due_ns)
    }

    /// The first boundary at or after `due_ns` of a core whose next loop begins at `now_ns`; at least one loop later.
    pub(crate) fn boundary_after_ns(now_ns: u64, loop_ns: u64, due_ns: u64) -> u64 {
        now_ns + due_ns.saturating_sub(now_ns).div_ceil(loop_ns).max(1) * loop_ns
    }

    /// Skips empty polls until the boundary at `at_ns`, then spends `took_ns` on other work.
    pub(crate) fn pass(&mut self, shared: &Shared<'_>, at_ns: u64, took_ns: u64) {
        if shared.round_ns != u64::MAX {
            self.rounds.end(at_ns, false);
        }
        self.now_ns = at_ns + took_ns;
        self.busy_ns += took_ns;
    }

    /// Whether it waits in the kernel.
    pub(crate) fn idles(&self) -> bool {
        matches!(self.mode, Mode::Idles { .. })
    }

    /// Whether its state does not change without an event.
    pub(crate) fn is_settled(&mut self, shared: &Shared<'_>) -> bool {
        let is_free = self.inbox.is_empty() && (self.quota_ns == u64::MAX || !shared.quota.is_active());
        is_free
            && (self.mode != Mode::Polls || self.empty_loop(shared).polls && self.rest_begins_ns(shared) == u64::MAX)
    }

    /// Time of its next activity without external events.
    pub(crate) fn next_ns(&self, shared: &Shared<'_>) -> u64 {
        let message = self.inbox.front().map_or(u64::MAX, |message| message.at_ns);
        let interrupt = shared.interrupts.next_ns(self.id);
        match self.mode {
            Mode::Polls => self.now_ns.min(interrupt.max(self.interrupted_ns)),
            Mode::Sleeps { since_ns, .. } => message.min(interrupt).max(since_ns),
            Mode::Idles { since_ns, .. } if shared.interrupts.is_active() => {
                self.called(shared).0.min(interrupt).max(since_ns)
            }
            Mode::Idles { since_ns, .. } => self.wake_ns(shared).min(message).min(self.idle_until_ns).max(since_ns),
            Mode::Throttled { since_ns, .. } => {
                shared.quota.release_ns(self.id).max(since_ns).min(interrupt.max(self.interrupted_ns))
            }
        }
    }

    /// As [`Core::next_ns`], or later if it polls in vain until then: no earlier step concerns another core.
    pub(crate) fn acts_ns(&mut self, shared: &Shared<'_>) -> u64 {
        let next_ns = self.next_ns(shared);
        let is_at_boundary = self.mode == Mode::Polls && self.place.is_none();
        if !is_at_boundary || shared.interrupts.is_active() || shared.polls.is_some() {
            return next_ns;
        }
        let plain_until_ns = self.plain_until_ns(shared);
        let finds_ns = self.due_ns(shared).saturating_sub(self.empty_loop(shared).loop_ns);
        next_ns.max(finds_ns.min(plain_until_ns))
    }

    /// Catches up with `until_ns` as far as it polls in vain.
    pub(crate) fn poll_in_vain(&mut self, shared: &mut Shared<'_>, until_ns: u64) {
        let until_ns = until_ns.min(self.acts_ns(shared));
        if self.mode == Mode::Polls && self.now_ns < until_ns {
            self.advance(shared, until_ns, true);
        }
    }

    /// Whether it rests without an event before `until_ns`: [`Core::advance`] would do nothing.
    #[inline]
    pub(crate) fn rests_until(&self, shared: &Shared<'_>, until_ns: u64) -> bool {
        let rests = matches!(self.mode, Mode::Sleeps { .. } | Mode::Idles { .. });
        // An I/O thread is due at its earliest event.
        rests
            && self.inbox.is_empty()
            && self.due_ns(shared).min(self.idle_until_ns) >= until_ns
            && shared.interrupts.next_ns(self.id) >= until_ns
    }

    /// Advances until its next step would begin at `until_ns` or later, or until it has sent a message. Returns `true` if it stopped at
    /// [`Core::now_ns`] to call the policy.
    pub(crate) fn advance(&mut self, shared: &mut Shared<'_>, until_ns: u64, skip: bool) -> bool {
        if shared.interrupts.is_active() {
            return self.advance_in_kernel(shared, until_ns);
        }
        let skip = skip && shared.polls.is_none();
        let mut plain_until_ns = if skip { self.plain_until_ns(shared) } else { 0 };
        loop {
            if self.mode == Mode::Polls && self.now_ns >= until_ns {
                return false;
            }
            if shared.round_ns != u64::MAX && !self.is_main && !shared.messages.is_empty() {
                return false;
            }
            if let Some(place) = self.place {
                if std::mem::take(&mut self.calls_policy) {
                    return true;
                }
                self.poll_on(shared, place, until_ns);
                continue;
            }
            let has_report = self.is_main && shared.long_round.is_some();
            if self.now_ns < plain_until_ns && !has_report {
                self.plain(shared, plain_until_ns, until_ns);
                continue;
            }
            match self.boundary(shared, until_ns) {
                Boundary::Loop => self.begin_loop(shared),
                Boundary::Again if !shared.messages.is_empty() => return false,
                Boundary::Again => {}
                Boundary::Wait => return false,
                Boundary::CallPolicy => return true,
            }
            plain_until_ns = if skip { self.plain_until_ns(shared) } else { 0 };
        }
    }

    /// Until when boundaries need no work: no message, sleep, policy call or rest.
    fn plain_until_ns(&mut self, shared: &Shared<'_>) -> u64 {
        if self.mode != Mode::Polls
            || self.resumed
            || shared.long_round.is_some()
            || self.to_sleep.is_some()
            || !self.empty_loop(shared).polls
        {
            return 0;
        }
        let message_ns = self.inbox.front().map_or(u64::MAX, |message| message.at_ns);
        let until_ns = message_ns.min(self.quota_ns);
        let until_ns = until_ns.min(self.rest_begins_ns(shared));
        if self.is_main { until_ns.min(shared.policy_due_ns).min(self.idle_timeout_at_ns(shared)) } else { until_ns }
    }

    fn empty_loop(&mut self, shared: &Shared<'_>) -> EmptyLoop {
        *self.empty_loop.get_or_insert_with(|| EmptyLoop::new(&self.ring, self.factor, shared))
    }

    /// Runs loops with plain boundaries: skips empty ones, and executes one that may find work.
    fn plain(&mut self, shared: &mut Shared<'_>, plain_until_ns: u64, until_ns: u64) {
        let empty = self.empty_loop(shared);
        self.looped_since_policy = true;
        while self.place.is_none() && self.now_ns < plain_until_ns.min(until_ns) {
            let pass_ns = empty.pass_ns(self.now_ns, &self.ring, &shared.due_ns, plain_until_ns, until_ns);
            self.now_ns += pass_ns;
            if pass_ns > 0 && shared.round_ns != u64::MAX {
                self.rounds.end(self.now_ns, false);
            }
            if pass_ns > 0 && self.now_ns >= plain_until_ns.min(until_ns) {
                self.loop_was_empty = true;
                return;
            }
            self.now_ns += empty.fixed_ns;
            self.found = false;
            self.rounds.begin(self.now_ns);
            self.poll(shared, 0, until_ns);
            if shared.round_ns != u64::MAX && (!shared.messages.is_empty() || shared.long_round.is_some()) {
                return;
            }
        }
    }

    fn boundary(&mut self, shared: &mut Shared<'_>, until_ns: u64) -> Boundary {
        match self.mode {
            Mode::Sleeps { since_ns, exit_ns } => return self.wake(shared, until_ns, since_ns, exit_ns),
            Mode::Idles { since_ns, exit_ns } => return self.interrupt(shared, until_ns, since_ns, exit_ns),
            Mode::Throttled { since_ns, exit_ns } => return self.run_again(shared, until_ns, since_ns, exit_ns),
            Mode::Polls => {}
        }
        if self.resumed {
            return Boundary::CallPolicy;
        }
        if self.quota_ns <= self.now_ns && !self.has_quota(shared) {
            self.throttle(shared);
            return Boundary::Again;
        }
        if self.is_main && shared.long_round.is_some() {
            return Boundary::CallPolicy; // before another message of a core
        }
        if self.inbox.front().is_some_and(|message| message.at_ns <= self.now_ns) {
            self.read_message(shared);
            return Boundary::Again;
        }
        if let (Some((deep, exit_ns)), true) = (self.to_sleep, self.ring.is_empty()) {
            self.return_quota(shared);
            self.mode = Mode::Sleeps { since_ns: self.now_ns, exit_ns };
            self.turn(shared, self.now_ns, if deep { State::Deep } else { State::Shallow });
            return Boundary::Again;
        }
        if self.is_main && shared.policy_due_ns <= self.now_ns && std::mem::take(&mut self.looped_since_policy) {
            return Boundary::CallPolicy;
        }
        if std::mem::take(&mut self.loop_was_empty) {
            if self.pause_after_requests(shared) {
                return Boundary::Again;
            }
            if self.is_main && self.idle_timeout_at_ns(shared) <= self.now_ns {
                self.idle_timed_out = true;
                return Boundary::CallPolicy;
            }
            if self.rest_quietly(shared) || self.rest(shared) {
                return Boundary::Again;
            }
        }
        Boundary::Loop
    }

    fn begin_loop(&mut self, shared: &mut Shared<'_>) {
        self.looped_since_policy = true;
        if let Some(polls) = &mut shared.polls {
            polls.note(self.id, self.now_ns, self.ring.len());
        }
        self.now_ns += self.empty_loop(shared).fixed_ns;
        self.found = false;
        self.rounds.begin(self.now_ns);
        self.place = Some(0);
    }

    /// Continues a loop that was cut by the end of a window.
    #[inline(never)]
    fn poll_on(&mut self, shared: &mut Shared<'_>, place: usize, until_ns: u64) {
        self.poll(shared, place, until_ns);
    }

    /// The steps of the current loop from `place` on that begin before `until_ns`.
    #[inline(always)] // into the loop over loops: 33 instructions for each request
    fn poll(&mut self, shared: &mut Shared<'_>, place: usize, until_ns: u64) {
        for place in place..self.ring.len() {
            if self.now_ns >= until_ns {
                self.place = Some(place);
                return;
            }
            let has_worked = self.step(shared, self.ring[place]);
            if has_worked && shared.looks_at_steps && self.interrupts_loop(shared, place) {
                return;
            }
        }
        if shared.round_ns != u64::MAX {
            if self.found {
                self.report_long_round(shared);
            }
            self.rounds.end(self.now_ns, self.found);
        }
        self.place = None;
        self.loop_was_empty = !self.found;
    }

    /// After a poll step with work at `place`: notes whether it received requests, and says whether the loop stops there, for the policy, or
    /// ends because of a message. Empty steps stop nothing: they are short, and skipped by whole loops.
    #[inline(never)] // not on the path of the papers' machines
    fn interrupts_loop(&mut self, shared: &mut Shared<'_>, place: usize) -> bool {
        if shared.threads[usize::from(self.ring[place])].has_received() {
            self.received_ns = self.now_ns;
        }
        if !shared.machine.sockets.between_polls {
            return false;
        }
        let is_long = shared.round_ns != u64::MAX && self.report_long_round(shared);
        if !shared.messages.is_empty() {
            self.place = Some(place + 1); // the report leaves first
            return true;
        }
        if !is_long && self.inbox.front().is_some_and(|message| message.at_ns <= self.now_ns) {
            self.ring.rotate_left(place + 1);
            self.rounds.end(self.now_ns, true);
            self.place = None;
            self.loop_was_empty = false;
            return true;
        }
        self.calls_policy = is_long || self.is_main && shared.policy_due_ns <= self.now_ns;
        if self.calls_policy {
            self.place = Some(place + 1);
        }
        self.calls_policy
    }

    #[inline(always)]
    fn step(&mut self, shared: &mut Shared<'_>, thread: u16) -> bool {
        if shared.due_ns[usize::from(thread)] > self.now_ns {
            let step_ns = self.empty_loop(shared).step_ns;
            self.now_ns += step_ns;
            return false;
        }
        let took_ns = shared.poll(thread, CoreTime { core: self.id, now_ns: self.now_ns, factor: self.factor });
        self.now_ns += took_ns;
        self.busy_ns += took_ns;
        self.found = true;
        self.last_request_ns = self.now_ns;
        true
    }

    fn turn(&mut self, shared: &mut Shared<'_>, at_ns: u64, state: State) {
        if self.state != state {
            self.change(shared, Change { at_ns, state, exit_ns: 0 });
        }
    }

    fn change(&mut self, shared: &mut Shared<'_>, change: Change) {
        let Change { at_ns, state, .. } = change;
        self.state = state;
        self.changes.push_back(change);
        shared.changed_ns = shared.changed_ns.max(at_ns);
        let throttled =
            if matches!(self.mode, Mode::Throttled { .. }) && state != State::Awake { THROTTLED } else { 0 };
        shared.recorder.note(at_ns, RecordKind::Core, u64::from(self.id), state as u64 + throttled);
    }

    fn read_message(&mut self, shared: &mut Shared<'_>) {
        let Some(Message { kind, .. }) = self.inbox.pop_front() else { return };
        match kind {
            MessageKind::Sleep { deep, exit_ns } => self.to_sleep = Some((deep, exit_ns)),
            MessageKind::LongRound(long) => shared.long_round = Some(long),
            MessageKind::Wake if self.leaves => {}
            MessageKind::Wake => (self.to_sleep, self.last_request_ns) = (None, self.active_ns()),
            MessageKind::Offline { exit_ns } => (self.to_sleep, self.leaves) = (Some((true, exit_ns)), true),
            MessageKind::Online => (self.to_sleep, self.leaves) = (None, false),
            MessageKind::MoveOut(thread, order) => {
                if shared.threads[usize::from(thread)].orders == order {
                    self.give(shared, thread);
                }
            }
            MessageKind::MoveIn(thread) => {
                self.to_sleep = None;
                self.loop_was_empty = false;
                self.last_request_ns = self.active_ns();
                self.ring.push(thread);
                self.empty_loop = None;
                shared.threads[usize::from(thread)].home = Some(self.id);
                shared.recorder.note(self.now_ns, RecordKind::Home, u64::from(thread), u64::from(self.id));
                if shared.threads[usize::from(thread)].destination == self.id {
                    shared.moving -= 1;
                } else {
                    self.give(shared, thread);
                }
            }
        }
    }

    /// Sends a thread to its new core, if it is here.
    fn give(&mut self, shared: &mut Shared<'_>, thread: u16) {
        let to = shared.threads[usize::from(thread)].destination;
        let Some(place) = self.ring.iter().position(|&mine| mine == thread) else { return };
        if to == self.id {
            return;
        }
        self.ring.remove(place);
        self.empty_loop = None;
        shared.threads[usize::from(thread)].home = None;
        shared.recorder.note(self.now_ns, RecordKind::Left, u64::from(thread), u64::from(self.id));
        self.now_ns += scaled(shared.machine.director.move_ns, self.factor);
        shared.messages.push((to, Message { at_ns: self.now_ns, kind: MessageKind::MoveIn(thread) }));
    }
}
