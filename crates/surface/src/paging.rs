//! Lists, a page at a time. A cursor says where the last page ended; it is opaque, so that what it holds can change.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use mutirao_core::Problem;
use mutirao_core::limits::PAGE_ROWS_MAX;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};

/// Rows in a page when nobody says how many.
pub const PAGE_ROWS_DEFAULT: u32 = 100;

/// Longer than any cursor of ours.
const CURSOR_CHARS_MAX: usize = 10_000;

/// Raised when cursors of before can no longer be read.
const VERSION: u8 = 1;

/// The two arguments that every list takes. May be flattened into a list's own arguments.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct PageArgs {
    /// Rows in the page, at most 1000; 100 when left out.
    #[serde(default, deserialize_with = "number_in_text")]
    pub limit: Option<u32>,
    /// `next` of the page before.
    #[serde(default)]
    pub cursor: Option<String>,
}

/// The two arguments of a list by name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct ByName {
    /// The name after which to begin: the last of the page before.
    pub after: Option<String>,
    /// How many, at most 1,000.
    pub limit: Option<u32>,
}

impl PageArgs {
    /// How many rows to read.
    pub fn rows(&self) -> Result<u32, Problem> {
        match self.limit {
            None => Ok(PAGE_ROWS_DEFAULT),
            Some(rows @ 1..=PAGE_ROWS_MAX) => Ok(rows),
            Some(rows) => Err(Problem::invalid("limit", format!("{rows} is not between 1 and {PAGE_ROWS_MAX}"))),
        }
    }

    /// Where the page before ended; none for the first page.
    pub fn after<T: DeserializeOwned>(&self) -> Result<Option<T>, Problem> {
        self.cursor.as_deref().map(decode).transpose()
    }
}

/// A flattened query reaches serde as texts, a plain one as numbers; both are read.
fn number_in_text<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u32>, D::Error> {
    struct Visitor;
    impl serde::de::Visitor<'_> for Visitor {
        type Value = Option<u32>;
        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("a number of rows")
        }
        fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Option<u32>, E> {
            let shown = || text.chars().take(32).collect::<String>();
            text.parse().map(Some).map_err(|_| E::custom(format!("\"{}\" is not a number of rows", shown())))
        }
        fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<Option<u32>, E> {
            u32::try_from(number).map(Some).map_err(E::custom)
        }
        fn visit_none<E: serde::de::Error>(self) -> Result<Option<u32>, E> {
            Ok(None)
        }
    }
    from.deserialize_any(Visitor)
}

/// Writes a cursor: version, checksum, position.
///
/// ```
/// use mutirao_surface::paging::{decode, encode};
/// assert_eq!(decode::<(u64, String)>(&encode(&(7u64, "a"))).unwrap(), (7, "a".to_owned()));
/// ```
pub fn encode<T: Serialize>(position: &T) -> String {
    let json = serde_json::to_vec(position).expect("a position is plain data");
    let mut bytes = vec![VERSION];
    bytes.extend(crc32fast::hash(&json).to_be_bytes());
    bytes.extend(json);
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Reads a cursor. Not a secret and not a proof: the checksum finds slips, and whoever forges one reads a list they may
/// read anyway.
pub fn decode<T: DeserializeOwned>(cursor: &str) -> Result<T, Problem> {
    position(cursor).ok_or_else(|| {
        Problem::invalid("cursor", "is not a cursor of this list")
            .remedy("pass on `next` of the page before, or leave it out for the first page")
    })
}

fn position<T: DeserializeOwned>(cursor: &str) -> Option<T> {
    if cursor.len() > CURSOR_CHARS_MAX {
        return None;
    }
    let bytes = URL_SAFE_NO_PAD.decode(cursor).ok()?;
    let (&version, rest) = bytes.split_first()?;
    let (sum, json) = rest.split_first_chunk::<4>()?;
    if version != VERSION || crc32fast::hash(json).to_be_bytes() != *sum {
        return None;
    }
    serde_json::from_slice(json).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_cursor_reads_back_and_a_slip_in_it_is_found(a: u64, b in "\\PC{0,20}", at: prop::sample::Index) {
            let cursor = encode(&(a, &b));
            prop_assert_eq!(decode::<(u64, String)>(&cursor).unwrap(), (a, b));
            let mut slipped = cursor.into_bytes();
            let at = at.index(slipped.len());
            slipped[at] = if slipped[at] == b'!' { b'?' } else { b'!' };
            prop_assert_eq!(decode::<(u64, String)>(std::str::from_utf8(&slipped).unwrap()).unwrap_err().status, 422);
        }

        #[test]
        fn rubbish_never_panics(text in "\\PC{0,40}") {
            prop_assert!(decode::<u64>(&text).is_err());
        }
    }

    #[test]
    fn a_cursor_of_another_list_is_refused() {
        assert_eq!(decode::<String>(&encode(&7u64)).unwrap_err().field.as_deref(), Some("cursor"));
    }

    #[test]
    fn the_limit_is_checked() {
        let rows = |limit| PageArgs { limit, cursor: None }.rows();
        assert_eq!((rows(None), rows(Some(1_000))), (Ok(PAGE_ROWS_DEFAULT), Ok(1_000)));
        assert_eq!(rows(Some(0)).unwrap_err().field.as_deref(), Some("limit"));
        assert!(rows(Some(1_001)).is_err());
    }
}
