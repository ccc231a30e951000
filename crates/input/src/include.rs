//! Included files.
//!
//! `include = ["../machines/epyc.toml"]` lists files relative to the including file. They are merged in order, each over the previous ones,
//! and the file's own keys over all. Tables are merged by key; other values, including lists, are replaced.

use std::path::{Path, PathBuf};

use toml::{Table, Value};

use crate::file::{self, ReadError};

const INCLUDE: &str = "include";

/// A file with its included files.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Merged {
    /// The merged keys, without `include`.
    pub table: Table,
    /// Each file with its own keys, in merge order.
    pub files: Vec<(String, Table)>,
}

impl Merged {
    /// A file without includes.
    #[must_use]
    pub fn single(name: &str, table: Table) -> Self {
        Self { files: vec![(name.to_owned(), table.clone())], table }
    }

    /// The file that sets a key such as `workload.depth[0]`; the main file if none does.
    #[must_use]
    pub fn origin(&self, key: &str) -> &str {
        let keys: Vec<&str> = key.split(['.', '[']).take_while(|part| !part.ends_with(']')).collect();
        let has = |(_, table): &&(String, Table)| has(table, &keys);
        let said = self.files.iter().rev().find(has).or(self.files.last());
        said.map_or("", |(name, _)| name)
    }
}

fn has(table: &Table, keys: &[&str]) -> bool {
    let Some((first, rest)) = keys.split_first() else { return true };
    match table.get(*first) {
        Some(Value::Table(inner)) => has(inner, rest),
        Some(_) => true,
        None => false,
    }
}

/// Reads a file and its included files.
///
/// # Errors
/// A file cannot be read, is not valid TOML, or includes itself.
pub fn load(path: &Path) -> Result<Merged, ReadError> {
    let mut merged = Merged::default();
    add(path, &mut Vec::new(), &mut merged)?;
    Ok(merged)
}

fn add(path: &Path, within: &mut Vec<PathBuf>, merged: &mut Merged) -> Result<(), ReadError> {
    let name = path.display().to_string();
    let unreadable = |error: std::io::Error| ReadError::key(&name, "", error.to_string());
    let absolute = path.canonicalize().map_err(unreadable)?;
    if within.contains(&absolute) {
        return Err(ReadError::key(&name, INCLUDE, "this file includes itself, perhaps by way of others"));
    }
    let mut table = file::parse(&name, &std::fs::read_to_string(path).map_err(unreadable)?)?;
    within.push(absolute);
    for other in included(&name, table.remove(INCLUDE))? {
        add(&path.parent().unwrap_or(Path::new("")).join(other), within, merged)?;
    }
    within.pop();
    merge(&mut merged.table, table.clone());
    merged.files.push((name, table));
    Ok(())
}

fn included(name: &str, value: Option<Value>) -> Result<Vec<String>, ReadError> {
    let Some(value) = value else { return Ok(Vec::new()) };
    value.try_into().map_err(|_| ReadError::key(name, INCLUDE, "write a list of files, such as [\"common.toml\"]"))
}

/// Merges `over` over `base`.
pub fn merge(base: &mut Table, over: Table) {
    for (key, value) in over {
        match (base.get_mut(&key), value) {
            (Some(Value::Table(below)), Value::Table(above)) => merge(below, above),
            (_, value) => {
                base.insert(key, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        folder
    }

    #[test]
    fn own_keys_override_later_includes_and_those_earlier_ones() {
        let folder = folder(&[
            ("main.toml", "include = ['sub/a.toml', 'b.toml']\nx = 'main'\n[w]\nown = 1"),
            ("sub/a.toml", "include = ['deep.toml']\nx = 'a'\ny = 'a'\nz = 'a'\n[w]\nlist = [1, 2]\nkept = 2"),
            ("sub/deep.toml", "z = 'deep'\nu = 'deep'"),
            ("b.toml", "y = 'b'\n[w]\nlist = [3]"),
        ]);
        let merged = load(&folder.path().join("main.toml")).unwrap();
        let expected = "x = 'main'\ny = 'b'\nz = 'a'\nu = 'deep'\n[w]\nlist = [3]\nkept = 2\nown = 1";
        assert_eq!(merged.table, expected.parse().unwrap());
        assert!(merged.origin("u").ends_with("deep.toml"));
        assert!(merged.origin("w.list[0]").ends_with("b.toml"));
        assert!(merged.origin("nowhere").ends_with("main.toml"));
        assert!(merged.origin("x").ends_with("main.toml"), "the last that has it has said it");
        assert!(merged.origin("z").ends_with("a.toml"));
    }

    #[test]
    fn cycles_are_refused_and_repeated_includes_are_not() {
        let circle = folder(&[("a.toml", "include = ['b.toml']"), ("b.toml", "include = ['a.toml']")]);
        assert!(load(&circle.path().join("a.toml")).unwrap_err().to_string().contains("includes itself"));
        let diamond = folder(&[
            ("a.toml", "include = ['b.toml', 'c.toml']"),
            ("b.toml", "include = ['d.toml']"),
            ("c.toml", "include = ['d.toml']"),
            ("d.toml", "x = 1"),
        ]);
        assert_eq!(load(&diamond.path().join("a.toml")).unwrap().table, "x = 1".parse().unwrap());
    }

    #[test]
    fn a_missing_file_is_named() {
        let folder = folder(&[("a.toml", "include = ['missing.toml']")]);
        assert!(load(&folder.path().join("a.toml")).unwrap_err().file.ends_with("missing.toml"));
    }
}
