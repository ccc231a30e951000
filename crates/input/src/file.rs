//! TOML into structs, with errors that say which file, which key, and what was probably meant.

use serde::de::DeserializeOwned;
use toml::Table;

/// A file is not written as it should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}: {place}{reason}")]
pub struct ReadError {
    /// Which file.
    pub file: String,
    /// Which key or line, with a colon, or nothing.
    pub place: String,
    /// What is wrong, and what would be right.
    pub reason: String,
}

impl ReadError {
    /// About a key.
    pub fn key(file: &str, key: &str, reason: impl Into<String>) -> Self {
        let place = if key.is_empty() { String::new() } else { format!("{key}: ") };
        Self { file: file.to_owned(), place, reason: reason.into() }
    }
}

/// Reads text as TOML.
///
/// # Errors
/// If it is none; the line is named.
pub fn parse(file: &str, text: &str) -> Result<Table, ReadError> {
    text.parse().map_err(|error: toml::de::Error| {
        let line = error.span().map(|span| text[..span.start.min(text.len())].lines().count().max(1));
        let place = line.map(|line| format!("line {line}: ")).unwrap_or_default();
        ReadError { file: file.to_owned(), place, reason: error.message().to_owned() }
    })
}

/// Reads the table of a file as a struct.
///
/// # Errors
/// If a key is missing, unknown or of another type; it is named with all that it stands in.
pub fn table<T: DeserializeOwned>(table: Table, file: &str) -> Result<T, ReadError> {
    section(table, file, "")
}

/// Reads a table, which stands at `key` of its file, as a struct.
///
/// # Errors
/// As [`table`].
pub fn section<T: DeserializeOwned>(table: Table, file: &str, key: &str) -> Result<T, ReadError> {
    serde_path_to_error::deserialize(table).map_err(|error| {
        let inner = error.path().to_string();
        let path = match (key, inner.as_str()) {
            (key, ".") => key.to_owned(),
            ("", inner) => inner.to_owned(),
            (key, inner) => format!("{key}.{inner}"),
        };
        ReadError::key(file, &path, with_nearest(error.inner().message()))
    })
}

/// Adds the name that was probably meant to serde's words about one that is not known.
fn with_nearest(message: &str) -> String {
    let names: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    let (true, Some((wrong, known))) = (message.starts_with("unknown "), names.split_first()) else {
        return message.to_owned();
    };
    nearest(wrong, known).map_or_else(|| message.to_owned(), |meant| format!("{message}; did you mean `{meant}`?"))
}

/// The known name that is most like another.
#[must_use]
pub fn nearest<'a>(wrong: &str, known: &[&'a str]) -> Option<&'a str> {
    let like = |name: &str| strsim::jaro(wrong, name);
    known.iter().copied().filter(|name| like(name) > 0.75).max_by(|a, b| like(a).total_cmp(&like(b)))
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Inner {
        #[serde(rename = "interval")]
        _interval: u32,
    }

    fn refused(text: &str) -> String {
        section::<Inner>(text.parse().unwrap(), "f.toml", "sensor[1]").unwrap_err().to_string()
    }

    #[test]
    fn errors_name_file_key_and_the_nearest_name() {
        let unknown = refused("intervall = 1");
        assert!(unknown.starts_with("f.toml: sensor[1].intervall: unknown field `intervall`"), "{unknown}");
        assert!(unknown.ends_with("did you mean `interval`?"), "{unknown}");
        assert_eq!(refused(""), "f.toml: sensor[1]: missing field `interval`");
        assert!(refused("interval = 'x'").starts_with("f.toml: sensor[1].interval: invalid type"));
        assert_eq!(parse("f.toml", "a = 1\nb = ").unwrap_err().place, "line 2: ");
    }

    #[test]
    fn what_is_like_nothing_has_no_suggestion() {
        assert_eq!(nearest("zzz", &["ramp", "duration"]), None);
        assert_eq!(nearest("durtion", &["ramp", "duration"]), Some("duration"));
    }
}
