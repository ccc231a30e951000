//! Raw samples: a table for each sensor and measurement, with the time since the start and a column for each domain.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

use pilotlight_report::{Cell, Column, Kind, Output, Table, output};
use pilotlight_sensors::recording::{Marker, Recording, Track};

use parquet::file::reader::{FileReader as _, SerializedFileReader};
use parquet::record::Field;
use pilotlight_sensors::Domain;

use super::FolderError;

/// File format of samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Apache Parquet, compressed by zstd.
    Parquet,
    /// CSV.
    Csv,
}

impl Format {
    const fn ending(self) -> &'static str {
        match self {
            Self::Parquet => "parquet",
            Self::Csv => "csv",
        }
    }
}

/// Writes all tracks and the markers of a recording into `folder`. `zero_ns` is the start on the monotonic clock.
///
/// # Errors
/// If a file cannot be written.
pub fn write(recording: &Recording, zero_ns: u64, folder: &Path, format: Format) -> Result<(), FolderError> {
    std::fs::create_dir_all(folder).map_err(|source| FolderError::file(folder, source))?;
    for track in &recording.tracks {
        save(&of_track(track, zero_ns), &folder.join(format!("{}.{}", track.sensor, format.ending())), format)?;
    }
    let markers = markers(&recording.markers, zero_ns);
    save(&markers, &folder.join("markers.csv"), Format::Csv)
}

fn save(table: &Table, path: &Path, format: Format) -> Result<(), FolderError> {
    let failed = |source| FolderError::file(path, source);
    if format == Format::Csv {
        return output::write(path, table.csv()).map_err(failed);
    }
    let file = Output::create(path).map_err(failed)?;
    let written = table.parquet(file, &[("title".to_owned(), table.title.clone())]);
    let written = written.map_err(|error| failed(std::io::Error::other(error.to_string())))?;
    written.finish().map_err(failed)
}

fn of_track(track: &Track, zero_ns: u64) -> Table {
    let mut rows: BTreeMap<u64, Vec<Cell>> = BTreeMap::new();
    for (domain, points) in track.points.iter().enumerate() {
        for point in points {
            let row = rows.entry(point.at_ns).or_insert_with(|| vec![Cell::Nothing; track.domains.len()]);
            row[domain] = Cell::Integer(point.value);
        }
    }
    let time = Column::integer("since_start_ns", "");
    let domains =
        track.domains.iter().map(|domain| Column { name: domain.column(), unit: String::new(), kind: Kind::Integer });
    let row = |(at_ns, cells): (u64, Vec<Cell>)| {
        [Cell::Integer(at_ns as i64 - zero_ns as i64)].into_iter().chain(cells).collect()
    };
    Table {
        title: track.sensor.clone(),
        columns: [time].into_iter().chain(domains).collect(),
        rows: rows.into_iter().map(row).collect(),
    }
}

fn markers(markers: &[Marker], zero_ns: u64) -> Table {
    let row =
        |marker: &Marker| vec![Cell::Integer(marker.at_ns as i64 - zero_ns as i64), Cell::text(marker.name.as_str())];
    Table {
        title: "markers".into(),
        columns: vec![Column::integer("since_start_ns", ""), Column::text("phase")],
        rows: markers.iter().map(row).collect(),
    }
}

/// The column of a domain.
#[must_use]
pub fn column_of(domain: &Domain) -> String {
    Column { name: domain.column(), unit: String::new(), kind: Kind::Integer }.key()
}

/// Samples of one sensor, read back.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Samples {
    /// Name of the sensor.
    pub sensor: String,
    /// Names of the columns.
    pub columns: Vec<String>,
    /// The values by row and column.
    pub rows: Vec<Vec<Option<f64>>>,
}

impl Samples {
    /// A column by name: seconds since the start of the command, and values.
    #[must_use]
    pub fn column(&self, name: &str) -> Option<Vec<(f64, f64)>> {
        let at = |name: &str| self.columns.iter().position(|column| column == name);
        let (time, value) = (at("since_start_ns")?, at(name)?);
        let pair = |row: &Vec<Option<f64>>| Some(((*row.get(time)?)? / 1e9, (*row.get(value)?)?));
        Some(self.rows.iter().filter_map(pair).collect())
    }
}

/// Samples of all sensors of a measurement; unreadable files are left out.
#[must_use]
pub fn read_all(folder: &Path) -> Vec<Samples> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths.retain(|path| path.file_stem().is_some_and(|name| name != "markers"));
    paths.iter().filter_map(|path| read(path)).collect()
}

fn read(path: &Path) -> Option<Samples> {
    let (columns, rows) = match path.extension()?.to_str()? {
        "csv" => of_csv(path)?,
        "parquet" => of_parquet(File::open(path).ok()?)?,
        _ => return None,
    };
    Some(Samples { sensor: path.file_stem()?.to_string_lossy().into_owned(), columns, rows })
}

type Columns = (Vec<String>, Vec<Vec<Option<f64>>>);

fn of_csv(path: &Path) -> Option<Columns> {
    let mut reader = csv::ReaderBuilder::new().flexible(true).from_path(path).ok()?;
    let columns = reader.headers().ok()?.iter().map(str::to_owned).collect();
    let rows = reader.records().map_while(Result::ok).map(|row| row.iter().map(|cell| cell.parse().ok()).collect());
    Some((columns, rows.collect()))
}

fn of_parquet(file: File) -> Option<Columns> {
    let reader = SerializedFileReader::new(file).ok()?;
    let schema = reader.metadata().file_metadata().schema_descr();
    let columns = schema.columns().iter().map(|column| column.name().to_owned()).collect();
    let value = |(_, field): (&String, &Field)| match field {
        Field::Long(value) => Some(*value as f64),
        Field::Double(value) => Some(*value),
        _ => None,
    };
    let rows = reader.get_row_iter(None).ok()?.flatten();
    Some((columns, rows.map(|row| row.get_column_iter().map(value).collect()).collect()))
}

#[cfg(test)]
mod tests {
    use pilotlight_sensors::energy::Point;
    use pilotlight_sensors::{Domain, Part, Unit};

    use super::*;

    fn recording() -> Recording {
        let domains = [Domain::power("package-0/core", Part::Core(0)), Domain::counter("reads", Unit::Count)];
        let mut track = Track::new("x", &domains, 1);
        track.points[0] = vec![Point { at_ns: 10, value: 5 }, Point { at_ns: 20, value: 6 }];
        track.points[1] = vec![Point { at_ns: 20, value: 7 }];
        Recording {
            tracks: vec![track],
            markers: vec![Marker { at_ns: 12, name: "measure".into() }],
            ..Recording::default()
        }
    }

    #[test]
    fn columns_have_units_and_missing_values_are_empty() {
        let folder = tempfile::tempdir().unwrap();
        write(&recording(), 10, folder.path(), Format::Csv).unwrap();
        let text = std::fs::read_to_string(folder.path().join("x.csv")).unwrap();
        let expected = "since_start_ns,package_0_per_core_uw,reads_count\n0,5,\n10,6,7\n";
        assert_eq!(text, expected);
        let markers = std::fs::read_to_string(folder.path().join("markers.csv")).unwrap();
        assert_eq!(markers, "since_start_ns,phase\n2,measure\n");
    }

    #[test]
    fn both_formats_give_equal_samples() {
        let folder = tempfile::tempdir().unwrap();
        let read = |format| {
            let folder = folder.path().join(Format::ending(format));
            write(&recording(), 10, &folder, format).unwrap();
            read_all(&folder)
        };
        let csv = read(Format::Csv);
        assert_eq!(csv, read(Format::Parquet));
        let column = column_of(&Domain::power("package-0/core", Part::Core(0)));
        assert_eq!(csv[0].column(&column).unwrap(), [(0.0, 5.0), (1e-8, 6.0)]);
        assert_eq!(csv[0].column("reads_count").unwrap(), [(1e-8, 7.0)]);
    }

    #[test]
    fn parquet_files_are_compressed() {
        let folder = tempfile::tempdir().unwrap();
        write(&recording(), 10, folder.path(), Format::Parquet).unwrap();
        assert!(std::fs::read(folder.path().join("x.parquet")).unwrap().starts_with(b"PAR1"));
    }
}
