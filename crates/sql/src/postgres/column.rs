//! How columns and parameters cross PostgreSQL's interface. What stands in them is said in [`crate::stored::column`].

use bytes::BytesMut;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

pub(super) use crate::stored::column::{Bound, Cell, Column, list, values};

impl<'r> FromSql<'r> for Cell<'r> {
    fn from_sql(kind: &Type, bytes: &'r [u8]) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        Ok(match *kind {
            Type::INT8 => Self::Integer(i64::from_sql(kind, bytes)?),
            Type::INT4 => Self::Integer(i32::from_sql(kind, bytes)?.into()),
            Type::INT2 => Self::Integer(i16::from_sql(kind, bytes)?.into()),
            Type::BOOL => Self::Boolean(bool::from_sql(kind, bytes)?),
            Type::TEXT => Self::Text(bytes),
            Type::BYTEA | Type::UUID => Self::Bytes(bytes),
            _ => Self::Other,
        })
    }

    fn from_sql_null(_: &Type) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Self::Null)
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

impl ToSql for Bound<'_> {
    fn to_sql(&self, kind: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        match self {
            Self::Null => Ok(IsNull::Yes),
            Self::Integer(number) if *kind == Type::INT4 => i32::try_from(*number)?.to_sql(kind, out),
            Self::Integer(number) if *kind == Type::INT2 => i16::try_from(*number)?.to_sql(kind, out),
            Self::Integer(number) if *kind == Type::INT8 => number.to_sql(kind, out),
            Self::Boolean(truth) if *kind == Type::BOOL => truth.to_sql(kind, out),
            Self::Text(text) if *kind == Type::TEXT => text.as_ref().to_sql(kind, out),
            Self::Bytes(bytes) if *kind == Type::BYTEA || *kind == Type::UUID => {
                out.extend_from_slice(bytes);
                Ok(IsNull::No)
            }
            Self::List(values) => values.to_sql(kind, out),
            // Only the kind is told: the value may be a secret.
            other => Err(format!("{} does not fit a parameter of type {kind}", other.name()).into()),
        }
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}
