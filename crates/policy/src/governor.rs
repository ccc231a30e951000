//! `governor`: every core polls, and runs as fast as its load asks for (SPDK's `gscheduler` with its DPDK governor; SANDMAN
//! sections 3.1 and 3.4).
//!
//! **Rule.** At the end of each interval a core's load is its busy time over its time awake; of two siblings, which share a
//! clock, the higher one counts for both. A core under `min_below` goes to its lowest frequency, one under `up_from` a step
//! down, one from `up_from` on a step up (or at once to the highest, `up = max`), and from `max_from` on to the highest.
//! The three limits are those of SPDK's `gscheduler`, at 1, 50 and 99 %.
//!
//! **Properties.** Only changes are commanded. I/O threads are spread evenly and stay. Once all cores are at their lowest
//! frequency, an interval in which nothing arrived and nothing was in progress changes nothing, whatever cores did in it
//! (keep-alives): it can be left out. A core whose frequency the machine refuses is left alone for a while.

use pilotlight_plant::{
    Command, CompletionMode, CoreSample, NEVER, Next, Policy, Refusal, Sample, Start, Topology, Unsupported, View,
    Wants,
};

use crate::clock::Clock;
use crate::grid::Grid;
use crate::load::{is_quiet, share};
use crate::parameter::{self, PERCENT, Parameter, ParameterError, SWITCH, Setting, TIME, put, text, time};
use crate::spread::spread;

/// The name by which an operator chooses it.
pub const NAME: &str = "governor";

/// What can be set. Loads are in millionths of a core.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// Time between two looks, in nanoseconds.
    pub interval_ns: u64,
    /// Under this load a core goes to the lowest frequency.
    pub min_below_ppm: u32,
    /// From this load on a core goes up, under it down.
    pub up_from_ppm: u32,
    /// From this load on a core goes to the highest frequency.
    pub max_from_ppm: u32,
    /// How a core goes up.
    pub up: Up,
    /// Whether the load of a core is the higher one of it and its sibling.
    pub siblings: bool,
}

/// How a core goes up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Up {
    /// One step of the range in each interval.
    Step,
    /// To the highest frequency at once.
    Max,
}

impl Default for Parameters {
    /// SANDMAN's interval, SPDK's limits.
    fn default() -> Self {
        let (min_below_ppm, up_from_ppm, max_from_ppm) = (10_000, 500_000, 990_000);
        Self { interval_ns: 10_000, min_below_ppm, up_from_ppm, max_from_ppm, up: Up::Step, siblings: true }
    }
}

const TABLE: [Parameter<Parameters>; 6] = [
    Parameter {
        key: "interval",
        meaning: "time between two looks at load (SANDMAN 3.4: 10us; SPDK: 1s)",
        allowed: TIME,
        get: |p| text::in_units(p.interval_ns),
        set: |p, v| time(&mut p.interval_ns, v),
    },
    Parameter {
        key: "min_below",
        meaning: "load under which a core goes to its lowest frequency (SPDK gscheduler: 1%)",
        allowed: PERCENT,
        get: |p| text::in_percent(p.min_below_ppm),
        set: |p, v| put(&mut p.min_below_ppm, text::percent(v)),
    },
    Parameter {
        key: "up_from",
        meaning: "load from which a core goes up; under it, it goes a step down (SPDK gscheduler: 50%)",
        allowed: PERCENT,
        get: |p| text::in_percent(p.up_from_ppm),
        set: |p, v| put(&mut p.up_from_ppm, text::percent(v)),
    },
    Parameter {
        key: "max_from",
        meaning: "load from which a core goes to its highest frequency at once (SPDK gscheduler: 99%)",
        allowed: PERCENT,
        get: |p| text::in_percent(p.max_from_ppm),
        set: |p, v| put(&mut p.max_from_ppm, text::percent(v)),
    },
    Parameter {
        key: "up",
        meaning: "how a core goes up: by a step (SPDK), or to the highest frequency (what SANDMAN 3.4 measures)",
        allowed: "step or max",
        get: |p| if p.up == Up::Step { "step" } else { "max" }.to_owned(),
        set: |p, v| put(&mut p.up, up(v)),
    },
    Parameter {
        key: "siblings",
        meaning: "siblings share a clock, so the higher load of the two counts for both (as newer versions of SPDK)",
        allowed: SWITCH,
        get: |p| p.siblings.to_string(),
        set: |p, v| put(&mut p.siblings, v.parse().ok()),
    },
];

fn up(value: &str) -> Option<Up> {
    match value {
        "step" => Some(Up::Step),
        "max" => Some(Up::Max),
        _ => None,
    }
}

impl Parameters {
    /// With these set, in this order.
    ///
    /// # Errors
    /// If there is no such parameter, a value is not allowed, or the limits are not in order.
    pub fn read(settings: &[(&str, &str)]) -> Result<Self, ParameterError> {
        let read = parameter::read(NAME, &TABLE, settings)?;
        if read.min_below_ppm > read.up_from_ppm || read.up_from_ppm > read.max_from_ppm {
            let message = "min_below must not be above up_from, nor up_from above max_from";
            return Err(ParameterError::Together(message.to_owned()));
        }
        Ok(read)
    }

    /// All of them.
    #[must_use]
    pub fn list(&self) -> Vec<Setting> {
        parameter::list(&TABLE, self)
    }
}

impl Rule for Parameters {
    const NAME: &'static str = NAME;

    fn interval_ns(&self) -> u64 {
        self.interval_ns
    }

    fn siblings(&self) -> bool {
        self.siblings
    }

    fn next(&self, load_ppm: u64, clock: &Clock) -> u64 {
        match load_ppm {
            load if load < u64::from(self.min_below_ppm) => clock.lowest_khz,
            load if load >= u64::from(self.max_from_ppm) => clock.highest_khz,
            load if load < u64::from(self.up_from_ppm) => clock.values.down(clock.khz),
            _ if self.up == Up::Max => clock.highest_khz,
            _ => clock.values.up(clock.khz),
        }
    }
}

/// How the frequency of a core follows its load.
pub(crate) trait Rule: Send {
    /// The name by which an operator chooses the policy.
    const NAME: &'static str;
    /// Time between two looks, in nanoseconds.
    fn interval_ns(&self) -> u64;
    /// Whether the load of a core is the higher one of it and its sibling.
    fn siblings(&self) -> bool;
    /// The frequency of a core with this load in the last interval, in kHz.
    fn next(&self, load_ppm: u64, clock: &Clock) -> u64;
}

/// The policy, with one of its rules.
#[derive(Debug)]
pub struct Governor<R = Parameters> {
    parameters: R,
    /// From [`Policy::start`] on.
    running: Option<Running>,
    changes: u64,
    refused: u64,
}

#[derive(Debug)]
struct Running {
    topology: Topology,
    grid: Grid,
    due_ns: u64,
    /// By core.
    clocks: Vec<Clock>,
    /// Load of each core in the last interval; room that is kept.
    load_ppm: Vec<u64>,
}

impl<R> Governor<R> {
    /// With these parameters.
    #[must_use]
    pub fn new(parameters: R) -> Self {
        Self { parameters, running: None, changes: 0, refused: 0 }
    }
}

impl Running {
    fn look(&mut self, sample: &Sample<'_>, siblings: bool) {
        let load = |core: &CoreSample| share(core.busy_ns, core.awake_ns);
        self.load_ppm.clear();
        self.load_ppm.extend(sample.cores.iter().map(load));
        if !siblings {
            return;
        }
        for core in self.topology.cores() {
            if let Some(sibling) = self.topology.sibling(core).filter(|&sibling| sibling > core) {
                let higher = self.load_ppm[core.index()].max(self.load_ppm[sibling.index()]);
                self.load_ppm[core.index()] = higher;
                self.load_ppm[sibling.index()] = higher;
            }
        }
    }

    /// Whether a quiet interval changes nothing. What was refused is tried again when there is load.
    fn rests(&self) -> bool {
        self.clocks.iter().all(Clock::is_lowest)
    }
}

#[allow(private_bounds)] // the rules are those of this crate
impl<R: Rule> Policy for Governor<R> {
    fn name(&self) -> &'static str {
        R::NAME
    }

    fn wants(&self) -> Wants {
        Wants { interval_ns: Some(self.parameters.interval_ns()), service: true, ..Wants::default() }
    }

    /// Every core at its highest frequency; I/O threads spread evenly.
    fn start(&mut self, start: &Start<'_>, out: &mut Vec<Command>) -> Result<Next, Unsupported> {
        let clocks: Option<Vec<Clock>> =
            start.topology.cores().map(|core| Clock::of(core, start.capabilities)).collect();
        let Some(mut clocks) = clocks else {
            return Err(Unsupported {
                policy: R::NAME,
                feature: "cores whose frequency can be set",
                remedy: "it takes Linux cpufreq (/sys/devices/system/cpu/cpu*/cpufreq) that the server may write, which \
                         most virtual machines lack; or choose policy dynamic or sandman",
            });
        };
        spread(start, CompletionMode::Poll, out);
        for clock in &mut clocks {
            clock.set(start.now_ns, clock.highest_khz, out);
        }
        let grid = Grid { start_ns: start.now_ns, every_ns: self.parameters.interval_ns() };
        let due_ns = grid.after(start.now_ns);
        let load_ppm = Vec::with_capacity(clocks.len());
        self.running = Some(Running { topology: start.topology.clone(), grid, due_ns, clocks, load_ppm });
        Ok(Next::at(due_ns))
    }

    fn on_interval(&mut self, sample: &Sample<'_>, out: &mut Vec<Command>) -> Next {
        let Some(running) = &mut self.running else { return Next::NEVER };
        if is_quiet(sample) && running.rests() {
            return Next::NEVER;
        }
        running.look(sample, self.parameters.siblings());
        let before = out.len();
        for (clock, &load_ppm) in running.clocks.iter_mut().zip(&running.load_ppm) {
            let khz = self.parameters.next(load_ppm, clock);
            clock.set(sample.now_ns, khz, out);
        }
        self.changes += (out.len() - before) as u64;
        running.due_ns = if running.rests() { NEVER } else { running.grid.after(sample.now_ns) };
        Next::at(running.due_ns)
    }

    /// What the core runs at is not known; it is told again with the first load after a pause.
    fn on_refused(&mut self, now_ns: u64, command: &Command, refusal: Refusal) {
        self.refused += 1;
        let (Some(running), Command::Set { knob, .. }) = (&mut self.running, command) else { return };
        if let Some(clock) = running.clocks.iter_mut().find(|clock| clock.knob == *knob) {
            clock.refused(now_ns, refusal);
        }
    }

    fn view(&self) -> View {
        let slowest = |running: &Running| running.clocks.iter().filter(|clock| clock.is_lowest()).count();
        vec![
            ("cores at the lowest frequency", self.running.as_ref().map_or(0, slowest).to_string()),
            ("frequency changes", self.changes.to_string()),
            ("commands refused", self.refused.to_string()),
        ]
    }
}
