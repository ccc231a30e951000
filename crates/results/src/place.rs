//! Where results lie: a folder for each experiment, with `values.csv.zst` in it.

use std::fs;
use std::path::{Path, PathBuf};

use pilotlight_report::output;

use crate::values::{PACKED, Results, ResultsError, packed};

/// The file with the numbers in an experiment's folder; packed with [`PACKED`] behind it.
pub const FILE: &str = "values.csv";

/// Whether a file holds an experiment's numbers: `values.csv` or `values.csv.zst`.
#[must_use]
pub fn is_results(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.strip_suffix(PACKED).unwrap_or(name) == FILE
}

/// The files of results in a folder and in the folders directly below it, by name; none where there is no folder.
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

/// The files of results in a folder and everywhere below it, by name.
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
            "{} is of an earlier layout: results are in {stem}/{FILE}{PACKED} now; remove it and run the experiment again",
            path.display()
        ))),
        _ => Ok(()),
    }
}

/// `values.csv.zst` beside `values.csv`.
#[must_use]
pub fn packed_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(PACKED);
    name.into()
}

/// Makes these the packed results of a place `values.csv`, without a journal; without runs there is neither.
///
/// # Errors
/// If they cannot be written.
pub fn put(path: &Path, results: &Results) -> Result<(), ResultsError> {
    if results.runs.is_empty() {
        return forget(path);
    }
    let failed = |error| ResultsError::file(path, error);
    let bytes = packed(&results.text()).map_err(failed)?;
    output::write(&packed_path(path), &bytes).map_err(failed)?;
    remove(path)
}

/// What is at a place `values.csv`, packed or not; `None` if nothing is.
///
/// # Errors
/// If a file cannot be read, or a line is no row.
pub fn read(path: &Path) -> Result<Option<Results>, ResultsError> {
    read_with(path, Results::read)
}

/// As [`read`], of runs that need no end ([`Results::read_whole`]).
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

/// Removes what is at a place.
///
/// # Errors
/// If it cannot be removed.
pub fn forget(path: &Path) -> Result<(), ResultsError> {
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
    use crate::values::RunKey;
    use crate::values::tests::results;

    #[test]
    fn what_is_put_is_read_again_and_found_by_its_folder() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("e").join(FILE);
        fs::create_dir(folder.path().join("e")).unwrap();
        put(&place, &results()).unwrap();
        assert_eq!(read(&place).unwrap(), Some(results()));
        assert_eq!(files(folder.path()).unwrap(), [packed_path(&place)]);
        assert_eq!(files(&folder.path().join("e")).unwrap(), [packed_path(&place)], "the experiment's own folder");
        fs::create_dir_all(folder.path().join("short")).unwrap();
        fs::rename(folder.path().join("e"), folder.path().join("short/e")).unwrap();
        assert!(files(folder.path()).unwrap().is_empty(), "further below is another set of results");
        assert_eq!(files_below(folder.path()).unwrap().len(), 1);
        put(&folder.path().join("short/e").join(FILE), &Results::default()).unwrap();
        assert_eq!(read(&folder.path().join("short/e").join(FILE)).unwrap(), None, "without runs there is no file");
    }

    #[test]
    fn what_has_come_since_is_read_beside_what_is_packed() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join(FILE);
        put(&place, &results()).unwrap();
        let mut since = results();
        since.runs = since.runs.into_iter().map(|(key, run)| (RunKey { replication: 1, ..key }, run)).collect();
        fs::write(&place, since.text()).unwrap();
        for both in [read(&place), read_whole(&place)] {
            assert_eq!(both.unwrap().unwrap().runs.len(), 2);
        }
        fs::write(&place, since.text().replace("saturated", "latency_mean_us")).unwrap();
        assert_eq!([read(&place), read_whole(&place)].map(|all| all.unwrap().unwrap().runs.len()), [1, 2]);
    }

    #[test]
    fn the_earlier_layout_is_refused_with_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("fig3.csv.zst"), "").unwrap();
        let error = files(folder.path()).unwrap_err().to_string();
        assert!(error.contains("fig3/values.csv.zst") && error.contains("again"), "{error}");
    }
}
