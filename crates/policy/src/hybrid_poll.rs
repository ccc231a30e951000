//! `hybrid-poll`: each request is left alone for half the mean service time, then its core polls until it completes (Le Moal 2017, as
//! SANDMAN section 3.6 builds it into SPDK).
//!
//! **Rule.** Each request has a rest of its own: `fraction` (half) of the mean service time of its core's requests, from when it was polled, at
//! most `most`. A core rests while every request in progress is within its rest, and polls once the oldest is past it
//! ([`pilotlight_plant::Arrivals`]). Until requests have completed the rest is `initial` (10 us), and so is each rest of a core without a
//! request in progress: there is no service time to halve. At the end of each interval the mean is computed again, over the requests that
//! completed since the last: requests in progress, integrated over time, divided by their number (Little's law). What is in
//! progress at the end of an interval is carried over, so a short interval does not make long requests look short. Where nothing
//! completed the rest stays: a core does not rest longer because it is idle (3.6 says why).
//!
//! Service time is the time of a request on the server, from when it was polled until its answer was sent: device and queueing.
//! Le Moal's is the time from submission to completion, which is the same but for the target's own microsecond. The other
//! reading, a request's time on the core, is about 1 us: rests of half that would save nothing, so it is no parameter.
//!
//! **Readings.** Le Moal's rest is one thread's, between one request and its completion; a core of SPDK has many in progress, which rest
//! independently. Under load the oldest is nearly always past its rest, so the core polls as if static. To rest for half the service time after
//! every empty poll, idle or not, is the other reading: in short runs of Figure 3 it saved about as much as
//! sleeping cores do and made p99 54 us longer at low rates, where 3.6 reports limited savings and the latency of static polling.
//!
//! **Properties.** I/O threads are spread evenly and stay. Only changes are commanded. Without answers there are none, so the
//! policy never needs a quiet interval.

use pilotlight_plant::{
    Command, CompletionMode, Next, Policy, Refusal, Sample, Start, ThreadId, Unsupported, View, Wants,
};

use crate::parameter::{self, Parameter, ParameterError, Setting, TIME, put, text, time};
use crate::spread::spread;

/// The name by which an operator chooses it.
pub const NAME: &str = "hybrid-poll";

/// What can be set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// Time between two means, in nanoseconds.
    pub interval_ns: u64,
    /// Rest over mean service time, in millionths.
    pub fraction_ppm: u32,
    /// Rest of a core that has nothing in progress, or no mean yet, in nanoseconds.
    pub initial_ns: u64,
    /// Longest rest, in nanoseconds.
    pub most_ns: u64,
}

impl Default for Parameters {
    fn default() -> Self {
        Self { interval_ns: 100_000_000, fraction_ppm: 500_000, initial_ns: 10_000, most_ns: 1_000_000 }
    }
}

const TABLE: [Parameter<Parameters>; 4] = [
    Parameter {
        key: "interval",
        meaning: "time between two means of the service time (not printed; 100ms is what Linux takes for its hybrid polling)",
        allowed: TIME,
        get: |p| text::in_units(p.interval_ns),
        set: |p, v| time(&mut p.interval_ns, v),
    },
    Parameter {
        key: "fraction",
        meaning: "rest as a share of the mean service time (SANDMAN 3.6: 50%)",
        allowed: "a share from 0% to 100%",
        get: |p| text::in_percent(p.fraction_ppm),
        set: |p, v| put(&mut p.fraction_ppm, text::percent(v)),
    },
    Parameter {
        key: "initial",
        meaning: "rest of a core that has nothing in progress, or no mean yet (SANDMAN 3.6: 10us)",
        allowed: REST,
        get: |p| text::in_units(p.initial_ns),
        set: |p, v| put(&mut p.initial_ns, rest(v)),
    },
    Parameter {
        key: "most",
        meaning: "longest rest with a request in progress (an assumption: SANDMAN names none; it keeps a device that stalls from putting a core to \
                  sleep for long)",
        allowed: REST,
        get: |p| text::in_units(p.most_ns),
        set: |p, v| put(&mut p.most_ns, rest(v)),
    },
];

const REST: &str = "a time from 0us to 1s, for example 10us or 1ms";

fn rest(value: &str) -> Option<u64> {
    text::duration(value).filter(|ns| *ns <= 1_000_000_000)
}

impl Parameters {
    /// With these set, in this order.
    ///
    /// # Errors
    /// If there is no such parameter, or a value is not allowed.
    pub fn read(settings: &[(&str, &str)]) -> Result<Self, ParameterError> {
        let read = parameter::read(NAME, &TABLE, settings)?;
        if read.initial_ns > read.most_ns {
            return Err(ParameterError::Together("initial must not be above most".to_owned()));
        }
        Ok(read)
    }

    /// All of them.
    #[must_use]
    pub fn list(&self) -> Vec<Setting> {
        parameter::list(&TABLE, self)
    }

    fn waiting(&self, rest_ns: u32) -> CompletionMode {
        CompletionMode::Hybrid { idle_ns: self.initial_ns as u32, rest_ns }
    }

    /// The rest after requests that took so long.
    fn rest_ns(&self, service: &Service) -> u32 {
        let whole = u128::from(service.answered) * 1_000_000;
        let share_ns = service.in_progress_ns * u128::from(self.fraction_ppm) / whole.max(1);
        share_ns.min(u128::from(self.most_ns)) as u32
    }
}

/// The policy.
#[derive(Debug)]
pub struct HybridPoll {
    parameters: Parameters,
    cores: Vec<Service>,
    /// What each thread was told last; `None` if it has to be told again.
    told: Vec<Option<u32>>,
    changes: u64,
    refused: u64,
}

/// Requests of one core since its last mean.
#[derive(Clone, Copy, Debug, Default)]
struct Service {
    answered: u64,
    in_progress_ns: u128,
    /// What follows from the last mean.
    rest_ns: u32,
}

impl HybridPoll {
    /// With these parameters.
    #[must_use]
    pub fn new(parameters: Parameters) -> Self {
        Self { parameters, cores: Vec::new(), told: Vec::new(), changes: 0, refused: 0 }
    }

    fn see(&mut self, sample: &Sample<'_>) {
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
                feature: "cores that can rest between two rounds of polling",
                remedy: "choose policy static or interrupt",
            });
        }
        let rest_ns = self.parameters.initial_ns as u32;
        spread(start, self.parameters.waiting(rest_ns), out);
        self.cores = vec![Service { rest_ns, ..Service::default() }; start.topology.len()];
        self.told = vec![Some(rest_ns); start.homes.len()];
        Ok(Next::NEVER)
    }

    fn on_interval(&mut self, sample: &Sample<'_>, out: &mut Vec<Command>) -> Next {
        if crate::load::is_quiet(sample) {
            return Next::NEVER; // what was refused is tried again when there is load
        }
        self.see(sample);
        for (number, (thread, told)) in sample.threads.iter().zip(&mut self.told).enumerate() {
            let rest_ns = self.cores[thread.home.index()].rest_ns;
            if told.replace(rest_ns) != Some(rest_ns) {
                let how = self.parameters.waiting(rest_ns);
                out.push(Command::Completions { thread: ThreadId(number as u16), mode: how });
                self.changes += 1;
            }
        }
        Next::NEVER
    }

    fn on_refused(&mut self, _now_ns: u64, command: &Command, _refusal: Refusal) {
        self.refused += 1;
        if let Command::Completions { thread, .. } = command
            && let Some(told) = self.told.get_mut(thread.index())
        {
            *told = None;
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
