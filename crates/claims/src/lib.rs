//! Compares the papers' claims with results of the simulator, row by row, with an interval and a verdict.
//!
//! # The problem
//! Five papers report some 800 figures and orders. Results of the simulator have noise and depend on unpublished constants, which could be
//! overfitted. So the same rules apply to all rows, and a file, not code, maps a row to an output.
//!
//! # Terms
//! A *claim* is a row of `claims.toml` ([`claim`]). A *map row* ([`map`]) assigns an output of an experiment to it. *Results* ([`results`])
//! are outputs of experiments, one number per replication. A *quantity* ([`quantity`]) is the number selected by a map row, with its 95 %
//! interval; an *order* ([`order`]) is a statement such as `a ~ b < c`. A *verdict* ([`verdict`]) follows from the paper's value, the
//! relation and the interval. A *variant* is a member of the model family or a draw of its constants.
//!
//! # The algorithm
//! For each claim ([`assess`]): evaluate its map row at the settings that the text prints or that make the statement possible, and derive
//! which of three tiers hold (direction, size, value) and from them the verdict; then the same over the family and the assumed constants,
//! shown beside it. Fitted rows are overridden by `calibrated`, rows that need an unavailable trace by `surrogate`. A statement that
//! nothing in the same results fails is `vacuous` ([`discriminator`]). What is alike follows from the paper's words ([`alike`]); crossings of
//! curves are interpolated ([`crossover`]).
//!
//! # The properties
//! Every claim has exactly one verdict, independent of its identity. An interval that straddles a boundary is undecided, and so is a single
//! replication. A bound that the trivial policy meets is no evidence, and is counted separately.

pub mod alike;
mod alternative;
pub mod assess;
pub mod check;
pub mod claim;
pub mod constants;
pub mod contradicts;
pub mod crossover;
pub mod discriminator;
pub mod error;
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
pub mod quantity;
pub mod readers;
pub mod report;
pub mod results;
pub mod saturated;
pub mod shift;
pub mod test_settings;
pub mod uncertainty;
pub mod verdict;

pub use report::Report;
