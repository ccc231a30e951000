//! The leader of a rack: collects reports, divides the budget, and changes grants; each server runs in a thread of its own.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{ScopedJoinHandle, scope};

use pilotlight_policy::fleet::{Grant, Grants, Work, divide, estimate, is_held_back, speed};
use pilotlight_policy::pass::profile::Profile;
use pilotlight_policy::pass::ssd_model::Rate;
use pilotlight_sim::outcome::Outcome;
use pilotlight_sim::run;

use super::agent::{Agent, Report};
use super::server::{DURATION_NS, INTERVAL_NS, SIZES, Server, WARM_UP_NS};

/// Exchanges of a run; none at its end.
const ROUNDS: usize = (DURATION_NS / INTERVAL_NS) as usize - 1;
/// How a budget is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    /// No budget.
    None,
    /// The same for each server, from its floor to its full power.
    Equal,
    /// The same part of its full power.
    Size,
    /// `divide`, by what each server did since the last division.
    Divide,
    /// `divide`, by what hosts will ask until the next.
    Known,
}

/// How shares are changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// By [`Grants`].
    LowerFirst,
    /// All at once; for a test of the invariant.
    AtOnce,
}

/// Floor and full power of a size.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Range {
    pub(crate) floor_uw: u64,
    pub(crate) full_uw: u64,
}

impl Range {
    /// Of each size, as simulated: the highest power of an interval of the busiest server under the least and the largest budget.
    pub(crate) fn of_sizes() -> Vec<Self> {
        let most_uw = |size: usize, budget_uw: u64| {
            let server = Server::busiest(size);
            let outcome = run(&server.scenario(budget_uw, 3 * WARM_UP_NS), server.policy()).expect("a run");
            powers_uw(&outcome).max().expect("a measured interval")
        };
        (0..SIZES.len()).map(|size| Self { floor_uw: most_uw(size, 1), full_uw: most_uw(size, UNLIMITED_UW) }).collect()
    }
}

/// Above the full power of any size.
const UNLIMITED_UW: u64 = 10_000_000_000;

/// Mean power of each measured interval.
pub(crate) fn powers_uw(outcome: &Outcome) -> impl Iterator<Item = u64> + '_ {
    let measured = outcome.series.iter().skip((WARM_UP_NS / INTERVAL_NS) as usize);
    measured.map(|stretch| stretch.energy.system_uj() * 1_000_000_000 / INTERVAL_NS)
}

/// Requests and CPU time of a server in each round of a run without a budget.
#[derive(Clone, Debug, Default)]
pub(crate) struct History(Vec<Report>);

/// A run of all servers.
pub(crate) struct RackRun {
    pub(crate) outcomes: Vec<Outcome>,
    /// Reports of each server.
    pub(crate) histories: Vec<History>,
    /// The largest sum of bounds: of the highest power that may be in force at each server.
    pub(crate) most_bound_uw: u64,
}

/// Servers with their powers.
pub(crate) struct Rack {
    pub(crate) servers: Vec<Server>,
    pub(crate) ranges: Vec<Range>,
    profiles: Vec<Profile>,
}

/// A server as the leader sees it.
struct Remote {
    reports: Receiver<Report>,
    grants: Sender<Option<Grant>>,
    history: History,
    /// Grants that may be in force, the oldest first.
    possible: Vec<Grant>,
    /// The last power of its meter, and the share then, in microwatts.
    power_uw: (u64, u64),
}

impl Rack {
    pub(crate) fn draw(seed: u64, count: usize, sizes: &[Range]) -> Self {
        let servers: Vec<Server> = (0..count).map(|at| Server::draw(seed, at)).collect();
        let ranges = servers.iter().map(|server| sizes[server.size]).collect();
        Self { servers, ranges, profiles: SIZES.iter().map(super::server::Size::profile).collect() }
    }

    /// Budget at this percentage of the range between floors and full powers.
    pub(crate) fn budget_uw(&self, percent: u64) -> u64 {
        let sum = |pick: fn(&Range) -> u64| self.ranges.iter().map(pick).sum::<u64>();
        let (floors_uw, full_uw) = (sum(|range| range.floor_uw), sum(|range| range.full_uw));
        floors_uw + (full_uw - floors_uw) * percent / 100
    }

    /// Runs all servers. `demand`: histories of a run without a budget, for [`Method::Known`].
    pub(crate) fn run(&self, method: Method, budget_uw: u64, change: Change, demand: &[History]) -> RackRun {
        scope(|scope| {
            let mut remotes = Vec::new();
            let mut threads: Vec<ScopedJoinHandle<'_, Outcome>> = Vec::new();
            for (server, range) in self.servers.iter().zip(&self.ranges) {
                let ((to, reports), (grants, from)) = (channel(), channel());
                let power_uw = if method == Method::None { UNLIMITED_UW } else { range.floor_uw };
                let first = Grant { number: 0, power_uw };
                let agent = Box::new(Agent::new(server.policy(), to, from, first));
                threads.push(scope.spawn(move || run(&server.scenario(power_uw, DURATION_NS), agent).expect("a run")));
                remotes.push(Remote {
                    reports,
                    grants,
                    history: History::default(),
                    possible: vec![first],
                    power_uw: (0, power_uw),
                });
            }
            let mut leader =
                Leader { rack: self, method, budget_uw, change, demand, remotes, grants: self.join(method, budget_uw) };
            let mut most_bound_uw = 0;
            for round in 0..ROUNDS {
                leader.exchange(round);
                most_bound_uw = most_bound_uw.max(leader.bound_uw());
            }
            let histories = leader.remotes.into_iter().map(|remote| remote.history).collect(); // ends the exchanges
            let outcomes = threads.into_iter().map(|thread| thread.join().expect("a run")).collect();
            RackRun { outcomes, histories, most_bound_uw }
        })
    }

    fn join(&self, method: Method, budget_uw: u64) -> Grants<usize> {
        let mut grants = Grants::new(budget_uw);
        if method != Method::None {
            for (at, range) in self.ranges.iter().enumerate() {
                grants.join(at, range.floor_uw).expect("the budget has room for all floors");
            }
        }
        grants
    }
}

struct Leader<'a> {
    rack: &'a Rack,
    method: Method,
    budget_uw: u64,
    change: Change,
    demand: &'a [History],
    remotes: Vec<Remote>,
    grants: Grants<usize>,
}

impl Leader<'_> {
    /// Receives all reports, and answers each.
    fn exchange(&mut self, round: usize) {
        for (at, remote) in self.remotes.iter_mut().enumerate() {
            let report = remote.reports.recv().expect("a server that runs until the end");
            remote.history.0.push(report);
            if let Some(measured_uw) = report.measured_uw {
                let share_uw = remote.possible.last().map_or(0, |grant| grant.power_uw);
                remote.power_uw = (measured_uw, share_uw);
            }
            if let Some(number) = report.confirmed {
                self.grants.confirm(&at, number);
                let first =
                    remote.possible.iter().position(|grant| grant.number == number).expect("a grant of this server");
                remote.possible.drain(..first);
            }
        }
        let mut answers = vec![None; self.remotes.len()];
        if self.method != Method::None {
            let shares_uw = self.shares_uw(round + 1);
            shares_uw.iter().enumerate().for_each(|(at, uw)| self.grants.set_share(&at, *uw));
            if self.change == Change::AtOnce {
                answers =
                    shares_uw.iter().map(|&power_uw| Some(Grant { number: round as u64 + 1, power_uw })).collect();
            }
            if self.change == Change::LowerFirst {
                self.grants.publish().into_iter().for_each(|(at, grant)| answers[at] = Some(grant));
            }
        }
        for (remote, answer) in self.remotes.iter_mut().zip(answers) {
            remote.possible.extend(answer);
            remote.grants.send(answer).expect("a server that waits");
        }
    }

    /// The most that may be in force, by the grants that servers have got and confirmed; not from [`Grants`], which it checks.
    fn bound_uw(&self) -> u64 {
        let most = |remote: &Remote| remote.possible.iter().map(|grant| grant.power_uw).max();
        self.remotes.iter().filter_map(most).sum()
    }

    /// Shares from round `round` on.
    fn shares_uw(&self, round: usize) -> Vec<u64> {
        let ranges = &self.rack.ranges;
        match self.method {
            Method::None => Vec::new(),
            Method::Equal => filled(ranges, self.budget_uw, |_, level_uw| level_uw),
            Method::Size => filled(ranges, self.budget_uw, |range, level| {
                ((u128::from(range.full_uw) * u128::from(level)) >> 40) as u64
            }),
            Method::Divide => self.divide(|at| self.done(at)),
            Method::Known => self.divide(|at| self.to_do(at, round)),
        }
    }

    fn divide(&self, work: impl Fn(usize) -> Work) -> Vec<u64> {
        let server = |(at, server): (usize, &Server)| {
            let curve = estimate(&self.rack.profiles[server.size], self.rack.ranges[at].floor_uw, work(at));
            pilotlight_policy::fleet::Server { priority: server.priority, curve }
        };
        let servers: Vec<_> = self.rack.servers.iter().enumerate().map(server).collect();
        divide(&servers, self.budget_uw).shares_uw
    }

    /// What a server did since the last division.
    fn done(&self, at: usize) -> Work {
        let Remote { history, power_uw, .. } = &self.remotes[at];
        let server = &self.rack.servers[at];
        let last = history.0.last().map_or(&[][..], std::slice::from_ref);
        let sum = Sums::new(last, &self.rack.profiles[server.size]);
        let in_progress = sum.in_progress_ns as f64 / sum.elapsed_ns.max(1) as f64;
        sum.work(server, sum.requests, is_held_back(*power_uw, in_progress, server.size().cores.into()))
    }

    /// What hosts will ask until the next division, with what was not served yet.
    fn to_do(&self, at: usize, round: usize) -> Work {
        let until = (round + 1).min(ROUNDS);
        let server = &self.rack.servers[at];
        let sum = |reports: &[Report]| Sums::new(reports, &self.rack.profiles[server.size]);
        let (asked, next) = (sum(&self.demand[at].0[..until]), sum(&self.demand[at].0[round..until]));
        let served: u64 = self.remotes[at].history.0.iter().map(|report| report.requests).sum();
        next.work(server, asked.requests.saturating_sub(served), false)
    }
}

/// Sums of reports.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    requests: u64,
    /// CPU time as it would be at full speed.
    full_speed_ns: f64,
    elapsed_ns: u64,
    in_progress_ns: u64,
}

impl Sums {
    fn new(reports: &[Report], profile: &Profile) -> Self {
        reports.iter().fold(Self::default(), |sum, report| Self {
            requests: sum.requests + report.requests,
            full_speed_ns: sum.full_speed_ns + report.busy_ns as f64 * speed(profile, report.cpu_uw),
            elapsed_ns: sum.elapsed_ns + report.elapsed_ns,
            in_progress_ns: sum.in_progress_ns + report.in_progress_ns,
        })
    }

    /// This many requests in the same time, at the CPU time of a request in it.
    fn work(&self, server: &Server, requests: u64, is_held_back: bool) -> Work {
        let seconds = self.elapsed_ns.max(1) as f64 / 1e9;
        let bytes = requests as f64 * f64::from(server.request_bytes) / seconds;
        let writes = f64::from(server.writes_ppm) / 1e6;
        let busy_ns = self.full_speed_ns * requests as f64 / self.requests.max(1) as f64;
        let rate = Rate { read: bytes * (1.0 - writes), written: bytes * writes };
        Work { rate, cpu_ppm: (busy_ns / seconds / 1e3) as u64, is_held_back }
    }
}

/// Shares by a rule that rises with its level, each from the floor to full power, whose sum is the budget at most.
fn filled(ranges: &[Range], budget_uw: u64, rule: impl Fn(&Range, u64) -> u64) -> Vec<u64> {
    let shares = |level: u64| -> Vec<u64> {
        ranges.iter().map(|range| rule(range, level).clamp(range.floor_uw, range.full_uw)).collect()
    };
    let (mut low, mut high) = (0, 1_u64 << 41);
    while high - low > 1 {
        let middle = u64::midpoint(low, high);
        if shares(middle).iter().sum::<u64>() <= budget_uw { low = middle } else { high = middle }
    }
    shares(low)
}
