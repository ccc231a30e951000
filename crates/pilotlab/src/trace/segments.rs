//! Segments of a trace and their pressure, as text and JSON.

use anyhow::Context as _;
use pilotlight_lab::simulated::experiment::{self, Request};
use pilotlight_lab::simulated::pressure::{self, Pressed};
use pilotlight_trace::stats::segments::Segment;
use serde::Serialize;

use super::TraceArgs;
use super::with_unit::{size, time};
use crate::table::Table;

/// The printed segments.
#[derive(Serialize)]
pub(super) struct SegmentsReport {
    segments: Vec<Row>,
    /// Over all segments; absent without `--pressure` or without requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pressure_percent: Option<f64>,
}

#[derive(Serialize)]
struct Row {
    #[serde(flatten)]
    segment: Segment,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_iops: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pressure_percent: Option<f64>,
}

impl SegmentsReport {
    /// Measures the pressure of the segments, if requested.
    pub(super) fn new(args: &TraceArgs, segments: Vec<Segment>) -> anyhow::Result<Self> {
        let Some(path) = &args.pressure else {
            let one = |segment| Row { segment, max_iops: None, pressure_percent: None };
            return Ok(Self { segments: segments.into_iter().map(one).collect(), pressure_percent: None });
        };
        let bench = experiment::load(path, &Request::default())?;
        let pressed = pressure::measure(&bench, &segments).with_context(|| format!("{}", path.display()))?;
        let one = |pressed: &Pressed| Row {
            segment: pressed.segment.clone(),
            max_iops: Some(pressed.max_iops),
            pressure_percent: Some(pressed.percent()),
        };
        Ok(Self { segments: pressed.iter().map(one).collect(), pressure_percent: pressure::of_all(&pressed) })
    }

    pub(super) fn text(&self) -> String {
        let mut table =
            Table::new(&["segment", "requests", "IOPS", "reads", "sequential", "mean size", "max IOPS", "pressure"]);
        let percent = |share: f64| format!("{:.1} %", share * 100.0);
        for Row { segment, max_iops, pressure_percent } in &self.segments {
            table.row([
                time(segment.begin_ns),
                segment.requests.to_string(),
                format!("{:.1}", segment.mean_rate_iops),
                percent(segment.read_share),
                percent(segment.sequential_share),
                size(segment.mean_bytes as u64),
                max_iops.map_or("-".to_owned(), |iops| format!("{iops:.0}")),
                pressure_percent.map_or("-".to_owned(), |pressure| format!("{pressure:.2} %")),
            ]);
        }
        let all = self.pressure_percent.map_or(String::new(), |all| format!("pressure      {all:.2} % (simulated)\n"));
        format!("{table}{all}")
    }
}
