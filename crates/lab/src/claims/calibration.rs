//! Which rows were fitted on: reads `calibration.toml`, the list of free constants.
//!
//! Only what the comparison needs is read: each `[[constant]]` has a `key` and `fitted_on`, a list of ids of claims and names of
//! files. Its range and source are for whoever draws it.

use std::collections::BTreeSet;

use serde::Deserialize;

/// The free constants.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct Calibration {
    /// Each of them.
    #[serde(default, rename = "constant")]
    pub constants: Vec<Constant>,
}

/// A free constant.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Constant {
    /// Its name, as a dotted key of the machine.
    pub key: String,
    /// Ids of claims and names of files that it was fitted on; empty if it was chosen by its source alone.
    #[serde(default)]
    pub fitted_on: Vec<String>,
}

impl Calibration {
    /// Reads the file's text.
    ///
    /// # Errors
    /// If it is not TOML, or a constant has no key.
    pub fn parse(text: &str) -> Result<Self, toml::de::Error> {
        toml::from_str(text)
    }

    /// What constants were fitted on.
    #[must_use]
    pub fn fitted_on(&self) -> BTreeSet<String> {
        self.constants.iter().flat_map(|constant| constant.fitted_on.iter().cloned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fitted_rows_are_collected() {
        let text = "[[constant]]\nkey='a'\nlow=1\nfitted_on=['row-1', 'x.csv']\n[[constant]]\nkey='b'\n";
        let calibration = Calibration::parse(text).unwrap();
        assert_eq!(calibration.fitted_on(), BTreeSet::from(["row-1".to_owned(), "x.csv".to_owned()]));
        assert!(Calibration::parse("[[constant]]\nlow=1\n").is_err());
    }
}
