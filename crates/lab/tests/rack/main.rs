//! One budget for many simulated servers: `divide` against equal shares and shares by size (`results/fleet.md`).

mod agent;
mod figures;
mod leader;
mod page;
mod server;

use std::path::Path;

use figures::{Figures, check};
use leader::{Change, Method, Rack, Range};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../results/fleet.md");

#[test]
fn the_page_has_the_figures_of_its_first_rack() {
    let (page, table) =
        (std::fs::read_to_string(Path::new(PAGE)).expect("results/fleet.md"), page::short(&Range::of_sizes()));
    assert!(
        page.ends_with(&table),
        "results/fleet.md does not end with\n{table}\nwrite it again: cargo test --release -p pilotlight-lab --test rack -- --ignored"
    );
}

#[test]
#[ignore = "takes minutes; writes results/fleet.md"]
fn write_the_page() {
    std::fs::write(Path::new(PAGE), page::full(&Range::of_sizes())).expect("results/ can be written");
}

#[test]
fn one_seed_has_one_result() {
    let rack = Rack::draw(2, 3, &Range::of_sizes());
    let runs = [0, 1].map(|_| rack.run(Method::Divide, rack.budget_uw(60), Change::LowerFirst, &[]));
    assert_eq!(runs[0].outcomes, runs[1].outcomes);
    assert_eq!(runs[0].most_bound_uw, runs[1].most_bound_uw);
}

#[test]
fn shares_that_change_all_at_once_exceed_the_budget_and_are_found() {
    let rack = Rack::draw(1, 3, &Range::of_sizes());
    let free = rack.run(Method::None, u64::MAX, Change::LowerFirst, &[]);
    let checked = |change: Change| {
        let budget_uw = rack.budget_uw(60);
        let run = rack.run(Method::Divide, budget_uw, change, &free.histories);
        check(&run, &Figures::new(&rack, &run, &free, budget_uw), budget_uw)
    };
    assert_eq!(checked(Change::LowerFirst), Ok(()));
    let error = checked(Change::AtOnce).unwrap_err();
    assert!(error.contains("may be in force together"), "{error}");
}
