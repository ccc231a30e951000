//! Parsing and evaluation of statements.

use super::*;
use crate::alike::tests::margins;
use crate::map::{Check, parse};
use crate::results::tests::store;

fn pairs(text: &str) -> Vec<String> {
    let statement = Statement::parse(text).unwrap();
    statement.pairs.iter().map(|pair| pair.to_string().replace(' ', "")).collect()
}

#[test]
fn statements_are_expanded_to_pairs() {
    assert_eq!(pairs("a < b <= c"), ["a<b", "b<=c"]);
    assert_eq!(pairs("a ~ b ~ c < d"), ["a~b", "a~c", "b~c", "a<d", "b<d", "c<d"]);
    assert_eq!(pairs("{a, b} < {c ~ d}"), ["c~d", "a<c", "a<d", "b<c", "b<d"]);
    assert_eq!(pairs("{a ~ b, c} < d"), ["a~b", "a<d", "b<d", "c<d"]);
    assert_eq!(pairs("{a, b} ~ c"), ["a~c", "b~c"]);
    assert_eq!(pairs("w_us @ rate>=640, drives=1: hybrid-poll<governor+sc.1"), ["hybrid-poll<governor+sc.1"]);
}

#[test]
fn malformed_statements_are_refused() {
    for (text, part) in [
        ("a", "has no <"),
        ("", "a name was expected"),
        ("a <", "a name was expected"),
        ("{a, b < c", "} is missing"),
        ("a < b c", "cannot follow"),
        ("{a < b} < c", "} is missing"),
        ("w @ rate: a < b", "no list of key=value"),
    ] {
        let (key, problem) = Statement::parse(text).unwrap_err();
        assert!(key == "holds" && problem.contains(part), "{text}: {problem}");
    }
}

fn order(keys: &str) -> Order {
    let text = format!("[[row]]\nid='x'\nexperiment='e'\nmetric='w'\n{keys}\n");
    let map = parse(&[("map".to_owned(), text)]).unwrap();
    let Check::Order(order) = map.rows["x"].check.clone() else { panic!("not an order") };
    order
}

fn holds(keys: &str, store: &Store) -> Result<Vec<(String, Holds)>, NoResult> {
    let look_up = |name: Name<'_>| (name == Name::Claim("c")).then_some(100.0);
    let findings = Evaluation { store, variant: "default", look_up: &look_up, margins: &crate::alike::NONE }
        .findings(&order(keys))?;
    Ok(findings.into_iter().map(|f| (format!("{} @ {}", f.pair, f.point), f.holds)).collect())
}

fn sweep() -> Store {
    store(&[
        "e,rate=10,default,a,w,W,60,70,80",
        "e,rate=10,default,b,w,W,61,71,82",
        "e,rate=20,default,a,w,W,60,70,80",
        "e,rate=20,default,b,w,W,50,70,95",
        "e,rate=10,default,a,v,us,5,5,5",
        "e,rate=10,default,b,v,us,9,9,9",
    ])
}

#[test]
fn differences_are_paired() {
    // b - a is 1, 1.1 and 1.2, while each alone ranges over 20
    let store = store(&["e,rate=10,default,a,w,W,60,70,80", "e,rate=10,default,b,w,W,61,71.1,81.2"]);
    let found = holds("holds=['a < b', 'b <= a', 'a ~ b', 'b < a']", &store).unwrap();
    let expected = [Holds::Yes, Holds::Yes, Holds::Yes, Holds::No];
    assert_eq!(found.iter().map(|(_, holds)| *holds).collect::<Vec<_>>(), expected);
}

#[test]
fn a_statement_is_evaluated_at_every_matching_point() {
    let found = holds("holds=['a ~ b']", &sweep()).unwrap();
    let expected = [("a ~ b @ rate=10".to_owned(), Holds::Yes), ("a ~ b @ rate=20".to_owned(), Holds::Open)];
    assert_eq!(found, expected);
    let found = holds("holds=['v @ rate<=10: a < b', 'v: b < a']", &sweep()).unwrap();
    assert_eq!(found.iter().map(|(_, holds)| *holds).collect::<Vec<_>>(), [Holds::Yes, Holds::No]);
}

#[test]
fn a_saturated_latency_is_above_all_finite_ones() {
    let full = |policy: &str, flags: &str| format!("e,,default,{policy},saturated,1,{flags}");
    let lines = [
        "e,,default,a,latency_p99_us,us,60,61,62,60,61,62,60,61,62,60".to_owned(),
        "e,,default,b,latency_p99_us,us,10,10,10,10,10,10,10,10,10,10".to_owned(),
        "e,,default,c,latency_p99_us,us,10,10,10,10,10,10,10,10,10,10".to_owned(),
        "e,,default,d,latency_p99_us,us,50,50,50,50,50,50,50,50,50,50".to_owned(),
        "e,,default,a,w,W,90,91,92,90,91,92,90,91,92,90".to_owned(),
        "e,,default,b,w,W,80,80,80,80,80,80,80,80,80,80".to_owned(),
        full("b", "1,1,1,1,1,1,1,1,1,1"),
        full("c", "1,1,1,1,1,1,1,1,1,1"),
        full("d", "0,0,0,1,1,0,0,0,0,0"),
    ];
    let store = store(&lines.each_ref().map(String::as_str));
    let one = |statement: &str| {
        let found = holds(&format!("holds=['latency_p99_us: {statement}']"), &store).unwrap();
        found.first().unwrap().1
    };
    // although the saturated run printed less
    assert_eq!(one("a < b"), Holds::Yes);
    assert_eq!(one("b < a"), Holds::No);
    assert_eq!(one("a <= b"), Holds::Yes);
    assert_eq!(one("b <= a"), Holds::No);
    assert_eq!(one("a ~ b"), Holds::No);
    // two saturated policies, and one that is saturated in some runs, are undecided
    for open in ["b < c", "b ~ c", "c <= b", "a < d", "a ~ d"] {
        assert_eq!(one(open), Holds::Open, "{open}");
    }
    assert_eq!(holds("holds=['b < a']", &store).unwrap()[0].1, Holds::Yes, "watts are as measured");
    let look_up = |_: Name<'_>| None;
    let findings = Evaluation { store: &store, variant: "default", look_up: &look_up, margins: &crate::alike::NONE }
        .findings(&order("holds=['b < a']"));
    assert_eq!(findings.unwrap()[0].saturated[0].to_string(), "b in e 10/10", "but it is said");
}

#[test]
fn a_pair_beyond_twice_its_margin_is_reversed() {
    // by 5 % of the larger
    let one = |sign: &str, b: f64| {
        let lines = ["e,,default,a,w,W,100,100".to_owned(), format!("e,,default,b,w,W,{b},{b}")];
        let store = store(&lines.each_ref().map(String::as_str));
        let order = order(&format!("holds=['a {sign} b']"));
        let look_up = |_: Name<'_>| None;
        let evaluation =
            Evaluation { store: &store, variant: "default", look_up: &look_up, margins: &crate::alike::NONE };
        let finding = evaluation.findings(&order).unwrap().remove(0);
        (finding.holds, finding.is_reversed)
    };
    for (sign, fails, reversed) in [("<", 96.0, 94.0), ("<=", 94.0, 89.0), ("~", 94.0, 89.0), ("~", 106.0, 112.0)] {
        assert_eq!(one(sign, fails), (Holds::No, false), "{sign}");
        assert_eq!(one(sign, reversed), (Holds::No, true), "{sign}");
    }
    assert_eq!(one("<", 101.0), (Holds::Yes, false));
}

#[test]
fn terms_name_points_metrics_formulas_and_comparisons() {
    let terms = "terms={slow={policy='a', point='rate=10'}, fast={policy='b', point='rate=20'}, hundred='[c]', \
                 saved={policy='a', versus='b', compare='difference', point='rate=10'}}\n";
    let one = |statement: &str| holds(&format!("{terms}holds=['{statement}']"), &sweep()).unwrap().first().unwrap().1;
    assert_eq!(one("slow < fast"), Holds::Open);
    assert_eq!(one("slow < hundred"), Holds::Yes);
    assert_eq!(one("saved < hundred"), Holds::Yes);
    let with_scale = format!("{terms}margin_of='hundred'\nholds=['saved <= slow', 'saved ~ saved']");
    assert!(holds(&with_scale, &sweep()).unwrap().iter().all(|(_, holds)| *holds == Holds::Yes));
}

#[test]
fn a_margin_follows_the_metric_of_the_terms() {
    let store = store(&["e,,default,a,power_w,W,100,100", "e,,default,b,power_w,W,107,107"]);
    let terms = "terms={x={policy='a', metric='power_w'}, y={policy='b', metric='power_w'}, above='[c] * 1.07'}\n";
    let one = |statement: &str| {
        let order = order(&format!("{terms}holds=['latency_p99_us: {statement}']"));
        let look_up = |name: Name<'_>| (name == Name::Claim("c")).then_some(100.0);
        let margins = margins(&[("power", 0.04), ("latency", 0.10)]);
        let evaluation = Evaluation { store: &store, variant: "default", look_up: &look_up, margins: &margins };
        let finding = evaluation.findings(&order).unwrap().remove(0);
        (finding.holds, finding.metric)
    };
    // 7 % is alike for a latency, not for watts
    for statement in ["y <= x", "x ~ y", "above <= x", "x ~ above"] {
        assert_eq!(one(statement), (Holds::No, "power_w".to_owned()), "{statement}");
    }
}

#[test]
fn errors_name_what_is_missing() {
    let missing = |statement: &str| holds(&format!("holds=['{statement}']"), &sweep()).unwrap_err().to_string();
    assert_eq!(missing("a < c"), "e has no w of c (variant default)");
    assert_eq!(missing("u: a < b"), "e has no u of a (variant default)");
}

#[test]
fn a_point_missing_for_one_policy_is_an_error() {
    let store = store(&["e,rate=10,default,a,w,W,1,1", "e,rate=10,default,b,w,W,2,2", "e,rate=20,default,b,w,W,2,2"]);
    for statement in ["a < b", "b < a"] {
        let missing = holds(&format!("holds=['{statement}']"), &store).unwrap_err().to_string();
        assert_eq!(missing, "e has no w of a at rate=20 (variant default)", "{statement}");
    }
}
