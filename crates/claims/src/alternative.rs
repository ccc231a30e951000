//! Rows with other policies: `[alternatives]` of a map replaces the paper's policies by ours, so that both results are printed.

use std::collections::BTreeMap;

use toml::{Table, Value};

/// Keys of a row that name policies.
const KEYS: [&str; 6] = ["policy", "versus", "holds", "terms", "crossover", "also"];
/// Keys of a term that name policies.
const OF_TERM: [&str; 2] = ["policy", "versus"];

/// A row with each policy replaced by its alternative; `None` if it names none of them.
pub(super) fn row(row: &Table, policies: &BTreeMap<String, String>) -> Option<Table> {
    let mut other = row.clone();
    for key in KEYS {
        other.get_mut(key).into_iter().for_each(|value| replace(value, policies));
    }
    (other != *row).then_some(other)
}

fn replace(value: &mut Value, policies: &BTreeMap<String, String>) {
    match value {
        Value::String(text) => *text = replaced(text, policies),
        Value::Array(all) => all.iter_mut().for_each(|value| replace(value, policies)),
        Value::Table(term) => {
            let is_term = term.keys().any(|key| ["experiment", "metric", "policy", "point"].contains(&key.as_str()));
            let named = term.iter_mut().filter(|(key, _)| !is_term || OF_TERM.contains(&key.as_str()));
            named.for_each(|(_, value)| replace(value, policies));
        }
        _ => {}
    }
}

/// Replaces the names in a statement.
fn replaced(text: &str, policies: &BTreeMap<String, String>) -> String {
    let is_name = |c: char| c.is_alphanumeric() || "-+._".contains(c);
    let mut out = String::new();
    let mut rest = text;
    while !rest.is_empty() {
        let name = rest.find(|c| !is_name(c)).map_or(rest, |end| &rest[..end]);
        out += policies.get(name).map_or(name, String::as_str);
        rest = &rest[name.len()..];
        let other = rest.find(is_name).map_or(rest, |end| &rest[..end]);
        out += other;
        rest = &rest[other.len()..];
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn other(text: &str) -> Option<Table> {
        let policies = [("s", "s-ours"), ("s+x", "s+x-ours")].map(|(from, to)| (from.to_owned(), to.to_owned()));
        row(&toml::from_str(text).unwrap(), &BTreeMap::from(policies))
    }

    #[test]
    fn only_policies_are_replaced() {
        let row = r#"
            id = "s"
            experiment = "s"
            metric = "s.p99"
            policy = "s"
            versus = { policy = "s+x", point = "s=1" }
            holds = ["s.p99 @ s-2=1: {s ~ t} < s+x < s-2"]
            cause = "s"
            [terms]
            s = "t"
            a = { policy = "s", versus = "s+x", metric = "s" }
        "#;
        let expected = row
            .replace("policy = \"s\"", "policy = \"s-ours\"")
            .replace("policy = \"s+x\"", "policy = \"s+x-ours\"")
            .replace("{s ~ t} < s+x <", "{s-ours ~ t} < s+x-ours <")
            .replace("versus = \"s+x\"", "versus = \"s+x-ours\"");
        assert_eq!(other(row), Some(toml::from_str(&expected).unwrap()));
    }

    #[test]
    fn a_row_without_replaced_policies_has_no_alternative() {
        assert_eq!(other("id = 's'\npolicy = 't'\nmetric = 's'"), None);
    }
}
