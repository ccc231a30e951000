//! `pilotlight load` alone, until the program's command line has it.

#[path = "../src/load.rs"]
mod load;

use clap::Parser;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    load: load::LoadArgs,
}

fn main() -> anyhow::Result<std::process::ExitCode> {
    load::run(Cli::parse().load)
}
