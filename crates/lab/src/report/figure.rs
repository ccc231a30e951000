//! What an experiment's file asks to be drawn, as sections of the page: the charts of a paper's figure, and the bounds on sleep where they
//! were looked for.

mod charts;

use pilotlight_report::{Block, Cell, Column, Section, Table};

use crate::results::simulated::knobs;
use crate::results::summary::{PointResult, Results};
use crate::simulated::experiment::schema::WarmUp;
use crate::simulated::experiment::{Bench, Point};

/// A point under a policy.
#[derive(Clone, Copy)]
struct Place<'a> {
    point: &'a Point,
    policy: &'a str,
    result: &'a PointResult,
}

impl Place<'_> {
    /// The mean of a metric.
    fn mean(&self, metric: &str) -> Option<f64> {
        Some(self.result.values.get(metric)?.mean)
    }
}

/// Everything there is, in the order of the points and of their policies.
fn places<'a>(bench: &'a Bench, results: &'a Results) -> Vec<Place<'a>> {
    let under = |point: &'a Point| {
        point.experiment.policies.iter().filter_map(move |policy| {
            let knobs = knobs(&point.name, &policy.label);
            let result = results.points.iter().find(|result| result.knobs == knobs)?;
            Some(Place { point, policy: &policy.label, result })
        })
    };
    bench.points.iter().flat_map(under).collect()
}

/// The sections, in the order of the page.
pub(super) fn sections(bench: &Bench, results: &Results) -> Vec<Section> {
    let experiment = &bench.experiment;
    let about = (!experiment.about.is_empty()).then(|| Block::Text(experiment.about.clone()));
    let charts = charts::charts(bench, &places(bench, results)).into_iter().map(Block::Chart);
    let charts = Section { title: String::new(), blocks: about.into_iter().chain(charts).collect() };
    let limit = limits(bench, results).map(|table| Section {
        title: "What sleep could have saved".into(),
        blocks: vec![Block::Text(LIMIT.into()), Block::Table(table)],
    });
    [charts].into_iter().chain(limit).filter(|section| !section.blocks.is_empty()).collect()
}

const LIMIT: &str = "Scope the first replication. No schedule that only lets cores sleep takes less energy than the lower bound, and one takes the \
    upper. Open loops only; lower frequencies are not bounded (crates/sim/src/oracle/mod.rs). The C-1 columns are for the sleep states that the policy has, the deep ones for all states.";

/// Joules above both floors beside the bounds on sleep, for each place that has a bracket; nothing where none has.
#[must_use]
pub fn limits(bench: &Bench, results: &Results) -> Option<Table> {
    let row = |place: &Place<'_>| {
        let above = |metric: &str, floor: &str| Some(place.mean(metric)? - place.mean(floor)?);
        let lower = above("oracle_lower_j", "c1_floor_j")?;
        let numbers = [
            place.mean("joules_above_c1_floor"),
            Some(lower),
            above("oracle_upper_j", "c1_floor_j"),
            place.mean("joules_above_deep_floor"),
            above("oracle_all_states_lower_j", "deep_floor_j"),
            above("oracle_all_states_upper_j", "deep_floor_j"),
        ];
        let coordinates = place.point.coordinates.iter().map(|at| Cell::text(&at.label));
        let numbers = numbers.map(|number| number.map_or(Cell::Nothing, Cell::number));
        Some(coordinates.chain([Cell::text(place.policy)]).chain(numbers).collect())
    };
    let rows: Vec<Vec<Cell>> = places(bench, results).iter().filter_map(row).collect();
    let parameters = bench.experiment.parameters.iter().map(|parameter| Column::text(&parameter.name));
    let numbers = ["above C-1", "bound from", "to", "above deep idle", "bound from", "to"];
    let columns = parameters.chain([Column::text("policy")]).chain(numbers.map(|name| Column::number(name, "J")));
    (!rows.is_empty()).then(|| Table {
        title: "Joules above each floor, and bounds on sleep".into(),
        columns: columns.collect(),
        rows,
    })
}

/// Says where MSER-5 cut off as much as the file lets it, so that the rest may not be steady; `None` where nowhere.
#[must_use]
pub(super) fn unsettled(bench: &Bench, results: &Results) -> Option<String> {
    let reached = |place: &Place<'_>| match place.point.experiment.warm_up {
        WarmUp::Mser5 { min, max } if max.0 > min.0 => {
            place.mean("warm_up_ms").is_some_and(|cut| cut >= max.0 as f64 / 1e6)
        }
        _ => false,
    };
    let places = places(bench, results);
    let names: Vec<String> = (places.iter().filter(|place| reached(place)))
        .map(|place| format!("{} at {}", place.policy, place.point.name))
        .collect();
    let warning = "the warm-up reached its limit (warm_up.max), so the measured part may not be in steady state";
    (!names.is_empty()).then(|| format!("{warning}: {}", names.join(", ")))
}
