//! Verdicts of rows that their paper contradicts.

use std::collections::BTreeMap;

use crate::claim::Claim;
use crate::lab::{Assessment, Lab};
use crate::verdict::Verdict;

impl Lab<'_> {
    /// A row that its own paper contradicts is no evidence, whatever its result.
    pub(super) fn contradiction(&self, claim: &Claim, printed: &BTreeMap<&str, f64>, assessment: &mut Assessment) {
        let Some(contradiction) = self.map.contradicts.get(&claim.id) else { return };
        let sides = contradiction.evaluate(printed).unwrap_or_else(|error| error.to_string());
        assessment.contradiction = Some(format!("{} ({sides})", contradiction.because));
        match assessment.verdict {
            Verdict::NoResult => return,
            Verdict::NotMapped | Verdict::NotModelled => {}
            was => assessment.otherwise = assessment.otherwise.or(Some(was)),
        }
        assessment.verdict = Verdict::Contradicts;
    }
}
