//! Threads of a load generator: each serves its connections in turn, as `pilotlight load` does (`crates/host/src/load/worker.rs`).
//!
//! **Problem.** A client on the machine of the server has a CPU for each thread, and a thread takes about as long for a request as the server.
//! Under load it is late: requests of several connections leave together, and answers wait for their turn.
//! **Terms.** A thread repeats an *iteration*: it looks at each connection and handles the answers that have arrived, then takes all requests
//! that are due, on its connections in turn, then sends those of each together. A *stall* stops it for a time (a timer, the host of a virtual CPU).
//!
//! **Algorithm.** Each look, and each send, is an *operation*: it sees what has arrived when it begins. Iterations without work are skipped.
//! **Properties.** A request arrives at least [`Clients::lead_ns`] after its operation begins, so threads advance that far ahead of the server, and
//! a window is [`Clients::window_ns`] long at most. Both engines write the same trace (`tests/sockets.rs`). Latency begins when a request is due and
//! ends with its answer's operation.

use std::collections::VecDeque;

use super::host::{Host, Sent};
use super::request::Job;
use crate::machine::Client;
use crate::rng::{Purpose, Stream};
use crate::scenario::Scenario;

/// All threads.
#[derive(Debug)]
pub(crate) struct Clients {
    costs: Client,
    half_trip_ns: u64,
    threads: Vec<Thread>,
}

/// A thread.
#[derive(Debug)]
struct Thread {
    connections: Vec<ThreadConnection>,
    groups: Vec<Group>,
    /// Begin of its next operation.
    now_ns: u64,
    next: Operation,
    stalls: Stream,
    /// Next stall.
    stall_ns: u64,
    /// Sent requests that have not arrived at the server.
    sent: VecDeque<Sent>,
}

/// A thread's side of a connection.
#[derive(Debug)]
struct ThreadConnection {
    index: usize,
    /// Answers in the socket: when they arrived.
    answers: VecDeque<(u64, Job)>,
    /// Requests of this iteration.
    due: Vec<Sent>,
}

/// Connections of a thread of the same kind, which share their requests.
#[derive(Debug)]
struct Group {
    places: Vec<usize>,
    /// Which of them has the next request.
    next: usize,
}

/// The next operation; the number is that of a connection of the thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Look(usize),
    Send(usize),
}

impl Clients {
    /// One thread for each port, with its connections; `None` if the machine has no such client.
    pub(crate) fn new(scenario: &Scenario, half_trip_ns: u64, port: impl Fn(usize) -> u32) -> Option<Self> {
        let (costs, seed) = (scenario.machine.sockets.client, scenario.seed);
        let all = &scenario.workload.connections;
        let thread = |number: u32| {
            let mine: Vec<usize> = (0..all.len()).filter(|&index| port(index) == number).collect();
            let mut groups: Vec<Group> = Vec::new();
            for (place, &index) in mine.iter().enumerate() {
                let kind =
                    |index: usize| (&all[index].phases, all[index].spacing, &all[index].request, all[index].depth);
                let same = |group: &&mut Group| kind(mine[group.places[0]]) == kind(index);
                match groups.iter_mut().find(same) {
                    Some(group) => group.places.push(place),
                    None => groups.push(Group { places: vec![place], next: 0 }),
                }
            }
            let connection = |&index: &usize| ThreadConnection { index, answers: VecDeque::new(), due: Vec::new() };
            let mut stalls = Stream::new(seed, Purpose::Hosts, number.into());
            let stall_ns = gap_ns(&costs, &mut stalls);
            let connections = mine.iter().map(connection).collect();
            Thread { connections, groups, now_ns: 0, next: Operation::Look(0), stalls, stall_ns, sent: VecDeque::new() }
        };
        (costs.look_ns > 0).then(|| Self {
            costs,
            half_trip_ns,
            threads: (0..scenario.machine.network.ports).map(thread).collect(),
        })
    }

    /// Shortest time from the begin of an operation until its request arrives at the server.
    pub(crate) fn lead_ns(&self) -> u64 {
        self.half_trip_ns + u64::from(self.costs.send_ns)
    }

    /// Shortest time from an answer of the server until a request that follows from it arrives there.
    pub(crate) fn window_ns(&self) -> u64 {
        self.half_trip_ns + self.lead_ns()
    }

    /// An answer arrives at `at_ns`.
    pub(crate) fn arrive(&mut self, thread: usize, at_ns: u64, job: Job) {
        let mut connections = self.threads[thread].connections.iter_mut();
        if let Some(connection) = connections.find(|connection| connection.index == job.connection as usize) {
            connection.answers.push_back((at_ns, job));
        }
    }

    /// All operations that begin before `until_ns`; `received` gets each answer with the end of its operation.
    pub(crate) fn advance(&mut self, hosts: &mut [Host], until_ns: u64, mut received: impl FnMut(&Job, u64)) {
        let costs = self.costs;
        for thread in &mut self.threads {
            while thread.is_before(until_ns, &costs) {
                thread.operate(&costs, hosts, until_ns, &mut received);
            }
        }
    }

    /// Moves requests that arrive at the server before `until_ns` to `out`.
    pub(crate) fn take_sent(&mut self, until_ns: u64, out: &mut Vec<Sent>) {
        for thread in &mut self.threads {
            let arrived = thread.sent.partition_point(|sent| sent.at_ns + self.half_trip_ns < until_ns);
            out.extend(thread.sent.drain(..arrived));
        }
    }

    /// When the next request arrives at the server, of those sent; [`u64::MAX`] if none is on its way.
    pub(crate) fn arrives_ns(&self) -> u64 {
        let first = self.threads.iter().filter_map(|thread| thread.sent.front());
        first.map(|sent| sent.at_ns + self.half_trip_ns).min().unwrap_or(u64::MAX)
    }

    /// Begin of the next operation that may not be skipped.
    pub(crate) fn next_ns(&self, hosts: &[Host]) -> u64 {
        self.threads.iter().map(|thread| thread.event_ns(hosts).max(thread.now_ns)).min().unwrap_or(u64::MAX)
    }

    /// Earliest time at which another request may arrive at the server.
    pub(crate) fn next_arrival_ns(&self, hosts: &[Host]) -> u64 {
        self.arrives_ns().min(self.next_ns(hosts).saturating_add(self.lead_ns()))
    }
}

fn gap_ns(costs: &Client, stalls: &mut Stream) -> u64 {
    if costs.stall_gap_ns == 0 { u64::MAX } else { stalls.exponential(costs.stall_gap_ns as f64) as u64 }
}

impl Group {
    /// The first request of its schedules, if it is due before `until_ns`, and whose it is.
    fn first_due(&self, all: &[ThreadConnection], hosts: &mut [Host], until_ns: u64) -> Option<((u64, u8), usize)> {
        let indices = self.places.iter().map(|&place| all[place].index);
        indices.filter_map(|index| hosts[index].due_before(until_ns).map(|due| (due, index))).min()
    }
}

impl Thread {
    /// Whether its next operation begins before `until_ns`, after the stalls until then.
    fn is_before(&mut self, until_ns: u64, costs: &Client) -> bool {
        while self.now_ns < until_ns && self.stall_ns <= self.now_ns {
            self.now_ns += self.stalls.exponential(costs.stall_ns.into()) as u64;
            self.stall_ns = self.now_ns.saturating_add(gap_ns(costs, &mut self.stalls));
        }
        self.now_ns < until_ns && !self.connections.is_empty()
    }

    /// Before when iterations have no work: the next answer, due request, change of phase, or the present if requests wait to be sent.
    fn event_ns(&self, hosts: &[Host]) -> u64 {
        if self.connections.iter().any(|connection| !connection.due.is_empty()) {
            return 0;
        }
        let answer = |connection: &ThreadConnection| connection.answers.front().map(|&(at_ns, _)| at_ns);
        let host = |&place: &usize| &hosts[self.connections[place].index];
        let sends = self.groups.iter().filter(|group| group.places.iter().any(|place| host(place).has_slot()));
        let due_ns = sends.flat_map(|group| &group.places).map(|place| host(place).schedule_ns());
        self.connections.iter().filter_map(answer).chain(due_ns).min().unwrap_or(u64::MAX)
    }

    fn operate(&mut self, costs: &Client, hosts: &mut [Host], until_ns: u64, received: &mut impl FnMut(&Job, u64)) {
        match self.next {
            Operation::Look(place) => {
                if place == 0 && self.skip(costs, hosts, until_ns) {
                    return;
                }
                self.poll_once(place, costs, hosts, received);
                self.next = Operation::Look(place + 1);
                if place + 1 == self.connections.len() {
                    self.take_due(hosts);
                    self.next = Operation::Send(0);
                }
            }
            Operation::Send(place) => {
                self.send(place, costs);
                let is_last = place + 1 == self.connections.len();
                self.next = if is_last { Operation::Look(0) } else { Operation::Send(place + 1) };
            }
        }
    }

    /// Skips whole iterations without work that begin before `until_ns`, and returns whether there were any.
    fn skip(&mut self, costs: &Client, hosts: &[Host], until_ns: u64) -> bool {
        let iteration_ns = u64::from(costs.look_ns) * self.connections.len() as u64;
        // An iteration takes its due requests at its end, which is the begin of the next.
        let last_ns = self.event_ns(hosts).min(self.stall_ns).saturating_sub(1).min(until_ns - 1);
        let iterations = last_ns.saturating_sub(self.now_ns) / iteration_ns;
        self.now_ns += iterations * iteration_ns;
        iterations > 0
    }

    fn poll_once(&mut self, place: usize, costs: &Client, hosts: &mut [Host], received: &mut impl FnMut(&Job, u64)) {
        let ThreadConnection { index, answers, .. } = &mut self.connections[place];
        let count = answers.partition_point(|&(at_ns, _)| at_ns <= self.now_ns);
        if count == 0 {
            self.now_ns += u64::from(costs.look_ns);
            return;
        }
        self.now_ns += u64::from(costs.receive_ns) + count as u64 * u64::from(costs.response_ns);
        for (_, job) in answers.drain(..count) {
            received(&job, self.now_ns);
            hosts[*index].answered(self.now_ns);
        }
    }

    fn take_due(&mut self, hosts: &mut [Host]) {
        let Self { connections, groups, now_ns, .. } = self;
        for group in groups {
            while let Some((due, index)) = group.first_due(connections, hosts, *now_ns + 1) {
                let count = group.places.len();
                let mut turns = (0..count).map(|turn| (group.next + turn) % count);
                let has_slot = |&turn: &usize| hosts[connections[group.places[turn]].index].has_slot();
                let Some(turn) = turns.find(has_slot) else { break };
                hosts[index].pass();
                let connection = &mut connections[group.places[turn]];
                connection.due.push(hosts[connection.index].issue(*now_ns, due));
                group.next = (turn + 1) % count;
            }
        }
    }

    fn send(&mut self, place: usize, costs: &Client) {
        let due = &mut self.connections[place].due;
        if due.is_empty() {
            return;
        }
        self.now_ns += u64::from(costs.send_ns) + due.len() as u64 * u64::from(costs.request_ns);
        self.sent.extend(due.drain(..).map(|sent| Sent { at_ns: self.now_ns, ..sent }));
    }
}
