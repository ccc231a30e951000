//! Transactions similar to TPC-C (TPC Benchmark C, revision 5.11) as scripts of pgbench. Tables, loader and functions (`tpcc/*.sql`)
//! follow the specification's description.
//!
//! **Not a TPC result.** There are no terminals, keying and think times, deferred deliveries, checkpoints, ACID tests and audit. A
//! client uses a random warehouse for each transaction, and the mix is random by weight. Results cannot be compared with tpmC.
//! `new_orders_per_minute` counts New-Order transactions, including the one in a hundred that is rolled back as specified.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::output::Kind;
use crate::{Problem, problem};

/// Value of `script`.
pub(super) const NAME: &str = "tpcc";
/// Tables, loader, transactions, consistency conditions.
const SQL: [&str; 4] = [
    include_str!("tpcc/schema.sql"),
    include_str!("tpcc/load.sql"),
    include_str!("tpcc/transactions.sql"),
    include_str!("tpcc/check.sql"),
];
/// Kinds of transaction and their weight in percent, in the order of the scripts. Clause 5.2.3 requires at least 43, 4, 4 and 4 of the
/// last four.
const MIX: [(&str, u32); 5] =
    [("new-order", 45), ("payment", 43), ("order-status", 4), ("delivery", 4), ("stock-level", 4)];

/// Size of a warehouse. In TOML: `tpcc = { customers = 3000, items = 100000 }`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Size {
    /// Customers and initial orders of each of a warehouse's ten districts; default: 3,000, as specified.
    pub customers: u32,
    /// Items, and stocks of a warehouse; default: 100,000, as specified.
    pub items: u32,
}

impl Default for Size {
    fn default() -> Self {
        Self { customers: 3_000, items: 100_000 }
    }
}

impl Size {
    /// # Errors
    /// A size out of range.
    pub(super) fn check(&self) -> Result<(), Problem> {
        let key = |key: &str| format!("workload.tpcc.{key}");
        if !(10..=1_000_000).contains(&self.customers) {
            return Err(problem(key("customers"), "must be from 10 to 1,000,000; the specification has 3,000"));
        }
        if !(20..=10_000_000).contains(&self.items) {
            return Err(problem(key("items"), "must be from 20 to 10,000,000; the specification has 100,000"));
        }
        Ok(())
    }

    /// A warning about sizes other than the specification's.
    pub(super) fn warning(&self) -> Option<String> {
        (*self != Self::default()).then(|| {
            format!(
                "TPC-C-like with {} customers a district and {} items, not 3,000 and 100,000",
                self.customers, self.items
            )
        })
    }
}

/// The SQL file that creates and fills the database, and psql's arguments.
pub(super) fn load(scratch: &Path, warehouses: u64, size: &Size) -> (Vec<(PathBuf, String)>, Vec<String>) {
    const FILE: &str = "tpcc.sql";
    let words = [
        "--quiet".to_owned(),
        "--set=ON_ERROR_STOP=1".into(),
        format!("--file={FILE}"),
        format!("--command=SELECT tpcc_load({warehouses}, {}, {})", size.customers, size.items),
        "--command=VACUUM ANALYZE".into(),
    ];
    (vec![(scratch.join(FILE), SQL.concat())], words.to_vec())
}

fn file(kind: &str) -> String {
    format!("tpcc-{kind}.sql")
}

/// The script files, one call each.
pub(super) fn scripts(scratch: &Path) -> Vec<(PathBuf, String)> {
    let script = |(kind, _): (&str, u32)| {
        let call = format!("SELECT tpcc_{}(:w, :seed);", kind.replace('-', "_"));
        let text = format!("\\set w random(1, :warehouses)\n\\set seed random(0, 2147483646)\n{call}\n");
        (scratch.join(file(kind)), text)
    };
    MIX.map(script).to_vec()
}

/// pgbench's arguments for the scripts, relative to the scratch folder.
pub(super) fn words(warehouses: u64) -> Vec<String> {
    let scripts = MIX.map(|(kind, weight)| format!("--file={}@{weight}", file(kind)));
    // --no-vacuum: pgbench's tables do not exist.
    scripts.into_iter().chain([format!("--define=warehouses={warehouses}"), "--no-vacuum".into()]).collect()
}

/// The kinds in the order of the scripts.
pub(super) fn kinds() -> Vec<Kind> {
    MIX.iter().map(|(kind, _)| Kind { name: (*kind).to_owned(), script: file(kind) }).collect()
}

/// Operations per minute.
pub(super) fn per_minute(operations: u64, runtime_ns: u64) -> f64 {
    operations as f64 * 60e9 / runtime_ns.max(1) as f64
}
