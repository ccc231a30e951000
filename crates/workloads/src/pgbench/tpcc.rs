//! Transactions like those of TPC-C (TPC Benchmark C, revision 5.11) as scripts of pgbench: our own tables, loader and functions in SQL
//! (`tpcc/*.sql`), written after the specification's description.
//!
//! **Not a TPC result.** Terminals, keying and think times, the deferred queue of deliveries, checkpoints, ACID tests and the audit are left
//! out; a client takes a warehouse by chance for each transaction; the mix is drawn by weight. Figures cannot be compared with tpmC.
//! `new_orders_per_minute` counts New-Order transactions, with the one in a hundred that is undone as the specification wants.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::output::Kind;
use crate::{Problem, problem};

/// As `script` has it.
pub(super) const NAME: &str = "tpcc";
/// Tables, loader, transactions, consistency conditions.
const SQL: [&str; 4] = [
    include_str!("tpcc/schema.sql"),
    include_str!("tpcc/load.sql"),
    include_str!("tpcc/transactions.sql"),
    include_str!("tpcc/check.sql"),
];
/// The kinds of transaction with their weight in percent (clause 5.2.3 asks for at least 43, 4, 4 and 4 of the last four), in the
/// order of the scripts.
const MIX: [(&str, u32); 5] =
    [("new-order", 45), ("payment", 43), ("order-status", 4), ("delivery", 4), ("stock-level", 4)];

/// How large a warehouse is. In TOML: `tpcc = { customers = 3000, items = 100000 }`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Size {
    /// Customers of each of a warehouse's ten districts, and orders at the start; 3,000 in the specification.
    pub customers: u32,
    /// Items, and stocks of a warehouse; 100,000 in the specification.
    pub items: u32,
}

impl Default for Size {
    fn default() -> Self {
        Self { customers: 3_000, items: 100_000 }
    }
}

impl Size {
    /// # Errors
    /// Sizes with which there would be nothing to order.
    pub(super) fn check(&self) -> Result<(), Problem> {
        let key = |key: &str| format!("workload.tpcc.{key}");
        if !(10..=1_000_000).contains(&self.customers) {
            return Err(problem(key("customers"), "is from 10 to 1,000,000; the specification has 3,000"));
        }
        if !(20..=10_000_000).contains(&self.items) {
            return Err(problem(key("items"), "is from 20 to 10,000,000; the specification has 100,000"));
        }
        Ok(())
    }

    /// What a reader must know about such sizes.
    pub(super) fn doubt(&self) -> Option<String> {
        (*self != Self::default()).then(|| {
            format!(
                "TPC-C-like with {} customers a district and {} items, not 3,000 and 100,000",
                self.customers, self.items
            )
        })
    }
}

/// The file with everything that makes the database, and psql's words that do it.
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

/// The scripts: a call each.
pub(super) fn scripts(scratch: &Path) -> Vec<(PathBuf, String)> {
    let script = |(kind, _): (&str, u32)| {
        let call = format!("SELECT tpcc_{}(:w, :seed);", kind.replace('-', "_"));
        let text = format!("\\set w random(1, :warehouses)\n\\set seed random(0, 2147483646)\n{call}\n");
        (scratch.join(file(kind)), text)
    };
    MIX.map(script).to_vec()
}

/// pgbench's words for the scripts; it is started in the scratch folder.
pub(super) fn words(warehouses: u64) -> Vec<String> {
    let scripts = MIX.map(|(kind, weight)| format!("--file={}@{weight}", file(kind)));
    // There are no tables of pgbench's own that it could vacuum.
    scripts.into_iter().chain([format!("--define=warehouses={warehouses}"), "--no-vacuum".into()]).collect()
}

/// The kinds in the order of the scripts.
pub(super) fn kinds() -> Vec<Kind> {
    MIX.iter().map(|(kind, _)| Kind { name: (*kind).to_owned(), script: file(kind) }).collect()
}

/// New-Order transactions in a minute of so many in a time.
pub(super) fn per_minute(operations: u64, runtime_ns: u64) -> f64 {
    operations as f64 * 60e9 / runtime_ns.max(1) as f64
}
