//! Dotted keys of TOML: `workload.hosts.rate`, `policy.sandman.settings.window`, `power.family.package_ppm`.
//!
//! A segment is a key of a table; in an array of tables it is an element's `label`, `name` or `profile`, or its index. Setting a table with
//! a new name adds it to the array.

use toml::{Table, Value};

/// An invalid dotted key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DottedError {
    /// An array has no such element.
    #[error("{key}: unknown {segment:?}; known: {known}")]
    Element {
        /// The whole key.
        key: String,
        /// The unknown segment.
        segment: String,
        /// The known elements.
        known: String,
    },
    /// An inner value is neither a table nor an array.
    #[error("{key}: {segment:?} follows a plain value")]
    Leaf {
        /// The whole key.
        key: String,
        /// The segment after it.
        segment: String,
    },
}

/// Sets the value at a key; missing tables are created.
///
/// # Errors
/// The key goes through a plain value, or to an unknown element of an array.
pub fn set(table: &mut Table, key: &str, value: Value) -> Result<(), DottedError> {
    let Some((last, way)) = split(key) else { return Ok(()) };
    let mut at = Place::Table(table);
    for segment in way {
        at = at.enter(key, segment)?;
    }
    at.put(key, last, value)
}

/// The value at a key.
#[must_use]
pub fn get<'a>(table: &'a Table, key: &str) -> Option<&'a Value> {
    let mut segments = key.split('.');
    let mut at = table.get(segments.next()?)?;
    for segment in segments {
        at = match at {
            Value::Table(table) => table.get(segment)?,
            Value::Array(array) => array.get(position(array, segment)?)?,
            _ => return None,
        };
    }
    Some(at)
}

/// All plain values with their keys, in order. Arrays count as plain.
pub fn leaves(table: &Table) -> Vec<(String, &Value)> {
    let mut found = Vec::new();
    gather("", table, &mut found);
    found
}

fn gather<'a>(prefix: &str, table: &'a Table, found: &mut Vec<(String, &'a Value)>) {
    for (key, value) in table {
        let key = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
        match value {
            Value::Table(inner) => gather(&key, inner, found),
            leaf => found.push((key, leaf)),
        }
    }
}

fn split(key: &str) -> Option<(&str, Vec<&str>)> {
    let mut segments: Vec<&str> = key.split('.').collect();
    let last = segments.pop()?;
    Some((last, segments))
}

/// Keys that identify elements of arrays, in order of precedence: groups of connections have a label in addition to their name.
const NAMES: [&str; 3] = ["label", "name", "profile"];

fn called<'a>(value: &'a Value, by: &str) -> Option<&'a str> {
    value.as_table()?.get(by)?.as_str()
}

fn position(array: &[Value], segment: &str) -> Option<usize> {
    let by = |key: &&str| array.iter().position(|element| called(element, key) == Some(segment));
    let named = NAMES.iter().find_map(by);
    named.or_else(|| segment.parse().ok().filter(|&at| at < array.len()))
}

fn missing(array: &[Value], key: &str, segment: &str) -> DottedError {
    let distinct = |by: &&str| {
        let names: Option<Vec<&str>> = array.iter().map(|element| called(element, by)).collect();
        names.filter(|names| names.iter().enumerate().all(|(at, name)| !names[..at].contains(name)))
    };
    let known = NAMES.iter().find_map(distinct).filter(|names| !names.is_empty());
    let known = known.map_or_else(|| format!("{} without names", array.len()), |names| names.join(", "));
    DottedError::Element { key: key.to_owned(), segment: segment.to_owned(), known }
}

enum Place<'a> {
    Table(&'a mut Table),
    Array(&'a mut Vec<Value>),
}

impl<'a> Place<'a> {
    fn enter(self, key: &str, segment: &str) -> Result<Self, DottedError> {
        let value = match self {
            Self::Table(table) => table.entry(segment.to_owned()).or_insert_with(|| Value::Table(Table::new())),
            Self::Array(array) => {
                let Some(at) = position(array, segment) else { return Err(missing(array, key, segment)) };
                &mut array[at]
            }
        };
        match value {
            Value::Table(table) => Ok(Self::Table(table)),
            Value::Array(array) => Ok(Self::Array(array)),
            _ => Err(DottedError::Leaf { key: key.to_owned(), segment: segment.to_owned() }),
        }
    }

    fn put(self, key: &str, last: &str, value: Value) -> Result<(), DottedError> {
        match self {
            Self::Table(table) => {
                table.insert(last.to_owned(), value);
            }
            Self::Array(array) => match position(array, last) {
                Some(at) => array[at] = value,
                None if NAMES.iter().any(|by| called(&value, by) == Some(last)) => array.push(value),
                None => return Err(missing(array, key, last)),
            },
        }
        Ok(())
    }
}

/// Parses the value of `--set KEY=`: TOML if valid, else text.
#[must_use]
pub fn value(text: &str) -> Value {
    let document = format!("value = {text}");
    let parsed = document.parse::<Table>().ok().and_then(|mut table| table.remove("value"));
    parsed.unwrap_or_else(|| Value::String(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        "a = 1\n[[policy]]\nlabel = 'x'\n[[policy]]\nlabel = 'y'\nsettings = { n = 2 }\n".parse().unwrap()
    }

    #[test]
    fn elements_are_found_by_name_and_by_number() {
        let mut table = table();
        set(&mut table, "policy.y.settings.n", value("3")).unwrap();
        set(&mut table, "policy.0.settings.m", value("5us")).unwrap();
        assert_eq!(get(&table, "policy.1.settings.n"), Some(&Value::Integer(3)));
        assert_eq!(get(&table, "policy.x.settings.m"), Some(&Value::String("5us".into())));
        assert_eq!(get(&table, "policy.z"), None);
    }

    #[test]
    fn a_label_comes_before_a_name_and_hides_none() {
        let text = "[[group]]\nname = 'a'\nlabel = 'same'\n[[group]]\nname = 'b'\nlabel = 'same'";
        let mut table: Table = text.parse().unwrap();
        set(&mut table, "group.b.n", value("1")).unwrap();
        assert_eq!(get(&table, "group.1.n"), Some(&Value::Integer(1)));
        assert!(set(&mut table, "group.c.n", value("1")).unwrap_err().to_string().ends_with("known: a, b"));
    }

    #[test]
    fn a_named_table_can_be_added() {
        let mut table = table();
        set(&mut table, "policy.z", value("{ label = 'z', n = 4 }")).unwrap();
        assert_eq!(get(&table, "policy.z.n"), Some(&Value::Integer(4)));
        assert!(set(&mut table, "policy.w", value("{ label = 'z' }")).is_err());
    }

    #[test]
    fn errors_name_the_key_and_known_elements() {
        let error = set(&mut table(), "policy.z.settings.n", value("3")).unwrap_err();
        assert_eq!(error.to_string(), "policy.z.settings.n: unknown \"z\"; known: x, y");
        let error = set(&mut table(), "a.b.c", value("3")).unwrap_err();
        assert!(error.to_string().contains("a.b.c"), "{error}");
    }

    #[test]
    fn values_are_toml_if_valid() {
        assert_eq!(value("true"), Value::Boolean(true));
        assert_eq!(value("[1, 2]"), Value::Array(vec![1.into(), 2.into()]));
        assert_eq!(value("sandman"), Value::String("sandman".into()));
    }

    #[test]
    fn leaves_have_their_full_key() {
        let keys: Vec<String> =
            leaves(&"a = 1\n[b]\nc = [2]\nd.e = 3".parse().unwrap()).into_iter().map(|(key, _)| key).collect();
        assert_eq!(keys, ["a", "b.c", "b.d.e"]);
    }
}
