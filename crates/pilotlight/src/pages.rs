//! Man pages and shell completions, generated from the definition of the command line. A test writes them, so that the program does not link the
//! generators: `packaging/build-deb.sh` sets their directory in PILOTLIGHT_PAGES; the default is a temporary one.

use std::path::{Path, PathBuf};

use clap::CommandFactory as _;
use clap_complete::Shell;

use crate::cli::Cli;

/// One man page per command and one file per shell, named as in the package.
fn write(dir: &Path) -> std::io::Result<()> {
    let mut command = Cli::command();
    for (shell, file) in
        [(Shell::Bash, "pilotlight.bash"), (Shell::Zsh, "_pilotlight"), (Shell::Fish, "pilotlight.fish")]
    {
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut command, "pilotlight", &mut script);
        std::fs::write(dir.join(file), script)?;
    }
    clap_mangen::generate_to(Cli::command().disable_help_subcommand(true), dir)?;
    for page in man_pages(dir) {
        let page = dir.join(page);
        std::fs::write(&page, lines_kept(&std::fs::read_to_string(&page)?))?;
    }
    Ok(())
}

/// Marks examples and tables of exit codes as preformatted, as `man` would fill and hyphenate them.
fn lines_kept(page: &str) -> String {
    let Some((before, notes)) = page.split_once(".SH EXTRA\n") else { return page.to_owned() };
    let (notes, after) = notes.split_once("\n.SH ").unwrap_or((notes.trim_end(), ""));
    let after = if after.is_empty() { String::new() } else { format!(".SH {after}") };
    format!("{before}.SH NOTES\n.nf\n{notes}\n.fi\n{after}")
}

fn man_pages(dir: &Path) -> Vec<String> {
    let files = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut pages: Vec<String> = files.filter(|file| file.ends_with(".1")).collect();
    pages.sort();
    pages
}

/// `pilotlight`, `pilotlight-serve`, `pilotlight-set-policy`, ...
fn names(command: &clap::Command, name: &str, all: &mut Vec<String>) {
    all.push(format!("{name}.1"));
    for below in command.get_subcommands().filter(|command| !command.is_hide_set()) {
        names(below, &format!("{name}-{}", below.get_name()), all);
    }
}

#[test]
fn every_command_has_a_man_page_and_every_shell_completes_it() {
    let temporary = tempfile::tempdir().unwrap();
    let dir = std::env::var_os("PILOTLIGHT_PAGES").map_or(temporary.path().to_owned(), PathBuf::from);
    write(&dir).unwrap();
    let mut expected = Vec::new();
    names(&Cli::command(), "pilotlight", &mut expected);
    expected.sort();
    assert_eq!(man_pages(&dir), expected);
    for file in ["pilotlight.bash", "_pilotlight", "pilotlight.fish"] {
        let script = std::fs::read_to_string(dir.join(file)).unwrap();
        for word in ["serve", "status", "drain-timeout"] {
            assert!(script.contains(word), "{file} does not complete {word}");
        }
    }
    let page = std::fs::read_to_string(dir.join("pilotlight-serve.1")).unwrap();
    assert!(page.contains("Exit codes:") && page.contains("SIGHUP") && page.contains(".SH NOTES\n.nf\n"), "{page}");
}
