//! Validation of a map against the claims: contradictions hold, and a percentile that the paper does not print is declared in `reading`.

use std::collections::BTreeMap;

use super::claim::{Claim, Relation};
use super::map::{Check, Map, Row};
use super::order::Term;
use super::quantity::{Aggregation, Quantity, Selection};

/// A row of the map that does not match its claim.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("map: row {id}: {key}: {problem}")]
pub struct Mismatch {
    /// The claim's id.
    pub id: String,
    /// The key.
    pub key: &'static str,
    /// The problem.
    pub problem: String,
}

/// Checks every row that has a claim; [`super::Report::unused`] lists the others.
///
/// # Errors
/// The first row that does not match its claim.
pub fn check(map: &Map, claims: &[Claim]) -> Result<(), Mismatch> {
    let printed: BTreeMap<&str, f64> =
        claims.iter().filter_map(|claim| Some((claim.id.as_str(), claim.value.number()?))).collect();
    for claim in claims {
        let wrong = |key, problem| Mismatch { id: claim.id.clone(), key, problem };
        if let Some(contradiction) = map.contradicts.get(&claim.id) {
            if !claim.kind.is_result() {
                let problem = "what is taken as given has no verdict `contradicts`; remove its [[contradicts]]";
                return Err(wrong("id", problem.to_owned()));
            }
            contradiction.evaluate(&printed).map_err(|error| wrong("inequality", error.to_string()))?;
        }
        if map.rows.get(&claim.id).is_some_and(|row| reads_a_percentile_silently(claim, row)) {
            let problem = "the paper prints no percentile here; say that it is read as p99";
            return Err(wrong("reading", problem.to_owned()));
        }
        if map.rows.get(&claim.id).is_some_and(|row| takes_the_point_that_meets_a_bound(claim, row)) {
            let problem = "a bound is not judged at the point that meets it best; say \"all\", or name one point";
            return Err(wrong("over", problem.to_owned()));
        }
    }
    Ok(())
}

/// Whether a row takes the maximum for a lower bound, or the minimum for an upper bound, although the paper does not say "for example".
fn takes_the_point_that_meets_a_bound(claim: &Claim, row: &Row) -> bool {
    let Check::Quantity(Quantity { over: Some(over), .. }) = &row.check else { return false };
    if claim.quote.to_lowercase().contains("for example") {
        return false;
    }
    let lenient = match claim.relation {
        Some(Relation::Ge) => Aggregation::Max,
        Some(Relation::Le) => Aggregation::Min,
        _ => return false,
    };
    *over == lenient
}

/// Whether a row uses a 99th percentile that neither the claim nor the row declares.
fn reads_a_percentile_silently(claim: &Claim, row: &Row) -> bool {
    let says = |text: &str| {
        let text = text.to_lowercase();
        ["p99", "99th", "percentile"].iter().any(|word| text.contains(word))
    };
    let printed = [&claim.metric, &claim.quote, &claim.unit].into_iter().any(|text| says(text));
    let declared = row.reading.as_ref().is_some_and(|reading| reading.to_lowercase().contains("p99"));
    !printed && !declared && metrics(&row.check).iter().any(|metric| metric.contains("p99"))
}

/// Every metric that a row takes from results.
fn metrics(check: &Check) -> Vec<&str> {
    let mut metrics: Vec<&str> = selections(check).into_iter().map(|selection| selection.metric.as_str()).collect();
    if let Check::Order(order) = check {
        metrics.extend(order.statements.iter().filter_map(|statement| statement.metric.as_deref()));
    }
    metrics
}

/// Everything that a row selects from results.
pub(super) fn selections(check: &Check) -> Vec<&Selection> {
    match check {
        Check::Quantity(quantity) => of_quantity(quantity),
        Check::Order(order) => [&order.from].into_iter().chain(order.terms.values().flat_map(of_term)).collect(),
        Check::Crossover(crossover) => crossover.of.iter().collect(),
        Check::Value { .. } | Check::Formula(_) | Check::Test { .. } => Vec::new(),
    }
}

fn of_quantity(quantity: &Quantity) -> Vec<&Selection> {
    let also = quantity.also.iter().flat_map(|(of, versus)| [of].into_iter().chain(versus));
    [&quantity.of].into_iter().chain(&quantity.versus).chain(also).collect()
}

fn of_term(term: &Term) -> Vec<&Selection> {
    match term {
        Term::Values(of) => vec![of],
        Term::Compared { of, versus, .. } => vec![of, versus],
        Term::Formula(_) => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::claim::tests::claim;
    use super::super::claim::{Kind, Printed};
    use super::super::map;
    use super::*;

    fn checked(map: &str, metric: &str, quote: &str) -> Result<(), Mismatch> {
        checked_as(Relation::Eq, map, metric, quote)
    }

    fn checked_as(relation: Relation, map: &str, metric: &str, quote: &str) -> Result<(), Mismatch> {
        let map = map::parse(&[("map".to_owned(), map.to_owned())]).unwrap();
        let of_row = claim("x", Kind::Predict, Some(relation), Printed::Number(3.0));
        let of_row = Claim { metric: metric.to_owned(), quote: quote.to_owned(), ..of_row };
        let idle = claim("idle", Kind::Input, None, Printed::Number(412.0));
        check(&map, &[of_row, idle])
    }

    #[test]
    fn a_percentile_that_is_not_printed_is_declared() {
        let quantity = "[[row]]\nid='x'\nexperiment='e'\nmetric='latency_p99_us'\npolicy='p'\ncompare='value'\n";
        let order = "[[row]]\nid='x'\nexperiment='e'\nholds=['burst.latency_p99_us: a < b']\n";
        let term = "[[row]]\nid='x'\nexperiment='e'\nmetric='w'\nholds=['a < b']\nterms={a={policy='p',metric='latency_p99_us'}}\n";
        let also = "[[row]]\nid='x'\nexperiment='e'\nmetric='w'\npolicy='p'\ncompare='value'\nover='max'\n\
                    also=[{metric='ops.latency_p99_us'}]\n";
        for row in [quantity, order, term, also] {
            let refused = checked(row, "tail latency (us)", "higher tail latency").unwrap_err().to_string();
            assert!(refused.contains("row x: reading: the paper prints no percentile"), "{row}: {refused}");
            assert_eq!(checked(row, "P99 latency (us)", ""), Ok(()), "{row}");
            assert_eq!(checked(row, "latency", "at the 99th percentile"), Ok(()), "{row}");
            let declared = row.replace("id='x'\n", "id='x'\nreading='tail latency is p99'\n");
            assert_eq!(checked(&declared, "tail latency (us)", ""), Ok(()), "{row}");
        }
        assert_eq!(checked(&quantity.replace("p99", "mean"), "tail latency (us)", ""), Ok(()));
    }

    #[test]
    fn a_bound_is_not_evaluated_at_its_best_point() {
        let judged = |relation, over: &str| {
            let row =
                format!("[[row]]\nid='x'\nexperiment='e'\nmetric='w'\npolicy='p'\ncompare='value'\nover='{over}'\n");
            checked_as(relation, &row, "power (W)", "")
        };
        for (relation, over) in [(Relation::Ge, "max"), (Relation::Le, "min")] {
            let refused = judged(relation, over).unwrap_err().to_string();
            assert!(refused.contains("row x: over: a bound is not judged"), "{refused}");
        }
        let fine = [
            (Relation::Ge, "min"),
            (Relation::Ge, "all"),
            (Relation::Le, "max"),
            (Relation::Le, "all"),
            (Relation::Eq, "max"),
        ];
        for (relation, over) in fine {
            assert_eq!(judged(relation, over), Ok(()), "{relation} {over}");
        }
    }

    #[test]
    fn a_contradiction_that_does_not_hold_is_refused() {
        let map = "[[contradicts]]\nid='x'\nbecause='idle draws more than that'\ninequality='395 < [idle]'\n";
        assert_eq!(checked(map, "power (W)", ""), Ok(()));
        let refused = checked(&map.replace("395", "413"), "power (W)", "").unwrap_err().to_string();
        assert!(refused.contains("row x: inequality: \"413 < [idle]\" does not hold"), "{refused}");
        let given = checked(&map.replace("'x'", "'idle'"), "power (W)", "").unwrap_err().to_string();
        assert!(given.contains("row idle: id: what is taken as given"), "{given}");
        assert_eq!(checked(&map.replace("'x'", "'y'").replace("395", "413"), "power (W)", ""), Ok(()), "no claim");
    }

    #[test]
    fn the_project_maps_match_their_claims() {
        let claims = include_str!("../../../papers/claims.toml").to_owned();
        let claims = super::super::claim::parse(&[("claims.toml".to_owned(), claims)]).unwrap();
        let map = map::parse(&map::of_project()).unwrap();
        check(&map, &claims).unwrap();
        assert!(!map.contradicts.is_empty());
    }
}
