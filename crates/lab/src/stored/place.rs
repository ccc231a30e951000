//! Paths of results: a folder for each experiment with `values.csv.zst`.

use std::fs;
use std::path::{Path, PathBuf};

use pilotlight_report::output;

use crate::stored::values::{PACKED, Results, ResultsError, packed};

/// Name of the file with the values of an experiment; compressed with the suffix [`PACKED`].
pub const FILE: &str = "values.csv";

/// Whether a file is `values.csv` or `values.csv.zst`.
#[must_use]
pub fn is_results(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.strip_suffix(PACKED).unwrap_or(name) == FILE
}

/// The results files in a folder and its direct subfolders, sorted; none without the folder.
///
/// # Errors
/// If the folder cannot be read, or holds results of an earlier layout (`NAME.csv.zst`).
pub fn files(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in entries(folder)? {
        refuse_earlier(&path)?;
        if path.is_dir() {
            files.extend(entries(&path)?.into_iter().filter(|path| is_results(path)));
        } else if is_results(&path) {
            files.push(path);
        }
    }
    Ok(files)
}

/// The results files in a folder and all subfolders, sorted.
///
/// # Errors
/// As [`files`].
pub fn files_below(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in entries(folder)? {
        refuse_earlier(&path)?;
        if path.is_dir() {
            files.extend(files_below(&path)?);
        } else if is_results(&path) {
            files.push(path);
        }
    }
    Ok(files)
}

fn entries(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    if !folder.exists() {
        return Ok(Vec::new());
    }
    let entries = fs::read_dir(folder)?.map(|entry| Ok(entry?.path()));
    let mut paths = entries.collect::<std::io::Result<Vec<PathBuf>>>()?;
    paths.sort();
    Ok(paths)
}

fn refuse_earlier(path: &Path) -> std::io::Result<()> {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let stem = name.strip_suffix(".csv.zst").filter(|stem| *stem != "values" && !stem.contains('.'));
    match stem {
        Some(stem) if path.is_file() => Err(std::io::Error::other(format!(
            "{} has an earlier layout (now {stem}/{FILE}{PACKED}): remove it and run the experiment again",
            path.display()
        ))),
        _ => Ok(()),
    }
}

/// The compressed file of `values.csv`.
#[must_use]
pub fn packed_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(PACKED);
    name.into()
}

/// Replaces the results at `values.csv` by a compressed file; without runs by none.
///
/// # Errors
/// If they cannot be written.
pub fn write(path: &Path, results: &Results) -> Result<(), ResultsError> {
    if results.runs.is_empty() {
        return remove_all(path);
    }
    let failed = |error| ResultsError::file(path, error);
    let bytes = packed(&results.text()).map_err(failed)?;
    output::write(&packed_path(path), &bytes).map_err(failed)?;
    remove(path)
}

/// Reads the results at `values.csv`, compressed and plain; `None` without a file.
///
/// # Errors
/// If a file cannot be read, or a line is invalid.
pub fn read(path: &Path) -> Result<Option<Results>, ResultsError> {
    read_with(path, Results::read)
}

/// As [`read`], including runs without an end ([`Results::read_whole`]).
///
/// # Errors
/// As [`read`].
pub fn read_whole(path: &Path) -> Result<Option<Results>, ResultsError> {
    read_with(path, Results::read_whole)
}

fn read_with(
    path: &Path,
    read: impl Fn(&Path) -> Result<Results, ResultsError>,
) -> Result<Option<Results>, ResultsError> {
    let mut found: Option<Results> = None;
    for file in [packed_path(path), path.to_owned()] {
        if file.exists() {
            let more = read(&file)?;
            match &mut found {
                Some(results) => results.add(more),
                None => found = Some(more),
            }
        }
    }
    Ok(found)
}

/// Removes the results at `values.csv`.
///
/// # Errors
/// If it cannot be removed.
pub fn remove_all(path: &Path) -> Result<(), ResultsError> {
    [packed_path(path), path.to_owned()].iter().try_for_each(|file| remove(file))
}

fn remove(file: &Path) -> Result<(), ResultsError> {
    match fs::remove_file(file) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(ResultsError::file(file, error)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stored::values::RunKey;
    use crate::stored::values::tests::results;

    #[test]
    fn results_are_equal_after_a_round_trip_and_found_in_their_folder() {
        let folder = tempfile::tempdir().unwrap();
        let path_of = folder.path().join("e").join(FILE);
        fs::create_dir(folder.path().join("e")).unwrap();
        write(&path_of, &results()).unwrap();
        assert_eq!(read(&path_of).unwrap(), Some(results()));
        assert_eq!(files(folder.path()).unwrap(), [packed_path(&path_of)]);
        assert_eq!(files(&folder.path().join("e")).unwrap(), [packed_path(&path_of)], "the experiment's own folder");
        fs::create_dir_all(folder.path().join("short")).unwrap();
        fs::rename(folder.path().join("e"), folder.path().join("short/e")).unwrap();
        assert!(files(folder.path()).unwrap().is_empty(), "a subfolder is another set of results");
        assert_eq!(files_below(folder.path()).unwrap().len(), 1);
        write(&folder.path().join("short/e").join(FILE), &Results::default()).unwrap();
        assert_eq!(read(&folder.path().join("short/e").join(FILE)).unwrap(), None, "no file without runs");
    }

    #[test]
    fn a_plain_file_extends_the_compressed_one() {
        let folder = tempfile::tempdir().unwrap();
        let path_of = folder.path().join(FILE);
        write(&path_of, &results()).unwrap();
        let mut since = results();
        since.runs = since.runs.into_iter().map(|(key, run)| (RunKey { replication: 1, ..key }, run)).collect();
        fs::write(&path_of, since.text()).unwrap();
        for both in [read(&path_of), read_whole(&path_of)] {
            assert_eq!(both.unwrap().unwrap().runs.len(), 2);
        }
        fs::write(&path_of, since.text().replace("saturated", "latency_mean_us")).unwrap();
        assert_eq!([read(&path_of), read_whole(&path_of)].map(|all| all.unwrap().unwrap().runs.len()), [1, 2]);
    }

    #[test]
    fn the_error_for_an_earlier_layout_names_the_remedy() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("fig3.csv.zst"), "").unwrap();
        let error = files(folder.path()).unwrap_err().to_string();
        assert!(error.contains("fig3/values.csv.zst") && error.contains("again"), "{error}");
    }
}
