//! Optional stages of a drive: sequential controller, draining buffer, power states, idle states.
//!
//! *Problem.* A drive in a lower power state has lower limits; an idle one moves written data, then enters an idle state with an exit latency. All of
//! this depends on earlier requests, and is known only when the next request arrives. *Terms.* *Owed* bytes were written and have not been moved. A
//! *span* is a period of autonomous activity. *Algorithm.* Recursions over the time at which each stage is free, as everywhere in this module; at a
//! request or [`super::Ssd::advance`], the time since the last completion is divided into spans. *Properties.* Spans do not overlap, and do not
//! depend on the times of access. With stages that limit nothing, completions equal those of a drive without stages (`tests/ssd_stages.rs`).

use super::collect::Writer;
use super::model::SsdModel;
use super::pages::Pages;
use super::programs::Programs;
use super::stage_model::{Cache, Controller, DriveState, IdleState, Rest, SlowReads};
use super::{Activity, Die, Op, Request, Ssd, time_of};
use crate::rng::{self, Draws};

/// Autonomous activity of a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AutonomousActivity {
    /// Moving written data.
    Moves,
    /// In its own idle state.
    Rests,
    /// In its lowest power state.
    Sleeps,
    /// In the idle state of this number.
    Idles(u8),
}

impl AutonomousActivity {
    /// Number in a trace: 0 to 2 for the first three, 3 and more for idle states.
    #[must_use]
    pub fn code(self) -> u64 {
        match self {
            Self::Moves => 0,
            Self::Rests => 1,
            Self::Sleeps => 2,
            Self::Idles(state) => 3 + u64::from(state),
        }
    }
}

/// A period of autonomous activity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Activity.
    pub activity: AutonomousActivity,
    /// Start in nanoseconds.
    pub from_ns: u64,
    /// End in nanoseconds.
    pub to_ns: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Stages {
    controller: Option<Controller>,
    cache: Option<Cache>,
    rest: Option<Rest>,
    slow: Option<SlowReads>,
    states: Vec<DriveState>,
    state: DriveState,
    /// All idle states, and the number of allowed ones.
    idle: Vec<IdleState>,
    idles: usize,
    autonomous: bool,
    controller_ns: u64,
    /// Times from which the power state's limits admit the next read and write.
    read_limit_ns: u64,
    write_limit_ns: u64,
    /// Time at which the buffer is empty.
    drained_ns: u64,
    /// Bytes written and not yet moved.
    owed: u64,
    programs: Programs,
    /// Completion time of the last request.
    quiet_ns: u64,
    /// Arrival time of the last request.
    came_ns: u64,
    wrote_last: bool,
    /// Positions of the read-ahead streams, most recently used last; whether the current request belongs to one.
    streams: Vec<u64>,
    is_ahead: bool,
    /// End of the known spans.
    known_ns: u64,
    spans: Vec<Span>,
    drawn: u64,
}

impl Stages {
    pub(super) fn new(model: &SsdModel) -> Self {
        Self {
            controller: model.controller,
            cache: model.cache,
            rest: model.rest,
            slow: model.slow,
            state: model.state.first().cloned().unwrap_or_default(),
            states: model.state.clone(),
            idle: model.idle.clone(),
            idles: 0,
            autonomous: false,
            controller_ns: 0,
            read_limit_ns: 0,
            write_limit_ns: 0,
            drained_ns: 0,
            owed: 0,
            programs: Programs::default(),
            quiet_ns: 0,
            came_ns: 0,
            wrote_last: false,
            streams: Vec::new(),
            is_ahead: false,
            known_ns: 0,
            spans: Vec::new(),
            drawn: 0,
        }
    }

    /// Time at which it becomes idle.
    fn free_ns(&self) -> u64 {
        self.quiet_ns.max(self.drained_ns)
    }

    /// Time to move all owed bytes.
    fn to_move_ns(&self) -> u64 {
        time_of(self.owed, self.state.gc_bytes_per_s)
    }

    /// Divides the idle time until `now_ns` into spans.
    pub(super) fn left_alone(&mut self, now_ns: u64) {
        let from_ns = self.free_ns();
        let known_ns = self.known_ns.max(from_ns);
        if now_ns <= known_ns {
            return;
        }
        self.known_ns = now_ns;
        let (moves_ns, moved_ns) = self.moving(from_ns);
        self.span(AutonomousActivity::Moves, moves_ns, moved_ns.min(now_ns), known_ns);
        if self.idles > 0 {
            return self.idle_since(from_ns, moved_ns, now_ns, known_ns);
        }
        let Some(rest) = self.rest.filter(|_| moved_ns <= now_ns) else { return };
        let rests_ns = (from_ns + rest.after_ns).max(moved_ns);
        let sleeps_ns =
            if self.autonomous { (from_ns + rest.asleep_after_ns).max(rests_ns).min(now_ns) } else { now_ns };
        self.span(AutonomousActivity::Rests, rests_ns, sleeps_ns, known_ns);
        self.span(AutonomousActivity::Sleeps, sleeps_ns, now_ns, known_ns);
    }

    /// Adds spans of idle states from when it is free, or has moved everything, until `now_ns`.
    fn idle_since(&mut self, free_ns: u64, moved_ns: u64, now_ns: u64, known_ns: u64) {
        for state in 0..self.idles {
            let begin_ns = (free_ns + self.idle[state].after_ns).max(moved_ns);
            let next = self.idle[..self.idles].get(state + 1);
            let end_ns = next.map_or(now_ns, |next| (free_ns + next.after_ns).max(moved_ns).min(now_ns));
            self.span(AutonomousActivity::Idles(state as u8), begin_ns, end_ns, known_ns);
        }
    }

    /// Period in which all owed bytes are moved, without requests from `from_ns` on.
    fn moving(&self, from_ns: u64) -> (u64, u64) {
        let begin_ns = from_ns + self.cache.map_or(0, |cache| cache.gc_after_ns);
        (begin_ns, begin_ns + self.to_move_ns())
    }

    fn span(&mut self, activity: AutonomousActivity, from_ns: u64, to_ns: u64, known_ns: u64) {
        let from_ns = from_ns.max(known_ns);
        if from_ns < to_ns {
            self.spans.push(Span { activity, from_ns, to_ns });
        }
    }

    /// Ends an idle period, if any; returns when the drive is ready.
    fn woken(&mut self, now_ns: u64) -> u64 {
        let from_ns = self.free_ns();
        if now_ns <= from_ns {
            return now_ns;
        }
        self.left_alone(now_ns);
        let (moves_ns, moved_ns) = self.moving(from_ns);
        if moved_ns <= now_ns {
            self.owed = 0;
        } else {
            let moved = bytes_in(now_ns.saturating_sub(moves_ns), self.state.gc_bytes_per_s);
            self.owed -= self.owed.min(moved);
        }
        if self.idles > 0 {
            let idles = |state: &&IdleState| self.owed == 0 && now_ns - from_ns > state.after_ns;
            return now_ns + self.idle[..self.idles].iter().rfind(idles).map_or(0, |state| state.wake_ns);
        }
        let rests = |rest: &Rest| self.owed == 0 && now_ns - from_ns >= rest.after_ns;
        now_ns + self.rest.filter(rests).map_or(0, |rest| rest.wake_ns)
    }

    /// Passes a command through the controller; returns the end.
    fn through(&mut self, at_ns: u64, bytes: u64, turns: bool, draws: &mut Draws) -> u64 {
        let Some(controller) = self.controller else { return at_ns };
        let rate = if self.is_ahead { controller.stream_bytes_per_s } else { controller.bytes_per_s };
        let turn_ns = if turns { controller.turn_ns } else { 0 };
        let service_ns = time_of(bytes, rate).max(controller.command_ns) + turn_ns;
        let service_ns = drawn(service_ns, controller.random_ppm, draws);
        self.controller_ns = at_ns.max(self.controller_ns) + service_ns;
        self.controller_ns
    }

    /// Whether a request has been read ahead: it continues a stream, or is within its window. Otherwise it begins a new stream in place of the least
    /// recently used one.
    fn reads_ahead(&mut self, request: &Request) -> bool {
        let Some(controller) = self.controller.filter(|controller| controller.stream_bytes_per_s > 0) else {
            return false;
        };
        if !request.sequential || request.op != Op::Read {
            return false;
        }
        if controller.streams == 0 {
            return true;
        }
        let end = request.offset + u64::from(request.bytes);
        let follows =
            |front: &u64| (front.saturating_sub(controller.stream_window_bytes)..=*front).contains(&request.offset);
        let found = self.streams.iter().position(follows);
        let front = match found {
            Some(at) => self.streams.remove(at),
            None if self.streams.len() >= controller.streams as usize => {
                self.streams.remove(0);
                0
            }
            None => 0,
        };
        self.streams.push(front.max(end));
        found.is_some()
    }

    /// Applies the power state's rate limits.
    fn limited(&mut self, at_ns: u64, bytes: u64, op: Op, draws: &mut Draws) -> u64 {
        let (rate, limit_ns) = match op {
            Op::Read => (self.state.read_bytes_per_s, &mut self.read_limit_ns),
            Op::Write if self.cache.is_some() => return at_ns, // the buffer drains at the state's rate
            Op::Write => (self.state.write_bytes_per_s, &mut self.write_limit_ns),
        };
        if rate == 0 {
            return at_ns;
        }
        *limit_ns = at_ns.max(*limit_ns) + drawn(time_of(bytes, rate), 1_000_000, draws);
        *limit_ns
    }

    /// Returns when the buffer has accepted data that arrives at `at_ns`.
    fn buffered(&mut self, cache: &Cache, at_ns: u64, bytes: u64) -> u64 {
        let is_full = self.owed + bytes > cache.cache_bytes;
        let rate = if is_full { cache.full_bytes_per_s } else { self.state.write_bytes_per_s };
        self.drained_ns = at_ns.max(self.drained_ns) + time_of(bytes, rate);
        // While the cache is full, as much data is moved as arrives.
        self.owed += if is_full { 0 } else { bytes };
        if cache.programs {
            self.programs.fill(at_ns, bytes, rate);
        }
        at_ns.max(self.drained_ns.saturating_sub(time_of(cache.buffer_bytes, rate)))
    }

    /// Whether a request must read its mapping entry.
    fn looks_up(&self, request: &Request, draws: &mut Draws) -> bool {
        let Some(cache) = self.cache.filter(|_| !request.sequential) else { return false };
        let asks = if request.op == Op::Write { cache.map_reads } else { cache.map_of_reads };
        asks && (cache.map_cached_ppm == 0 || rng::below(draws.draw(), 1_000_000) >= cache.map_cached_ppm)
    }

    /// Programs data that has drained from the buffer until `now_ns`.
    pub(super) fn program_until(
        &mut self,
        now_ns: u64,
        writer: &mut Writer,
        dies: &mut [Die],
        activity: &mut Activity,
    ) {
        self.programs.advance(now_ns, writer, dies, activity);
    }

    /// Bytes per mapping entry; 0 if writes of any size need no read.
    fn unit_bytes(&self) -> u64 {
        self.controller.map_or(0, |controller| controller.unit_bytes)
    }

    /// Bytes stored in flash for a part of a request: whole units, shared by sequential writes.
    fn stored_bytes(&self, request: &Request, bytes: u64) -> u64 {
        let unit_bytes = self.unit_bytes();
        if unit_bytes == 0 || request.sequential { bytes } else { bytes.next_multiple_of(unit_bytes) }
    }
}

impl Ssd {
    /// Submits a request to a drive with stages.
    pub(super) fn submit_staged(&mut self, request: &Request) -> u64 {
        let Self { front, dies, reads, writer, stages, activity, write_latency_ns, .. } = self;
        let Some(stages) = stages else { return request.at_ns };
        debug_assert!(request.at_ns >= stages.came_ns, "{} after {}", request.at_ns, stages.came_ns);
        stages.came_ns = request.at_ns;
        if let Some(writer) = writer {
            writer.advance(request.at_ns, dies, activity);
            stages.program_until(request.at_ns, writer, dies, activity);
        }
        let mut draws = Draws::new(request.draw);
        let write = request.op == Op::Write;
        let begin_ns = stages.woken(request.at_ns);
        let mut turns = request.sequential && stages.wrote_last != write;
        stages.wrote_last = write;
        let most = stages.controller.map_or(u64::from(u32::MAX), |controller| controller.most_bytes);
        let (mut offset, end, mut done_ns) =
            (request.offset, request.offset + u64::from(request.bytes.max(1)), begin_ns);
        let mut first = None;
        stages.is_ahead = stages.reads_ahead(request);
        let entered_ns = front.enter(begin_ns, request.bytes);
        while offset < end {
            let bytes = most.min(end - offset);
            let at_ns = stages.through(entered_ns, bytes, std::mem::take(&mut turns), &mut draws);
            let at_ns = stages.limited(at_ns, bytes, request.op, &mut draws);
            let mut pages = Pages {
                dies: &mut *dies,
                reads: &*reads,
                activity: &mut *activity,
                slow: stages.slow,
                first: &mut first,
            };
            let at_ns = if write {
                pages.complete(at_ns, (offset, bytes), request, stages.unit_bytes(), &mut draws)
            } else {
                at_ns
            };
            let part_ns = if !write {
                let part = (offset, bytes);
                if stages.is_ahead {
                    at_ns
                } else {
                    let at_ns =
                        if stages.looks_up(request, &mut draws) { pages.look_up(at_ns, &mut draws) } else { at_ns };
                    pages.read(at_ns, part, request, &mut draws)
                }
            } else if let Some(cache) = stages.cache {
                let at_ns = if stages.looks_up(request, &mut draws) { pages.look_up(at_ns, &mut draws) } else { at_ns };
                stages.buffered(&cache, at_ns, stages.stored_bytes(request, bytes))
            } else {
                let passed_ns = front.lane(at_ns, request.draw);
                let stored_ns = writer
                    .as_mut()
                    .map_or(at_ns, |writer| writer.write(at_ns, bytes as u32, request.draw, dies, activity));
                passed_ns.max(stored_ns)
            };
            done_ns = done_ns.max(part_ns);
            offset += bytes;
        }
        done_ns += if write { *write_latency_ns } else { reads.latency_ns };
        activity.count(request);
        stages.quiet_ns = stages.quiet_ns.max(done_ns);
        if write && !stages.idle.is_empty() {
            // A drive with programming dies is not idle.
            stages.quiet_ns = dies.iter().map(Die::idle_at).fold(stages.quiet_ns, u64::max);
        }
        stages.drawn += draws.taken;
        front.report(done_ns, request.draw)
    }

    /// Changes the power state ([`SsdModel::power_states`]); ignored beyond the last. Call [`Ssd::advance`] first.
    pub fn set_state(&mut self, index: usize) {
        let Some(stages) = &mut self.stages else { return };
        if let Some(state) = stages.states.get(index) {
            stages.state = state.clone();
        }
    }

    /// Limits autonomous idle states to those with an exit latency of at most `limit_ns`, and none beyond the first with a larger one; none with 0.
    /// Call [`Ssd::advance`] first.
    pub fn set_wake_limit(&mut self, limit_ns: u64) {
        let Some(stages) = &mut self.stages else { return };
        let fits = |state: &&IdleState| limit_ns > 0 && state.wake_ns <= limit_ns;
        stages.idles = stages.idle.iter().take_while(fits).count();
    }

    /// Enables autonomous transitions to the lowest power state.
    pub fn set_autonomous(&mut self, autonomous: bool) {
        if let Some(stages) = &mut self.stages {
            stages.autonomous = autonomous;
        }
    }

    /// Power of moving data in the current power state, in microwatts.
    #[must_use]
    pub fn moving_uw(&self) -> u64 {
        self.stages.as_ref().map_or(0, |stages| stages.state.gc_uw)
    }

    /// Autonomous activity since the last call, up to the time of [`Ssd::advance`].
    pub fn spans(&mut self) -> impl Iterator<Item = Span> {
        self.stages.as_mut().map(|stages| std::mem::take(&mut stages.spans)).unwrap_or_default().into_iter()
    }

    /// Time to move written data, in nanoseconds.
    #[must_use]
    pub fn to_move_ns(&self) -> u64 {
        self.stages.as_ref().map_or(0, |stages| stages.to_move_ns())
    }

    /// Time at which the last request is complete and the buffer is empty.
    #[must_use]
    pub fn quiet_ns(&self) -> u64 {
        self.stages.as_ref().map_or(0, |stages| stages.free_ns())
    }
}

impl Activity {
    fn count(&mut self, request: &Request) {
        let (requests, bytes) = match request.op {
            Op::Read => (&mut self.reads, &mut self.read_bytes),
            Op::Write => (&mut self.writes, &mut self.written_bytes),
        };
        *requests += 1;
        *bytes += u64::from(request.bytes);
    }
}

/// Randomises a share of a time exponentially; the rest is fixed.
fn drawn(ns: u64, random_ppm: u64, draws: &mut Draws) -> u64 {
    if random_ppm == 0 {
        return ns;
    }
    let random = ns as f64 * random_ppm as f64 / 1e6;
    (ns as f64 - random + rng::exponential(draws.draw()) * random) as u64
}

fn bytes_in(ns: u64, bytes_per_s: u64) -> u64 {
    (u128::from(ns) * u128::from(bytes_per_s) / 1_000_000_000) as u64
}
