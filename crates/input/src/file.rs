//! TOML to structs, with errors that name the file, the key and the nearest known name.

use serde::de::DeserializeOwned;
use toml::Table;

/// An error in a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}: {place}{reason}")]
pub struct ReadError {
    /// The file.
    pub file: String,
    /// The key or line followed by a colon, or empty.
    pub place: String,
    /// The error and the remedy.
    pub reason: String,
}

impl ReadError {
    /// An error of a key.
    pub fn key(file: &str, key: &str, reason: impl Into<String>) -> Self {
        let place = if key.is_empty() { String::new() } else { format!("{key}: ") };
        Self { file: file.to_owned(), place, reason: reason.into() }
    }
}

/// Parses TOML.
///
/// # Errors
/// Invalid TOML; the line is named.
pub fn parse(file: &str, text: &str) -> Result<Table, ReadError> {
    text.parse().map_err(|error: toml::de::Error| {
        let line = error.span().map(|span| text[..span.start.min(text.len())].lines().count().max(1));
        let place = line.map(|line| format!("line {line}: ")).unwrap_or_default();
        ReadError { file: file.to_owned(), place, reason: error.message().to_owned() }
    })
}

/// Converts the table of a file to a struct.
///
/// # Errors
/// A key is missing, unknown or of another type; its full key is named.
pub fn table<T: DeserializeOwned>(table: Table, file: &str) -> Result<T, ReadError> {
    section(table, file, "")
}

/// Converts the table at `key` of a file to a struct.
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

/// Adds the nearest known name to serde's message about an unknown one.
fn with_nearest(message: &str) -> String {
    let names: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    let (true, Some((wrong, known))) = (message.starts_with("unknown "), names.split_first()) else {
        return message.to_owned();
    };
    nearest(wrong, known).map_or_else(|| message.to_owned(), |name| format!("{message}; did you mean `{name}`?"))
}

/// The known name nearest to another.
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
    fn dissimilar_names_have_no_suggestion() {
        assert_eq!(nearest("zzz", &["ramp", "duration"]), None);
        assert_eq!(nearest("durtion", &["ramp", "duration"]), Some("duration"));
    }
}
