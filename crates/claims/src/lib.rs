//! What the papers report beside what comes out here, row by row, with an interval and a verdict.
//!
//! # The problem
//! Five papers report some 800 figures and orders. Each has to be compared with results of the simulator that have noise, that
//! depend on constants which nobody printed, and that somebody could be tempted to fit. So the comparison is made by rules that
//! stand here, for all rows alike, and a row is told what it is compared with by a line of a file, not by code.
//!
//! # The words
//! A *claim* is a row of `claims.toml` ([`claim`]): what a paper reports. A *map row* ([`map`]) says which output of which
//! experiment answers it. *Results* ([`results`]) are outputs of experiments, one number for each replication. A *quantity*
//! ([`quantity`]) is what a map row selects, with its 95 % interval; an *order* ([`order`]) is a statement such as
//! `a ~ b < c`. A *verdict* ([`verdict`]) follows from paper's value, relation and interval alone. A *variant* is a member of
//! the model family or a draw of its constants.
//!
//! # The algorithm
//! For each claim ([`assess`]): find its map row; where it is none, say so. Evaluate the quantity or order for the default
//! variant and for every member of the family; take the hull. Judge. Then what overrides a verdict: rows that were fitted on
//! print `calibrated`, rows that need a trace which nobody has print `surrogate`. What comes out although nothing in the same
//! results fails it is `vacuous` ([`vacuous`]); the two ends of a printed range get one verdict ([`range`]), and where
//! one policy rises above another is interpolated ([`crossover`]).
//!
//! # The properties
//! Every claim is counted under exactly one verdict. Nothing about a row's identity enters its verdict. An interval that
//! straddles a boundary is undecided, and so is a single replication, whose interval is unbounded. A bound that the trivial
//! policy meets is no evidence, and is counted apart.

mod alternative;
pub mod assess;
pub mod check;
pub mod claim;
pub mod constants;
pub mod contradicts;
pub mod crossover;
pub mod discriminator;
pub mod formula;
pub mod html;
pub mod input;
pub mod lab;
pub mod leave_out;
pub mod map;
mod number;
pub mod order;
pub mod perturb;
pub mod point;
mod problem;
pub mod quantity;
pub mod range;
pub mod readers;
pub mod report;
pub mod results;
pub mod saturated;
pub mod shift;
pub mod test_settings;
pub mod uncertainty;
pub mod verdict;

pub use report::Report;
