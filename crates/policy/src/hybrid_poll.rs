//! `hybrid-poll`: the core does not poll for a request until half the mean service time has passed, then polls until it completes (Le Moal
//! 2017, as built into SPDK in SANDMAN section 3.6).
//!
//! **Rule.** Each request has its own rest: `fraction` (half) of the mean service time of its core's requests, from when it was polled, at
//! most `max_rest`. A core rests while every request in progress is within its rest, and polls once the oldest is past it
//! ([`pilotlight_plant::Arrivals`]). The rest is `initial_rest` (10 us) until requests have completed and on a core without a request in
//! progress. At the end of each interval the mean is computed over the requests completed since the last one: requests in progress,
//! integrated over time, divided by their number (Little's law). Requests in progress at the end of an interval carry over, so that a short
//! interval does not make long requests look short. If none completed, the rest is unchanged: an idle core does not rest longer (reason: 3.6).
//!
//! Service time is the time of a request on the server, from its poll to its response: device and queueing. Le Moal's is the time from
//! submission to completion, which differs by about a microsecond of the target. The CPU time of a request is about 1 us; rests of half of that
//! would save nothing.
//!
//! **Alternatives.** Le Moal's rest is that of one thread, between one request and its completion; a core of SPDK has many requests in
//! progress, which rest independently. Under load the oldest is nearly always past its rest, so the core polls as under `static`. A rest of half
//! the service time after every empty poll, idle or not, saved about as much as sleeping cores in short runs of Figure 3, but made p99 54 us
//! longer at low rates, where 3.6 reports limited savings and the latency of static polling.
//!
//! **Properties.** I/O threads are spread evenly and stay. Only changes are commanded. Without completions nothing is commanded, so the policy
//! never needs an interval without requests.

use pilotlight_plant::{
    Command, CompletionMode, NEVER, Next, Policy, Refusal, Sample, Start, ThreadId, Unsupported, View, Wants,
};

use crate::parameter::{self, Parameter, ParameterError, Setting, TIME, put, text, time};
use crate::spread::spread;

/// The name by which an operator chooses it.
pub const NAME: &str = "hybrid-poll";

/// Its parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// Length of an interval, in nanoseconds.
    pub interval_ns: u64,
    /// Rest over mean service time, in millionths.
    pub fraction_ppm: u32,
    /// Rest of a core without a request in progress or without a mean yet, in nanoseconds.
    pub initial_rest_ns: u64,
    /// Longest rest, in nanoseconds.
    pub max_rest_ns: u64,
}

impl Default for Parameters {
    fn default() -> Self {
        Self { interval_ns: 100_000_000, fraction_ppm: 500_000, initial_rest_ns: 10_000, max_rest_ns: 1_000_000 }
    }
}

const TABLE: [Parameter<Parameters>; 4] = [
    Parameter {
        key: "interval",
        meaning: "time between two means of the service time (not printed; Linux's hybrid polling: 100ms)",
        allowed: TIME,
        get: |p| text::format_duration(p.interval_ns),
        set: |p, v| time(&mut p.interval_ns, v),
    },
    Parameter {
        key: "fraction",
        meaning: "rest as a share of the mean service time (SANDMAN 3.6: 50%)",
        allowed: "a share from 0% to 100%",
        get: |p| text::format_percent(p.fraction_ppm),
        set: |p, v| put(&mut p.fraction_ppm, text::percent(v)),
    },
    Parameter {
        key: "initial_rest",
        meaning: "rest of a core without a request in progress, or without a mean yet (SANDMAN 3.6: 10us)",
        allowed: REST,
        get: |p| text::format_duration(p.initial_rest_ns),
        set: |p, v| put(&mut p.initial_rest_ns, rest(v)),
    },
    Parameter {
        key: "max_rest",
        meaning: "longest rest with a request in progress (an assumption, SANDMAN names none; limits the rest when a device stalls)",
        allowed: REST,
        get: |p| text::format_duration(p.max_rest_ns),
        set: |p, v| put(&mut p.max_rest_ns, rest(v)),
    },
];

const REST: &str = "a time from 0us to 1s, for example 10us or 1ms";

fn rest(value: &str) -> Option<u64> {
    text::duration(value).filter(|ns| *ns <= 1_000_000_000)
}

impl Parameters {
    /// Applies settings in this order.
    ///
    /// # Errors
    /// If a parameter does not exist or a value is not allowed.
    pub fn read(settings: &[(&str, &str)]) -> Result<Self, ParameterError> {
        let read = parameter::read(NAME, &TABLE, settings)?;
        if read.initial_rest_ns > read.max_rest_ns {
            return Err(ParameterError::Conflict("initial_rest must not be above max_rest".to_owned()));
        }
        Ok(read)
    }

    /// All of them.
    #[must_use]
    pub fn list(&self) -> Vec<Setting> {
        parameter::list(&TABLE, self)
    }

    fn completions(&self, rest_ns: u32) -> CompletionMode {
        CompletionMode::Hybrid { idle_ns: self.initial_rest_ns as u32, rest_ns }
    }

    /// The rest that follows from a mean service time.
    fn rest_ns(&self, service: &Service) -> u32 {
        let whole = u128::from(service.answered) * 1_000_000;
        let share_ns = service.in_progress_ns * u128::from(self.fraction_ppm) / whole.max(1);
        share_ns.min(u128::from(self.max_rest_ns)) as u32
    }
}

/// The policy.
#[derive(Debug)]
pub struct HybridPoll {
    parameters: Parameters,
    cores: Vec<Service>,
    /// The rest last commanded to each thread; `None` after a refusal.
    commanded: Vec<Option<u32>>,
    changes: u64,
    refused: u64,
}

/// Requests of one core since its last mean.
#[derive(Clone, Copy, Debug, Default)]
struct Service {
    answered: u64,
    in_progress_ns: u128,
    /// The rest that follows from the last mean.
    rest_ns: u32,
}

impl HybridPoll {
    /// With these parameters.
    #[must_use]
    pub fn new(parameters: Parameters) -> Self {
        Self { parameters, cores: Vec::new(), commanded: Vec::new(), changes: 0, refused: 0 }
    }

    fn update(&mut self, sample: &Sample<'_>) {
        for thread in sample.threads {
            let core = &mut self.cores[thread.home.index()];
            core.answered += thread.answered;
            core.in_progress_ns += u128::from(thread.in_progress_ns);
        }
        for core in self.cores.iter_mut().filter(|core| core.answered > 0) {
            *core = Service { rest_ns: self.parameters.rest_ns(core), ..Service::default() };
        }
    }
}

impl Policy for HybridPoll {
    fn name(&self) -> &'static str {
        NAME
    }

    fn wants(&self) -> Wants {
        Wants { interval_ns: Some(self.parameters.interval_ns), service: true, ..Wants::default() }
    }

    fn start(&mut self, start: &Start<'_>, out: &mut Vec<Command>) -> Result<Next, Unsupported> {
        if start.capabilities.rests.is_none() {
            return Err(Unsupported {
                policy: NAME,
                feature: "cores that can pause between two polls",
                remedy: "choose policy static or interrupt",
            });
        }
        let rest_ns = self.parameters.initial_rest_ns as u32;
        spread(start, self.parameters.completions(rest_ns), out);
        self.cores = vec![Service { rest_ns, ..Service::default() }; start.topology.len()];
        self.commanded = vec![Some(rest_ns); start.homes.len()];
        Ok(Next::with_default_timeout(NEVER))
    }

    fn on_interval(&mut self, sample: &Sample<'_>, out: &mut Vec<Command>) -> Next {
        if crate::load::is_quiet(sample) {
            return Next::with_default_timeout(NEVER); // refused commands are retried with the next load
        }
        self.update(sample);
        for (number, (thread, commanded)) in sample.threads.iter().zip(&mut self.commanded).enumerate() {
            let rest_ns = self.cores[thread.home.index()].rest_ns;
            if commanded.replace(rest_ns) != Some(rest_ns) {
                let how = self.parameters.completions(rest_ns);
                out.push(Command::Completions { thread: ThreadId(number as u16), mode: how });
                self.changes += 1;
            }
        }
        Next::with_default_timeout(NEVER)
    }

    fn on_refused(&mut self, _now_ns: u64, command: &Command, _refusal: Refusal) {
        self.refused += 1;
        if let Command::Completions { thread, .. } = command
            && let Some(commanded) = self.commanded.get_mut(thread.index())
        {
            *commanded = None;
        }
    }

    fn view(&self) -> View {
        let rests = self.cores.iter().map(|core| core.rest_ns);
        vec![
            ("shortest rest, us", us(rests.clone().min())),
            ("longest rest, us", us(rests.max())),
            ("rests changed", self.changes.to_string()),
            ("commands refused", self.refused.to_string()),
        ]
    }
}

fn us(ns: Option<u32>) -> String {
    format!("{:.1}", f64::from(ns.unwrap_or(0)) / 1_000.0)
}
