//! Margins within which two values are alike, by each paper's own words: `[[alike]]` of a map.
//!
//! A margin is the largest difference between two things that the paper itself calls alike, if it is below the smallest one that it calls a
//! difference; where it prints no number of the first kind, it is the second. [`UNPRINTED`] is for what has neither.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::map::MapError;

/// What two papers print as a tie ("within 5 %": SANDMAN's abstract, PASS 3.2.2).
pub const UNPRINTED: f64 = 0.05;

/// Margins of a paper, relative to the larger of two values, by a part of the metric's name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Margins(Vec<(String, f64)>);

/// Margins of a paper that states none.
pub static NONE: Margins = Margins(Vec::new());

impl Margins {
    /// The margin for a metric: of the longest part that its name has.
    #[must_use]
    pub fn margin(&self, metric: &str) -> f64 {
        let parts = self.0.iter().filter(|(part, _)| metric.contains(part.as_str()));
        parts.max_by_key(|(part, _)| part.len()).map_or(UNPRINTED, |(_, margin)| *margin)
    }
}

/// A table `[[alike]]`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Raw {
    paper: String,
    metric: String,
    margin: f64,
    quote: String,
    because: String,
}

/// Adds tables to margins by paper.
pub(super) fn add(file: &str, tables: Vec<Raw>, margins: &mut BTreeMap<String, Margins>) -> Result<(), MapError> {
    for Raw { paper, metric, margin, quote, because } in tables {
        let wrong = |problem| {
            let (file, paper, metric) = (file.to_owned(), paper.clone(), metric.clone());
            Err(MapError::Alike { file, paper, metric, problem })
        };
        let of = margins.entry(paper.clone()).or_default();
        match margin > 0.0 && margin < 1.0 {
            false => return wrong("margin is a share of the larger value, above 0 and below 1"),
            true if quote.trim().is_empty() || because.split_whitespace().count() < 3 => {
                return wrong("say in quote what the paper calls alike, and in because how far apart it is");
            }
            true if of.0.iter().any(|(other, _)| *other == metric) => return wrong("is a duplicate"),
            true => of.0.push((metric, margin)),
        }
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::map;
    use super::Margins;

    /// Margins for tests.
    pub(crate) fn margins(of: &[(&str, f64)]) -> Margins {
        Margins(of.iter().map(|(metric, margin)| ((*metric).to_owned(), *margin)).collect())
    }

    fn parse(text: &str) -> Result<map::Map, map::MapError> {
        map::parse(&[("map".to_owned(), text.to_owned())])
    }

    const ONE: &str =
        "[[alike]]\npaper='p'\nmetric='power_w'\nmargin=0.1\nquote='matches'\nbecause='46 against 41 W'\n";

    #[test]
    fn the_longest_part_of_a_name_decides() {
        let cpu = ONE.replace("power_w", "cpu_power_w").replace("0.1", "0.07");
        let map = parse(&(cpu + ONE)).unwrap();
        let of = |metric| map.alike["p"].margin(metric);
        assert_eq!(
            ["cpu_power_w", "burst.cpu_power_w", "system_power_w", "iops"].map(of),
            [0.07, 0.07, 0.1, super::UNPRINTED]
        );
    }

    #[test]
    fn a_margin_without_words_or_twice_is_refused() {
        for (text, part) in [
            (ONE.replace("matches", ""), "say in quote"),
            (ONE.replace("46 against 41 W", "so"), "say in quote"),
            (ONE.replace("0.1", "10"), "share of the larger"),
            (format!("{ONE}{ONE}"), "duplicate"),
        ] {
            let error = parse(&text).unwrap_err().to_string();
            assert!(error.contains("[[alike]] of p, power_w") && error.contains(part), "{error}");
        }
    }

    #[test]
    fn margins_of_the_project_quote_their_papers() {
        let map = map::parse(&map::of_project()).unwrap();
        assert_eq!(
            map.alike.keys().map(String::as_str).collect::<Vec<_>>(),
            ["pacer", "pass", "poll", "sandman", "thesis"]
        );
    }
}
