//! Hints added to errors of `clap`: the new name of a moved command, and an example of an incomplete one.

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Columns of a help text.
const COLUMNS: usize = 100;

/// Hints of one program.
#[derive(Clone, Copy, Debug)]
pub struct Hints {
    /// Commands that it does not have, each with what to call.
    pub moved: &'static [(&'static str, &'static str)],
    /// Commands that need something, each with an example.
    pub examples: &'static [(&'static str, &'static str)],
}

impl Hints {
    /// The answer with the hint that fits it; as it was where none does.
    #[must_use]
    pub fn add_to(self, mut answer: clap::Error) -> clap::Error {
        if let Some(hint) = self.of(&answer) {
            answer.remove(ContextKind::SuggestedSubcommand);
            answer.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![StyledStr::from(hint)]));
        }
        answer
    }

    fn of(self, answer: &clap::Error) -> Option<String> {
        match (answer.kind(), answer.get(ContextKind::InvalidSubcommand), answer.get(ContextKind::Usage)) {
            (ErrorKind::InvalidSubcommand, Some(ContextValue::String(name)), _) => {
                let (_, now) = self.moved.iter().find(|(moved, _)| moved == name)?;
                Some(format!("`{name}` moved to `{now}`"))
            }
            (ErrorKind::MissingRequiredArgument, _, Some(ContextValue::StyledStr(usage))) => {
                let usage = usage.to_string();
                let (_, example) = self.examples.iter().find(|(command, _)| usage.contains(command))?;
                Some(format!("for example `{example}`"))
            }
            (ErrorKind::UnknownArgument, _, Some(ContextValue::StyledStr(usage))) => {
                let argument = answer.get(ContextKind::InvalidArg)?.to_string();
                let usage = usage.to_string();
                let fits = |(command, example): &&(&str, &str)| usage.contains(command) && example.contains(" -- ");
                let (_, example) = self.examples.iter().find(fits).filter(|_| !argument.starts_with('-'))?;
                Some(format!("if `{argument}` begins the command, put `--` before it, as in `{example}`"))
            }
            _ => None,
        }
    }
}

/// For tests: every command has examples, of which no line is wider than a help text (prose is wrapped), and what moved is no command.
///
/// # Panics
/// With the line, or the command.
pub fn check(program: &clap::Command, hints: Hints) {
    for command in std::iter::once(program).chain(program.get_subcommands()) {
        let texts = [command.get_after_long_help(), command.get_after_help()].into_iter().flatten();
        for text in texts.map(ToString::to_string) {
            let wide = text.lines().find(|line| line.starts_with("  ") && line.chars().count() > COLUMNS);
            assert_eq!(wide, None, "{}", command.get_name());
        }
    }
    for (moved, now) in hints.moved {
        let mut own = program.get_subcommands().map(clap::Command::get_name);
        assert!(own.all(|own| own != *moved), "{moved} did not move");
        let name = now.strip_prefix(program.get_name()).and_then(|rest| rest.split_whitespace().next());
        let is_command = |name: &str| program.get_subcommands().any(|command| command.get_name() == name);
        assert!(name.is_none_or(is_command), "{now} is no command");
    }
    commands_have_examples(program);
}

fn commands_have_examples(program: &clap::Command) {
    for command in program.get_subcommands().filter(|command| !command.is_hide_set()) {
        let help = command.clone().render_long_help().to_string();
        assert!(help.contains("Examples:"), "{} has no examples", command.get_name());
        commands_have_examples(command);
    }
}
