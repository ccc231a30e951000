//! What a replay of a trace was, and what each policy saves.

use pilotlight_report::table::short;

use crate::results::summary::PointResult;

/// The reference policy of savings.
pub const BASELINE: &str = "spdk-static";
/// Seconds of the month to which energy is projected.
const MONTH_S: f64 = 30.0 * DAY_S;
const DAY_S: f64 = 86_400.0;

/// The trace with its length, the simulated part of it, and what is projected from it.
#[must_use]
pub fn extent(source: &str, point: &PointResult) -> String {
    let number = |metric: &str| value(point, metric).unwrap_or(f64::NAN);
    let (requests, iops, windows) = (number("trace_requests"), number("trace_iops"), number("replayed_windows"));
    let share = number("replayed_share");
    let length_s = requests / iops;
    let how = if share == 1.0 {
        "replayed whole".to_owned()
    } else {
        format!("{windows:.0} windows replayed, {:.2} % of it; intervals are of 95 %", 100.0 * share)
    };
    let length = short(length_s);
    let beyond = match length_s {
        0.0..DAY_S => format!("; days and months are extrapolated: they assume that these {length} s repeat"),
        DAY_S..MONTH_S => format!("; months are extrapolated: they assume that these {length} s repeat"),
        _ => String::new(),
    };
    format!("{source}: {requests:.0} requests in {length} s, {iops:.1} IOPS; {how}{beyond}")
}

/// The energy that each policy saves of that of [`BASELINE`], in percent.
#[must_use]
pub fn saved(points: &[PointResult]) -> Vec<Option<f64>> {
    let baseline = points.iter().find(|point| policy(point) == BASELINE);
    let baseline = baseline.and_then(|point| value(point, "joules_per_day"));
    let of = |point| Some(100.0 * (1.0 - value(point, "joules_per_day")? / baseline?));
    points.iter().map(of).collect()
}

/// Lines for the report; none without a replay whose length is known. Savings only where nothing but the policy varies.
pub(super) fn lines(source: &str, points: &[PointResult]) -> Vec<String> {
    let known = |point: &&PointResult| {
        ["replayed_share", "trace_requests", "trace_iops"].iter().all(|metric| value(point, metric).is_some())
    };
    let Some(first) = points.iter().find(known) else { return Vec::new() };
    let one = points.iter().filter(|point| policy(point) == policy(first)).count() == 1;
    let of = |(point, percent): (&PointResult, Option<f64>)| {
        percent.filter(|_| policy(point) != BASELINE).map(|percent| format!("{} {percent:.1} %", policy(point)))
    };
    let all: Vec<String> = points.iter().zip(saved(points)).filter(|_| one).filter_map(of).collect();
    let saved = (!all.is_empty()).then(|| format!("Energy saved of that of {BASELINE}: {}", all.join(", ")));
    [format!("Trace {}", extent(source, first))].into_iter().chain(saved).collect()
}

/// The policy of a point.
#[must_use]
pub fn policy(point: &PointResult) -> String {
    point.knobs.get("policy").map(ToString::to_string).unwrap_or_default()
}

/// The mean of a metric.
#[must_use]
pub fn value(point: &PointResult, metric: &str) -> Option<f64> {
    Some(point.values.get(metric)?.mean)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{at, knob, results};

    fn points(requests: f64, share: f64) -> Vec<PointResult> {
        let metrics = [
            ("joules_per_day", "J"),
            ("trace_requests", "1"),
            ("trace_iops", "1/s"),
            ("replayed_share", "1"),
            ("replayed_windows", "1"),
        ];
        let policies = [knob("policy", &[BASELINE, "sandman"])];
        let draw = |point: &pilotlight_workloads::Point| {
            let joules = if at(point, "policy") == BASELINE { 4e6 } else { 3e6 };
            vec![joules, requests, 100.0, share, 48.0]
        };
        results(&policies, 2, &metrics, draw).results.points
    }

    #[test]
    fn a_replay_names_its_trace_its_length_and_what_is_extrapolated() {
        let short = lines("a.csv", &points(8_400.0, 1.0));
        assert_eq!(
            short,
            [
                "Trace a.csv: 8400 requests in 84.00 s, 100.0 IOPS; replayed whole; days and months are extrapolated: they assume that these 84.00 s repeat",
                "Energy saved of that of spdk-static: sandman 25.0 %",
            ]
        );
        let sampled = extent("a.csv", &points(8_400.0, 0.5)[0]);
        assert!(
            sampled.contains("48 windows replayed, 50.00 % of it") && sampled.contains("extrapolated"),
            "{sampled}"
        );
        assert!(!extent("a.csv", &points(100.0 * MONTH_S, 0.5)[0]).contains("extrapolated"));
        assert!(extent("a.csv", &points(100.0 * DAY_S, 1.0)[0]).contains("; months are extrapolated"));
        let twice = [points(8_400.0, 1.0), points(8_400.0, 1.0)].concat();
        assert_eq!(lines("a.csv", &twice).len(), 1, "the baseline of a saving is not known");
        let mut unknown = points(8_400.0, 1.0);
        unknown.iter_mut().for_each(|point| drop(point.values.remove("trace_requests")));
        assert_eq!(lines("a.csv", &unknown), [""; 0]);
        assert_eq!(lines("a.csv", &[PointResult::default()]), [""; 0]);
    }
}
