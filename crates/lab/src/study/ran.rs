//! Verifies the actual completion mechanism.
//!
//! *Problem.* Kernels accept settings and flags without effect: 6.1 and later complete RWF_HIPRI by interrupt and ignore `io_poll_delay`; without
//! poll queues nothing is polled. *Evidence.* Polling raises no interrupts of the drive's queues; polling without sleep causes no context switches
//! (the polling paper, observation 4: one per I/O for interrupt and hybrid polling, none for classic polling). If the workload reports voluntary
//! switches, those count, because a poller that shares its CPU is preempted too. Settings are read back. *Properties.* A mechanism is verified only
//! if all evidence fits; otherwise it is unknown, with the reason.

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
    pub fn of(repeats: &[(&Completion, Counted)]) -> Option<Self> {
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
        let result = actual.as_ref().map_or_else(|| "actual mechanism unknown".to_owned(), |actual| format!("actual {actual}"));
        let mut whys = if agreed { judged[0].whys.clone() } else { vec!["the repeats differ".to_owned()] };
        whys.insert(0, counted.words());
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
        match &self.ran {
            Some(ran) if *ran == self.asked => self.asked.clone(),
            Some(ran) => format!("{} (ran {ran})", self.asked),
            None => format!("{} (not verified)", self.asked),
        }
    }
}

impl Counted {
    fn words(self) -> String {
        let word = |value: Option<f64>| value.map_or_else(|| "an unknown number of".to_owned(), |v| format!("{v:.2}"));
        let waits = self.waits.map_or_else(String::new, |waits| format!(", {waits:.2} of these to wait"));
        format!("{} interrupts and {} context switches per I/O{waits}", word(self.interrupts), word(self.switches))
    }
}

/// The verified mechanism of a measurement.
struct Judged {
    actual: Option<Mechanism>,
    whys: Vec<String>,
}

fn judge(completion: &Completion, counted: Counted) -> Judged {
    let asked = match Mechanism::read(&completion.asked) {
        Ok(asked) => asked,
        Err(why) => return Judged { ran: None, whys: vec![why] },
    };
    match ran(asked, completion, counted) {
        Ok(ran) if ran == asked => Judged { ran: Some(ran), whys: Vec::new() },
        Ok(ran) => Judged { ran: Some(ran), whys: reasons(asked, ran, completion) },
        Err(why) => {
            let mut whys = vec![why];
            whys.extend(not_applied(completion));
            Judged { ran: None, whys }
        }
    }
}

/// The mechanism that fits what was seen.
fn ran(asked: Mechanism, completion: &Completion, counted: Counted) -> Result<Mechanism, String> {
    let unknown = || match &completion.interrupts {
        Err(why) => why.clone(),
        Ok(_) => {
            "the drive's interrupts were not counted: add [[sensor]] sensor = \"kernel\" to the experiment".to_owned()
        }
    };
    let interrupts = counted.interrupts.ok_or_else(unknown)?;
    let switches = counted.switches.ok_or("the workload does not report context switches")?;
    let (slept, can_poll) = (counted.waits.unwrap_or(switches) >= SLEPT, completion.io_poll != Some(false));
    let as_kind = |kind| Mechanism { api: asked.api, kind };
    match asked.kind {
        Kind::Interrupt if interrupts > POLLED => Ok(asked),
        Kind::Interrupt => {
            Err("no polling was requested but almost no interrupts were counted: the counts are inconclusive".into())
        }
        _ if interrupts <= POLLED && !can_poll => {
            Err("io_poll is 0 but almost no interrupts were counted: the counts are inconclusive".into())
        }
        _ if interrupts <= POLLED => polled(asked, completion.io_poll_delay, slept).map(as_kind),
        // Classic polling does not sleep: a thread that slept waited for the interrupt.
        _ if slept && (asked.kind == Kind::Classic || completion.io_poll_delay == Some(-1)) => {
            Ok(as_kind(Kind::Interrupt))
        }
        _ if interrupts >= INTERRUPTED || !can_poll => Ok(as_kind(Kind::Interrupt)),
        _ => Err("too many interrupts for polling, too few for interrupts".into()),
    }
}

/// The kind of polling; `delay` is `io_poll_delay` as read back. Classic polling does not sleep, even if threads share a CPU: a thread does many
/// I/Os before it is preempted. For slow I/Os voluntary switches decide.
fn polled(asked: Mechanism, delay: Option<i64>, slept: bool) -> Result<Kind, String> {
    let sleep = match (asked.api, delay) {
        (Api::Uring, _) => Some(Sleep::Automatic).filter(|_| asked.kind != Kind::Classic),
        (Api::Sync, Some(0)) => Some(Sleep::Automatic),
        (Api::Sync, Some(us)) => u32::try_from(us).ok().map(Sleep::Fixed),
        (Api::Sync, None) => None,
    };
    match (slept, sleep) {
        (false, _) => Ok(Kind::Classic),
        (true, Some(sleep)) => Ok(Kind::Hybrid(sleep)),
        (true, None) => {
            Err("the threads slept without a setting for it, and almost no interrupts were counted".into())
        }
    }
}

/// Reasons for another actual mechanism, if known.
fn reasons(asked: Mechanism, ran: Mechanism, completion: &Completion) -> Vec<String> {
    let mut whys = not_applied(completion);
    if ran.kind == Kind::Interrupt && asked.polls() {
        whys.extend(match (completion.io_poll, asked.api) {
            (Some(false), _) => {
                Some("io_poll is 0: the driver has no poll queues (boot with nvme.poll_queues=N or the parameter of another driver)".to_owned())
            }
            (Some(true), Api::Sync) => {
                Some("the queue supports polling, but not by preadv2: newer kernels poll only for io_uring".to_owned())
            }
            _ => None,
        });
    }
    if (asked.api, ran.kind) == (Api::Uring, Kind::Classic) {
        let why = "io_uring sleeps for half of its shortest polling time, which may be too short for a context switch";
        whys.push(why.to_owned());
    }
    let wanted = asked.delay().filter(|us| *us >= 0);
    if wanted.is_some() && completion.io_poll_delay == wanted {
        whys.push("io_poll_delay was accepted and reads back as written, without effect".to_owned());
    }
    whys
}

/// Settings that were not applied.
fn not_applied(completion: &Completion) -> Vec<String> {
    completion.settings.iter().filter_map(|setting| Some(format!("{}: {}", setting.key, setting.why_not.as_ref()?))).collect()
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

impl Row {
    /// As text.
    #[must_use]
    pub fn words(&self) -> String {
        format!("completion mechanism, {} of {} points: {}", self.points, self.of, self.why)
    }
}

/// Groups the verdicts of all points, in the order of the experiment.
#[must_use]
pub fn summary<'a>(verdicts: impl Iterator<Item = &'a Verdict>) -> Vec<Row> {
    let verdicts: Vec<&Verdict> = verdicts.collect();
    let mut groups: Vec<(&Verdict, Vec<&Verdict>)> = Vec::new();
    for verdict in &verdicts {
        match groups.iter_mut().find(|(first, _)| (&first.requested, &first.actual) == (&verdict.requested, &verdict.actual)) {
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
mod tests {
    use super::*;

    fn seen(asked: &str, io_poll: bool, delay: i64) -> Completion {
        Completion {
            asked: asked.into(),
            tried: Vec::new(),
            io_poll: Some(io_poll),
            io_poll_delay: Some(delay),
            interrupts: Ok(vec!["nvme0q".into()]),
            interrupts_count: Some(0),
            ramp_ns: 0,
        }
    }

    fn counted(interrupts: f64, switches: f64) -> Counted {
        Counted { interrupts: Some(interrupts), switches: Some(switches), waits: None }
    }

    fn verdict(completion: &Completion, interrupts: f64, switches: f64) -> Verdict {
        Verdict::of(&[(completion, counted(interrupts, switches))]).unwrap()
    }

    /// Asked, `io_poll`, `io_poll_delay`, interrupts and switches per I/O; what ran.
    #[test]
    fn every_mechanism_is_told_by_what_was_counted() {
        for (asked, poll, delay, interrupts, switches, ran) in [
            ("interrupt", true, -1, 1.0, 1.0, Some("interrupt")),
            ("interrupt", false, -1, 0.2, 1.0, Some("interrupt")), // an interrupt may tell of several requests
            ("interrupt", true, -1, 0.0, 1.0, None),
            ("classic", true, -1, 0.0, 0.01, Some("classic")),
            ("classic", true, -1, 0.0, 0.9, None), // it slept, and nothing woke it: something was not counted
            ("classic", true, -1, 1.0, 1.0, Some("interrupt")),
            ("classic", true, -1, 0.2, 1.0, Some("interrupt")),
            ("classic", true, -1, 0.2, 0.1, None),
            ("classic", false, -1, 0.0, 0.0, None),
            ("classic", true, 0, 0.0, 1.0, Some("hybrid")), // it could not be set back to -1
            ("hybrid", true, 0, 0.0, 1.0, Some("hybrid")),
            ("hybrid", true, 0, 0.0, 0.01, Some("classic")),
            ("hybrid", true, -1, 0.0, 1.0, None),
            ("hybrid", true, -1, 1.0, 1.0, Some("interrupt")),
            ("hybrid", true, 0, 0.2, 1.0, None),
            ("hybrid", true, -1, 0.2, 1.0, Some("interrupt")), // this kernel ignores the delay: nothing sleeps before it polls
            ("hybrid", false, 0, 0.2, 1.0, Some("interrupt")),
            ("hybrid 4us", true, 4, 0.0, 1.0, Some("hybrid 4us")),
            ("hybrid 4us", true, 0, 0.0, 1.0, Some("hybrid")),
            ("uring interrupt", true, -1, 1.0, 1.0, Some("uring interrupt")),
            ("uring classic", true, -1, 0.01, 0.0, Some("uring classic")),
            ("uring classic", true, -1, 0.0, 1.0, None),
            ("uring classic", false, -1, 1.0, 0.0, Some("uring interrupt")), // 5.10 and 6.1 spin until the interrupt
            ("uring hybrid", true, -1, 0.0, 1.0, Some("uring hybrid")),
            ("uring hybrid", true, -1, 0.0, 0.0, Some("uring classic")),
        ] {
            let verdict = verdict(&seen(asked, poll, delay), interrupts, switches);
            assert_eq!(verdict.ran.as_deref(), ran, "{asked} {poll} {delay} {interrupts} {switches}: {}", verdict.why);
            assert_eq!(verdict.is_as_asked(), ran == Some(asked));
        }
    }

    /// Counted on Linux 7.3 and 6.16 with reads of 20 ms: who polled for that long was switched out every other read, but never waited; four
    /// threads on two CPUs that slept first were switched out twice a read, of which once to wait.
    #[test]
    fn being_switched_out_is_not_sleeping() {
        let of = |asked, switches, waits| {
            let counted = Counted { waits: Some(waits), ..counted(0.0, switches) };
            Verdict::of(&[(&seen(asked, true, -1), counted)]).unwrap()
        };
        assert_eq!(of("uring classic", 0.9, 0.0).ran.as_deref(), Some("uring classic"));
        assert_eq!(of("uring hybrid", 2.14, 0.99).ran.as_deref(), Some("uring hybrid"));
        assert_eq!(of("uring hybrid", 0.9, 0.0).ran.as_deref(), Some("uring classic"));
        assert!(of("uring hybrid", 0.9, 0.0).why.contains("too short to leave the CPU"));
        assert_eq!(of("uring classic", 1.0, 1.0).ran, None);
        let said = of("uring hybrid", 2.14, 0.99).why;
        assert!(said.contains("2.14 context switches per I/O, 0.99 of these to wait"), "{said}");
    }

    #[test]
    fn what_did_not_run_does_not_bear_its_name_and_says_why() {
        let mut completion = seen("hybrid", true, -1);
        let why_not = Some("0 was written and -1 is read back: this kernel ignores it".to_owned());
        completion.settings = vec![AppliedSetting { key: "io_poll_delay".into(), wanted: 0, why_not }];
        let hybrid = verdict(&completion, 1.0, 1.02);
        assert_eq!(hybrid.label(), "hybrid (ran interrupt)");
        let expected = "asked for hybrid, ran interrupt: 1.00 interrupts and 1.02 context switches per I/O; io_poll_delay: 0 was written";
        assert!(hybrid.why.starts_with(expected) && hybrid.why.contains("only for io_uring"), "{}", hybrid.why);
        let without = verdict(&seen("classic", false, -1), 1.0, 1.0);
        assert!(without.why.contains("nvme.poll_queues=N"), "{}", without.why);
        let ignored = verdict(&seen("hybrid", true, 0), 1.0, 1.0);
        assert!(ignored.why.contains("without effect"), "{}", ignored.why);
    }

    #[test]
    fn what_was_not_counted_or_differs_is_not_known() {
        let completion = seen("classic", true, -1);
        let nothing = Verdict::of(&[(&completion, Counted { interrupts: None, ..counted(0.0, 1.0) })]).unwrap();
        assert_eq!((nothing.ran.as_deref(), nothing.label().as_str()), (None, "classic (not verified)"));
        assert!(nothing.why.contains("sensor = \"kernel\""), "{}", nothing.why);
        let both = Verdict::of(&[(&completion, counted(0.0, 0.0)), (&completion, counted(1.0, 1.0))]).unwrap();
        assert!(both.ran.is_none() && both.why.contains("the repeats differ"), "{}", both.why);
        assert_eq!((both.interrupts_per_io, both.switches_per_io), (Some(0.5), Some(0.5)));
        assert_eq!(Verdict::of(&[]), None);
    }
}
