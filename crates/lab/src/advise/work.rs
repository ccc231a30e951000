//! Classifies points by kind of work. The thesis has no sharp limit (section 5.10). Here random requests of at most 16 KiB are IOPS-driven,
//! sequential ones of 128 KiB or more (large in its section 5.2) throughput-driven, others neither. The request size itself is evaluated over all
//! sizes of a pattern.

use pilotlight_input::quantity::storage_bytes;

use super::kind::Kind;
use super::thesis::{PATTERNS, SIZES};
use crate::displayed;
use crate::result_set::ResultSet;
use crate::results::summary::PointResult;

/// The largest request that is small, in bytes.
pub const SMALL: u64 = 16 << 10;
/// The smallest request that is large, in bytes.
pub const LARGE: u64 = 128 << 10;

/// Points of one kind.
pub(super) struct Points<'a> {
    pub(super) kind: Kind,
    /// The family: `io`, `transaction` or `operation`.
    pub(super) family: &'static str,
    /// Whether bytes are counted instead.
    pub(super) by_bytes: bool,
    /// Points of this kind.
    pub(super) points: Vec<&'a PointResult>,
    /// Points of this pattern with any request size.
    pub(super) any_size: Vec<&'a PointResult>,
}

/// Kinds of work in the results; one kind if patterns are unknown.
pub(super) fn kinds_of_work(result_set: &ResultSet) -> Vec<Points<'_>> {
    let Some(family) = displayed::family(&result_set.results) else { return Vec::new() };
    let uncounted = !displayed::is_counted(&result_set.results, family);
    let all: Vec<&PointResult> = result_set.results.points.iter().collect();
    let pattern = |point: &PointResult| parameter(result_set, point, PATTERNS);
    if family != "io" || !all.iter().any(|point| pattern(point).is_some()) {
        return vec![Points {
            kind: Kind::Application,
            family,
            by_bytes: uncounted,
            any_size: all.clone(),
            points: all,
        }];
    }
    let size = |point: &PointResult| parameter(result_set, point, SIZES).and_then(|text| storage_bytes(&text).ok());
    let kind = |kind, random: bool, fits: fn(u64) -> bool| {
        let any_size: Vec<&PointResult> = all
            .iter()
            .copied()
            .filter(|point| pattern(point).is_some_and(|word| word.starts_with("rand") == random))
            .collect();
        let points = any_size.iter().copied().filter(|point| size(point).is_none_or(fits)).collect();
        Points { kind, family, by_bytes: uncounted || kind == Kind::Throughput, points, any_size }
    };
    let both = [kind(Kind::Iops, true, |size| size <= SMALL), kind(Kind::Throughput, false, |size| size >= LARGE)];
    both.into_iter().collect()
}

/// The value of a knob, or of the key of the experiment if it is not a knob.
fn parameter(result_set: &ResultSet, point: &PointResult, names: &[&str]) -> Option<String> {
    let knob = names.iter().find_map(|name| point.knobs.get(*name)).map(ToString::to_string);
    let workload = result_set.experiment.as_ref().and_then(|table| table.get("workload")?.as_table());
    knob.or_else(|| names.iter().find_map(|name| Some(workload?.get(*name)?.as_str()?.to_owned())))
}

impl Points<'_> {
    /// Description.
    pub(super) fn description(&self) -> String {
        match self.kind {
            Kind::Iops => "IOPS-driven: random requests of at most 16 KiB".into(),
            Kind::Throughput => "throughput-driven: sequential requests of 128 KiB or more".into(),
            Kind::Application => {
                let counted = if self.family == "io" { "I/O" } else { self.family };
                format!("all points, by their {}s", if self.by_bytes { "byte" } else { counted })
            }
        }
    }

    /// The points used for a knob.
    pub(super) fn of_knob(&self, knob: &str) -> &[&PointResult] {
        if SIZES.contains(&knob) { &self.any_size } else { &self.points }
    }
}
