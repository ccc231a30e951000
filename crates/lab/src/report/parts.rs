//! Power by part of the machine: SSD, CPU, and the rest of the system if measured (thesis, section 5.2).

use pilotlight_report::chart::Stack;
use pilotlight_report::{Block, Chart, Section};

use super::knobs::varied;
use crate::results::summary::{MetricInfo, PointResult, Results};

/// Maximum number of bars.
const POINTS: usize = 24;

pub(super) fn section(results: &Results) -> Option<Section> {
    let find = |scope: &str| results.find(&format!("{scope}_power_w"));
    let (ssd, cpu, system) = (find("ssd"), find("cpu"), find("system"));
    if [ssd, cpu, system].iter().flatten().count() < 2 {
        return None;
    }
    let known: Vec<String> = varied(results).into_iter().map(|(name, _)| name).collect();
    let watts = |point: &PointResult, about: Option<&MetricInfo>| Some(point.values.get(&about?.key)?.mean);
    let row = |point: &PointResult| {
        let (of_ssd, of_cpu) = (watts(point, ssd), watts(point, cpu));
        let rest = watts(point, system).map(|all| all - of_ssd.unwrap_or(0.0) - of_cpu.unwrap_or(0.0));
        (name(point, &known), vec![of_ssd, of_cpu, rest])
    };
    let label = |name: &str, about: Option<&MetricInfo>| match about {
        Some(about) if about.modelled => format!("{name} (modelled)"),
        Some(_) => name.to_owned(),
        None => format!("{name} (not measured)"),
    };
    let rest = match (ssd, cpu) {
        (Some(_), Some(_)) => "rest of the system",
        (None, _) => "rest, with the SSD",
        (_, None) => "rest, with the CPU",
    };
    let measured = results.points.iter().filter(|point| point.repeats > 0);
    let stack = Stack {
        title: "Power by part of the machine, mean over repeats".into(),
        label: "power (W)".into(),
        parts: vec![label("SSD", ssd), label("CPU", cpu), label(rest, system)],
        rows: measured.take(POINTS).map(row).collect(),
    };
    let note = (results.points.len() > POINTS)
        .then(|| Block::Text(format!("The first {POINTS} points; results.csv has all.")));
    let blocks = note.into_iter().chain([Block::Chart(Chart::Stack(stack))]).collect();
    Some(Section { title: "Power by part of the machine".into(), blocks })
}

/// A point by its varied knobs.
fn name(point: &PointResult, varied: &[String]) -> String {
    let pairs: Vec<String> =
        varied.iter().filter_map(|knob| Some(format!("{knob} {}", point.knobs.get(knob)?))).collect();
    if pairs.is_empty() { "the only point".into() } else { pairs.join(", ") }
}
