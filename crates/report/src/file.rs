//! Tables as files: CSV and Parquet, with units in the names of the columns.

use std::io::Write;
use std::sync::Arc;

use parquet::basic::{Compression, LogicalType, Repetition, Type as PhysicalType, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};

use parquet::schema::types::Type;

use crate::table::{Cell, Column, Kind, Table};

impl Table {
    /// The table as CSV: the names of columns, then the rows.
    #[must_use]
    pub fn csv(&self) -> String {
        let mut writer = csv::WriterBuilder::new().flexible(true).from_writer(Vec::new());
        let mut add = |row: Vec<String>| writer.write_record(row).expect("a write to memory succeeds");
        add(self.columns.iter().map(Column::key).collect());
        self.rows.iter().for_each(|row| add(row.iter().map(plain).collect()));
        let text = writer.into_inner().expect("a write to memory succeeds");
        String::from_utf8(text).expect("cells are UTF-8")
    }

    /// Writes the table as Parquet, with notes as key and value in the file's metadata.
    ///
    /// # Errors
    /// If `out` fails.
    pub fn parquet<W: Write + Send>(&self, out: W, notes: &[(String, String)]) -> Result<W, ParquetError> {
        let fields = self.columns.iter().map(|column| Ok(Arc::new(field(column)?)));
        let fields = fields.collect::<Result<Vec<_>, ParquetError>>()?;
        let schema = Arc::new(Type::group_type_builder("table").with_fields(fields).build()?);
        let notes =
            notes.iter().map(|(key, value)| KeyValue { key: key.clone(), value: Some(value.clone()) }).collect();
        let properties = WriterProperties::builder()
            .set_key_value_metadata(Some(notes))
            .set_compression(Compression::ZSTD(ZstdLevel::default()))
            .build();
        let mut writer = SerializedFileWriter::new(out, schema, Arc::new(properties))?;
        let mut group = writer.next_row_group()?;
        for at in 0..self.columns.len() {
            let Some(mut column) = group.next_column()? else { break };
            self.write_column(at, &mut column)?;
            column.close()?;
        }
        group.close()?;
        writer.into_inner()
    }

    fn write_column(&self, at: usize, column: &mut SerializedColumnWriter<'_>) -> Result<(), ParquetError> {
        let cells = || self.rows.iter().map(move |row| &row[at]);
        let present: Vec<i16> = cells().map(|cell| i16::from(holds(cell, self.columns[at].kind))).collect();
        match self.columns[at].kind {
            Kind::Text => {
                let values: Vec<ByteArray> = cells().filter_map(as_text).collect();
                column.typed::<ByteArrayType>().write_batch(&values, Some(&present), None)?;
            }
            Kind::Integer => {
                let values: Vec<i64> = cells().filter_map(as_integer).collect();
                column.typed::<Int64Type>().write_batch(&values, Some(&present), None)?;
            }
            Kind::Number => {
                let values: Vec<f64> = cells().filter_map(as_number).collect();
                column.typed::<DoubleType>().write_batch(&values, Some(&present), None)?;
            }
        }
        Ok(())
    }
}

fn plain(cell: &Cell) -> String {
    match cell {
        Cell::Text(text) => text.clone(),
        Cell::Integer(value) => value.to_string(),
        Cell::Number(value) => value.to_string(),
        Cell::Nothing => String::new(),
    }
}

fn field(column: &Column) -> Result<Type, ParquetError> {
    let (physical, logical) = match column.kind {
        Kind::Text => (PhysicalType::BYTE_ARRAY, Some(LogicalType::String)),
        Kind::Integer => (PhysicalType::INT64, None),
        Kind::Number => (PhysicalType::DOUBLE, None),
    };
    let key = column.key();
    let builder = Type::primitive_type_builder(&key, physical).with_repetition(Repetition::OPTIONAL);
    builder.with_logical_type(logical).build()
}

fn as_text(cell: &Cell) -> Option<ByteArray> {
    if let Cell::Text(text) = cell { Some(text.as_bytes().to_vec().into()) } else { None }
}

fn as_integer(cell: &Cell) -> Option<i64> {
    if let Cell::Integer(value) = cell { Some(*value) } else { None }
}

fn as_number(cell: &Cell) -> Option<f64> {
    match cell {
        Cell::Number(value) => Some(*value),
        Cell::Integer(value) => Some(*value as f64),
        _ => None,
    }
}

fn holds(cell: &Cell, kind: Kind) -> bool {
    match kind {
        Kind::Text => matches!(cell, Cell::Text(_)),
        Kind::Integer => as_integer(cell).is_some(),
        Kind::Number => as_number(cell).is_some(),
    }
}

#[cfg(test)]
mod tests {
    use parquet::file::reader::{FileReader as _, SerializedFileReader};

    use super::*;

    fn table() -> Table {
        Table {
            title: "t".into(),
            columns: vec![Column::text("policy"), Column::integer("runs", ""), Column::number("power", "W")],
            rows: vec![
                vec![Cell::text("a, \"b\""), Cell::Integer(10), Cell::number(716.25)],
                vec![Cell::text("c"), Cell::Nothing, Cell::number(f64::NAN)],
            ],
        }
    }

    #[test]
    fn csv_has_units_in_its_columns_and_quotes_where_needed() {
        assert_eq!(table().csv(), "policy,runs,power_w\n\"a, \"\"b\"\"\",10,716.25\nc,,\n");
    }

    #[test]
    fn parquet_is_read_back() {
        let bytes = table().parquet(Vec::new(), &[("hash".into(), "1".into())]).unwrap();
        let reader = SerializedFileReader::new(bytes::Bytes::from(bytes)).unwrap();
        let rows: Vec<String> = reader.get_row_iter(None).unwrap().map(|row| row.unwrap().to_string()).collect();
        assert_eq!(rows[0], "{policy: \"a, \"b\"\", runs: 10, power_w: 716.25}");
        assert_eq!(rows[1], "{policy: \"c\", runs: null, power_w: null}");
        let notes = reader.metadata().file_metadata().key_value_metadata().unwrap();
        assert_eq!(notes[0].value.as_deref(), Some("1"));
    }
}
