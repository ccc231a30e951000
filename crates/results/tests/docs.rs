//! docs/metrics.md has the table of metrics.

use std::fmt::Write as _;

use pilotlight_results::metric::{Better, TABLE};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
/// What stands above the table.
const HEAD: &str = "\
# Metrics

One name for a metric, whether it was measured or simulated. A name ends in its unit. Before it may stand the label of the phases that it is of
(`burst.latency_p99_us`), behind it the moment (`iops@12ms`).

`SCOPE` is `system`, `ssd_cpu`, `ssd`, `cpu` or, simulated, `others`; `CLASS` is `read`, `write` or `trim`; `NAME` is `transaction`, `operation`, or the
name of one kind of them. `SCOPE_power_above_idle_w`, `io_per_j_SCOPE_above_idle` and so on leave out what the idle machine took under the same
setting. What rests on a model of power on a real machine says so: `cpu_modelled_generic_power_w`; of simulated machines everything is modelled.
Whatever else a tool prints has a column of its own.

| metric | unit | better | what it is |
|---|---|---|---|
";

#[test]
fn the_page_is_the_table() {
    let mut page = HEAD.to_owned();
    for metric in TABLE {
        let better = match metric.better {
            Some(Better::Higher) => "higher",
            Some(Better::Lower) => "lower",
            None => "",
        };
        let _ = writeln!(page, "| `{}` | {} | {better} | {} |", metric.name, metric.unit, metric.what);
    }
    if std::env::var_os("WRITE_DOCS").is_some() {
        std::fs::write(PAGE, &page).unwrap();
    }
    let written = std::fs::read_to_string(PAGE).unwrap_or_default();
    assert!(written == page, "docs/metrics.md is not of today's table: WRITE_DOCS=1 cargo test -p pilotlight-results");
}
