//! The engine: simulated time and the order of events.
//!
//! **Problem.** Ten million requests per second and core, with every decision at its exact time: the requests an I/O thread had polled at a policy
//! call, the order of commands at a drive.
//!
//! **Terms.** A *window* is a time span in which cores cannot influence each other: it is no longer than the minimum time from a command at a drive
//! to its completion, nor, if hosts wait for responses, than a network round trip, and it ends at a policy call. An *epoch* is the grid for speed and
//! energy ([`meter`]).
//!
//! **Algorithm** ([`window`]). In each window: hosts' requests arrive; the main core advances up to its policy call; every other core advances
//! independently; commands for drives and responses are sorted by (time, core, number) and pass the FIFO recursions of drives and ports; then the
//! policy is called. While an I/O thread moves between two cores, they advance step by step in time order. Without due events, a window extends to
//! the next event.
//!
//! **Properties.** The order of events is that of a single event list ordered by time ([`naive`], which shares the code of cores, drives and
//! policies, but neither the order nor the meter): the traces are equal, byte for byte. One scenario and one seed yield one trace. No random number
//! depends on the order of draws ([`crate::rng`]). No request is lost: requests in equal responses out plus requests in progress.

mod abilities;
mod background;
mod caps;
mod check;
mod clients;
mod collect;
mod core;
mod director;
mod drive_io;
mod drives;
mod due;
mod host;
mod interrupts;
mod link;
mod md;
mod member;
mod meter;
mod moments;
#[cfg(feature = "testing")]
mod naive;
mod order;
#[cfg(feature = "testing")]
mod plain;
mod poll_step;
mod polls;
mod quota;
mod request;
mod scheduled;
mod sensors;
mod shared;
#[cfg(feature = "testing")]
mod testing;
mod window;

use std::io::Write;

use pilotlight_plant::{Policy, Unsupported};

pub use abilities::capabilities;
pub use check::ScenarioError;
pub use director::command_code;
pub use meter::EPOCH_NS;
#[cfg(feature = "testing")]
pub use testing::{policy_checks, run_naive, run_naive_in_turn};

use crate::histogram::Histogram;
use crate::outcome::Outcome;
use crate::rng::{Purpose, Stream};
use crate::scenario::{Arrival, Connection, Scenario};
use crate::ssd::Ssd;
use crate::trace::{RecordKind, Recorder};
use clients::Clients;
use collect::Collector;
use core::Core;
use director::Director;
use host::{Host, Sent};
use link::Link;
use md::Md;
use meter::{Meter, Metering};
use order::Order;
use polls::Polls;
use request::{Job, RequestTemplate, Submission};
use scheduled::Scheduled;
use shared::{Answer, IoThread, Shared};

/// Why a scenario cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The scenario is inconsistent.
    #[error("the scenario cannot be run: {0}")]
    Scenario(ScenarioError),
    /// The policy needs an unsupported capability.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// The trace could not be written.
    #[error("the trace could not be written: {0}")]
    Trace(std::io::Error),
}

impl From<std::io::Error> for RunError {
    fn from(error: std::io::Error) -> Self {
        Self::Trace(error)
    }
}

/// Runs a scenario under a policy.
///
/// # Errors
/// If the scenario is inconsistent or the machine cannot do what the policy needs.
pub fn run(scenario: &Scenario, policy: Box<dyn Policy>) -> Result<Outcome, RunError> {
    Simulation::new(scenario, policy, None)?.run(window::run)
}

/// Runs a scenario under a policy, simulates every loop of every core, and measures the time between two polls of each I/O thread, after the warm-up,
/// in nanoseconds. Slow: [`run`] skips empty loops.
///
/// # Errors
/// As [`run`]. Scheduled cores have no loop.
pub fn run_polls(scenario: &Scenario, policy: Box<dyn Policy>) -> Result<(Outcome, Histogram), RunError> {
    if scenario.scheduled.is_some() {
        return Err(RunError::Scenario(ScenarioError::Rule("only cores that poll have a time between polls")));
    }
    let mut sim = Simulation::new(scenario, policy, None)?;
    sim.shared.polls = Some(Polls::new(scenario.topology.len(), scenario.warm_up_ns));
    let mut intervals = Histogram::default();
    let outcome = sim.run(|sim| {
        window::run(sim);
        if let Some(polls) = sim.shared.polls.take() {
            intervals = polls.into_intervals();
        }
    })?;
    Ok((outcome, intervals))
}

/// Runs a scenario and writes its events to `out` ([`crate::trace`]).
///
/// # Errors
/// As [`run`], or if `out` fails.
pub fn run_traced(scenario: &Scenario, policy: Box<dyn Policy>, out: &mut dyn Write) -> Result<Outcome, RunError> {
    Simulation::new(scenario, policy, Some(out))?.run(window::run)
}

/// Runs a scenario under several policies in sequence, each from its start time on; the first from the beginning. Writes all events to `out`.
///
/// # Errors
/// As [`run_traced`], or if there is no policy.
pub fn run_in_turn(scenario: &Scenario, policies: Policies, out: &mut dyn Write) -> Result<Outcome, RunError> {
    let meter = Box::new(Meter::new(&scenario.machine, &scenario.family, &scenario.topology));
    Simulation::with_meter(scenario, policies, Some(out), meter)?.run(window::run)
}

/// Policies, each with its start time in nanoseconds.
pub type Policies = Vec<(u64, Box<dyn Policy>)>;

/// Runs a scenario whose connections of kind [`crate::scenario::Kind::Traced`] send the requests of `source`, in time order.
///
/// # Errors
/// As [`run`].
pub fn run_replay<'a>(
    scenario: &'a Scenario,
    policy: Box<dyn Policy>,
    source: Source<'a>,
) -> Result<Outcome, RunError> {
    let mut sim = Simulation::new(scenario, policy, None)?;
    sim.source = Some(source);
    sim.run(window::run)
}

/// As [`run_replay`], and writes all events to `out`.
///
/// # Errors
/// As [`run_traced`].
pub fn run_replay_traced<'a>(
    scenario: &'a Scenario,
    policy: Box<dyn Policy>,
    source: Source<'a>,
    out: &'a mut dyn Write,
) -> Result<Outcome, RunError> {
    let mut sim = Simulation::new(scenario, policy, Some(out))?;
    sim.source = Some(source);
    sim.run(window::run)
}

/// Requests of a trace, in time order.
pub type Source<'a> = Box<dyn Iterator<Item = Arrival> + 'a>;

/// Maximum length of a window; bounds the number of its events.
const LONGEST_WINDOW_NS: u64 = 1_000_000;

/// State of a simulation.
pub(crate) struct Simulation<'a> {
    scenario: &'a Scenario,
    main: usize,
    cores: Vec<Core>,
    shared: Shared<'a>,
    hosts: Vec<Host>,
    /// Threads that send for them.
    clients: Option<Box<Clients>>,
    source: Option<Source<'a>>,
    /// The next request of the trace.
    next_arrival: Option<Arrival>,
    drives: Vec<Ssd>,
    /// One-way time between host and target, without queueing.
    half_trip_ns: u64,
    /// Links towards the target, and towards the hosts.
    ingress: Vec<Link>,
    egress: Vec<Link>,
    /// Whether requests carry data, so that the ingress rate matters.
    data_comes_in: bool,
    /// Whether requests must arrive in time order across connections, because they share a port or an I/O thread.
    in_order: bool,
    meter: Box<dyn Metering>,
    director: Director,
    collector: Collector,
    /// Number of polling cores; later cores are scheduled.
    polls: usize,
    scheduled: Option<Box<Scheduled>>,
    md: Option<Box<Md>>,
    /// Reused buffers.
    sent: Vec<Sent>,
    submissions: Vec<Submission>,
    answers: Vec<Answer>,
    order: Order,
    involved: Vec<usize>,
    /// When they act, whether it is not the main core, and which.
    turns: Vec<(u64, bool, usize)>,
}

impl<'a> Simulation<'a> {
    fn new(scenario: &'a Scenario, policy: Box<dyn Policy>, out: Option<&'a mut dyn Write>) -> Result<Self, RunError> {
        let meter = Box::new(Meter::new(&scenario.machine, &scenario.family, &scenario.topology));
        Self::with_meter(scenario, vec![(0, policy)], out, meter)
    }

    fn with_meter(
        scenario: &'a Scenario,
        policies: Policies,
        out: Option<&'a mut dyn Write>,
        mut meter: Box<dyn Metering>,
    ) -> Result<Self, RunError> {
        check::check(scenario).map_err(RunError::Scenario)?;
        if policies.is_empty() {
            return Err(RunError::Scenario(ScenarioError::Rule("there is no policy")));
        }
        let topology = &scenario.topology;
        let polls = scenario.scheduled.as_ref().map_or(topology.len(), |cores| usize::from(cores.first_core));
        let home = |thread: u16| thread % polls as u16;
        let connections = &scenario.workload.connections;
        let (seed, network) = (scenario.seed, scenario.machine.network);
        let mut shared = Shared::new(
            &scenario.machine,
            connections
                .iter()
                .enumerate()
                .map(|(index, one)| RequestTemplate::new(index, one, network.ports, &scenario.drives, seed))
                .collect(),
            scenario.drives.len() as u32,
            topology.len(),
            (0..scenario.threads).map(|thread| IoThread::new(home(thread))).collect(),
            Recorder::new(out),
        );
        shared.main = topology.main().0;
        let mut cores: Vec<_> = topology
            .cores()
            .map(|core| {
                let ring = (0..scenario.threads).filter(|&thread| home(thread) == core.0).collect();
                Core::new(core.0, core == topology.main(), ring, Stream::new(seed, Purpose::Cores, core.0.into()))
            })
            .collect();
        if !scenario.workload.background.is_empty() {
            shared.background = background::Background::new(scenario);
            shared.look_at_background();
        }
        let director = Director::start(policies, scenario, &mut cores, &mut *meter, &mut shared)
            .map_err(|error| abilities::refusal(error, scenario.machine.governor))?;
        let links = vec![Link::new(network.port_mbit_s); network.ports as usize];
        let data_comes_in = connections.iter().any(request::brings_data);
        let half_trip_ns = network.round_trip_ns / 2;
        let clients = Clients::new(scenario, half_trip_ns, |connection| shared.plans[connection].port);
        Ok(Self {
            scenario,
            main: topology.main().index(),
            cores,
            shared,
            hosts: connections.iter().enumerate().map(|(index, one)| Host::new(index, one, seed)).collect(),
            clients: clients.map(Box::new),
            source: None,
            next_arrival: None,
            drives: scenario.drives.iter().map(|model| drive_io::drive(model, scenario)).collect(),
            half_trip_ns,
            ingress: links.clone(),
            egress: links,
            data_comes_in,
            in_order: data_comes_in || share_threads(connections),
            meter,
            director,
            collector: Collector::new(scenario),
            polls,
            scheduled: Scheduled::new(scenario).map(Box::new),
            md: Md::new(scenario).map(Box::new),
            sent: Vec::new(),
            submissions: Vec::new(),
            answers: Vec::new(),
            order: Order::default(),
            involved: Vec::new(),
            turns: Vec::new(),
        })
    }

    fn run(mut self, engine: impl FnOnce(&mut Self)) -> Result<Outcome, RunError> {
        self.next_arrival = self.source.as_mut().and_then(Iterator::next);
        engine(&mut self);
        let duration_ns = self.scenario.duration_ns;
        let held_back = self.hosts.iter().map(|host| host.held_back(duration_ns)).sum();
        let mut outcome =
            self.collector.finish(&self.director, self.shared.switches, held_back, &self.scenario.workload.background);
        if let Some(scheduled) = self.scheduled {
            outcome.jobs = scheduled.finish();
        }
        self.shared.recorder.finish()?;
        self.director.refused_policy.map_or(Ok(outcome), |error| Err(error.into()))
    }

    /// The longest time without influence between cores: no drive completes a new command, and no host sends a request after a response.
    fn window_ns(&self) -> u64 {
        let connections = &self.scenario.workload.connections;
        let jobs = self.scenario.scheduled.iter().flat_map(|scheduled| &scheduled.jobs);
        let background = self.scenario.workload.background.iter().any(|class| class.write);
        let writes =
            background || connections.iter().any(request::writes) || jobs.into_iter().any(|job| job.writes_ppm > 0);
        let least = if writes { Ssd::least_latency_ns } else { Ssd::least_read_ns };
        let drives = self.drives.iter().map(least).min().unwrap_or(u64::MAX);
        let waits = connections.iter().any(|connection| connection.depth != u32::MAX);
        let answered_ns =
            self.clients.as_ref().map_or(self.scenario.machine.network.round_trip_ns, |one| one.window_ns());
        let hosts = if waits || self.clients.is_some() { answered_ns } else { u64::MAX };
        drives.min(hosts).clamp(1, LONGEST_WINDOW_NS)
    }

    /// Passes the trace's requests before `until_ns` to their hosts.
    fn read_trace(&mut self, until_ns: u64) {
        while let Some(Arrival { at_ns, connection, what }) =
            self.next_arrival.filter(|arrival| arrival.at_ns < until_ns)
        {
            self.hosts[connection as usize].trace(at_ns);
            self.shared.plans[connection as usize].contents.trace(what);
            self.next_arrival = self.source.as_mut().and_then(Iterator::next);
        }
    }

    /// Requests arrive in the order in which they were sent.
    #[inline(always)] // into both loops over sent requests
    fn arrive(&mut self, sent: &Sent) {
        let (at_ns, job) = self.bring(sent);
        self.shared.arrive(at_ns, job);
    }

    /// The same if packets may interrupt.
    #[inline(never)] // outside the hot path
    fn arrive_any(&mut self, sent: &Sent) {
        let (at_ns, job) = self.bring(sent);
        self.shared.arrive_by_interrupt(at_ns, job);
    }

    /// Arrival of a request at the target's network card, and its job.
    #[inline(always)] // as above
    fn bring(&mut self, sent: &Sent) -> (u64, Job) {
        let plan = &self.shared.plans[sent.connection as usize];
        let job = plan.job(sent);
        let bytes = plan.bytes_in(&job);
        let mut at_ns = sent.at_ns + self.half_trip_ns;
        if self.data_comes_in {
            let overhead_bytes = self.scenario.machine.network.overhead_bytes;
            at_ns = self.ingress[plan.port as usize].send(at_ns, bytes + overhead_bytes);
        }
        self.collector.issued(sent);
        self.shared.recorder.note(sent.at_ns, RecordKind::Issued, job.name(), u64::from(bytes));
        (at_ns, job)
    }

    /// A command reaches its drive, whose earlier commands of the policy have been applied; its completion may interrupt.
    #[inline(always)] // into the loop over the commands of a window; the compiler else calls it, because of its second caller
    fn submit<const INTERRUPTS: bool>(&mut self, submission: &Submission) {
        let job = self.shared.job(submission.job);
        let (thread, name, host) = (job.thread, job.name(), job.connection);
        let (drive, request) = self.shared.plans[job.connection as usize].command(job, &submission.command());
        let done_ns = self.drives[usize::from(drive)].submit(&request);
        self.shared.recorder.note(submission.at_ns, RecordKind::Submitted, name, u64::from(drive));
        self.shared.recorder.note(done_ns, RecordKind::Completed, name, u64::from(drive));
        self.collector.moved(submission.at_ns, drive.into(), submission.bytes, submission.write);
        if let Some(sensors) = &mut self.director.sensors {
            sensors.submitted(submission, drive, host);
        }
        if INTERRUPTS {
            self.shared.complete_by_interrupt(done_ns, (drive, submission.core), thread, name, submission.job);
        } else {
            self.shared.complete(done_ns, thread, name, submission.job);
        }
    }

    /// A response reaches the network card.
    #[inline]
    fn answer(&mut self, answer: &Answer) {
        let job = self.shared.finish(answer.job);
        let connection = job.connection as usize;
        let port = self.shared.plans[connection].port as usize;
        let bytes = job.bytes_out() + self.scenario.machine.network.overhead_bytes;
        let received_ns = self.egress[port].send(answer.at_ns, bytes) + self.half_trip_ns;
        if let Some(sensors) = &mut self.director.sensors {
            sensors.answered(answer.at_ns, answer.job, answer.at_ns - (job.sent_ns + self.half_trip_ns));
        }
        if let Some(clients) = &mut self.clients {
            return clients.arrive(port, received_ns, job);
        }
        self.collector.received(&job, received_ns);
        self.shared.recorder.note(received_ns, RecordKind::Received, job.name(), received_ns - job.sent_ns);
        self.hosts[connection].answered(received_ns);
    }

    /// The client's operations that begin before `until_ns`.
    fn advance_clients(&mut self, until_ns: u64) {
        let Self { clients: Some(clients), hosts, collector, shared, .. } = self else { return };
        clients.advance(hosts, until_ns, |job, received_ns| {
            collector.received(job, received_ns);
            shared.recorder.note(received_ns, RecordKind::Received, job.name(), received_ns - job.sent_ns);
        });
    }

    /// Earliest time at which another request may arrive, without further answers.
    fn next_arrival_ns(&self) -> u64 {
        if let Some(clients) = &self.clients {
            return clients.next_arrival_ns(&self.hosts);
        }
        let half_ns = self.half_trip_ns;
        self.hosts.iter().map(|host| host.next_event_ns().saturating_add(half_ns)).min().unwrap_or(u64::MAX)
    }

    /// How long before its arrival a request may leave the host.
    fn lead_ns(&self) -> u64 {
        self.clients.as_ref().map_or(self.half_trip_ns, |clients| clients.lead_ns())
    }

    /// Delivers messages to their cores.
    fn deliver(&mut self) {
        for (to, message) in self.shared.messages.drain(..) {
            self.cores[usize::from(to)].deliver(message);
        }
    }

    fn call_policy(&mut self) {
        self.director.call_policy(&mut self.cores, &mut *self.meter, &mut self.shared);
    }

    /// Accounts for speed and energy until `to_ns`, which is on the grid.
    fn account(&mut self, to_ns: u64) {
        let step = self.collector.stretch_ns();
        while self.meter.until_ns() < to_ns {
            let sensed_ns = self.sensed_ns();
            let end_ns = to_ns.min((self.meter.until_ns() / step + 1) * step).min(sensed_ns);
            self.meter.account(end_ns, &mut self.cores, &mut self.shared);
            let (ends, sensed) = (end_ns.is_multiple_of(step), end_ns == sensed_ns);
            if !ends && !sensed {
                continue;
            }
            let total = self.meter.take();
            self.advance_drives(end_ns);
            if let Some(sensors) = &mut self.director.sensors {
                sensors.spend(&total);
                if sensed {
                    sensors.close();
                }
            }
            self.collector.spend(&total);
            if ends {
                if let Some(sensors) = self.director.sensors.as_ref().filter(|_| self.scenario.sensors.meter.is_some())
                {
                    self.collector.metered(sensors.metered(end_ns).and_then(|window| window.value));
                }
                self.collector.stretch(&mut self.director, &self.shared);
            }
        }
    }

    /// End of the sensors' open window.
    fn sensed_ns(&self) -> u64 {
        self.director.sensors.as_ref().map_or(u64::MAX, sensors::Sensors::end_ns)
    }
}

fn share_threads(connections: &[Connection]) -> bool {
    let mut threads: Vec<_> = connections.iter().map(|connection| connection.thread).collect();
    threads.sort_unstable();
    threads.windows(2).any(|pair| pair[0] == pair[1])
}
