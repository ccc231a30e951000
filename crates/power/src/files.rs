//! Reading the small files below `/sys` and `/proc`.

use std::fs;
use std::io;
use std::path::Path;

/// The text of a small file, without white space around it.
pub fn text(path: &Path) -> io::Result<String> {
    Ok(fs::read_to_string(path)?.trim().to_owned())
}

/// The whole number in a file.
///
/// # Errors
/// As of reading; `InvalidData` if it has no number.
pub fn number<T: std::str::FromStr>(path: &Path) -> io::Result<T> {
    let text = text(path)?;
    text.parse().map_err(|_| io::Error::new(io::ErrorKind::InvalidData, format!("holds {text:?}, not a number")))
}

/// The names in a folder, in the order of the numbers in them (`cpu2` before `cpu10`).
pub fn names(folder: &Path) -> io::Result<Vec<String>> {
    let entries: io::Result<Vec<_>> = fs::read_dir(folder)?.collect();
    let mut names: Vec<String> =
        entries?.iter().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort_by_cached_key(|name| natural(name));
    Ok(names)
}

/// The texts and numbers of a name, as its sort key.
fn natural(name: &str) -> Vec<(String, Option<u64>)> {
    let mut parts: Vec<(String, Option<u64>)> = vec![(String::new(), None)];
    for c in name.chars() {
        let last = parts.len() - 1;
        let (text, number) = &mut parts[last];
        match (c.to_digit(10), *number) {
            (Some(digit), _) => *number = Some(number.unwrap_or(0).saturating_mul(10).saturating_add(u64::from(digit))),
            (None, Some(_)) => parts.push((c.into(), None)),
            (None, None) => text.push(c),
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_in_the_order_of_their_numbers() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["cpu10", "cpu2", "cpu0", "intel-rapl:0:1", "intel-rapl:0"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        assert_eq!(names(folder.path()).unwrap(), ["cpu0", "cpu2", "cpu10", "intel-rapl:0", "intel-rapl:0:1"]);
    }
}
