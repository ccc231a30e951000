//! Pairs points of A and B with equal values of all knobs except the selected ones.

use std::collections::BTreeMap;

use super::{CompareError, Question};
use crate::result_set::ResultSet;
use crate::results::summary::{PointResult, pairs, point_text};

type Knobs = BTreeMap<String, String>;
type Matched<'a> = Vec<(String, &'a PointResult, &'a PointResult)>;
type Selection = [(String, String)];

/// Pairs of points with their common knobs, and warnings about unpaired points.
pub(super) fn points<'a>(
    a: &'a ResultSet,
    b: &'a ResultSet,
    question: &Question,
) -> Result<(Matched<'a>, Vec<String>), CompareError> {
    let (of_a, of_b) = (question.point.clone(), versus(question));
    let (mine, theirs) = (chosen(a, &of_a, "A")?, chosen(b, &of_b, "B")?);
    if a.results == b.results && mine.iter().map(|p| p.0.point).eq(theirs.iter().map(|p| p.0.point)) {
        return Err(CompareError::Same);
    }
    let selected = |knob: &String| question.versus.iter().any(|(name, _)| name == knob);
    let shared: Vec<String> =
        a.results.knobs.iter().filter(|knob| b.results.knobs.contains(knob) && !selected(knob)).cloned().collect();
    only_one(&mine, &shared, &question.versus, ("A", "point"))?;
    only_one(&theirs, &shared, &question.versus, ("B", "versus"))?;
    let mut found: Matched<'a> = Vec::new();
    for (point, knobs) in &mine {
        let other = theirs.iter().find(|(_, other)| common(other, &shared).eq(common(knobs, &shared)));
        found.extend(other.map(|(other, _)| (point_text(common(knobs, &shared)), *point, *other)));
    }
    if found.is_empty() {
        let first =
            |points: &[(&PointResult, Knobs)]| points.first().map(|point| point_text(common(&point.1, &shared)));
        return Err(CompareError::NothingMatches {
            a: first(&mine).unwrap_or_default(),
            b: first(&theirs).unwrap_or_default(),
            hint: hint(&mine, &theirs, &shared),
        });
    }
    let left = |side: &str, all: usize| {
        let left = all - found.len();
        (left > 0).then(|| format!("{left} of {all} points of {side} have no counterpart"))
    };
    let warnings = [left("A", mine.len()), left("B", theirs.len())].into_iter().flatten().collect();
    Ok((found, warnings))
}

/// Options for knobs without a common value in A and B.
fn hint(mine: &[(&PointResult, Knobs)], theirs: &[(&PointResult, Knobs)], shared: &[String]) -> String {
    let never = |knob: &&String| mine.iter().all(|(_, a)| theirs.iter().all(|(_, b)| a.get(*knob) != b.get(*knob)));
    let options: Vec<String> =
        shared.iter().filter(never).map(|knob| format!("--point {knob}=VALUE --versus {knob}=VALUE")).collect();
    if options.is_empty() { String::new() } else { format!("; to compare different values: {}", options.join(" ")) }
}

/// The selection in B: that in A unless overridden.
fn versus(question: &Question) -> Vec<(String, String)> {
    let other = |(knob, _): &&(String, String)| !question.versus.iter().any(|(name, _)| name == knob);
    question.point.iter().filter(other).chain(&question.versus).cloned().collect()
}

/// The shared knobs, in the order of the experiment.
fn common<'a>(knobs: &'a Knobs, shared: &[String]) -> impl Iterator<Item = (&'a String, &'a String)> {
    shared.iter().filter_map(|knob| knobs.get_key_value(knob))
}

fn knobs(point: &PointResult) -> Knobs {
    point.knobs.iter().map(|(name, value)| (name.clone(), value.to_string())).collect()
}

fn chosen<'a>(
    result_set: &'a ResultSet,
    wanted: &Selection,
    side: &str,
) -> Result<Vec<(&'a PointResult, Knobs)>, CompareError> {
    let all = result_set.results.points.iter().map(|point| (point, knobs(point)));
    let fits = |knobs: &Knobs| wanted.iter().all(|(name, value)| knobs.get(name) == Some(value));
    let found: Vec<(&PointResult, Knobs)> = all.filter(|(_, knobs)| fits(knobs)).collect();
    if !found.is_empty() {
        return Ok(found);
    }
    let selection = pairs(wanted.iter().map(|(name, value)| (name, value)));
    let is_list = wanted.iter().any(|(_, value)| value.contains(','));
    let hint = if is_list { LIST } else { "" };
    Err(CompareError::NoPoint { side: side.to_owned(), selection, hint, knobs: values(result_set) })
}

/// Advice on a list of values.
const LIST: &str = " (each --point has one value: repeat it for other knobs, and compare two values with --point KNOB=A --versus KNOB=B)";

/// All knobs with their values.
fn values(result_set: &ResultSet) -> String {
    let of_knob = |knob: &String| {
        let mut values: Vec<String> = Vec::new();
        for value in result_set.results.points.iter().filter_map(|point| point.knobs.get(knob)) {
            if !values.contains(&value.to_string()) {
                values.push(value.to_string());
            }
        }
        format!("{knob} = {}", values.join(" | "))
    };
    result_set.results.knobs.iter().map(of_knob).collect::<Vec<_>>().join(", ")
}

/// A knob that the other side lacks must have one value.
fn only_one(
    points: &[(&PointResult, Knobs)],
    shared: &[String],
    selected: &Selection,
    (side, option): (&str, &'static str),
) -> Result<(), CompareError> {
    for (knob, value) in points.first().map(|point| &point.1).into_iter().flatten() {
        let free = !shared.contains(knob) && !selected.iter().any(|(name, _)| name == knob);
        let several = points.iter().any(|(_, other)| other.get(knob) != Some(value));
        let ambiguous = selected.iter().any(|(name, _)| name == knob) && several;
        if several && (free || ambiguous) {
            return Err(CompareError::Knob { side: side.to_owned(), knob: knob.clone(), option });
        }
    }
    Ok(())
}

/// Names of A and B.
pub(super) fn names(a: &ResultSet, b: &ResultSet, question: &Question) -> (String, String) {
    let name = |result_set: &ResultSet, wanted: &Selection| {
        let chosen = pairs(wanted.iter().map(|(name, value)| (name, value)));
        if chosen.is_empty() { result_set.name.clone() } else { format!("{} ({chosen})", result_set.name) }
    };
    (name(a, &question.point), name(b, &versus(question)))
}
