//! Files of one line. Some list choices with the current one in brackets (`none [mq-deadline] kyber`): reading returns the list,
//! writing takes one choice.

use std::io;
use std::path::Path;

use super::kernel::Kernel;

/// The exact content of a file.
pub(super) fn read(kernel: &mut dyn Kernel, path: &Path) -> io::Result<String> {
    let text = kernel.read(path)?;
    match text.trim_end().lines().count() {
        0 | 1 => Ok(text),
        lines => Err(io::Error::other(format!("it has {lines} lines, which one write cannot restore"))),
    }
}

/// Writes a value, or text that was read from the file.
pub(super) fn write(kernel: &mut dyn Kernel, path: &Path, text: &str) -> io::Result<()> {
    match (chosen(text), text.ends_with('\n')) {
        (Some(choice), _) => kernel.write(path, &format!("{choice}\n")),
        (None, true) => kernel.write(path, text),
        (None, false) if kernel.read(path)?.ends_with('\n') => kernel.write(path, &format!("{text}\n")),
        (None, false) => kernel.write(path, text),
    }
}

/// The value of a text: the choice in brackets, or the trimmed text.
pub(super) fn value(text: &str) -> &str {
    chosen(text).unwrap_or(text.trim())
}

/// The choices, if the file lists them.
pub(super) fn choices(text: &str) -> Option<Vec<&str>> {
    chosen(text)?;
    Some(text.split_whitespace().map(|word| word.trim_matches(['[', ']'])).collect())
}

fn chosen(text: &str) -> Option<&str> {
    let mut bracketed =
        text.split_whitespace().filter_map(|word| word.strip_prefix('[').and_then(|word| word.strip_suffix(']')));
    let first = bracketed.next().filter(|word| !word.is_empty() && !word.contains(['[', ']']));
    first.filter(|_| bracketed.next().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_choice_in_brackets_is_the_value() {
        assert_eq!(value("[none] mq-deadline kyber bfq\n"), "none");
        assert_eq!(value("none [mq-deadline] kyber\n"), "mq-deadline");
        assert_eq!(value("none\n"), "none");
        assert_eq!(value("always madvise [never]"), "never");
        assert_eq!(value(" 42 \n"), "42");
        assert_eq!(value("[] a"), "[] a");
        assert_eq!(value("[a] [b]"), "[a] [b]");
        assert_eq!(choices("none [mq-deadline] kyber\n"), Some(vec!["none", "mq-deadline", "kyber"]));
        assert_eq!(choices("none\n"), None);
    }
}
