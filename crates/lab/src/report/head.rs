//! The lines under the title: when, for how long and on which machine; what is modelled or missing.

use super::{Read, fixed};
use crate::results::environment::Environment;

/// The lines.
pub(super) fn lines(read: &Read) -> Vec<String> {
    let results = &read.results;
    let finished: usize = results.points.iter().map(|point| point.repeats).sum();
    let mut lines = vec![circumstances(read)];
    lines.extend(read.lines.clone());
    lines.push(format!("{} points, {finished} measurements, plan {}", results.points.len(), results.plan_hash));
    lines.extend(fixed(results).map(|fixed| format!("At every point: {fixed}")));
    if !results.complete {
        lines.push("This run is incomplete: it was interrupted, or measurements failed.".into());
    }
    lines.extend(results.not_idle.clone());
    if results.metrics.iter().any(|about| about.modelled) {
        lines.push("Power and efficiency labelled as modelled are from a model, not measured.".into());
    }
    if !results.metrics.iter().any(|about| about.unit == "W" && !about.modelled && results.has(&about.key)) {
        lines.push("No power was measured; see the notes below.".into());
    }
    lines
}

/// Date, duration and machine: `2026-11-30 05:19 UTC, measured for 12 min; host a, CPU B`.
fn circumstances(read: &Read) -> String {
    let Environment { at_unix_s, host, cpu, .. } = &read.environment;
    let second = i64::try_from(*at_unix_s).ok().filter(|second| *second > 0);
    let at = second.and_then(|second| jiff::Timestamp::from_second(second).ok());
    let at = at.map(|at| at.strftime("%Y-%m-%d %H:%M UTC").to_string());
    // computed runs have no time, and between those of one that was continued it is not known what ran
    let is_measured = read.finished.runs.values().all(|run| run.began_wall_ns > 0);
    let took_ns = read.finished.runs.values().map(|run| run.span.length_ns()).sum::<u64>();
    let took = (is_measured && took_ns > 0).then(|| format!("measured for {}", time(took_ns as f64 / 1e9)));
    let when: Vec<String> = at.into_iter().chain(took).collect();
    let cpu = cpu.get("model").filter(|_| !host.starts_with("simulated")).map(|model| format!(", {model}"));
    let machine = format!("host {host}{}", cpu.unwrap_or_default());
    if when.is_empty() { machine } else { format!("{}; {machine}", when.join(", ")) }
}

/// A time as text.
#[must_use]
pub fn time(seconds: f64) -> String {
    let minutes = (seconds / 60.0).round() as u64;
    match minutes {
        0..2 => format!("{seconds:.0} s"),
        2..120 => format!("{minutes} min"),
        _ => format!("{} h {} min", minutes / 60, minutes % 60),
    }
}
