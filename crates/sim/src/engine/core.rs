//! A logical core: a polling loop over its I/O threads, in simulated time.
//!
//! **Words.** A *loop* is a fixed part and one *poll step* for each I/O thread in the core's *ring*. Between two loops is a
//! *boundary*: there the core reads messages, asks the policy (the main core), goes to sleep.
//!
//! **Rules.** A poll step sees what was there when it began, so a core can advance alone up to a moment before which nothing new
//! can come from elsewhere. What changes a core from outside (messages) is seen at boundaries, what changes its speed holds from the
//! next step on.
//!
//! **Speed.** Loops that find nothing are not walked through: how many there are follows from when each thread is next due, with one
//! division ([`EmptyLoop`]). So nearly every step finds something: of the 573,000 steps that a fifth of a million requests used to
//! take, 211,000 did not; 4,000 of those are left, where a window's end cuts a loop. While nothing else can be due at a boundary than
//! polling, nothing else is looked for there ([`Core::plain_until_ns`]).

mod kernel;
mod rest;

use std::collections::VecDeque;

use pilotlight_plant::CompletionMode;

use super::floor::{At, Change, Floor, Message, Say, scaled};
use super::quota::Share;
use crate::trace::{State, THROTTLED, What};

/// What a core is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// In its loop.
    Polls,
    /// Asleep by command, since when, and how long the way back takes.
    Sleeps { since_ns: u64, exit_ns: u64 },
    /// In the kernel until something comes for its threads.
    Idles { since_ns: u64, exit_ns: u64 },
    /// Kept from running by its quota, since when, and how long the way back takes.
    Throttled { since_ns: u64, exit_ns: u64 },
}

/// A logical core.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) id: u16,
    is_main: bool,
    /// Whether a loop has begun since the policy was last asked: however long it takes to decide and command, requests are
    /// polled in between.
    has_looped: bool,
    mode: Mode,
    /// When its next step begins; before that nothing can change what it does.
    pub(crate) now_ns: u64,
    /// The next I/O thread of the ring; none at a boundary.
    place: Option<usize>,
    ring: Vec<u16>,
    /// Whether the present loop has found anything.
    found: bool,
    /// Whether a whole loop has found nothing since the core was last woken.
    fruitless: bool,
    inbox: VecDeque<Message>,
    /// To sleep when it has no I/O thread: deep or not, and how long the way back takes.
    to_sleep: Option<(bool, u64)>,
    /// Whether it is to be off, or is.
    leaves: bool,
    /// Cost of a nanosecond at full speed, in 1/65536.
    factor: u32,
    /// A loop that finds nothing, as long as ring, speed and waiting stay as they are.
    empty_loop: Option<EmptyLoop>,
    /// Changes of state that the meter has not seen.
    pub(crate) changes: VecDeque<Change>,
    state: State,
    /// What idle times the kernel expects.
    expected_idle_ns: u64,
    /// The I/O thread that runs, and when the last interrupt ended: where cores take interrupts of others.
    runs: Option<u16>,
    interrupted_ns: u64,
    quota: Share,
    /// When it has to look at its quota next; never without one.
    quota_ns: u64,
    pub(crate) busy_ns: u64,
    /// How much of the time until `now_ns` it has not been awake.
    rested_ns: u64,
}

/// A loop that finds nothing: how long it takes, at the core's speed.
#[derive(Clone, Copy, Debug)]
struct EmptyLoop {
    /// Whether all threads of the ring poll; else a core may rest after such a loop.
    polls: bool,
    fixed_ns: u64,
    step_ns: u64,
    loop_ns: u64,
}

impl EmptyLoop {
    fn new(ring: &[u16], factor: u32, floor: &Floor<'_>) -> Self {
        let fixed_ns = scaled(floor.machine.poll.loop_ns.max(1), factor).max(1);
        let step_ns = scaled(floor.empty_step_ns, factor);
        let polls = !floor.interrupts.is_active()
            && ring.iter().all(|&thread| floor.threads[usize::from(thread)].how() == CompletionMode::Poll);
        Self { polls, fixed_ns, step_ns, loop_ns: fixed_ns + step_ns * ring.len() as u64 }
    }

    /// How long loops are to be passed over that begin at `now_ns`: a loop begins before `boundary_ns`, its steps before
    /// `until_ns`, and each step before its thread is due.
    #[inline]
    fn pass_ns(&self, now_ns: u64, ring: &[u16], due_ns: &[u64], boundary_ns: u64, until_ns: u64) -> u64 {
        let (mut begin_ns, mut offset_ns) = (boundary_ns, self.fixed_ns);
        for &thread in ring {
            begin_ns = begin_ns.min(due_ns[usize::from(thread)].saturating_sub(offset_ns));
            offset_ns += self.step_ns;
        }
        // Where a thread is due at once this comes to nothing; a branch would be mispredicted more often than not.
        let by_begin_ns = begin_ns.saturating_sub(now_ns).saturating_add(self.loop_ns);
        let by_end_ns = until_ns - now_ns + if ring.is_empty() { 0 } else { self.step_ns };
        (by_begin_ns.min(by_end_ns) - 1) / self.loop_ns * self.loop_ns
    }
}

/// What came of a boundary.
enum Boundary {
    /// A loop begins.
    Loop,
    /// Look again.
    Again,
    /// There is nothing to do before the time given to [`Core::advance`].
    Wait,
    /// The policy is to be asked, now.
    Ask,
}

impl Core {
    pub(crate) fn new(id: u16, is_main: bool, ring: Vec<u16>) -> Self {
        Self {
            id,
            is_main,
            has_looped: true,
            mode: Mode::Polls,
            now_ns: 0,
            place: None,
            ring,
            found: false,
            fruitless: false,
            inbox: VecDeque::new(),
            to_sleep: None,
            leaves: false,
            factor: 1 << 16,
            empty_loop: None,
            changes: VecDeque::new(),
            state: State::Awake,
            expected_idle_ns: 0,
            runs: None,
            interrupted_ns: 0,
            quota: Share::default(),
            quota_ns: u64::MAX,
            busy_ns: 0,
            rested_ns: 0,
        }
    }

    pub(crate) fn is_asleep(&self) -> bool {
        matches!(self.mode, Mode::Sleeps { .. })
    }

    /// How long it has been awake.
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

    /// One of its threads waits in another way.
    pub(crate) fn look_again(&mut self) {
        self.empty_loop = None;
    }

    pub(crate) fn has_mail(&self) -> bool {
        !self.inbox.is_empty()
    }

    pub(crate) fn deliver(&mut self, message: Message) {
        let at = self.inbox.partition_point(|other| other.at_ns <= message.at_ns);
        self.inbox.insert(at, message);
    }

    /// Another quota of CPU time holds from `at_ns` on, and counts for this core.
    pub(crate) fn follow_quota(&mut self, at_ns: u64) {
        self.quota.limit();
        self.quota_ns = self.quota_ns.min(at_ns);
    }

    /// Whether a quota of CPU time counts for it.
    pub(crate) fn is_limited(&self) -> bool {
        self.quota.is_limited()
    }

    /// Whether it may take CPU time from the quota, or return any, before `until_ns`.
    pub(crate) fn uses_quota(&mut self, floor: &Floor<'_>, until_ns: u64) -> bool {
        if !self.quota.is_limited() {
            return false;
        }
        let polls = self.mode == Mode::Polls;
        let next_ns = if polls { self.quota_ns } else { self.next_ns(floor) };
        let may_rest = polls && (self.to_sleep.is_some() || !self.empty_loop(floor).polls);
        next_ns < until_ns || may_rest || self.has_mail()
    }

    /// Goes to sleep now, and leaves its part of the quota to others.
    fn return_quota(&mut self, floor: &mut Floor<'_>) {
        if self.quota.is_limited() && floor.quota.is_active() {
            self.quota.put_back(&mut floor.quota, self.now_ns, self.awake_ns());
            self.quota_ns = self.now_ns;
        }
    }

    /// Whether it may run on, by the quota.
    fn has_quota(&mut self, floor: &mut Floor<'_>) -> bool {
        let (now_ns, awake_ns) = (self.now_ns, self.awake_ns());
        let next_ns = self.quota.look(&mut floor.quota, self.id, now_ns, awake_ns);
        self.quota_ns = next_ns.unwrap_or(now_ns);
        next_ns.is_some()
    }

    /// Busy with something else than its I/O threads, at a boundary: deciding, or commanding.
    pub(crate) fn spend(&mut self, cost_ns: u32) -> u64 {
        let took_ns = scaled(cost_ns, self.factor);
        self.busy_ns += took_ns; // as SPDK counts events
        self.now_ns += took_ns;
        self.now_ns
    }

    /// What [`Core::spend`] takes.
    pub(crate) fn price_ns(&self, cost_ns: u32) -> u64 {
        scaled(cost_ns, self.factor)
    }

    /// How long each loop takes if nothing comes: of a core that polls, is at a boundary and has nothing else to do there.
    pub(crate) fn steady_loop_ns(&mut self, floor: &Floor<'_>) -> Option<u64> {
        let at_boundary = self.mode == Mode::Polls && self.place.is_none() && self.to_sleep.is_none();
        let empty = self.empty_loop(floor);
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

    /// Has polled in vain until `at_ns`, a boundary, and been busy with something else for `took_ns` from there.
    pub(crate) fn pass(&mut self, at_ns: u64, took_ns: u64) {
        self.now_ns = at_ns + took_ns;
        self.busy_ns += took_ns;
    }

    /// Whether it waits in the kernel for what comes.
    pub(crate) fn idles(&self) -> bool {
        matches!(self.mode, Mode::Idles { .. })
    }

    /// Whether it stays as it is until something comes for it.
    pub(crate) fn is_settled(&mut self, floor: &Floor<'_>) -> bool {
        let is_free = self.inbox.is_empty() && (self.quota_ns == u64::MAX || !floor.quota.is_active());
        is_free && (self.mode != Mode::Polls || self.empty_loop(floor).polls)
    }

    /// When it does something next, if nothing comes from elsewhere.
    pub(crate) fn next_ns(&self, floor: &Floor<'_>) -> u64 {
        let message = self.inbox.front().map_or(u64::MAX, |message| message.at_ns);
        let interrupt = floor.interrupts.next_ns(self.id);
        match self.mode {
            Mode::Polls => self.now_ns.min(interrupt.max(self.interrupted_ns)),
            Mode::Sleeps { since_ns, .. } => message.min(interrupt).max(since_ns),
            Mode::Idles { since_ns, .. } if floor.interrupts.is_active() => {
                self.called(floor).0.min(interrupt).max(since_ns)
            }
            Mode::Idles { since_ns, .. } => self.due_ns(floor).min(message).max(since_ns),
            Mode::Throttled { since_ns, .. } => {
                floor.quota.release_ns(self.id).max(since_ns).min(interrupt.max(self.interrupted_ns))
            }
        }
    }

    /// Whether it rests in the kernel or asleep, and nothing comes for it before `until_ns`: [`Core::advance`] would do nothing.
    #[inline]
    pub(crate) fn rests_until(&self, floor: &Floor<'_>, until_ns: u64) -> bool {
        let rests = matches!(self.mode, Mode::Sleeps { .. } | Mode::Idles { .. });
        // An I/O thread is due at the earliest of all that comes to it.
        rests
            && self.inbox.is_empty()
            && self.due_ns(floor) >= until_ns
            && floor.interrupts.next_ns(self.id) >= until_ns
    }

    /// Goes on until its next step would begin at `until_ns` or later, or until it has sent another core a message. `true` if it has
    /// stopped before, at [`Core::now_ns`], to ask the policy.
    pub(crate) fn advance(&mut self, floor: &mut Floor<'_>, until_ns: u64, skip: bool) -> bool {
        if floor.interrupts.is_active() {
            return self.advance_in_kernel(floor, until_ns);
        }
        let skip = skip && floor.polls.is_none();
        let mut plain_until_ns = if skip { self.plain_until_ns(floor) } else { 0 };
        loop {
            if self.mode == Mode::Polls && self.now_ns >= until_ns {
                return false;
            }
            if let Some(place) = self.place {
                self.poll_on(floor, place, until_ns);
                continue;
            }
            if self.now_ns < plain_until_ns {
                self.plain(floor, plain_until_ns, until_ns);
                continue;
            }
            match self.boundary(floor, until_ns) {
                Boundary::Loop => self.begin_loop(floor),
                Boundary::Again if !floor.mail.is_empty() => return false,
                Boundary::Again => {}
                Boundary::Wait => return false,
                Boundary::Ask => return true,
            }
            plain_until_ns = if skip { self.plain_until_ns(floor) } else { 0 };
        }
    }

    /// Until when boundaries are for polling only: no message to read, no sleep to begin, nobody to ask, no reason to rest.
    fn plain_until_ns(&mut self, floor: &Floor<'_>) -> u64 {
        if self.mode != Mode::Polls || self.to_sleep.is_some() || !self.empty_loop(floor).polls {
            return 0;
        }
        let message_ns = self.inbox.front().map_or(u64::MAX, |message| message.at_ns);
        let until_ns = message_ns.min(self.quota_ns);
        if self.is_main { until_ns.min(floor.ask_ns) } else { until_ns }
    }

    fn empty_loop(&mut self, floor: &Floor<'_>) -> EmptyLoop {
        *self.empty_loop.get_or_insert_with(|| EmptyLoop::new(&self.ring, self.factor, floor))
    }

    /// Loops whose boundaries are for polling only: passes over those that find nothing, and walks through the one that may find
    /// something.
    fn plain(&mut self, floor: &mut Floor<'_>, plain_until_ns: u64, until_ns: u64) {
        let empty = self.empty_loop(floor);
        self.has_looped = true;
        while self.place.is_none() && self.now_ns < plain_until_ns.min(until_ns) {
            let pass_ns = empty.pass_ns(self.now_ns, &self.ring, &floor.due_ns, plain_until_ns, until_ns);
            self.now_ns += pass_ns;
            if pass_ns > 0 && self.now_ns >= plain_until_ns.min(until_ns) {
                self.fruitless = true;
                return;
            }
            self.now_ns += empty.fixed_ns;
            self.found = false;
            self.poll(floor, 0, until_ns);
        }
    }

    fn boundary(&mut self, floor: &mut Floor<'_>, until_ns: u64) -> Boundary {
        match self.mode {
            Mode::Sleeps { since_ns, exit_ns } => return self.wake(floor, until_ns, since_ns, exit_ns),
            Mode::Idles { since_ns, exit_ns } => return self.interrupt(floor, until_ns, since_ns, exit_ns),
            Mode::Throttled { since_ns, exit_ns } => return self.run_again(floor, until_ns, since_ns, exit_ns),
            Mode::Polls => {}
        }
        if self.quota_ns <= self.now_ns && !self.has_quota(floor) {
            self.throttle(floor);
            return Boundary::Again;
        }
        if self.inbox.front().is_some_and(|message| message.at_ns <= self.now_ns) {
            self.read_message(floor);
            return Boundary::Again;
        }
        if let (Some((deep, exit_ns)), true) = (self.to_sleep, self.ring.is_empty()) {
            self.return_quota(floor);
            self.mode = Mode::Sleeps { since_ns: self.now_ns, exit_ns };
            self.turn(floor, self.now_ns, if deep { State::Deep } else { State::Shallow });
            return Boundary::Again;
        }
        if self.is_main && floor.ask_ns <= self.now_ns && std::mem::take(&mut self.has_looped) {
            return Boundary::Ask;
        }
        if std::mem::take(&mut self.fruitless) && self.rest(floor) {
            return Boundary::Again;
        }
        Boundary::Loop
    }

    fn begin_loop(&mut self, floor: &mut Floor<'_>) {
        self.has_looped = true;
        if let Some(polls) = &mut floor.polls {
            polls.note(self.id, self.now_ns, self.ring.len());
        }
        self.now_ns += self.empty_loop(floor).fixed_ns;
        self.found = false;
        self.place = Some(0);
    }

    /// The rest of a loop that a window's end has cut.
    #[inline(never)]
    fn poll_on(&mut self, floor: &mut Floor<'_>, place: usize, until_ns: u64) {
        self.poll(floor, place, until_ns);
    }

    /// The steps of the present loop from `place` on that begin before `until_ns`.
    #[inline(always)] // into the loop over loops: 33 instructions for each request
    fn poll(&mut self, floor: &mut Floor<'_>, place: usize, until_ns: u64) {
        for place in place..self.ring.len() {
            if self.now_ns >= until_ns {
                self.place = Some(place);
                return;
            }
            self.step(floor, self.ring[place]);
        }
        self.place = None;
        self.fruitless = !self.found;
    }

    #[inline(always)]
    fn step(&mut self, floor: &mut Floor<'_>, thread: u16) {
        if floor.due_ns[usize::from(thread)] > self.now_ns {
            let step_ns = self.empty_loop(floor).step_ns;
            self.now_ns += step_ns;
            return;
        }
        let took_ns = floor.poll(thread, At { core: self.id, now_ns: self.now_ns, factor: self.factor });
        self.now_ns += took_ns;
        self.busy_ns += took_ns;
        self.found = true;
    }

    fn turn(&mut self, floor: &mut Floor<'_>, at_ns: u64, state: State) {
        if self.state != state {
            self.change(floor, Change { at_ns, state, exit_ns: 0 });
        }
    }

    fn change(&mut self, floor: &mut Floor<'_>, change: Change) {
        let Change { at_ns, state, .. } = change;
        self.state = state;
        self.changes.push_back(change);
        floor.changed_ns = floor.changed_ns.max(at_ns);
        let throttled =
            if matches!(self.mode, Mode::Throttled { .. }) && state != State::Awake { THROTTLED } else { 0 };
        floor.recorder.note(at_ns, What::Core, u64::from(self.id), state as u64 + throttled);
    }

    fn read_message(&mut self, floor: &mut Floor<'_>) {
        let Some(Message { say, .. }) = self.inbox.pop_front() else { return };
        match say {
            Say::Sleep { deep, exit_ns } => self.to_sleep = Some((deep, exit_ns)),
            Say::Wake if self.leaves => {}
            Say::Wake => self.to_sleep = None,
            Say::Leave { exit_ns } => (self.to_sleep, self.leaves) = (Some((true, exit_ns)), true),
            Say::Return => (self.to_sleep, self.leaves) = (None, false),
            Say::Give(thread, order) => {
                if floor.threads[usize::from(thread)].orders == order {
                    self.give(floor, thread);
                }
            }
            Say::Take(thread) => {
                self.to_sleep = None;
                self.fruitless = false;
                self.ring.push(thread);
                self.empty_loop = None;
                floor.threads[usize::from(thread)].home = Some(self.id);
                floor.recorder.note(self.now_ns, What::Home, u64::from(thread), u64::from(self.id));
                if floor.threads[usize::from(thread)].destination == self.id {
                    floor.moving -= 1;
                } else {
                    self.give(floor, thread);
                }
            }
        }
    }

    /// Hands a thread on, if it is here and to live elsewhere.
    fn give(&mut self, floor: &mut Floor<'_>, thread: u16) {
        let to = floor.threads[usize::from(thread)].destination;
        let Some(place) = self.ring.iter().position(|&mine| mine == thread) else { return };
        if to == self.id {
            return;
        }
        self.ring.remove(place);
        self.empty_loop = None;
        floor.threads[usize::from(thread)].home = None;
        floor.recorder.note(self.now_ns, What::Left, u64::from(thread), u64::from(self.id));
        self.now_ns += scaled(floor.machine.director.move_ns, self.factor);
        floor.mail.push((to, Message { at_ns: self.now_ns, say: Say::Take(thread) }));
    }
}
