//! A row of SQLite as PostgreSQL's binary COPY carries it.
//!
//! The form is canonical: equal values are equal bytes, whoever writes them. So what was read and what PostgreSQL gives back
//! are compared by digests of these bytes.

use bytes::{BufMut as _, BytesMut};
use rusqlite::types::ValueRef;

use super::tables::{Kind, Table};

/// What every binary COPY begins with: its signature, no flags, no extension.
pub(crate) const HEADER: &[u8; 19] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";
/// What it ends with.
pub(crate) const TRAILER: [u8; 2] = [0xff, 0xff];

/// What becomes of values on their way.
#[derive(Debug, Clone, Default)]
pub(crate) struct Change {
    /// How far the target's lease clock is ahead, in milliseconds.
    pub(crate) shift: i64,
    /// Columns whose value is another there: table, column, value.
    pub(crate) replaced: Vec<(&'static str, &'static str, Vec<u8>)>,
}

/// Appends a row. The error names the column, never its value.
pub(crate) fn encode(
    row: &rusqlite::Row<'_>,
    table: &Table,
    change: &Change,
    out: &mut BytesMut,
) -> Result<(), String> {
    out.put_i16(i16::try_from(table.columns.len()).map_err(|_| "more columns than a row can have".to_owned())?);
    for (at, column) in table.columns.iter().enumerate() {
        let replaced = change.replaced.iter().find(|(of, name, _)| (*of, *name) == (table.name, &column.name));
        let value = match replaced {
            Some((_, _, bytes)) => ValueRef::Blob(bytes),
            None => row.get_ref(at).map_err(|error| error.to_string())?,
        };
        let shift = if column.is_lease_instant() { change.shift } else { 0 };
        field(column.kind, value, shift, out).map_err(|why| format!("{}: {why}", column.name))?;
    }
    Ok(())
}

fn field(kind: Kind, value: ValueRef<'_>, shift: i64, out: &mut BytesMut) -> Result<(), String> {
    match (kind, value) {
        (_, ValueRef::Null) => out.put_i32(-1),
        (Kind::Uuid, ValueRef::Blob(bytes)) if bytes.len() == 16 => sized(bytes, out)?,
        (Kind::Bytes, ValueRef::Blob(bytes)) => sized(bytes, out)?,
        (Kind::Text, ValueRef::Text(bytes)) => {
            let text = std::str::from_utf8(bytes).map_err(|_| "a text that is no UTF-8".to_owned())?;
            if text.contains('\0') {
                return Err("a text with a zero character, which PostgreSQL does not take".to_owned());
            }
            sized(bytes, out)?;
        }
        (Kind::Boolean, ValueRef::Integer(truth @ (0 | 1))) => sized(&[u8::from(truth == 1)], out)?,
        (Kind::Integer(width), ValueRef::Integer(number)) => {
            let too_large = || "a number that does not fit".to_owned();
            let number = number.checked_add(shift).ok_or_else(too_large)?;
            match width {
                2 => sized(&i16::try_from(number).map_err(|_| too_large())?.to_be_bytes(), out)?,
                4 => sized(&i32::try_from(number).map_err(|_| too_large())?.to_be_bytes(), out)?,
                _ => sized(&number.to_be_bytes(), out)?,
            }
        }
        (kind, value) => return Err(format!("{kind:?} expected, found {}", value.data_type())),
    }
    Ok(())
}

fn sized(bytes: &[u8], out: &mut BytesMut) -> Result<(), String> {
    out.put_i32(i32::try_from(bytes.len()).map_err(|_| "a value that is too large".to_owned())?);
    out.put_slice(bytes);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(kind: Kind, value: ValueRef<'_>, shift: i64) -> Result<Vec<u8>, String> {
        let mut out = BytesMut::new();
        field(kind, value, shift, &mut out).map(|()| out.to_vec())
    }

    #[test]
    fn a_value_is_its_length_and_its_bytes() {
        assert_eq!(written(Kind::Text, ValueRef::Null, 0).unwrap(), [255; 4]);
        assert_eq!(written(Kind::Text, ValueRef::Text("ä".as_bytes()), 0).unwrap(), [0, 0, 0, 2, 0xc3, 0xa4]);
        assert_eq!(written(Kind::Boolean, ValueRef::Integer(1), 0).unwrap(), [0, 0, 0, 1, 1]);
        assert_eq!(written(Kind::Integer(2), ValueRef::Integer(-2), 0).unwrap(), [0, 0, 0, 2, 255, 254]);
        assert_eq!(written(Kind::Integer(8), ValueRef::Integer(5), 251).unwrap(), [0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 1, 0]);
    }

    #[test]
    fn what_postgresql_would_not_take_is_named_and_not_shown() {
        for (kind, value, word) in [
            (Kind::Text, ValueRef::Text(b"secret\0"), "zero character"),
            (Kind::Text, ValueRef::Text(b"secret\xff"), "UTF-8"),
            (Kind::Uuid, ValueRef::Blob(b"secret"), "Uuid"),
            (Kind::Integer(4), ValueRef::Integer(i64::MAX), "fit"),
            (Kind::Boolean, ValueRef::Integer(2), "Boolean"),
        ] {
            let said = written(kind, value, 0).unwrap_err();
            assert!(said.contains(word) && !said.contains("secret"), "{said}");
        }
        assert!(written(Kind::Integer(8), ValueRef::Integer(i64::MAX), 1).is_err());
    }
}
