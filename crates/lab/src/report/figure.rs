//! Sections for the charts of an experiment's file and for the bounds of the oracle.

mod charts;

use pilotlight_report::{Block, Cell, Column, Section, Table};

use crate::results::simulated::knobs;
use crate::results::summary::{PointResult, Results};
use crate::simulated::experiment::schema::WarmUp;
use crate::simulated::experiment::{Bench, Point};

/// A point under a policy.
#[derive(Clone, Copy)]
struct Configuration<'a> {
    point: &'a Point,
    policy: &'a str,
    result: &'a PointResult,
}

impl Configuration<'_> {
    /// The mean of a metric.
    fn mean(&self, metric: &str) -> Option<f64> {
        Some(self.result.values.get(metric)?.mean)
    }
}

/// All configurations in the order of points and policies.
fn configurations<'a>(bench: &'a Bench, results: &'a Results) -> Vec<Configuration<'a>> {
    let under = |point: &'a Point| {
        point.experiment.policies.iter().filter_map(move |policy| {
            let knobs = knobs(&point.name, &policy.label);
            let result = results.points.iter().find(|result| result.knobs == knobs)?;
            Some(Configuration { point, policy: &policy.label, result })
        })
    };
    bench.points.iter().flat_map(under).collect()
}

/// The sections, in the order of the page.
pub(super) fn sections(bench: &Bench, results: &Results) -> Vec<Section> {
    let experiment = &bench.experiment;
    let about = (!experiment.about.is_empty()).then(|| Block::Text(experiment.about.clone()));
    let charts = charts::charts(bench, &configurations(bench, results)).into_iter().map(Block::Chart);
    let charts = Section { title: String::new(), blocks: about.into_iter().chain(charts).collect() };
    let limit = limits(bench, results).map(|table| Section {
        title: "Bounds on savings by sleep".into(),
        blocks: vec![Block::Text(LIMIT.into()), Block::Table(table)],
    });
    [charts].into_iter().chain(limit).filter(|section| !section.blocks.is_empty()).collect()
}

const LIMIT: &str = "For the first replication. Every schedule of sleeping cores takes at least the energy of the lower bound, and one takes that of \
    the upper. Open loops only; lower frequencies are not considered (crates/sim/src/oracle/mod.rs). The C-1 columns are for the sleep states of the \
    policy, the deep ones for all states.";

/// Energy above both minima with the bounds of the oracle, for each configuration that has them.
#[must_use]
pub fn limits(bench: &Bench, results: &Results) -> Option<Table> {
    let row = |configuration: &Configuration<'_>| {
        let above = |metric: &str, minimum: &str| Some(configuration.mean(metric)? - configuration.mean(minimum)?);
        let lower = above("oracle_lower_j", "c1_floor_j")?;
        let numbers = [
            configuration.mean("joules_above_c1_floor"),
            Some(lower),
            above("oracle_upper_j", "c1_floor_j"),
            configuration.mean("joules_above_deep_floor"),
            above("oracle_all_states_lower_j", "deep_floor_j"),
            above("oracle_all_states_upper_j", "deep_floor_j"),
        ];
        let coordinates = configuration.point.coordinates.iter().map(|at| Cell::text(&at.label));
        let numbers = numbers.map(|number| number.map_or(Cell::Nothing, Cell::number));
        Some(coordinates.chain([Cell::text(configuration.policy)]).chain(numbers).collect())
    };
    let rows: Vec<Vec<Cell>> = configurations(bench, results).iter().filter_map(row).collect();
    let parameters = bench.experiment.parameters.iter().map(|parameter| Column::text(&parameter.name));
    let numbers = ["above C-1", "bound from", "to", "above deep idle", "bound from", "to"];
    let columns = parameters.chain([Column::text("policy")]).chain(numbers.map(|name| Column::number(name, "J")));
    (!rows.is_empty()).then(|| Table {
        title: "Joules above the minimum of each sleep state, with bounds".into(),
        columns: columns.collect(),
        rows,
    })
}

/// Warns of configurations whose warm-up reached its limit.
#[must_use]
pub(super) fn unsettled(bench: &Bench, results: &Results) -> Option<String> {
    let reached = |configuration: &Configuration<'_>| match configuration.point.experiment.warm_up {
        WarmUp::Mser5 { min, max } if max.0 > min.0 => {
            configuration.mean("warm_up_ms").is_some_and(|cut| cut >= max.0 as f64 / 1e6)
        }
        _ => false,
    };
    let configurations = configurations(bench, results);
    let names: Vec<String> = (configurations.iter().filter(|configuration| reached(configuration)))
        .map(|configuration| format!("{} at {}", configuration.policy, configuration.point.name))
        .collect();
    let warning = "the warm-up reached its limit (warm_up.max), so the measured part may not be in steady state";
    (!names.is_empty()).then(|| format!("{warning}: {}", names.join(", ")))
}
