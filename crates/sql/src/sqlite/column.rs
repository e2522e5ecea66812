//! How columns and parameters cross SQLite's interface. What stands in them is said in [`crate::stored::column`].

use rusqlite::types::{ToSql, ToSqlOutput, ValueRef};

pub(super) use crate::stored::column::{Bound, Cell, Column, values};

impl<'r> From<ValueRef<'r>> for Cell<'r> {
    fn from(value: ValueRef<'r>) -> Self {
        match value {
            ValueRef::Null => Self::Null,
            ValueRef::Integer(number) => Self::Integer(number),
            ValueRef::Text(bytes) => Self::Text(bytes),
            ValueRef::Blob(bytes) => Self::Bytes(bytes),
            ValueRef::Real(_) => Self::Other,
        }
    }
}

impl ToSql for Bound<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Null => ValueRef::Null,
            Self::Integer(number) => ValueRef::Integer(*number),
            Self::Boolean(truth) => ValueRef::Integer((*truth).into()),
            Self::Text(text) => ValueRef::Text(text.as_bytes()),
            Self::Bytes(bytes) => ValueRef::Blob(bytes),
            Self::List(_) => {
                let refused = format!("{} does not fit a parameter", self.name());
                return Err(rusqlite::Error::ToSqlConversionFailure(refused.into()));
            }
        }))
    }
}
