//! Values as PostgreSQL's COPY reads them. Pure.

use rusqlite::types::ValueRef;

/// Adds the line's `n`th value, for a column of this type.
pub fn put(line: &mut Vec<u8>, n: usize, value: ValueRef<'_>, kind: &str) {
    if n > 0 {
        line.push(b'\t');
    }
    match value {
        ValueRef::Null => line.extend_from_slice(b"\\N"),
        // SQLite has no booleans.
        ValueRef::Integer(number) if kind == "boolean" => line.push(if number == 0 { b'f' } else { b't' }),
        ValueRef::Integer(number) => line.extend_from_slice(number.to_string().as_bytes()),
        ValueRef::Real(number) => line.extend_from_slice(format!("{number:?}").as_bytes()),
        ValueRef::Text(text) => escape(line, text),
        ValueRef::Blob(bytes) => hex(line, bytes),
    }
}

/// PostgreSQL's texts have no NUL and are UTF-8 throughout.
fn escape(line: &mut Vec<u8>, text: &[u8]) {
    for character in String::from_utf8_lossy(text).chars() {
        match character {
            '\\' => line.extend_from_slice(b"\\\\"),
            '\n' => line.extend_from_slice(b"\\n"),
            '\r' => line.extend_from_slice(b"\\r"),
            '\t' => line.extend_from_slice(b"\\t"),
            '\0' => line.extend_from_slice("\u{fffd}".as_bytes()),
            other => line.extend_from_slice(other.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
}

pub fn hex(line: &mut Vec<u8>, bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    line.extend_from_slice(b"\\\\x");
    for byte in bytes {
        line.extend_from_slice(&[DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
    }
}

/// Names of columns as SQLite wants them.
pub fn listed(columns: &[String]) -> String {
    columns.iter().map(|name| format!("\"{}\"", name.replace('"', "\"\""))).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_written_so_that_no_line_breaks_and_nothing_is_taken_for_something_else() {
        let mut line = Vec::new();
        for (n, (value, kind)) in [
            (ValueRef::Null, "text"),
            (ValueRef::Integer(-7), "bigint"),
            (ValueRef::Integer(1), "boolean"),
            (ValueRef::Text("a\tb\\N\n\0ü".as_bytes()), "text"),
            (ValueRef::Blob(&[0, 255]), "bytea"),
        ]
        .into_iter()
        .enumerate()
        {
            put(&mut line, n, value, kind);
        }
        assert_eq!(String::from_utf8(line).unwrap(), "\\N\t-7\tt\ta\\tb\\\\N\\n\u{fffd}ü\t\\\\x00ff");
    }
}
