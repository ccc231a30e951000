//! `governor`: every core polls, at a frequency that follows its load (SPDK's `gscheduler` with its DPDK governor; SANDMAN sections 3.1 and
//! 3.4).
//!
//! **Rule.** At the end of each interval the load of a core is its busy time over its awake time; two siblings share a clock, so the higher
//! load counts for both. A core below `min_threshold` goes to its lowest frequency, one below `up_threshold` a step down, one from
//! `up_threshold` on a step up (or to the highest frequency, `up = max`), and one from `max_threshold` on to the highest. The three
//! thresholds are those of SPDK's `gscheduler`: 1, 50 and 99 %.
//!
//! **Properties.** Only changes are commanded. I/O threads are spread evenly and stay. Once all cores are at their lowest frequency, an
//! interval without requests, whatever its busy time (keep-alives), changes nothing and can be skipped. A core that refuses its frequency is
//! retried after a backoff.

use pilotlight_plant::{
    Command, CompletionMode, CoreSample, NEVER, Next, Policy, Refusal, Sample, Start, Topology, Unsupported, View,
    Wants,
};

use crate::core_frequency::CoreFrequency;
use crate::load::{is_quiet, share};
use crate::parameter::{self, PERCENT, Parameter, ParameterError, SWITCH, Setting, TIME, put, text, time};
use crate::schedule::Schedule;
use crate::spread::spread;

/// The name by which an operator chooses it.
pub const NAME: &str = "governor";

/// Its parameters. Loads are in millionths of a core.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// Length of an interval, in nanoseconds.
    pub interval_ns: u64,
    /// Below this load a core goes to the lowest frequency.
    pub min_threshold_ppm: u32,
    /// From this load on the frequency rises, below it falls.
    pub up_threshold_ppm: u32,
    /// From this load on a core goes to the highest frequency.
    pub max_threshold_ppm: u32,
    /// How the frequency rises.
    pub up: Increase,
    /// Whether the higher load of two siblings counts for both.
    pub siblings: bool,
}

/// How the frequency rises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Increase {
    /// One step of the range in each interval.
    Step,
    /// To the highest frequency at once.
    Max,
}

impl Default for Parameters {
    /// SANDMAN's interval, SPDK's limits.
    fn default() -> Self {
        let (min_threshold_ppm, up_threshold_ppm, max_threshold_ppm) = (10_000, 500_000, 990_000);
        Self {
            interval_ns: 10_000,
            min_threshold_ppm,
            up_threshold_ppm,
            max_threshold_ppm,
            up: Increase::Step,
            siblings: true,
        }
    }
}

const TABLE: [Parameter<Parameters>; 6] = [
    Parameter {
        key: "interval",
        meaning: "length of an interval (SANDMAN 3.4: 10us; SPDK: 1s)",
        allowed: TIME,
        get: |p| text::format_duration(p.interval_ns),
        set: |p, v| time(&mut p.interval_ns, v),
    },
    Parameter {
        key: "min_threshold",
        meaning: "load below which a core goes to its lowest frequency (SPDK gscheduler: 1%)",
        allowed: PERCENT,
        get: |p| text::format_percent(p.min_threshold_ppm),
        set: |p, v| put(&mut p.min_threshold_ppm, text::percent(v)),
    },
    Parameter {
        key: "up_threshold",
        meaning: "load from which the frequency rises; below it falls by a step (SPDK gscheduler: 50%)",
        allowed: PERCENT,
        get: |p| text::format_percent(p.up_threshold_ppm),
        set: |p, v| put(&mut p.up_threshold_ppm, text::percent(v)),
    },
    Parameter {
        key: "max_threshold",
        meaning: "load from which a core goes to its highest frequency (SPDK gscheduler: 99%)",
        allowed: PERCENT,
        get: |p| text::format_percent(p.max_threshold_ppm),
        set: |p, v| put(&mut p.max_threshold_ppm, text::percent(v)),
    },
    Parameter {
        key: "up",
        meaning: "how the frequency rises: by a step (SPDK), or to the highest (as measured in SANDMAN 3.4)",
        allowed: "step or max",
        get: |p| if p.up == Increase::Step { "step" } else { "max" }.to_owned(),
        set: |p, v| put(&mut p.up, up(v)),
    },
    Parameter {
        key: "siblings",
        meaning: "the higher load of two siblings, which share a clock, counts for both (as in newer versions of SPDK)",
        allowed: SWITCH,
        get: |p| p.siblings.to_string(),
        set: |p, v| put(&mut p.siblings, v.parse().ok()),
    },
];

fn up(value: &str) -> Option<Increase> {
    match value {
        "step" => Some(Increase::Step),
        "max" => Some(Increase::Max),
        _ => None,
    }
}

impl Parameters {
    /// Applies settings in this order.
    ///
    /// # Errors
    /// If a parameter does not exist, a value is not allowed, or the thresholds are not in order.
    pub fn read(settings: &[(&str, &str)]) -> Result<Self, ParameterError> {
        let read = parameter::read(NAME, &TABLE, settings)?;
        if read.min_threshold_ppm > read.up_threshold_ppm || read.up_threshold_ppm > read.max_threshold_ppm {
            let message = "min_threshold must not be above up_threshold, nor up_threshold above max_threshold";
            return Err(ParameterError::Conflict(message.to_owned()));
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

    fn next(&self, load_ppm: u64, frequency: &CoreFrequency) -> u64 {
        match load_ppm {
            load if load < u64::from(self.min_threshold_ppm) => frequency.lowest_khz,
            load if load >= u64::from(self.max_threshold_ppm) => frequency.highest_khz,
            load if load < u64::from(self.up_threshold_ppm) => frequency.values.down(frequency.khz),
            _ if self.up == Increase::Max => frequency.highest_khz,
            _ => frequency.values.up(frequency.khz),
        }
    }
}

/// How the frequency of a core follows its load.
pub(crate) trait Rule: Send {
    /// The name by which an operator chooses the policy.
    const NAME: &'static str;
    /// Length of an interval, in nanoseconds.
    fn interval_ns(&self) -> u64;
    /// Whether the higher load of two siblings counts for both.
    fn siblings(&self) -> bool;
    /// The frequency of a core with this load in the last interval, in kHz.
    fn next(&self, load_ppm: u64, frequency: &CoreFrequency) -> u64;
}

/// The policy, with a rule for the frequency.
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
    schedule: Schedule,
    due_ns: u64,
    /// By core.
    frequencies: Vec<CoreFrequency>,
    /// Load of each core in the last interval; kept to avoid allocation.
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
    fn update(&mut self, sample: &Sample<'_>, siblings: bool) {
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

    /// Whether an interval without requests changes nothing. Refused knobs are retried with the next load.
    fn is_at_rest(&self) -> bool {
        self.frequencies.iter().all(CoreFrequency::is_lowest)
    }
}

#[allow(private_bounds)] // all rules are in this crate
impl<R: Rule> Policy for Governor<R> {
    fn name(&self) -> &'static str {
        R::NAME
    }

    fn wants(&self) -> Wants {
        Wants { interval_ns: Some(self.parameters.interval_ns()), service: true, ..Wants::default() }
    }

    /// Every core at its highest frequency; I/O threads spread evenly.
    fn start(&mut self, start: &Start<'_>, out: &mut Vec<Command>) -> Result<Next, Unsupported> {
        let frequencies: Option<Vec<CoreFrequency>> =
            start.topology.cores().map(|core| CoreFrequency::find(core, start.capabilities)).collect();
        let Some(mut frequencies) = frequencies else {
            return Err(Unsupported {
                policy: R::NAME,
                feature: "cores whose frequency can be set",
                remedy: "give the server write access to Linux cpufreq (/sys/devices/system/cpu/cpu*/cpufreq), which \
                         most virtual machines lack; or choose policy dynamic or sandman",
            });
        };
        spread(start, CompletionMode::Poll, out);
        for frequency in &mut frequencies {
            frequency.set(start.now_ns, frequency.highest_khz, out);
        }
        let schedule = Schedule { start_ns: start.now_ns, period_ns: self.parameters.interval_ns() };
        let due_ns = schedule.after(start.now_ns);
        let load_ppm = Vec::with_capacity(frequencies.len());
        self.running = Some(Running { topology: start.topology.clone(), schedule, due_ns, frequencies, load_ppm });
        Ok(Next::with_default_timeout(due_ns))
    }

    fn on_interval(&mut self, sample: &Sample<'_>, out: &mut Vec<Command>) -> Next {
        let Some(running) = &mut self.running else { return Next::NEVER };
        if is_quiet(sample) && running.is_at_rest() {
            return Next::with_default_timeout(NEVER);
        }
        running.update(sample, self.parameters.siblings());
        let before = out.len();
        for (frequency, &load_ppm) in running.frequencies.iter_mut().zip(&running.load_ppm) {
            let khz = self.parameters.next(load_ppm, frequency);
            frequency.set(sample.now_ns, khz, out);
        }
        self.changes += (out.len() - before) as u64;
        running.due_ns = if running.is_at_rest() { NEVER } else { running.schedule.after(sample.now_ns) };
        Next::with_default_timeout(running.due_ns)
    }

    /// The frequency of the core is unknown; it is commanded again with the first load after the backoff.
    fn on_refused(&mut self, now_ns: u64, command: &Command, refusal: Refusal) {
        self.refused += 1;
        let (Some(running), Command::Set { knob, .. }) = (&mut self.running, command) else { return };
        if let Some(frequency) = running.frequencies.iter_mut().find(|frequency| frequency.knob == *knob) {
            frequency.on_refused(now_ns, refusal);
        }
    }

    fn view(&self) -> View {
        let slowest = |running: &Running| running.frequencies.iter().filter(|frequency| frequency.is_lowest()).count();
        vec![
            ("cores at the lowest frequency", self.running.as_ref().map_or(0, slowest).to_string()),
            ("frequency changes", self.changes.to_string()),
            ("commands refused", self.refused.to_string()),
        ]
    }
}
