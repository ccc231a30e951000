//! Discriminators: what fails a statement. Statements that nothing fails are vacuous.
//!
//! # The problem
//! "a and b are alike" holds if everything is alike, "not above 2 ms" if nothing is slow, and "right 93 % of the time" for a detector that
//! never fires. Such a statement is no evidence.
//!
//! # Terms
//! A *clause* is a class of equivalent terms (`a ~ b ~ c`), or one `a <= b`. A *discriminator* is a policy or setting in the same results
//! that, in place of one term, significantly fails the clause. A clause or bound without one is *vacuous*.
//!
//! # The algorithm
//! - Two policies: each other policy of the experiment with the metric replaces either.
//! - Two settings (points that differ in some keys): each other point that differs from one of them in a single one of these keys replaces
//!   it, and each other policy replaces both (not of a comparison).
//! - A comparison: its sides are replaced in the same way. Formulas are not replaced.
//! - A bound: the trivial value if known; otherwise each other policy, and each other value of a fixed key.
//!
//! A replacement counts if its interval is wholly beyond the margin, at some point in every member of the model family.
//!
//! # The properties
//! Only rows that are reproduced are tested, so no verdict becomes better. Of policies with bit-identical results none distinguishes another
//! apart. More policies in a file never make a statement vacuous.

use super::alike::{self, Margins};
use super::error::Vacuous;
use super::formula::Name;
use super::order::Order;
use super::order::{Evaluation, Pair, Sign, Statement, Term};
use super::point::Pattern;
use super::quantity::{Quantity, Selection};
use super::results::Store;
use super::verdict::Holds;
use pilotlight_lab::simulated::metrics::COUNTED;

/// Accuracy of a detector that never fires: 0 % if there are events, otherwise 100 %. `None` for other metrics.
#[must_use]
pub fn never_fires(store: &Store, of: &Selection) -> Option<f64> {
    let [share, _, events] = COUNTED;
    let finds = store.unit(&of.experiment, events).is_some();
    (of.metric == share).then_some(if finds { 0.0 } else { 100.0 })
}

/// The search for discriminators.
pub struct DiscriminatorSearch<'a> {
    /// The results.
    pub store: &'a Store,
    /// The judged operating points, in each of which a discriminator must fail.
    pub variants: &'a [&'a str],
    /// Values of names in formulas.
    pub look_up: &'a dyn Fn(Name<'_>) -> Option<f64>,
    /// Margins of the paper.
    pub margins: &'a Margins,
}

impl<'a> DiscriminatorSearch<'a> {
    /// A search in results.
    #[must_use]
    pub fn new(store: &'a Store) -> Self {
        Self { store, variants: &[], look_up: &|_| None, margins: &alike::NONE }
    }

    /// The discriminator of each clause of an order, in words.
    ///
    /// # Errors
    /// The first clause without one.
    pub fn of_order(&self, order: &Order) -> Result<Vec<String>, Vacuous> {
        let mut found = Vec::new();
        for statement in &order.statements {
            for clause in clauses(statement) {
                found.push(self.of_clause(order, statement, &clause).ok_or_else(|| {
                    let pairs: Vec<String> = clause.iter().map(ToString::to_string).collect();
                    let metric = statement.metric.as_ref().unwrap_or(&order.from.metric);
                    Vacuous { clause: format!("{metric}: {}", pairs.join(", ")) }
                })?);
            }
        }
        Ok(found)
    }

    fn of_clause(&self, order: &Order, statement: &Statement, clause: &[&Pair]) -> Option<String> {
        let of_one_term = self.of_one_term(order, statement, clause);
        of_one_term.or_else(|| clause.iter().find_map(|pair| self.of_both_terms(order, statement, pair)))
    }

    /// Another policy at the two settings in which one policy is compared.
    fn of_both_terms(&self, order: &Order, statement: &Statement, pair: &Pair) -> Option<String> {
        let terms = Evaluation::terms(order, statement);
        let (Term::Values(left), Term::Values(right)) = (&terms[pair.left.as_str()], &terms[pair.right.as_str()])
        else {
            return None;
        };
        let same = left.policy == right.policy && left.experiment == right.experiment;
        let mut others =
            self.store.policies(&left.experiment, &left.metric).filter(|policy| same && *policy != left.policy);
        others.find_map(|policy| {
            let names = [&pair.left, &pair.right].map(|name| format!("[{policy}] {name}")); // no names of the map
            let of = |of: &Selection| Term::Values(Selection { policy: policy.to_owned(), ..of.clone() });
            let mut order = order.clone();
            order.terms.extend(names.iter().cloned().zip([of(left), of(right)]));
            let [left, right] = names;
            self.fails(order, statement, Pair { left, sign: pair.sign, right })
        })
    }

    fn of_one_term(&self, order: &Order, statement: &Statement, clause: &[&Pair]) -> Option<String> {
        clause.iter().find_map(|pair| {
            let sides = [(&pair.left, &pair.right, true), (&pair.right, &pair.left, false)];
            sides.into_iter().find_map(|(replaced, kept, left)| {
                let terms = Evaluation::terms(order, statement);
                let (term, other_side) = (&terms[replaced.as_str()], &terms[kept.as_str()]);
                self.alternatives(term, other_side).into_iter().find_map(|(name, term)| {
                    let name = format!("[{name}]"); // no name of the map
                    let probe =
                        |left: &str, right: &str| Pair { left: left.into(), sign: pair.sign, right: right.into() };
                    let pair = if left { probe(&name, kept) } else { probe(kept, &name) };
                    let mut order = order.clone();
                    order.terms.extend([(name, term), (kept.clone(), other_side.clone())]);
                    self.fails(order, statement, pair)
                })
            })
        })
    }

    /// Describes the failure in the first variant, if the pair significantly fails in every variant.
    fn fails(&self, mut order: Order, statement: &Statement, pair: Pair) -> Option<String> {
        order.statements = vec![Statement { pairs: vec![pair], ..statement.clone() }];
        let mut discriminator = None;
        for variant in self.variants {
            let findings = Evaluation { store: self.store, variant, look_up: self.look_up, margins: self.margins }
                .findings(&order)
                .ok()?;
            let failing = findings.into_iter().find(|finding| finding.holds == Holds::No)?;
            let place = if failing.point.is_empty() { String::new() } else { format!(" at {}", failing.point) };
            discriminator.get_or_insert_with(|| format!("{}: {} fails{place}", failing.metric, failing.pair));
        }
        discriminator
    }

    /// Replacements of a term that is compared with another.
    fn alternatives(&self, term: &Term, other_side: &Term) -> Vec<(String, Term)> {
        match (term, other_side) {
            (Term::Values(of), Term::Values(other_side)) => {
                self.replacements(of, Some(other_side)).into_iter().map(|(name, of)| (name, Term::Values(of))).collect()
            }
            (Term::Values(of), _) => {
                self.replacements(of, None).into_iter().map(|(name, of)| (name, Term::Values(of))).collect()
            }
            (Term::Compared { of, versus, compare }, _) => {
                let compared = |of: &Selection, versus: &Selection| Term::Compared {
                    of: of.clone(),
                    versus: versus.clone(),
                    compare: *compare,
                };
                let others = self.replacements(of, Some(versus)).into_iter();
                let mut all: Vec<_> = others.map(|(name, of)| (name, compared(&of, versus))).collect();
                let others = self.replacements(versus, Some(of)).into_iter();
                all.extend(others.map(|(name, versus)| (format!("against {name}"), compared(of, &versus))));
                all
            }
            (Term::Formula(_), _) => Vec::new(),
        }
    }

    /// Other policies if policies are compared, and other settings of the keys in which compared points differ.
    fn replacements(&self, of: &Selection, other_side: Option<&Selection>) -> Vec<(String, Selection)> {
        let mut all = Vec::new();
        if other_side.is_none_or(|other_side| other_side.policy != of.policy) {
            let others = self.store.policies(&of.experiment, &of.metric).filter(|policy| *policy != of.policy);
            all.extend(others.map(|policy| (policy.to_owned(), Selection { policy: policy.to_owned(), ..of.clone() })));
        }
        let variant = self.variants.first().copied().unwrap_or_default();
        let one = |selection: &Selection| -> Option<_> {
            let points = selection.points(self.store, variant).ok()?;
            points.first().filter(|_| selection.fixed && points.len() == 1).map(|(point, _)| (*point).clone())
        };
        if let Some((own, other)) = one(of).zip(other_side.and_then(one)) {
            let keys = own.differing(&other);
            let every = Pattern::default();
            for (point, _) in self.store.points(&of.column(variant), &every) {
                let changed: Vec<&str> = own.differing(point).into_iter().collect();
                if let [key] = changed[..]
                    && keys.contains(key)
                {
                    let name = format!("{key}={}", point.value(key).unwrap_or("-"));
                    all.push((name, Selection { point: Pattern::at(point), ..of.clone() }));
                }
            }
        }
        all
    }

    /// Replacements of a bounded number.
    #[must_use]
    pub fn of_number(&self, quantity: &Quantity) -> Vec<(String, Quantity)> {
        let of = &quantity.of;
        let mut all = Vec::new();
        for policy in self.store.policies(&of.experiment, &of.metric).filter(|policy| *policy != of.policy) {
            let mut other = quantity.clone();
            let also = other.also.iter_mut().map(|(of, _)| of).filter(|also| also.policy == of.policy);
            [&mut other.of].into_iter().chain(also).for_each(|of| policy.clone_into(&mut of.policy));
            all.push((policy.to_owned(), other));
        }
        let variant = self.variants.first().copied().unwrap_or_default();
        for key in of.point.fixed() {
            let (every, column) = (Pattern::default(), of.column(variant));
            let points = self.store.points(&column, &every);
            let mut values: Vec<&str> = points.filter_map(|(point, _)| point.value(key)).collect();
            values.sort_unstable();
            values.dedup();
            for value in values {
                let of = Selection { point: of.point.with(key, value), ..of.clone() };
                all.push((format!("{key}={value}"), Quantity { of, ..quantity.clone() }));
            }
        }
        all
    }
}

/// The pairs of each equivalence class, and each `<=` pair.
fn clauses(statement: &Statement) -> Vec<Vec<&Pair>> {
    let mut clauses: Vec<Vec<&Pair>> = Vec::new();
    for pair in statement.pairs.iter().filter(|pair| pair.sign == Sign::Alike) {
        let shares = |of: &&Pair| [&of.left, &of.right].iter().any(|name| [&pair.left, &pair.right].contains(name));
        let (joined, apart): (Vec<_>, Vec<_>) = clauses.into_iter().partition(|clause| clause.iter().any(shares));
        clauses = apart;
        clauses.push(joined.into_iter().flatten().chain([pair]).collect());
    }
    let bounds = statement.pairs.iter().filter(|pair| pair.sign == Sign::NotAbove);
    clauses.extend(bounds.map(|pair| vec![pair]));
    clauses
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::super::claim::tests::claim;
    use super::super::claim::{Claim, Kind, Printed, Relation};
    use super::super::lab::{Assessment, Lab};
    use super::super::map;
    use super::super::results::tests::store;
    use super::super::verdict::Verdict;
    use super::*;

    fn assessed(claim: Claim, row: &str, lines: &[&str]) -> Assessment {
        let row = format!("[[row]]\nid='x'\nexperiment='e'\n{row}\n");
        let map = map::parse(&[("map".to_owned(), row)]).unwrap();
        let (store, calibrated, claims) = (store(lines), BTreeSet::new(), [claim]);
        let lab = Lab {
            claims: &claims,
            map: &map,
            store: &store,
            calibrated: &calibrated,
            file: &|_| None,
            parameter: &|_, _| None,
            constants: None,
        };
        lab.assess_all().remove(0)
    }

    fn order(row: &str, lines: &[&str]) -> (Verdict, Vec<String>, String) {
        let text = Printed::Text("a ~ b".to_owned());
        let found = assessed(claim("x", Kind::Order, Some(Relation::Equivalent), text), row, lines);
        (found.verdict, found.discriminators, found.note)
    }

    fn bound(relation: Relation, null: Option<f64>, row: &str, lines: &[&str]) -> (Verdict, Vec<String>) {
        let claim = Claim { null, ..claim("x", Kind::Predict, Some(relation), Printed::Number(50.0)) };
        let found = assessed(claim, &format!("metric='w'\npolicy='a'\ncompare='value'\n{row}"), lines);
        (found.verdict, found.discriminators)
    }

    const A: &str = "e,,default,a,w,W,100,100,100";
    const B: &str = "e,,default,b,w,W,101,101,101";
    const ALIKE: &str = "metric='w'\nholds=['a ~ b']";

    #[test]
    fn equivalence_needs_a_policy_that_differs() {
        let (verdict, found, _) = order(ALIKE, &[A, B, "e,,default,c,w,W,120,120,120"]);
        assert_eq!((verdict, found), (Verdict::Reproduced, vec!["w: [c] ~ b fails".to_owned()]));
        for others in [
            vec![],
            vec!["e,,default,c,w,W,100,100,100"],
            vec!["e,,default,c,w,W,105,105,105"],  // within the margin of 5 %
            vec!["e,,default,c,w,W,100,110,120"],  // beyond it, but not surely
            vec!["e,,default,c,v,us,120,120,120"], // another metric
            vec!["f,,default,c,w,W,120,120,120"],  // another experiment
        ] {
            let lines: Vec<&str> = [A, B].into_iter().chain(others).collect();
            let (verdict, found, note) = order(ALIKE, &lines);
            assert_eq!((verdict, found.len()), (Verdict::Vacuous, 0), "{lines:?}");
            assert!(note.ends_with("nothing in the same results fails w: a ~ b"), "{note}");
        }
    }

    #[test]
    fn not_above_needs_a_policy_that_is_above() {
        let row = "metric='w'\nholds=['a <= b']";
        assert_eq!(order(row, &[A, B]).0, Verdict::Vacuous);
        assert_eq!(order(row, &[A, B, "e,,default,c,w,W,120,120,120"]).1, ["w: [c] <= b fails"]);
        assert_eq!(order(row, &[A, B, "e,,default,c,w,W,20,20,20"]).1, ["w: a <= [c] fails"]);
        assert_eq!(
            order("metric='w'\nholds=['a < b']", &[A, B]).0,
            Verdict::Reproduced,
            "which fails where all is alike"
        );
    }

    #[test]
    fn every_clause_needs_a_discriminator() {
        let others = ["e,,default,c,w,W,120,120,120", "e,,default,a,v,us,5,5,5", "e,,default,b,v,us,5,5,5"];
        let lines: Vec<&str> = [A, B].into_iter().chain(others).collect();
        let (verdict, _, note) = order("holds=['w: a ~ b', 'v: a ~ b']", &lines);
        assert!(verdict == Verdict::Vacuous && note.ends_with("v: a ~ b"), "{note}");
        let lines: Vec<&str> = lines.into_iter().chain(["e,,default,c,v,us,9,9,9"]).collect();
        assert_eq!(order("holds=['w: a ~ b', 'v: a ~ b']", &lines).1, ["w: [c] ~ b fails", "v: [c] ~ b fails"]);
    }

    #[test]
    fn another_load_does_not_discriminate_policies() {
        let lines = ["e,rate=1,default,a,w,W,10,10", "e,rate=9,default,a,w,W,90,90", "e,rate=1,default,b,w,W,10,10"];
        let last = "e,rate=9,default,b,w,W,90,90";
        let lines: Vec<&str> = lines.into_iter().chain([last]).collect();
        assert_eq!(order(ALIKE, &lines).0, Verdict::Vacuous);
        let terms =
            "metric='w'\nholds=['p ~ q']\nterms={p={policy='a', point='rate=1'}, q={policy='b', point='rate=1'}}";
        assert_eq!(order(terms, &lines).0, Verdict::Vacuous);
    }

    #[test]
    fn settings_need_another_value_of_the_same_key() {
        let terms = "metric='w'\nholds=['short ~ long']\nterms={short={policy='a', point='gap=5;bs=4'}, \
                     long={policy='a', point='gap=30;bs=4'}}";
        let at = |gap: u32, bs: u32, watts: u32| format!("e,gap={gap};bs={bs},default,a,w,W,{watts},{watts}");
        let same = [at(5, 4, 100), at(30, 4, 100), at(5, 64, 300), at(30, 64, 300)];
        let lines = |more: Option<String>| {
            let all: Vec<String> = same.iter().cloned().chain(more).collect();
            order(terms, &all.iter().map(String::as_str).collect::<Vec<_>>())
        };
        assert_eq!(lines(None).0, Verdict::Vacuous, "a larger request is not what is compared");
        assert_eq!(lines(Some(at(100, 64, 20))).0, Verdict::Vacuous, "nor is that of another gap");
        assert_eq!(lines(Some(at(100, 4, 20))).1, ["w: [gap=100] ~ long fails"]);
    }

    #[test]
    fn settings_may_be_those_of_another_policy() {
        let terms = "metric='w'\nholds=['low ~ high']\nterms={low={policy='a', point='rate=1'}, \
                     high={policy='a', point='rate=9'}}";
        let flat = ["e,rate=1,default,a,w,W,100,100", "e,rate=9,default,a,w,W,101,101"];
        let beside = |low: u32, high: u32| {
            let b = [(1, low), (9, high)].map(|(rate, watts)| format!("e,rate={rate},default,b,w,W,{watts},{watts}"));
            order(terms, &flat.into_iter().chain(b.iter().map(String::as_str)).collect::<Vec<_>>())
        };
        assert_eq!(beside(50, 51).0, Verdict::Vacuous, "at another level, but flat too");
        assert_eq!(beside(50, 90).1, ["w: [b] low ~ [b] high fails"]);
    }

    #[test]
    fn sides_of_a_comparison_are_replaced_too() {
        let row = "metric='w'\nholds=['saved ~ nothing']\nmargin_of='whole'\nterms={nothing='0', whole={policy='b'}, \
                   saved={policy='a', versus='b', compare='difference'}}";
        assert_eq!(order(row, &[A, B]).0, Verdict::Vacuous);
        let (verdict, found, _) = order(row, &[A, B, "e,,default,c,w,W,60,60,60"]);
        assert_eq!((verdict, found), (Verdict::Reproduced, vec!["w: [c] ~ nothing fails".to_owned()]));
    }

    #[test]
    fn a_discriminator_must_fail_at_every_judged_variant() {
        let other = ["e,,other,a,w,W,100,100", "e,,other,b,w,W,101,101"];
        let with = |third: &str| {
            let lines: Vec<&str> = [A, B, "e,,default,c,w,W,120,120,120", third].into_iter().chain(other).collect();
            let text = format!("[[row]]\nid='x'\nexperiment='e'\n{ALIKE}\n");
            let map = map::parse(&[("map".to_owned(), text)]).unwrap();
            let map::Check::Order(order) = &map.rows["x"].check else { panic!("not an order") };
            let store = store(&lines);
            let search = DiscriminatorSearch { variants: &["default", "other"], ..DiscriminatorSearch::new(&store) };
            search.of_order(order).is_ok()
        };
        assert!(with("e,,other,c,w,W,130,130"));
        assert!(!with("e,,other,c,w,W,100,100"));
    }

    #[test]
    fn a_bound_needs_a_value_beyond_it() {
        let low = "e,mode=fast,default,a,w,W,40,40";
        assert_eq!(bound(Relation::Le, None, "", &[low]).0, Verdict::Vacuous);
        let other = |line: &str| bound(Relation::Le, None, "point='mode=fast'", &[low, line]);
        assert_eq!(other("e,mode=fast,default,b,w,W,49,49").0, Verdict::Vacuous);
        assert_eq!(other("e,mode=fast,default,b,w,W,40,60").0, Verdict::Vacuous, "not surely");
        assert_eq!(other("e,mode=fast,default,b,w,W,51,51"), (Verdict::Reproduced, vec!["b fails it".to_owned()]));
        assert_eq!(
            other("e,mode=slow,default,a,w,W,99,99"),
            (Verdict::Reproduced, vec!["mode=slow fails it".to_owned()])
        );
        // the trivial value discriminates a bound, if it is known
        let known = |null| bound(Relation::Le, Some(null), "", &[low]);
        assert_eq!(known(60.0), (Verdict::Reproduced, vec!["what is trivial (60) fails it".to_owned()]));
        assert_eq!(known(0.0), (Verdict::Reproduced, vec![]), "no evidence, and counted apart");
    }

    #[test]
    fn a_detector_that_never_fires_is_trivial() {
        let row = "metric='accuracy_percent'\npolicy='a'\ncompare='value'";
        let with = |relation, value, lines: &[&str]| {
            let claim =
                Claim { unit: "%".to_owned(), ..claim("x", Kind::Predict, Some(relation), Printed::Number(value)) };
            let found = assessed(claim, row, lines);
            (found.verdict, found.evidence, found.null)
        };
        let stable = ["e,,default,a,accuracy_percent,%,100,100", "e,,default,b,accuracy_percent,%,10,10"];
        assert_eq!(with(Relation::Ge, 93.0, &stable), (Verdict::Reproduced, false, Some(100.0)));
        assert_eq!(with(Relation::Le, 96.0, &stable), (Verdict::Misses, true, Some(100.0)));
        let bursts = [stable[0], "e,,default,a,phases,phases,5,5", "e,,default,a,phases_detected,phases,5,5"];
        assert_eq!(with(Relation::Ge, 50.0, &bursts), (Verdict::Reproduced, true, Some(0.0)));
    }

    #[test]
    fn classes_and_bounds_are_clauses() {
        let statement = Statement::parse("a ~ b ~ c < {d ~ e} <= f").unwrap();
        let discriminator: Vec<Vec<String>> =
            clauses(&statement).iter().map(|clause| clause.iter().map(ToString::to_string).collect()).collect();
        assert_eq!(
            discriminator,
            [vec!["a ~ b", "a ~ c", "b ~ c"], vec!["d ~ e"], vec!["d <= f"], vec!["e <= f"]]
                .map(|clause| clause.into_iter().map(str::to_owned).collect::<Vec<_>>())
        );
    }

    proptest! {
        /// Equivalence is reproduced exactly where some other policy is surely not, and never otherwise becomes better or worse; what order the
        /// policies have, and which of them is named, does not matter.
        #[test]
        fn equivalence_needs_a_differing_policy(
            watts in prop::collection::vec(85_u32..115, 2..6), turn in 0_usize..6,
        ) {
            let policies = ["a", "b", "c", "d", "f", "g"];
            let line = |(name, watts): (&&str, &u32)| format!("e,,default,{name},w,W,{watts},{watts},{watts}");
            let mut lines: Vec<String> = policies.iter().zip(&watts).map(line).collect();
            let count = lines.len();
            lines.rotate_left(turn % count);
            let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
            let far = |x: u32, y: u32| f64::from(x.abs_diff(y)) > crate::alike::UNPRINTED * f64::from(x.max(y));
            let someone = watts[2..].iter().any(|other| watts[..2].iter().any(|of| far(*of, *other)));
            let expected = match (far(watts[0], watts[1]), someone) {
                (true, _) => Verdict::Misses,
                (false, true) => Verdict::Reproduced,
                (false, false) => Verdict::Vacuous,
            };
            prop_assert_eq!(order(ALIKE, &lines).0, expected);
            prop_assert_eq!(order("metric='w'\nholds=['b ~ a']", &lines).0, expected);
        }
    }
}
