//! One claim against one map: evaluates, takes the hull over the family, judges.

use std::collections::{BTreeMap, BTreeSet};

use pilotlight_stats::Estimate;
use serde::Serialize;

use super::claim::{Claim, Kind, Printed, Relation};
use super::constants::Shifts;
use super::given::{self, Sources};
use super::map::{Check, Map, Order, Row};
use super::order::{Evaluation, Finding};
use super::quantity::Full;
use super::results::{DEFAULT, Store};
use super::saturated::once;
use super::vacuous::Search;
use super::verdict::{self, Holds, Verdict};

/// Everything that claims are compared with.
pub struct Lab<'a> {
    /// The claims.
    pub claims: &'a [Claim],
    /// Which output answers which claim.
    pub map: &'a Map,
    /// The outputs.
    pub store: &'a Store,
    /// Ids of rows that constants were fitted on.
    pub calibrated: &'a BTreeSet<String>,
    /// The text of a file of the project; `None` if there is none.
    pub file: &'a dyn Fn(&str) -> Option<String>,
    /// The default of a policy's parameter.
    pub parameter: &'a dyn Fn(&str, &str) -> Option<String>,
    /// What assumed constants do to rows, where intervals are to include them.
    pub constants: Option<&'a Shifts>,
}

/// What is said of a claim.
#[derive(Clone, Debug, Serialize)]
pub struct Assessment {
    /// The claim's id.
    pub id: String,
    /// The paper.
    pub seed: String,
    /// The figure, table or section.
    pub figure: String,
    /// What kind of statement it is.
    pub kind: Kind,
    /// What is measured.
    pub metric: String,
    /// How ours has to relate.
    pub relation: Option<Relation>,
    /// What the paper prints.
    pub paper: Printed,
    /// What a trivial policy gives.
    pub null: Option<f64>,
    /// The unit of numbers.
    pub unit: String,
    /// Ours with its 95 % interval, over the family where there is one.
    pub ours: Option<Estimate>,
    /// Ours where it is not from results.
    pub given: Option<Printed>,
    /// Ours at the middle of the interval, against the paper: in percent of `|paper - null|`.
    pub error_percent: Option<f64>,
    /// What came of each statement of an order.
    pub findings: Vec<Finding>,
    /// Runs that could not keep up and that it depends on: their latency counts as unbounded, their watts are as measured.
    pub saturated: Vec<Full>,
    /// The verdict.
    pub verdict: Verdict,
    /// What the verdict would be if nothing overrode it (`contradicts`, `calibrated`, `surrogate`).
    pub otherwise: Option<Verdict>,
    /// Whether meeting it would be evidence: not where the trivial policy meets the bound too.
    pub evidence: bool,
    /// What fails it in the place of what it is about, where it holds of things that are alike or within a bound.
    pub discriminators: Vec<String>,
    /// The row of the other end of the same printed range: one statement, one verdict.
    pub with: Option<String>,
    /// Members of the model family that the interval is over; 0 if there is none.
    pub family: usize,
    /// Draws of the assumed constants that the interval includes; 0 if there are none.
    pub draws: usize,
    /// Where it was found, or what is missing.
    pub note: String,
    /// How the paper was read.
    pub reading: Option<String>,
    /// Why it does not come out.
    pub cause: Option<String>,
    /// Constants that were fitted on it, and choices that were made on it, where it is calibrated.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fitted: Vec<String>,
    /// The result of the same row with the recommended policy in place of the paper's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub beside: Option<Box<Beside>>,
    /// Why it cannot be true together with what the paper prints elsewhere, with the inequality's sides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contradiction: Option<String>,
}

/// What a row says of another policy in the place of the paper's.
#[derive(Clone, Debug, Serialize)]
pub struct Beside {
    /// The number, where it is one.
    pub ours: Option<Estimate>,
    /// What came of its statements, where it has some.
    pub note: String,
    /// The verdict that it would have.
    pub verdict: Verdict,
}

impl Assessment {
    /// What tells it apart; what nothing tells apart is vacuous.
    pub(super) fn apart(&mut self, found: Result<Vec<String>, String>) {
        match found {
            Ok(discriminators) => self.discriminators = discriminators,
            Err(clause) => {
                self.verdict = Verdict::Vacuous;
                self.note += &format!("; {clause}");
            }
        }
    }
}

/// What a claim is evaluated for.
#[derive(Clone, Copy, Debug)]
pub enum Scope<'a> {
    /// The default variant and every member of the family.
    Family,
    /// One variant alone.
    Variant(&'a str),
}

impl Lab<'_> {
    /// Every claim, in order.
    #[must_use]
    pub fn assess_all(&self) -> Vec<Assessment> {
        let printed = self.printed();
        self.claims.iter().map(|claim| self.assess(claim, Scope::Family, &printed)).collect()
    }

    /// What the papers print, by id.
    #[must_use]
    pub fn printed(&self) -> BTreeMap<&str, f64> {
        self.claims.iter().filter_map(|claim| Some((claim.id.as_str(), claim.value.number()?))).collect()
    }

    /// One claim.
    #[must_use]
    pub fn assess(&self, claim: &Claim, scope: Scope<'_>, printed: &BTreeMap<&str, f64>) -> Assessment {
        let mut assessment = blank(claim);
        let Some(row) = self.map.rows.get(&claim.id) else {
            if let Some(reason) = self.map.not_modelled.get(&claim.id) {
                (assessment.verdict, assessment.note) = (Verdict::NotModelled, reason.clone());
            }
            self.contradiction(claim, printed, &mut assessment);
            return assessment;
        };
        (assessment.reading, assessment.cause) = (row.reading.clone(), row.cause.clone());
        let look_up = |id: &str| printed.get(id).copied();
        let sources = Sources { file: self.file, parameter: self.parameter, printed: &look_up };
        if let Err(missing) = self.evaluate(claim, row, scope, &sources, &mut assessment) {
            (assessment.verdict, assessment.note) = (Verdict::NoResult, missing);
        }
        assessment.beside = self.beside(claim, scope, &sources);
        self.overrule(claim, &mut assessment);
        self.contradiction(claim, printed, &mut assessment);
        assessment
    }

    fn beside(&self, claim: &Claim, scope: Scope<'_>, sources: &Sources<'_>) -> Option<Box<Beside>> {
        let row = self.map.beside.get(&claim.id)?;
        let mut other = blank(claim);
        let lab = Lab { constants: None, ..*self }; // they were drawn for the paper's
        if let Err(missing) = lab.evaluate(claim, row, scope, sources, &mut other) {
            (other.verdict, other.note) = (Verdict::NoResult, missing);
        }
        let Assessment { ours, note, verdict, .. } = other;
        Some(Box::new(Beside { ours, note, verdict }))
    }

    fn evaluate(
        &self,
        claim: &Claim,
        row: &Row,
        scope: Scope<'_>,
        sources: &Sources<'_>,
        into: &mut Assessment,
    ) -> Result<(), String> {
        match &row.check {
            Check::Quantity(quantity) => self.quantity(claim, quantity, scope, into),
            Check::Order(order) => self.order(claim, order, scope, sources, into),
            Check::Crossover(crossover) => self.crossover(claim, crossover, scope, into),
            Check::Test { .. } if claim.kind.is_result() => Err("a result is not shown by a test".to_owned()),
            given => {
                let found = self.used(given, given::check(claim, given, sources)?);
                into.verdict = if claim.kind.is_result() { of_input(claim, &found) } else { found.verdict };
                (into.given, into.note) = (found.ours, found.note);
                Ok(())
            }
        }?;
        into.verdict = if claim.kind.is_result() { into.verdict } else { as_given(into.verdict) };
        Ok(())
    }

    fn order(
        &self,
        claim: &Claim,
        order: &Order,
        scope: Scope<'_>,
        sources: &Sources<'_>,
        into: &mut Assessment,
    ) -> Result<(), String> {
        let variants = self.variants(&order.from.experiment, scope);
        let look_up = |name: super::formula::Name<'_>| sources.look_up(name);
        let mut verdicts = BTreeSet::new();
        for variant in &variants {
            let findings = Evaluation { store: self.store, variant, look_up: &look_up }.of(order)?;
            verdicts.insert(Holds::all(findings.iter().map(|finding| finding.holds)));
            into.findings.extend(findings);
        }
        into.saturated = once(into.findings.iter().flat_map(|finding| finding.saturated.clone()));
        let first = verdicts.first().copied().unwrap_or(Verdict::Undecided);
        into.verdict = if verdicts.len() == 1 { first } else { Verdict::Undecided };
        self.shifted(&claim.id, scope, into);
        into.family = variants.len() - 1;
        let open = into.findings.iter().filter(|finding| finding.holds != Holds::Yes).count();
        into.note = format!("{} of {} pairs hold", into.findings.len() - open, into.findings.len());
        if into.verdict == Verdict::ComesOut && claim.kind.is_result() {
            into.apart(Search { store: self.store, variants: &variants, look_up: &look_up }.of_order(order));
        }
        Ok(())
    }

    /// The variants of a scope, the default (where there is one) first.
    pub(super) fn variants<'b>(&'b self, experiment: &str, scope: Scope<'b>) -> Vec<&'b str> {
        let Scope::Variant(variant) = scope else {
            return [DEFAULT].into_iter().chain(self.store.variants("family:", Some(experiment))).collect();
        };
        vec![variant]
    }

    /// Rows that were fitted on or put in, and rows without their trace, are not evidence, whatever came of them.
    fn overrule(&self, claim: &Claim, assessment: &mut Assessment) {
        let was = assessment.verdict;
        if !claim.kind.is_result() || was == Verdict::NoResult {
            return;
        }
        let fitted =
            [Some(&claim.id), assessment.with.as_ref()].into_iter().flatten().any(|id| self.calibrated.contains(id));
        let over = match fitted || assessment.given.is_some() {
            _ if claim.needs_trace.is_some() => Verdict::Surrogate,
            true => Verdict::Calibrated,
            false => return,
        };
        (assessment.verdict, assessment.otherwise) = (over, Some(was));
    }
}

/// A result that is put in as an input, judged as a result is; [`Lab::overrule`] says that it is no evidence.
fn of_input(claim: &Claim, given: &given::Given) -> Verdict {
    let ours = given.ours.as_ref().and_then(Printed::number);
    let judge = |(ours, paper)| verdict::numeric(claim.relation?, paper, claim.null, Estimate::exact(ours));
    ours.zip(claim.value.number()).and_then(judge).unwrap_or(given.verdict)
}

/// A derived order is arithmetic too: it agrees or differs.
fn as_given(verdict: Verdict) -> Verdict {
    match verdict {
        Verdict::ComesOut | Verdict::Agrees => Verdict::Agrees,
        Verdict::Near | Verdict::Misses | Verdict::Undecided | Verdict::Vacuous | Verdict::Differs => Verdict::Differs,
        other => other,
    }
}

fn blank(claim: &Claim) -> Assessment {
    let trivial =
        |relation| claim.value.number().is_some_and(|paper| verdict::trivial_meets(relation, paper, claim.null));
    Assessment {
        id: claim.id.clone(),
        seed: claim.seed.clone(),
        figure: claim.figure(),
        kind: claim.kind,
        metric: claim.metric.clone(),
        relation: claim.relation,
        paper: claim.value.clone(),
        null: claim.null,
        unit: claim.unit.clone(),
        ours: None,
        given: None,
        error_percent: None,
        findings: Vec::new(),
        saturated: Vec::new(),
        verdict: Verdict::NotMapped,
        otherwise: None,
        evidence: !claim.relation.is_some_and(trivial),
        discriminators: Vec::new(),
        with: None,
        family: 0,
        draws: 0,
        note: String::new(),
        reading: None,
        cause: None,
        fitted: Vec::new(),
        beside: None,
        contradiction: None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::claim::tests::claim;
    use super::super::map;
    use super::super::report::Report;
    use super::super::results::tests::store;
    use super::*;

    const MAP: &str = "\
[[row]]
id = 'saving'
experiment = 'e'
metric = 'w'
policy = 'sandman'
versus = 'static'
compare = 'reduction %'
[[row]]
id = 'order'
experiment = 'e'
metric = 'w'
holds = ['sandman < static']
cause = 'the profile does not say'
[[row]]
id = 'elsewhere'
experiment = 'f'
metric = 'w'
policy = 'sandman'
compare = 'value'
[[row]]
id = 'derived'
holds = ['idle < load']
terms = { idle = '134', load = '244' }
[[row]]
id = 'stranger'
formula = '1'
[[not_modelled]]
id = 'fans'
reason = 'the model has no fans'
";

    fn number(id: &str, relation: Relation, value: f64) -> Claim {
        Claim { null: Some(0.0), ..claim(id, Kind::Predict, Some(relation), Printed::Number(value)) }
    }

    fn order(id: &str, kind: Kind) -> Claim {
        claim(id, kind, Some(Relation::Order), Printed::Text("a < b".to_owned()))
    }

    fn claims() -> Vec<Claim> {
        vec![
            number("saving", Relation::Eq, 40.0),
            order("order", Kind::Order),
            number("elsewhere", Relation::Eq, 40.0),
            order("derived", Kind::Derived),
            number("fans", Relation::Eq, 8.0),
            number("unmapped", Relation::Le, 5.0),
        ]
    }

    const NOISY: [&str; 2] = ["e,,default,sandman,w,W,60,61,62", "e,,default,static,w,W,100,101,102"];

    fn report(claims: &[Claim], results: &[&str], calibrated: &[&str]) -> Report {
        let map = map::parse(&[("map".to_owned(), MAP.to_owned())]).unwrap();
        let calibrated = calibrated.iter().map(|id| (*id).to_owned()).collect();
        let store = store(results);
        let nothing = |_: &str| None;
        let lab = Lab {
            claims,
            map: &map,
            store: &store,
            calibrated: &calibrated,
            file: &nothing,
            parameter: &|_, _| None,
            constants: None,
        };
        Report::new(&lab, None)
    }

    fn verdict(report: &Report, id: &str) -> Verdict {
        report.rows.iter().find(|row| row.id == id).unwrap().verdict
    }

    #[test]
    fn every_claim_has_one_verdict_and_is_counted_once() {
        let report = report(&claims(), &NOISY, &[]);
        let expected = [
            ("saving", Verdict::ComesOut),
            ("order", Verdict::ComesOut),
            ("elsewhere", Verdict::NoResult),
            ("derived", Verdict::Agrees),
            ("fans", Verdict::NotModelled),
            ("unmapped", Verdict::NotMapped),
        ];
        for (id, expected) in expected {
            assert_eq!(verdict(&report, id), expected, "{id}");
        }
        let counted: usize = [&report.results, &report.no_evidence, &report.given]
            .into_iter()
            .flat_map(|seeds| seeds.values().flat_map(|counts| counts.values()))
            .sum();
        assert_eq!(counted, claims().len());
        assert_eq!(report.unused, ["stranger"]);
        let bound = report.rows.iter().find(|row| row.id == "unmapped").unwrap();
        assert!(!bound.evidence && report.no_evidence["sandman"][&Verdict::NotMapped] == 1);
    }

    #[test]
    fn one_replication_decides_nothing() {
        let report = report(&claims(), &["e,,default,sandman,w,W,60", "e,,default,static,w,W,100"], &[]);
        assert_eq!(verdict(&report, "saving"), Verdict::Undecided);
        assert_eq!(verdict(&report, "order"), Verdict::Undecided);
        let causeless: Vec<&str> = report.without_cause().iter().map(|row| row.id.as_str()).collect();
        assert_eq!(causeless, ["saving"]);
    }

    #[test]
    fn a_family_that_disagrees_is_undecided() {
        let with = |saving: &str, other: &str| {
            let results = [NOISY[0], NOISY[1], saving, other];
            let report = report(&claims(), &results, &[]);
            (verdict(&report, "saving"), verdict(&report, "order"))
        };
        let other = "e,,family:1,static,w,W,100,101,102";
        let same = with("e,,family:1,sandman,w,W,59,60,61", other);
        assert_eq!(same, (Verdict::ComesOut, Verdict::ComesOut));
        let less = with("e,,family:1,sandman,w,W,80,81,82", other);
        assert_eq!(less, (Verdict::Undecided, Verdict::ComesOut));
        let none = with("e,,family:1,sandman,w,W,110,111,112", other);
        assert_eq!(none, (Verdict::Undecided, Verdict::Undecided));
    }

    #[test]
    fn fitted_rows_and_rows_without_their_trace_are_no_evidence() {
        let mut claims = claims();
        claims[1].needs_trace = Some("alibaba".to_owned());
        claims[2].needs_trace = Some("alibaba".to_owned());
        let report = report(&claims, &NOISY, &["saving", "order"]);
        assert_eq!(verdict(&report, "saving"), Verdict::Calibrated);
        assert_eq!(verdict(&report, "order"), Verdict::Surrogate, "fitted on as well");
        assert_eq!(verdict(&report, "elsewhere"), Verdict::NoResult);
        assert_eq!(report.rows[0].otherwise, Some(Verdict::ComesOut));
        let counts = &report.results["sandman"];
        assert_eq!((counts[&Verdict::Calibrated], counts.get(&Verdict::ComesOut)), (1, None), "{counts:?}");
    }

    #[test]
    fn the_trivial_value_of_a_claim_enters_its_verdict() {
        // a saving of 40 % against 38.6 % or so: near 40, but of the 2 % above a trivial 38 % most is missing
        let with = |null| {
            let claims = [Claim { null: Some(null), ..number("saving", Relation::Eq, 40.0) }];
            let report =
                report(&claims, &["e,,default,sandman,w,W,61,61,61", "e,,default,static,w,W,100,100,100"], &[]);
            (report.rows[0].verdict, report.rows[0].error_percent.unwrap().round())
        };
        assert_eq!(with(0.0), (Verdict::ComesOut, 3.0));
        assert_eq!(with(38.0), (Verdict::Misses, 50.0));
    }

    #[test]
    fn a_result_that_is_put_in_is_no_evidence() {
        let map = "[[row]]\nid='fill'\nformula='79'\n[[row]]\nid='test'\ntest='a.rs::b'\n";
        let map = map::parse(&[("map".to_owned(), map.to_owned())]).unwrap();
        let claims = [number("fill", Relation::Eq, 79.03), number("test", Relation::Eq, 1.0)];
        let (store, nothing) = (store(&[]), |_: &str| Some("fn b()".to_owned()));
        let lab = Lab {
            claims: &claims,
            map: &map,
            store: &store,
            calibrated: &BTreeSet::new(),
            file: &nothing,
            parameter: &|_, _| None,
            constants: None,
        };
        let rows = lab.assess_all();
        assert_eq!((rows[0].verdict, rows[0].otherwise), (Verdict::Calibrated, Some(Verdict::ComesOut)));
        assert_eq!(rows[1].verdict, Verdict::NoResult);
    }

    #[test]
    fn what_rests_on_saturated_runs_says_so_once() {
        let full = |variant: &str, flags: &str| format!("e,,{variant},static,saturated,1,{flags}");
        let results = [
            NOISY[0].to_owned(),
            NOISY[1].to_owned(),
            full("default", "1,0,0"),
            "e,,family:1,sandman,w,W,60,61,62".to_owned(),
            "e,,family:1,static,w,W,100,101,102".to_owned(),
            full("family:1", "1,1,0"),
        ];
        let report = report(&claims(), &results.each_ref().map(String::as_str), &[]);
        for id in ["saving", "order"] {
            let row = report.rows.iter().find(|row| row.id == id).unwrap();
            assert_eq!(row.saturated.iter().map(ToString::to_string).collect::<Vec<_>>(), ["static in e 2/3"], "{id}");
            assert_eq!(row.verdict, Verdict::ComesOut, "{id}: watts are as measured");
        }
    }

    #[test]
    fn a_row_of_words_cannot_be_compared_with_a_quantity() {
        let report = report(&[order("saving", Kind::Order)], &NOISY, &[]);
        assert_eq!(report.rows[0].verdict, Verdict::NoResult);
        assert!(report.rows[0].note.contains("say holds"), "{}", report.rows[0].note);
    }
}
