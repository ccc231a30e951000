//! Output of a sweep: data files, report, and printed table.

use std::path::Path;

use pilotlight_lab::report::{self, Read, figure};
use pilotlight_lab::results::{Folder, Results};
use pilotlight_lab::simulated::experiment::Bench;
use pilotlight_lab::simulated::variant::{self, Variant};
use pilotlight_report::Column;

use super::{Done, folder};
use crate::console;
use crate::files;
use crate::run::{RunArgs, output};
use crate::table::Table;

/// Prints the summary and writes everything.
pub(super) fn write(args: &RunArgs, out: &Path, bench: &Bench, variants: &[Variant], done: Done) -> anyhow::Result<()> {
    let results = save_all(args, out, bench, variants, done)?;
    if args.output.json {
        return console::println(serde_json::to_string_pretty(&results)?);
    }
    console::print(output::summary_text(&results, &folder(out, bench)) + &limits(bench, &results))
}

/// Writes everything, and returns the summary.
pub(super) fn save_all(
    args: &RunArgs,
    out: &Path,
    bench: &Bench,
    variants: &[Variant],
    done: Done,
) -> anyhow::Result<Results> {
    let folder = Folder::new(&folder(out, bench));
    let read = Read::simulated(bench, &done.results, folder, done.unbounded);
    let (folder, results) = (&read.folder, &read.results);
    files::write(&folder.results(), &serde_json::to_vec_pretty(results)?)?;
    if let Some(draws) = variant::draws(variants) {
        files::write(&folder.root().join("draws.csv"), draws.as_bytes())?;
    }
    files::write(&folder.report(), report::report(&read).html().as_bytes())?;
    let table = results.table();
    if args.output.parquet {
        let notes = [("profile", &bench.machine.name), ("hash", &bench.hash)];
        let notes = notes.map(|(key, value)| (key.to_owned(), value.clone()));
        files::write(&folder.table().with_extension("parquet"), &table.parquet(Vec::new(), &notes)?)?;
    } else {
        files::write(&folder.table(), table.csv().as_bytes())?;
    }
    Ok(read.results)
}

/// Energy of each policy above the minima of sleep states, with bounds.
fn limits(bench: &Bench, results: &Results) -> String {
    let Some(limits) = figure::limits(bench, results) else { return String::new() };
    let headings: Vec<String> = limits.columns.iter().map(Column::heading).collect();
    let mut table = Table::new(&headings.iter().map(String::as_str).collect::<Vec<_>>());
    limits.rows.iter().for_each(|row| table.row(row.iter().map(pilotlight_report::Cell::show)));
    format!("\n{}, of the first replication\n\n{table}", limits.title)
}
