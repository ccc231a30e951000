//! The printed output of a run.

use std::fmt::Write as _;
use std::path::Path;

use pilotlight_lab::displayed;
use pilotlight_lab::measure::text::NO_POWER;
use pilotlight_lab::metrics::power::Group;
use pilotlight_lab::results::Results;
use pilotlight_lab::results::summary::MetricInfo;
use pilotlight_lab::sensor_set::SensorSet;

use crate::table::Table;

/// Sensors, and whether power is measured.
pub(super) fn sensors(sensors: &SensorSet) -> String {
    let names: Vec<&str> = sensors.specs.iter().map(|spec| spec.config.name()).collect();
    let mut text = format!("sensors    {}\n", if names.is_empty() { "none".to_owned() } else { names.join(", ") });
    for missing in &sensors.missing {
        let _ = writeln!(text, "not read   {missing}");
    }
    for note in &sensors.notes {
        let _ = writeln!(text, "note       {note}");
    }
    if sensors.has_measured_power() {
        return text;
    }
    if !sensors.unused.is_empty() {
        let _ = writeln!(text, "No power is measured: the experiment does not use {}.\n", sensors.unused.join(", "));
        return text;
    }
    text += NO_POWER;
    text += if sensors.specs.iter().any(|spec| spec.config.name() == "modelled") {
        ". Watts below are modelled from CPU time.\n\n"
    } else {
        "; --sensor modelled adds power from a model.\n\n"
    };
    text
}

/// Results as a table, the domains of SSD, CPU and system, notes, and the location of other files.
pub(super) fn summary_text(results: &Results, folder: &Path) -> String {
    let shown = displayed::for_terminal(results);
    let knobs = varied(results);
    let keys = shown.iter().map(|about| about.key.clone());
    let headings = knobs.iter().map(|knob| format!("<{knob}")).chain(["n".to_owned()]).chain(keys);
    let headings: Vec<String> = headings.collect();
    let mut table = Table::new(&headings.iter().map(String::as_str).collect::<Vec<_>>());
    for point in &results.points {
        let place = knobs.iter().map(|knob| point.knobs.get(*knob).map(ToString::to_string).unwrap_or_default());
        let value = |info: &&MetricInfo| point.values.get(&info.key).map_or("-".to_owned(), |spread| spread.text(1.0));
        let values = shown.iter().map(value);
        table.row(place.chain([point.repeats.to_string()]).chain(values));
    }
    let mut text = format!("\n{}\n\n{table}\n", results.title);
    let family = results.points.iter().flat_map(|point| point.values.values()).any(|spread| spread.family.is_some());
    let family = if family { ", [ends over the family of simulated machines]" } else { "" };
    let _ = writeln!(text, "mean ± half of the 95 % interval over repeats (Student's t){family}");
    for group in Group::ALL {
        let names = results.power_domains.names(group);
        if !names.is_empty() {
            let _ = writeln!(text, "{} power is {}", group.name(), names.join(" + "));
        }
    }
    let points = results.points.iter().filter_map(|point| point.values.get("sampling_cost_percent"));
    let percent: Vec<f64> = points.flat_map(|spread| &spread.values).copied().collect();
    text += &sampling(&percent).unwrap_or_default();
    for point in results.points.iter().filter(|point| !point.failures.is_empty()) {
        let place = pilotlight_lab::results::summary::point_text(&point.knobs);
        let _ = writeln!(text, "failed: {place}: {}", counted(&point.failures));
    }
    text += &crate::advise::map::ran(results);
    // Sensors were printed at the start.
    let is_new =
        |note: &&String| !["no ", "not read", "mechanism of completion"].iter().any(|is_new| note.starts_with(is_new));
    for note in results.notes.iter().filter(is_new) {
        let _ = writeln!(text, "note: {note}");
    }
    let _ = writeln!(text, "\n{}: results.json, report.html and more", folder.display());
    text
}

/// CPU time of sampling by measurement, in percent of one CPU; empty for a simulated machine.
fn sampling(percent: &[f64]) -> Option<String> {
    let most = percent.iter().copied().fold(0.0, f64::max);
    let mean = pilotlight_stats::mean::average(percent).filter(|_| most > 0.0)?;
    Some(format!("sampling took {mean:.2} % of one CPU, at most {most:.2} % in a measurement; it is in the figures\n"))
}

/// Each reason once, with its count.
fn counted(reasons: &[String]) -> String {
    let mut counts: Vec<(&str, usize)> = Vec::new();
    for reason in reasons {
        match counts.iter_mut().find(|(known, _)| known == reason) {
            Some((_, count)) => *count += 1,
            None => counts.push((reason, 1)),
        }
    }
    let words =
        |(reason, count): (&str, usize)| if count > 1 { format!("{count} times: {reason}") } else { reason.to_owned() };
    counts.into_iter().map(words).collect::<Vec<_>>().join("; ")
}

/// Knobs that have more than one value.
fn varied(results: &Results) -> Vec<&String> {
    let several = |knob: &&String| {
        let first = results.points.first().and_then(|point| point.knobs.get(*knob));
        results.points.iter().any(|point| point.knobs.get(*knob) != first)
    };
    results.knobs.iter().filter(several).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cost_of_sampling_is_printed_if_sensors_were_sampled() {
        let is_new = sampling(&[0.5, 1.0, 0.0]).unwrap();
        assert!(is_new.starts_with("sampling took 0.50 % of one CPU, at most 1.00 %"), "{is_new}");
        assert_eq!((sampling(&[]), sampling(&[0.0, 0.0])), (None, None));
    }

    #[test]
    fn equal_reasons_are_printed_once() {
        let reasons = ["a", "b", "a"].map(str::to_owned);
        assert_eq!(counted(&reasons), "2 times: a; b");
    }
}
