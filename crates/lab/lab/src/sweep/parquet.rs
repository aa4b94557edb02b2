//! Writes columns as a Parquet file. The low-level writer takes columns directly; Arrow would add a conversion.

use std::sync::Arc;

use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;

use super::columns::{Column, Values};

/// Returns the bytes of the file. Equal columns give equal bytes.
pub(super) fn bytes(columns: &[Column]) -> Result<Vec<u8>, ParquetError> {
    let fields = columns.iter().map(field).collect::<Result<Vec<_>, _>>()?;
    let schema = Type::group_type_builder("cell").with_fields(fields).build()?;
    let properties = WriterProperties::builder()
        .set_created_by("superpage".to_string())
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(3)?))
        .build();
    let mut bytes = Vec::new();
    let mut file = SerializedFileWriter::new(&mut bytes, Arc::new(schema), Arc::new(properties))?;
    let mut rows = file.next_row_group()?;
    for column in columns {
        let mut writer = rows.next_column()?.ok_or_else(|| {
            ParquetError::General("fewer columns than were described".to_string())
        })?;
        match &column.values {
            Values::Text(values) => {
                let values: Vec<ByteArray> =
                    values.iter().map(|value| ByteArray::from(value.as_str())).collect();
                writer.typed::<ByteArrayType>().write_batch(&values, None, None)?;
            }
            Values::Whole(values) => {
                let (values, levels) = optional(values);
                // The format stores unsigned numbers in two's complement.
                let values: Vec<i64> = values.into_iter().map(u64::cast_signed).collect();
                writer.typed::<Int64Type>().write_batch(&values, Some(&levels), None)?;
            }
            Values::Real(values) => {
                let (values, levels) = optional(values);
                writer.typed::<DoubleType>().write_batch(&values, Some(&levels), None)?;
            }
        }
        writer.close()?;
    }
    rows.close()?;
    file.close()?;
    Ok(bytes)
}

/// Returns the present values, and each row's definition level (0: no value).
fn optional<T: Copy>(values: &[Option<T>]) -> (Vec<T>, Vec<i16>) {
    let levels = values.iter().map(|value| i16::from(value.is_some())).collect();
    (values.iter().filter_map(|value| *value).collect(), levels)
}

fn field(column: &Column) -> Result<Arc<Type>, ParquetError> {
    let (physical, repetition, logical) = match column.values {
        Values::Text(_) => (Physical::BYTE_ARRAY, Repetition::REQUIRED, Some(LogicalType::String)),
        Values::Whole(_) => {
            let unsigned = LogicalType::integer(64, false);
            (Physical::INT64, Repetition::OPTIONAL, Some(unsigned))
        }
        Values::Real(_) => (Physical::DOUBLE, Repetition::OPTIONAL, None),
    };
    let builder = Type::primitive_type_builder(&column.name, physical);
    let built = builder.with_repetition(repetition).with_logical_type(logical).build()?;
    Ok(Arc::new(built))
}
