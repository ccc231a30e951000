//! The commands `completions` and `man` of both programs: shell completions and man pages, from the definition of the command line.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, Command};
use clap_complete::Shell;

use crate::console;

/// Examples of `completions`, for the help text of `program`.
#[must_use]
pub fn completions_examples(program: &str) -> String {
    "\
Examples:
  PROGRAM completions bash >~/.local/share/bash-completion/completions/PROGRAM
  PROGRAM completions fish >~/.config/fish/completions/PROGRAM.fish
  PROGRAM completions zsh >_PROGRAM              in a folder of $fpath"
        .replace("PROGRAM", program)
}

/// Examples of `man`, for the help text of `program`.
#[must_use]
pub fn man_examples(program: &str) -> String {
    "\
Examples:
  PROGRAM man | man -l -                         the program's page
  PROGRAM man --out ~/.local/share/man/man1      a page for each command"
        .replace("PROGRAM", program)
}

/// Options of `completions`.
#[derive(Args, Clone, Debug)]
pub struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

/// Options of `man`.
#[derive(Args, Clone, Debug)]
pub struct ManArgs {
    /// Write a page for each command into this folder [default: the program's page to standard output]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Prints the completions of a program.
///
/// # Errors
/// If standard output cannot be written.
pub fn completions(args: &CompletionsArgs, mut program: Command) -> anyhow::Result<ExitCode> {
    let (name, mut script) = (program.get_name().to_owned(), Vec::new());
    clap_complete::generate(args.shell, &mut program, name, &mut script);
    console::print(String::from_utf8_lossy(&script))?;
    Ok(ExitCode::SUCCESS)
}

/// Prints the man page of a program, or writes those of all commands.
///
/// # Errors
/// If a page cannot be written.
pub fn man(args: &ManArgs, program: Command) -> anyhow::Result<ExitCode> {
    match &args.out {
        Some(dir) => write(dir, program).with_context(|| format!("cannot write man pages into {}", dir.display()))?,
        None => {
            let mut page = Vec::new();
            clap_mangen::Man::new(program).render(&mut page)?;
            console::print(lines_kept(&String::from_utf8_lossy(&page)))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn write(dir: &Path, program: Command) -> io::Result<()> {
    std::fs::create_dir_all(dir)?;
    let program = program.disable_help_subcommand(true);
    clap_mangen::generate_to(program.clone(), dir)?;
    for page in names(&program, program.get_name()) {
        let page = dir.join(page);
        std::fs::write(&page, lines_kept(&std::fs::read_to_string(&page)?))?;
    }
    Ok(())
}

/// `pilotlight.1`, `pilotlight-serve.1`, `pilotlight-set-policy.1`, ...
fn names(command: &Command, name: &str) -> Vec<String> {
    let below = command.get_subcommands().filter(|command| !command.is_hide_set());
    let below = below.flat_map(|command| names(command, &format!("{name}-{}", command.get_name())));
    [format!("{name}.1")].into_iter().chain(below).collect()
}

/// Marks examples and tables of exit codes as preformatted, as `man` would fill and hyphenate them.
fn lines_kept(page: &str) -> String {
    let Some((before, notes)) = page.split_once(".SH EXTRA\n") else { return page.to_owned() };
    let (notes, after) = notes.split_once("\n.SH ").unwrap_or((notes.trim_end(), ""));
    let after = if after.is_empty() { String::new() } else { format!(".SH {after}") };
    format!("{before}.SH NOTES\n.nf\n{notes}\n.fi\n{after}")
}

/// A test of each program: `words` are in its completions, and each command has a page.
///
/// # Panics
/// If they are not.
pub fn check(program: &Command, words: &[&str]) {
    let name = program.get_name();
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut program.clone(), name, &mut script);
        let script = String::from_utf8(script).expect("a script is UTF-8");
        words.iter().for_each(|word| assert!(script.contains(word), "{shell} does not complete {word}"));
    }
    let dir = std::env::temp_dir().join(format!("{name}-man-{}", std::process::id()));
    write(&dir, program.clone()).expect("pages are written");
    let pages = std::fs::read_dir(&dir).expect("the folder was created").flatten();
    let mut pages: Vec<String> = pages.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    let mut expected = names(program, name);
    [&mut pages, &mut expected].into_iter().for_each(|names| names.sort());
    assert_eq!(pages, expected);
    for page in &pages {
        let text = std::fs::read_to_string(dir.join(page)).expect("a page is text");
        let is_kept = text.contains(".SH NOTES\n.nf\n") && !text.contains(".SH EXTRA");
        assert_eq!(is_kept, text.contains("Examples:"), "{page}: {text}");
    }
    std::fs::remove_dir_all(&dir).expect("the folder is removed");
}
