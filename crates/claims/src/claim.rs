//! The papers' claims: reads `claims.toml`, whose header defines kinds and relations.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

/// A row: one figure, order or constant of a paper.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Claim {
    /// Its unique name.
    pub id: String,
    /// The paper.
    pub seed: String,
    /// Section, figure or table.
    #[serde(rename = "where")]
    pub place: String,
    /// The kind of statement.
    pub kind: Kind,
    /// The system, as the paper calls it.
    pub system: String,
    /// The system it is compared with; empty if none.
    pub versus: String,
    /// The metric.
    pub metric: String,
    /// The printed value.
    pub value: Printed,
    /// The required relation of our value.
    pub relation: Option<Relation>,
    /// The value of a trivial policy or model.
    pub null: Option<f64>,
    /// The trace that is required to check it.
    pub needs_trace: Option<String>,
    /// The unit of `value` and `null`.
    pub unit: String,
    /// The conditions.
    pub condition: String,
    /// Quotation from the paper.
    #[serde(default)]
    pub quote: String,
}

/// A printed value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Printed {
    /// A number, in the row's unit.
    Number(f64),
    /// An order, a rule or a list in words.
    Text(String),
}

impl Printed {
    /// The number, if it is one.
    #[must_use]
    pub fn number(&self) -> Option<f64> {
        match self {
            Self::Number(number) => Some(*number),
            Self::Text(_) => None,
        }
    }
}

impl fmt::Display for Printed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Text(text) => text.fmt(f),
        }
    }
}

/// The kind of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A constant that is an input of a model.
    Input,
    /// A default of an algorithm.
    Parameter,
    /// Arithmetic on inputs.
    Derived,
    /// A figure to reproduce.
    Predict,
    /// An order to reproduce.
    Order,
    /// The cost of a mechanism, to reproduce.
    Overhead,
}

impl Kind {
    /// Whether it is a result, which is counted; the others are inputs, which are only checked.
    #[must_use]
    pub const fn is_result(self) -> bool {
        matches!(self, Self::Predict | Self::Order | Self::Overhead)
    }
}

/// The required relation of our value to the paper's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Relation {
    /// The same, within 10 % of `|paper - null|`.
    Eq,
    /// As `Eq`: the paper says "about".
    About,
    /// Not above a printed bound.
    Le,
    /// Not below a printed bound.
    Ge,
    /// The lower end of a printed range: our least value is the same.
    RangeLo,
    /// The upper end: our greatest value is the same.
    RangeHi,
    /// Systems stand in this order.
    Order,
    /// Systems or settings do not differ.
    Equivalent,
    /// Grows or falls along a parameter.
    Monotone,
}

impl Relation {
    /// Whether it says "not above" or "not below" a number.
    #[must_use]
    pub const fn is_bound(self) -> bool {
        matches!(self, Self::Le | Self::Ge)
    }
}

impl fmt::Display for Relation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Eq => "=",
            Self::About => "about",
            Self::Le => "<=",
            Self::Ge => ">=",
            Self::RangeLo => "from",
            Self::RangeHi => "to",
            Self::Order => "order",
            Self::Equivalent => "same",
            Self::Monotone => "trend",
        })
    }
}

/// Invalid claims.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    /// A syntax error.
    #[error("{file}: {error}")]
    Syntax {
        /// The file.
        file: String,
        /// Where and what.
        error: Box<toml::de::Error>,
    },
    /// A duplicate id.
    #[error("{file}: claim {id} is a duplicate; ids must be unique")]
    Twice {
        /// The file of the second.
        file: String,
        /// The name.
        id: String,
    },
}

#[derive(Deserialize)]
struct File {
    #[serde(default)]
    claim: Vec<Claim>,
}

/// Reads files of claims, given as `(name, text)`, in their order.
///
/// # Errors
/// On a syntax error or a duplicate id.
pub fn parse(files: &[(String, String)]) -> Result<Vec<Claim>, ClaimError> {
    let mut claims: Vec<Claim> = Vec::new();
    let mut seen = BTreeSet::new();
    for (file, text) in files {
        let wrong = |error| ClaimError::Syntax { file: file.clone(), error: Box::new(error) };
        for claim in toml::from_str::<File>(text).map_err(wrong)?.claim {
            if !seen.insert(claim.id.clone()) {
                return Err(ClaimError::Twice { file: file.clone(), id: claim.id });
            }
            claims.push(claim);
        }
    }
    Ok(claims)
}

impl Claim {
    /// Its figure or table; without one, the section.
    #[must_use]
    pub fn figure(&self) -> String {
        pilotlight_lab::simulated::fitted::figure(&self.place)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A row for tests.
    pub(crate) fn claim(id: &str, kind: Kind, relation: Option<Relation>, value: Printed) -> Claim {
        Claim {
            id: id.to_owned(),
            seed: "sandman".to_owned(),
            place: "s5; Fig 3(a)".to_owned(),
            kind,
            system: "sandman".to_owned(),
            versus: String::new(),
            metric: "power (W)".to_owned(),
            value,
            relation,
            null: None,
            needs_trace: None,
            unit: "W".to_owned(),
            condition: String::new(),
            quote: String::new(),
        }
    }

    #[test]
    fn all_claims_are_read() {
        let text = include_str!("../../../papers/claims.toml").to_owned();
        let claims = parse(&[("claims.toml".to_owned(), text)]).unwrap();
        assert_eq!(claims.len(), 857);
        let sandman: Vec<&Claim> = claims.iter().filter(|claim| claim.seed == "sandman").collect();
        assert_eq!(sandman.iter().filter(|claim| claim.kind.is_result()).count(), 56);
        for claim in claims.iter().filter(|claim| claim.kind.is_result()) {
            assert!(claim.relation.is_some(), "{}", claim.id);
        }
    }

    #[test]
    fn a_row_belongs_to_a_figure_or_a_section() {
        let figure = |place: &str| Claim { place: place.to_owned(), ..any() }.figure();
        assert_eq!(figure("Abstract; s5.2; Fig 4(a)"), "Fig 4");
        assert_eq!(figure("s5.1; Fig 3(a)(b)"), "Fig 3");
        assert_eq!(figure("Table 3; s5.3"), "Table 3");
        assert_eq!(figure("s3.3 Observation 1"), "s3.3");
        assert_eq!(figure("Abstract"), "Abstract");
    }

    #[test]
    fn a_duplicate_id_is_refused() {
        let row = "[[claim]]\nid = 'x'\nseed = 's'\nwhere = ''\nkind = 'input'\nsystem = ''\nversus = ''\nmetric = ''\n\
                   value = 1\nunit = ''\ncondition = ''\n";
        let error = parse(&[("a".into(), row.into()), ("b".into(), row.into())]).unwrap_err();
        assert_eq!(error.to_string(), "b: claim x is a duplicate; ids must be unique");
    }

    fn any() -> Claim {
        claim("x", Kind::Input, None, Printed::Number(1.0))
    }
}
