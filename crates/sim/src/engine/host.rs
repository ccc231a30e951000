//! Hosts: times and contents of requests.
//!
//! A request is due by its connection's spacing. It is sent then, or, with `depth` requests in progress, when one of them is answered. All
//! random values of a request depend only on its number.

use std::collections::VecDeque;

use crate::rng::{Purpose, Stream, below, unit};
use crate::scenario::{Connection, Kind, Rate, Spacing, Traced};

/// A request sent to the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Sent {
    /// When the host sends it, in nanoseconds.
    pub(crate) at_ns: u64,
    /// When it was due.
    pub(crate) due_ns: u64,
    /// The connection.
    pub(crate) connection: u32,
    /// Number of the request on its connection.
    pub(crate) number: u64,
    /// Label of the phase that it was due in.
    pub(crate) label: u8,
}

/// One connection's side of the host.
#[derive(Clone, Debug)]
pub(crate) struct Host {
    index: u32,
    depth: u32,
    spacing: Spacing,
    think_ns: u64,
    phases: Vec<(u64, Rate, u8)>,
    /// The current phase with its rate, label and end.
    phase: usize,
    rate: Rate,
    label: u8,
    phase_end_ns: u64,
    /// When the next request is due; `u64::MAX` if none is in this phase.
    due_ns: u64,
    /// The mean distance of due times in this phase, in nanoseconds; of no meaning without a rate.
    mean_ns: f64,
    /// Remainder of due times, in fractions of a nanosecond.
    fraction: f64,
    /// Whether the rate is high (MMPP), and until when.
    high: bool,
    high_until_ns: f64,
    /// Times at which queue slots became free; unused in an open loop.
    free: VecDeque<u64>,
    sent: u64,
    times: Stream,
    modes: Stream,
    /// Send times of replayed requests; `None` without a trace.
    traced: Option<VecDeque<u64>>,
    /// Dependent replay: assumed service time in the trace.
    service_ns: Option<u64>,
    /// Trace time of the previous request.
    before_ns: Option<u64>,
    /// Delay of the next request after a slot is free.
    pause_ns: u64,
}

impl Host {
    pub(crate) fn new(index: usize, connection: &Connection, seed: u64) -> Self {
        let closed = connection.depth != u32::MAX;
        let free = if closed { std::iter::repeat_n(0, connection.depth as usize).collect() } else { VecDeque::new() };
        let index = index as u32;
        let mut host = Self {
            index,
            depth: connection.depth,
            spacing: connection.spacing,
            think_ns: connection.think_ns,
            phases: connection.phases.iter().map(|phase| (phase.length_ns, phase.rate, phase.label)).collect(),
            phase: 0,
            rate: Rate::Off,
            label: 0,
            phase_end_ns: connection.phases.first().map_or(u64::MAX, |phase| phase.length_ns),
            due_ns: u64::MAX,
            mean_ns: 0.0,
            fraction: 0.0,
            high: false,
            high_until_ns: 0.0,
            free,
            sent: 0,
            times: Stream::new(seed, Purpose::Arrivals, u64::from(index) * 4),
            modes: Stream::new(seed, Purpose::Arrivals, u64::from(index) * 4 + 1),
            traced: None,
            service_ns: None,
            before_ns: None,
            pause_ns: 0,
        };
        if let Kind::Traced { service_ns } = connection.request {
            host.service_ns = service_ns;
            (host.traced, host.phases, host.phase_end_ns) =
                (Some(VecDeque::new()), vec![(u64::MAX, Rate::Off, 0)], u64::MAX);
        }
        host.begin(0);
        host
    }

    /// Adds a replayed request, to be sent at `at_ns` or later.
    pub(crate) fn trace(&mut self, at_ns: u64) {
        let Some(traced) = &mut self.traced else { return };
        traced.push_back(at_ns);
        if traced.len() == 1 {
            self.next_of_trace();
        }
    }

    /// When the next request of the trace is due, and how long after the answer before.
    fn next_of_trace(&mut self) {
        let next_ns = self.traced.as_ref().and_then(|traced| traced.front().copied());
        self.due_ns = next_ns.unwrap_or(u64::MAX);
        let gap_ns = next_ns.zip(self.before_ns).map_or(0, |(next_ns, before_ns)| next_ns - before_ns);
        self.pause_ns = self.service_ns.map_or(0, |service_ns| gap_ns.saturating_sub(service_ns));
    }

    /// Number of replayed requests due before `until_ns` and not sent.
    pub(crate) fn held_back(&self, until_ns: u64) -> u64 {
        let due = |traced: &VecDeque<u64>| traced.partition_point(|&at_ns| at_ns < until_ns) as u64;
        self.traced.as_ref().map_or(0, due)
    }

    /// Time of the next request without further answers.
    #[inline]
    pub(crate) fn next_ns(&self) -> u64 {
        if self.depth == u32::MAX {
            return self.due_ns;
        }
        self.free.front().map_or(u64::MAX, |&free| (free + self.pause_ns).max(self.due_ns))
    }

    /// Sends all requests before `until_ns`.
    pub(crate) fn send(&mut self, until_ns: u64, out: &mut Vec<Sent>) {
        loop {
            let at_ns = self.next_ns();
            let phase_end_ns = self.phase_end_ns;
            if self.ends_phase(at_ns) {
                if phase_end_ns >= until_ns {
                    return;
                }
                self.next_phase();
                continue;
            }
            if at_ns >= until_ns {
                return;
            }
            out.push(Sent { at_ns, due_ns: at_ns, connection: self.index, number: self.sent, label: self.label });
            self.sent += 1;
            if self.depth != u32::MAX {
                self.free.pop_front();
            }
            self.advance(at_ns);
        }
    }

    /// The first request of the schedule, if it is due before `until_ns`: time and label. With [`Host::issue`] and [`Host::pass`] instead of
    /// [`Host::send`], for a thread that sends the requests of several connections on them in turn.
    pub(crate) fn due_before(&mut self, until_ns: u64) -> Option<(u64, u8)> {
        while self.due_ns >= self.phase_end_ns && self.phase_end_ns < until_ns {
            self.next_phase();
        }
        (self.due_ns < until_ns.min(self.phase_end_ns)).then_some((self.due_ns, self.label))
    }

    /// Takes the first request from the schedule.
    pub(crate) fn pass(&mut self) {
        self.advance(self.due_ns);
    }

    /// When the schedule has its next request or change of phase.
    pub(crate) fn schedule_ns(&self) -> u64 {
        self.due_ns.min(self.phase_end_ns)
    }

    pub(crate) fn has_slot(&self) -> bool {
        self.depth == u32::MAX || !self.free.is_empty()
    }

    /// Sends a request on this connection, which has a free slot.
    pub(crate) fn issue(&mut self, at_ns: u64, (due_ns, label): (u64, u8)) -> Sent {
        self.free.pop_front();
        let number = self.sent;
        self.sent += 1;
        Sent { at_ns, due_ns, connection: self.index, number, label }
    }

    /// Time of the next request or change of phase.
    pub(crate) fn next_event_ns(&self) -> u64 {
        let at_ns = self.next_ns();
        if self.ends_phase(at_ns) { self.phase_end_ns } else { at_ns }
    }

    /// Whether the phase ends before the next request, sent at `at_ns` at the earliest.
    #[inline]
    fn ends_phase(&self, at_ns: u64) -> bool {
        at_ns >= self.phase_end_ns
    }

    /// Handles a response.
    #[inline]
    pub(crate) fn answered(&mut self, at_ns: u64) {
        if self.depth != u32::MAX {
            let free_ns = at_ns + self.think_ns;
            debug_assert!(self.free.back().is_none_or(|&last_ns| last_ns <= free_ns), "answers arrive in order");
            self.free.push_back(free_ns);
        }
    }

    fn next_phase(&mut self) {
        let begun_ns = self.phase_end_ns;
        self.phase = (self.phase + 1) % self.phases.len();
        self.phase_end_ns = begun_ns.saturating_add(self.phases[self.phase].0);
        self.begin(begun_ns);
    }

    /// The first due time of a phase.
    fn begin(&mut self, begun_ns: u64) {
        self.fraction = 0.0;
        self.high_until_ns = begun_ns as f64;
        self.due_ns = begun_ns;
        let Some(&(_, rate, label)) = self.phases.get(self.phase) else {
            self.due_ns = u64::MAX;
            return;
        };
        (self.rate, self.label) = (rate, label);
        match (rate, self.spacing) {
            (Rate::Unlimited, _) => {}
            (Rate::PerSecond(rate), Spacing::Paced) if rate > 0.0 => {
                let first = self.times.unit() * 1e9 / rate;
                self.mean_ns = 1e9 / rate;
                self.due_ns = begun_ns.saturating_add(first as u64);
            }
            (Rate::PerSecond(rate), _) if rate > 0.0 => {
                self.mean_ns = 1e9 / rate;
                self.due_ns = self.after(begun_ns);
            }
            _ => self.due_ns = u64::MAX,
        }
    }

    /// The due time after that of the request just sent, at `sent_ns`.
    fn advance(&mut self, sent_ns: u64) {
        if let Some(traced) = &mut self.traced {
            self.before_ns = traced.pop_front();
            self.next_of_trace();
            return;
        }
        match self.rate {
            Rate::PerSecond(_) => {
                // A delayed host does not send missed requests in a burst.
                let from = if self.depth == u32::MAX { self.due_ns } else { sent_ns };
                self.due_ns = self.after(from);
            }
            Rate::Unlimited => {}
            Rate::Off => self.due_ns = u64::MAX,
        }
    }

    #[inline(always)] // on the hot path
    fn after(&mut self, from_ns: u64) -> u64 {
        let gap = match self.spacing {
            Spacing::Paced => self.mean_ns,
            Spacing::Poisson => self.times.exponential(self.mean_ns),
            Spacing::Mmpp { ratio, high_share, high_ns } => {
                return self.after_mmpp(from_ns, self.mean_ns, ratio, high_share, high_ns);
            }
        };
        let exact = gap + self.fraction;
        let whole = exact as i64; // signed, because that is one instruction, and `fract` a call
        self.fraction = exact - whole as f64;
        from_ns.saturating_add(whole as u64) // no gap is negative
    }

    /// Draws again from each change of rate on, as Poisson processes are memoryless.
    #[inline(never)]
    fn after_mmpp(&mut self, from_ns: u64, mean_ns: f64, ratio: f64, high_share: f64, high_ns: f64) -> u64 {
        let low_rate = 1.0 / (mean_ns * (high_share * ratio + 1.0 - high_share));
        let mut now = from_ns as f64;
        loop {
            if now >= self.high_until_ns {
                self.high = !self.high;
                let stay = if self.high { high_ns } else { high_ns * (1.0 - high_share) / high_share };
                self.high_until_ns = now + self.modes.exponential(stay);
            }
            let rate = if self.high { low_rate * ratio } else { low_rate };
            let next = now + self.times.exponential(1.0 / rate);
            if next < self.high_until_ns {
                return next as u64;
            }
            now = self.high_until_ns;
        }
    }
}

/// Number of aligned blocks of `bytes` on a drive.
pub(crate) fn places(bytes: u32) -> u64 {
    (SPAN / u64::from(bytes.max(1))).max(1)
}

/// Random contents of a connection's requests.
#[derive(Clone, Debug)]
pub(crate) struct Contents {
    draws: Stream,
    devices: Stream,
    /// Replayed requests from number `first` on.
    traced: VecDeque<Option<Traced>>,
    first: u64,
}

/// Address range of random requests in bytes.
pub(crate) const SPAN: u64 = 1 << 40;

impl Contents {
    pub(crate) fn new(index: usize, seed: u64) -> Self {
        let index = index as u64;
        Self {
            draws: Stream::new(seed, Purpose::Arrivals, index * 4 + 2),
            devices: Stream::new(seed, Purpose::Devices, index),
            traced: VecDeque::new(),
            first: 0,
        }
    }

    /// Adds a replayed request.
    pub(crate) fn trace(&mut self, traced: Traced) {
        self.traced.push_back(Some(traced));
    }

    /// Replayed request `number`.
    pub(crate) fn traced(&self, number: u64) -> Traced {
        self.traced.get((number - self.first) as usize).copied().flatten().unwrap_or_default()
    }

    /// Drops replayed request `number`.
    pub(crate) fn forget(&mut self, number: u64) {
        if let Some(traced) = self.traced.get_mut((number - self.first) as usize) {
            *traced = None;
        }
        while self.traced.front().is_some_and(Option::is_none) {
            self.traced.pop_front();
            self.first += 1;
        }
    }

    /// Drive of command `part` of request `number`, out of `count`.
    #[inline]
    pub(crate) fn drive(&self, number: u64, part: u64, count: u16) -> u16 {
        if count <= 1 {
            return 0;
        }
        below(self.draws.at(number * 64 + 1 + part), u64::from(count)) as u16
    }

    /// Offset on the drive, aligned to `bytes`.
    #[inline]
    pub(crate) fn offset(&self, number: u64, part: u64, places: u64, bytes: u32) -> u64 {
        below(self.draws.at(number * 64 + 32 + part), places) * u64::from(bytes)
    }

    /// Whether request `number` is a write.
    #[inline]
    pub(crate) fn writes(&self, number: u64, writes_ppm: u32) -> bool {
        writes_ppm > 0 && unit(self.draws.at(number * 64)) * 1e6 <= f64::from(writes_ppm)
    }

    /// Random bits for the drive.
    #[inline]
    pub(crate) fn device_draw(&self, number: u64, part: u64) -> u64 {
        self.devices.at(number * 64 + part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{Kind, Phase};

    fn connection(depth: u32, spacing: Spacing, phases: Vec<Phase>) -> Connection {
        let request = Kind::Plain { writes_ppm: 0, bytes: 4096, sequential: false };
        Connection { thread: 0, drives: (0, 1), request, depth, spacing, phases, think_ns: 0 }
    }

    fn phase(length_ns: u64, rate: Rate) -> Phase {
        Phase { label: 0, length_ns, rate }
    }

    fn sent(host: &mut Host, until_ns: u64) -> Vec<u64> {
        let mut out = Vec::new();
        host.send(until_ns, &mut out);
        out.iter().map(|sent| sent.at_ns).collect()
    }

    #[test]
    fn open_loops_keep_their_rate() {
        let mmpp = Spacing::Mmpp { ratio: 10.0, high_share: 0.2, high_ns: 1e6 };
        for spacing in [Spacing::Paced, Spacing::Poisson, mmpp] {
            let connection = connection(u32::MAX, spacing, vec![phase(u64::MAX, Rate::PerSecond(100_000.0))]);
            let times = sent(&mut Host::new(0, &connection, 1), 10_000_000_000);
            let share = times.len() as f64 / 1e6;
            assert!((share - 1.0).abs() < 0.02, "{spacing:?}: {share}");
            assert!(times.is_sorted());
        }
    }

    #[test]
    fn sending_in_parts_equals_sending_at_once() {
        let phases = vec![phase(700, Rate::PerSecond(1e7)), phase(300, Rate::Off), phase(500, Rate::PerSecond(5e7))];
        let connection = connection(u32::MAX, Spacing::Poisson, phases);
        let whole = sent(&mut Host::new(3, &connection, 9), 100_000);
        let mut host = Host::new(3, &connection, 9);
        let pieces: Vec<_> = (1..=1_000).flat_map(|piece| sent(&mut host, piece * 100)).collect();
        assert_eq!(whole, pieces);
        assert!(whole.iter().all(|at| !(700..1_000).contains(&(at % 1_500))), "something was sent while it was off");
    }

    #[test]
    fn a_closed_loop_waits_for_answers() {
        let connection = connection(2, Spacing::Poisson, vec![phase(u64::MAX, Rate::Unlimited)]);
        let mut host = Host::new(0, &connection, 1);
        assert_eq!(sent(&mut host, 1_000), [0, 0]);
        assert_eq!(host.next_ns(), u64::MAX);
        host.answered(1_500);
        assert_eq!(sent(&mut host, 2_000), [1_500]);
    }
}
