//! How much of what a text may hold is left. Counted without writing the text.

use std::io::{self, Write};

use serde::Serialize;

pub struct Room {
    bytes_max: usize,
    left: Left,
}

impl Room {
    pub fn of(bytes_max: usize) -> Self {
        Self { bytes_max, left: Left(bytes_max) }
    }

    /// Takes what this value needs as a text, if there is so much.
    pub fn take(&mut self, value: &impl Serialize) -> Result<(), String> {
        serde_json::to_writer(&mut self.left, value)
            .map_err(|_| format!("with this it would have more than {} bytes", self.bytes_max))
    }
}

/// Takes bytes until there is no room for more.
struct Left(usize);

impl Write for Left {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 = self.0.checked_sub(bytes.len()).ok_or(io::ErrorKind::StorageFull)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_value_takes_as_much_as_its_text() {
        let value = json!({"rows": [1, 2.5, "th\"ree", null, true], "deep": {"a": {"b": [[]]}}});
        let bytes = value.to_string().len();
        assert_eq!(Room::of(bytes).take(&value), Ok(()));
        assert!(Room::of(bytes - 1).take(&value).is_err());
        let mut twice = Room::of(2 * bytes - 1);
        assert_eq!((twice.take(&value).is_ok(), twice.take(&value).is_ok()), (true, false));
    }
}
