//! Figures of the papers with fitted constants: rows of `papers/claims.toml` named in the calibration.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::Deserialize;

use crate::simulated::calibration::Calibration;
use pilotlight_input::file::{self as read, ReadError};

/// Figures with the keys of constants fitted on them.
pub type Fitted = BTreeMap<String, Vec<String>>;

/// The place of a claim; `pilotlight_claims` reads the rest.
#[derive(Clone, Debug, Deserialize)]
struct Row {
    id: String,
    seed: String,
    #[serde(rename = "where")]
    place: String,
}

#[derive(Deserialize)]
struct Rows {
    #[serde(default)]
    claim: Vec<Row>,
}

/// The figure or table of a claim by its place in the paper, otherwise the section.
#[must_use]
pub fn figure(place: &str) -> String {
    let parts = || place.split(';').map(str::trim);
    let named = parts().find(|part| part.starts_with("Fig") || part.starts_with("Table"));
    let part = named.or_else(|| parts().find(|part| part.starts_with('s'))).unwrap_or(place);
    let part = part.split('(').next().unwrap_or(part).trim();
    let words = if named.is_some() { 2 } else { 1 };
    part.split_whitespace().take(words).collect::<Vec<_>>().join(" ").trim_end_matches(',').to_owned()
}

/// The name of a figure in variants, `PAPER/FIGURE`, without commas because it is a CSV field.
#[must_use]
pub fn name(seed: &str, place: &str) -> String {
    format!("{seed}/{}", figure(place)).replace(',', " ")
}

/// Figures with the keys of constants fitted on them. `rows`: id, paper and place of each claim.
pub fn by_figure<'a>(rows: impl Iterator<Item = (&'a str, &'a str, &'a str)>, calibration: &Calibration) -> Fitted {
    let figures: BTreeMap<&str, String> = rows.map(|(id, seed, place)| (id, name(seed, place))).collect();
    let mut fitted = Fitted::new();
    for constant in &calibration.constants {
        let of: BTreeSet<&String> = constant.fitted_on.iter().filter_map(|id| figures.get(id.as_str())).collect();
        of.into_iter().for_each(|figure| fitted.entry(figure.clone()).or_default().push(constant.key.clone()));
    }
    fitted
}

/// The figures of a project folder; none without claims.
///
/// # Errors
/// If the claims cannot be read.
pub fn fitted(home: &Path, calibration: &Calibration) -> Result<Fitted, ReadError> {
    let path = home.join("papers/claims.toml");
    if !path.is_file() {
        return Ok(Fitted::new());
    }
    let name = path.display().to_string();
    let text = std::fs::read_to_string(&path).map_err(|error| ReadError::key(&name, "", error.to_string()))?;
    let read = |text: &str| -> Result<Rows, ReadError> { read::table(read::parse(&name, text)?, &name) };
    let rows = read(&text)?.claim;
    Ok(by_figure(rows.iter().map(|row| (row.id.as_str(), row.seed.as_str(), row.place.as_str())), calibration))
}
