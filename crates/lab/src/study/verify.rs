//! Verifies the actual completion mechanism.
//!
//! *Problem.* Kernels accept settings and flags without effect: 6.1 and later complete RWF_HIPRI by interrupt and ignore `io_poll_delay`; without
//! poll queues nothing is polled. *Evidence.* Polling raises no interrupts of the drive's queues; polling without sleep causes no context switches
//! (the polling paper, observation 4: one per I/O for interrupt and hybrid polling, none for classic polling). If the workload reports voluntary
//! switches, those count, because a poller that shares its CPU is preempted too. Settings are read back. *Properties.* A mechanism is verified only
//! if all evidence fits; otherwise it is unknown, with the reason.

use std::fmt;

use serde::{Deserialize, Serialize};

use pilotlight_workloads::mechanism::{Api, Kind, Mechanism, Sleep};

/// Maximum number of interrupts per I/O of polling; the remainder is other I/O.
pub const POLLED: f64 = 0.05;
/// Minimum number of interrupts per I/O of completion by interrupt; one can complete two requests.
pub const INTERRUPTED: f64 = 0.5;
/// Minimum number of context switches per I/O of threads that sleep.
pub const SLEPT: f64 = 0.5;

/// A setting of a mechanism, and its effect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppliedSetting {
    /// The key below `machine`, such as `io_poll_delay`.
    pub key: String,
    /// The written value.
    pub wanted: i64,
    /// The reason why it was not applied; `None` if it was.
    pub why_not: Option<String>,
}

/// Evidence of the completion mechanism in a measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Completion {
    /// The requested mechanism.
    pub requested: String,
    /// Its settings.
    pub settings: Vec<AppliedSetting>,
    /// `queue/io_poll` after the measurement; `None` without this file.
    pub io_poll: Option<bool>,
    /// `queue/io_poll_delay` after the measurement.
    pub io_poll_delay: Option<i64>,
    /// Prefixes of the names of the drive's interrupts (`/proc/interrupts`), or the reason why they are unknown.
    pub interrupts: Result<Vec<String>, String>,
    /// Their number over the whole command; `None` if they were not read.
    pub interrupts_count: Option<i64>,
    /// Warm-up of the command, in nanoseconds.
    pub ramp_ns: u64,
}

/// Counts per I/O in a measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counted {
    /// Interrupts of the drive's queues for each I/O.
    pub interrupts: Option<f64>,
    /// Context switches of the workload's threads for each I/O.
    pub switches: Option<f64>,
    /// Voluntary switches among them, if the workload reports them.
    pub waits: Option<f64>,
}

/// The verified mechanism of a point.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// The requested mechanism.
    pub requested: String,
    /// The actual mechanism; `None` if unknown.
    pub actual: Option<String>,
    /// The evidence as text.
    pub why: String,
    /// Interrupts of the drive's queues for each I/O, mean over the repeats.
    pub interrupts_per_io: Option<f64>,
    /// Context switches of the workload's threads for each I/O, mean over the repeats.
    pub switches_per_io: Option<f64>,
    /// `queue/io_poll` as read back.
    pub io_poll: Option<bool>,
    /// `queue/io_poll_delay` as read back.
    pub io_poll_delay: Option<i64>,
}

impl Verdict {
    /// Verifies the repeats of a point; `None` without repeats.
    #[must_use]
    pub fn verify(repeats: &[(&Completion, Counted)]) -> Option<Self> {
        let (first, _) = repeats.first()?;
        let judged: Vec<Judged> = repeats.iter().map(|(completion, counted)| judge(completion, *counted)).collect();
        let agreed = judged.iter().all(|other| other.actual == judged[0].actual);
        let mean = |of: fn(&Counted) -> Option<f64>| {
            let values: Option<Vec<f64>> = repeats.iter().map(|(_, counted)| of(counted)).collect();
            pilotlight_stats::mean::average(&values?)
        };
        let counted =
            Counted { interrupts: mean(|c| c.interrupts), switches: mean(|c| c.switches), waits: mean(|c| c.waits) };
        let actual = judged[0].actual.filter(|_| agreed).map(|actual| actual.to_string());
        let result =
            actual.as_ref().map_or_else(|| "actual mechanism unknown".to_owned(), |actual| format!("actual {actual}"));
        let mut whys = if agreed { judged[0].whys.clone() } else { vec!["the repeats differ".to_owned()] };
        whys.insert(0, counted.to_string());
        Some(Self {
            why: format!("requested {}, {result}: {}", first.requested, whys.join("; ")),
            requested: first.requested.clone(),
            actual,
            interrupts_per_io: counted.interrupts,
            switches_per_io: counted.switches,
            io_poll: first.io_poll,
            io_poll_delay: first.io_poll_delay,
        })
    }

    /// Whether the actual mechanism is the requested one.
    #[must_use]
    pub fn is_as_requested(&self) -> bool {
        self.actual.as_ref() == Some(&self.requested)
    }

    /// The label of rows: the mechanism alone only if verified.
    #[must_use]
    pub fn label(&self) -> String {
        match &self.actual {
            Some(actual) if *actual == self.requested => self.requested.clone(),
            Some(actual) => format!("{} (ran {actual})", self.requested),
            None => format!("{} (not verified)", self.requested),
        }
    }
}

impl fmt::Display for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = |value: Option<f64>| value.map_or_else(|| "an unknown number of".to_owned(), |v| format!("{v:.2}"));
        let waits = self.waits.map_or_else(String::new, |waits| format!(", {waits:.2} of them voluntary"));
        write!(f, "{} interrupts and {} context switches per I/O{waits}", word(self.interrupts), word(self.switches))
    }
}

/// The verified mechanism of a measurement.
struct Judged {
    actual: Option<Mechanism>,
    whys: Vec<String>,
}

fn judge(completion: &Completion, counted: Counted) -> Judged {
    let requested = match Mechanism::read(&completion.requested) {
        Ok(requested) => requested,
        Err(why) => return Judged { actual: None, whys: vec![why.to_string()] },
    };
    match actual(requested, completion, counted) {
        Ok(actual) if actual == requested => Judged { actual: Some(actual), whys: Vec::new() },
        Ok(actual) => Judged { actual: Some(actual), whys: reasons(requested, actual, completion) },
        Err(why) => {
            let mut whys = vec![why];
            whys.extend(not_applied(completion));
            Judged { actual: None, whys }
        }
    }
}

/// The mechanism that fits the evidence.
fn actual(requested: Mechanism, completion: &Completion, counted: Counted) -> Result<Mechanism, String> {
    let unknown = || match &completion.interrupts {
        Err(why) => why.clone(),
        Ok(_) => {
            "the drive's interrupts were not counted: add [[sensor]] sensor = \"kernel\" to the experiment".to_owned()
        }
    };
    let interrupts = counted.interrupts.ok_or_else(unknown)?;
    let switches = counted.switches.ok_or("the workload does not report context switches")?;
    let (slept, can_poll) = (counted.waits.unwrap_or(switches) >= SLEPT, completion.io_poll != Some(false));
    let as_kind = |kind| Mechanism { api: requested.api, kind };
    match requested.kind {
        Kind::Interrupt if interrupts > POLLED => Ok(requested),
        Kind::Interrupt => {
            Err("no polling was requested but almost no interrupts were counted: the counts are inconclusive".into())
        }
        _ if interrupts <= POLLED && !can_poll => {
            Err("io_poll is 0 but almost no interrupts were counted: the counts are inconclusive".into())
        }
        _ if interrupts <= POLLED => polled(requested, completion.io_poll_delay, slept).map(as_kind),
        // Classic polling does not sleep: a thread that slept waited for the interrupt.
        _ if slept && (requested.kind == Kind::Classic || completion.io_poll_delay == Some(-1)) => {
            Ok(as_kind(Kind::Interrupt))
        }
        _ if interrupts >= INTERRUPTED || !can_poll => Ok(as_kind(Kind::Interrupt)),
        _ => Err("too many interrupts for polling, too few for interrupts".into()),
    }
}

/// The kind of polling; `delay` is `io_poll_delay` as read back. Classic polling does not sleep, even if threads share a CPU: a thread does many
/// I/Os before it is preempted. For slow I/Os voluntary switches decide.
fn polled(requested: Mechanism, delay: Option<i64>, slept: bool) -> Result<Kind, String> {
    let sleep = match (requested.api, delay) {
        (Api::Uring, _) => Some(Sleep::Automatic).filter(|_| requested.kind != Kind::Classic),
        (Api::Sync, Some(0)) => Some(Sleep::Automatic),
        (Api::Sync, Some(us)) => u32::try_from(us).ok().map(Sleep::Fixed),
        (Api::Sync, None) => None,
    };
    match (slept, sleep) {
        (false, _) => Ok(Kind::Classic),
        (true, Some(sleep)) => Ok(Kind::Hybrid(sleep)),
        (true, None) => Err("the threads slept without a setting for it, and almost no interrupts were counted".into()),
    }
}

/// Reasons for another actual mechanism, if known.
fn reasons(requested: Mechanism, actual: Mechanism, completion: &Completion) -> Vec<String> {
    let mut whys = not_applied(completion);
    if actual.kind == Kind::Interrupt && requested.polls() {
        whys.extend(match (completion.io_poll, requested.api) {
            (Some(false), _) => {
                Some("io_poll is 0: the driver has no poll queues (boot with nvme.poll_queues=N or the parameter of another driver)".to_owned())
            }
            (Some(true), Api::Sync) => {
                Some("the queue supports polling, but not by preadv2: newer kernels poll only for io_uring".to_owned())
            }
            _ => None,
        });
    }
    if (requested.api, actual.kind) == (Api::Uring, Kind::Classic) {
        let why = "io_uring sleeps for half of its shortest polling time, which may be too short for a context switch";
        whys.push(why.to_owned());
    }
    let wanted = requested.delay().filter(|us| *us >= 0);
    if wanted.is_some() && completion.io_poll_delay == wanted {
        whys.push("io_poll_delay was accepted and reads back as written, without effect".to_owned());
    }
    whys
}

/// Settings that were not applied.
fn not_applied(completion: &Completion) -> Vec<String> {
    completion
        .settings
        .iter()
        .filter_map(|setting| Some(format!("{}: {}", setting.key, setting.why_not.as_ref()?)))
        .collect()
}

/// Points with the same requested and actual mechanism.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The requested mechanism.
    pub requested: String,
    /// The actual mechanism; `None` if unknown.
    pub actual: Option<String>,
    /// Whether they are equal.
    pub is_as_requested: bool,
    /// Number of these points.
    pub points: usize,
    /// Number of measured points with this requested mechanism.
    pub of: usize,
    /// Interrupts of the drive for each I/O, mean over the points.
    pub interrupts_per_io: Option<f64>,
    /// Context switches of the workload's threads for each I/O, mean over the points.
    pub switches_per_io: Option<f64>,
    /// The evidence at the first of these points.
    pub why: String,
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "completion mechanism, {} of {} points: {}", self.points, self.of, self.why)
    }
}

/// Groups the verdicts of all points, in the order of the experiment.
#[must_use]
pub fn summary<'a>(verdicts: impl Iterator<Item = &'a Verdict>) -> Vec<Row> {
    let verdicts: Vec<&Verdict> = verdicts.collect();
    let mut groups: Vec<(&Verdict, Vec<&Verdict>)> = Vec::new();
    for verdict in &verdicts {
        match groups
            .iter_mut()
            .find(|(first, _)| (&first.requested, &first.actual) == (&verdict.requested, &verdict.actual))
        {
            Some((_, all)) => all.push(verdict),
            None => groups.push((verdict, vec![verdict])),
        }
    }
    let row = |(first, all): (&Verdict, Vec<&Verdict>)| {
        let mean = |of: fn(&Verdict) -> Option<f64>| {
            pilotlight_stats::mean::average(&all.iter().filter_map(|verdict| of(verdict)).collect::<Vec<_>>())
        };
        Row {
            requested: first.requested.clone(),
            actual: first.actual.clone(),
            is_as_requested: first.is_as_requested(),
            points: all.len(),
            of: verdicts.iter().filter(|verdict| verdict.requested == first.requested).count(),
            interrupts_per_io: mean(|verdict| verdict.interrupts_per_io),
            switches_per_io: mean(|verdict| verdict.switches_per_io),
            why: first.why.clone(),
        }
    };
    groups.into_iter().map(row).collect()
}

#[cfg(test)]
mod tests;
