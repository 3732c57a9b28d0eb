//! Quantities people write: cpus (`0.5`, `2`, `250m`), memory (`512M`, `2GiB`) and durations (`30s`, `5m`). Each reads
//! and writes as text in files and the API, and is an integer inside.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("\"{text}\" is not {what}: write it like {like}")]
pub struct BadQuantity {
    pub text: String,
    pub what: &'static str,
    pub like: &'static str,
}

fn bad(text: &str, what: &'static str, like: &'static str) -> BadQuantity {
    BadQuantity { text: text.chars().take(64).collect(), what, like }
}

/// A share of processors, in thousandths of one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cpus {
    pub milli: u32,
}

impl Cpus {
    pub const ONE: Cpus = Cpus { milli: 1000 };
}

impl FromStr for Cpus {
    type Err = BadQuantity;

    fn from_str(text: &str) -> Result<Self, BadQuantity> {
        let wrong = || bad(text, "a number of cpus", "2, 0.5 or 250m");
        let milli = match text.strip_suffix('m') {
            Some(milli) => milli.parse::<u32>().map_err(|_| wrong())?,
            None => {
                let cpus: f64 = text.parse().map_err(|_| wrong())?;
                if !(0.0..=100_000.0).contains(&cpus) {
                    return Err(wrong());
                }
                // The least there is, rather than nothing: zero means something else.
                ((cpus * 1000.0).round() as u32).max(u32::from(cpus > 0.0))
            }
        };
        if milli > 100_000_000 { Err(wrong()) } else { Ok(Self { milli }) }
    }
}

impl fmt::Display for Cpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.milli.is_multiple_of(1000) { write!(f, "{}", self.milli / 1000) } else { write!(f, "{}m", self.milli) }
    }
}

/// A number of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(pub u64);

const UNITS: [(&str, u64); 13] = [
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("K", 1 << 10),
    ("M", 1 << 20),
    ("G", 1 << 30),
    ("T", 1 << 40),
    ("B", 1),
];

impl FromStr for Bytes {
    type Err = BadQuantity;

    fn from_str(text: &str) -> Result<Self, BadQuantity> {
        let wrong = || bad(text, "a size", "512M, 2GiB or 1000000");
        let (number, unit) = UNITS
            .iter()
            .find_map(|(suffix, unit)| text.strip_suffix(suffix).map(|number| (number.trim(), *unit)))
            .unwrap_or((text, 1));
        if let Ok(whole) = number.parse::<u64>() {
            return whole.checked_mul(unit).map(Self).ok_or_else(wrong);
        }
        let part: f64 = number.parse().map_err(|_| wrong())?;
        let bytes = part * unit as f64;
        if (0.0..1e18).contains(&bytes) { Ok(Self(bytes as u64)) } else { Err(wrong()) }
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (suffix, unit) in [("TiB", 1u64 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)] {
            if self.0 >= unit && self.0.is_multiple_of(unit) {
                return write!(f, "{}{suffix}", self.0 / unit);
            }
        }
        write!(f, "{}B", self.0)
    }
}

impl Bytes {
    /// For people: to one decimal where it needs one, `2GiB`, `1.5GiB`. Read back, it may be another number.
    pub fn rough(self) -> String {
        let units = [(1u64 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
        match units.iter().find(|(unit, _)| self.0 >= *unit) {
            Some((unit, name)) => {
                let number = format!("{:.1}", self.0 as f64 / *unit as f64);
                format!("{}{name}", number.strip_suffix(".0").unwrap_or(&number))
            }
            None => self.to_string(),
        }
    }

    /// This and another, for people; exact where they would look the same and are not.
    pub fn beside(self, other: Self) -> (String, String) {
        let (one, another) = (self.rough(), other.rough());
        if one == another { (self.to_string(), other.to_string()) } else { (one, another) }
    }
}

/// A span of time, written `1h 30m`, `5s` or `200ms`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(pub Duration);

/// Ten years: past that it is a slip, and sums of it would overflow somewhere.
const SPAN_MAX: Duration = Duration::from_secs(10 * 365 * 86_400);

impl Span {
    pub const fn secs(s: u64) -> Self {
        Self(Duration::from_secs(s))
    }
}

impl FromStr for Span {
    type Err = BadQuantity;

    fn from_str(text: &str) -> Result<Self, BadQuantity> {
        let wrong = || bad(text, "a duration", "200ms, 30s, 5m or 1h 30m");
        let span = match text.parse::<u64>() {
            Ok(seconds) => Duration::from_secs(seconds),
            Err(_) => humantime::parse_duration(text).map_err(|_| wrong())?,
        };
        if span > SPAN_MAX { Err(wrong()) } else { Ok(Self(span)) }
    }
}

/// A longer span than may be read is written as the longest: whatever is written can be read.
impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", humantime::format_duration(self.0.min(SPAN_MAX)))
    }
}

macro_rules! text_or_number {
    ($kind:ty) => {
        impl Serialize for $kind {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $kind {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                struct Visitor;
                impl serde::de::Visitor<'_> for Visitor {
                    type Value = $kind;
                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str("a text or a number")
                    }
                    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<$kind, E> {
                        text.parse().map_err(E::custom)
                    }
                    fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<$kind, E> {
                        self.visit_str(&number.to_string())
                    }
                    fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<$kind, E> {
                        self.visit_str(&number.to_string())
                    }
                    fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<$kind, E> {
                        self.visit_str(&number.to_string())
                    }
                }
                from.deserialize_any(Visitor)
            }
        }
    };
}
text_or_number!(Cpus);
text_or_number!(Bytes);
text_or_number!(Span);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_written_reads_back(milli in 0u32..100_000_000, bytes: u64, ms in 0u64..300_000_000_000) {
            prop_assert_eq!(Cpus { milli }.to_string().parse(), Ok(Cpus { milli }));
            prop_assert_eq!(Bytes(bytes).to_string().parse(), Ok(Bytes(bytes)));
            let span = Span(Duration::from_millis(ms));
            prop_assert_eq!(span.to_string().parse(), Ok(span));
        }

        #[test]
        fn no_text_panics(text in "\\PC{0,12}") {
            let _ = (text.parse::<Cpus>(), text.parse::<Bytes>(), text.parse::<Span>());
        }
    }

    #[test]
    fn a_size_is_short_for_people_and_told_apart_from_one_that_is_nearly_the_same() {
        assert_eq!(
            [1_536, 10, 3 << 29, 12_341_208 << 10].map(|n| Bytes(n).rough()),
            ["1.5KiB", "10B", "1.5GiB", "11.8GiB"]
        );
        assert_eq!(Bytes(64 << 30).beside(Bytes(12_341_208 << 10)), ("64GiB".into(), "11.8GiB".into()));
        assert_eq!(
            Bytes(12_341_209 << 10).beside(Bytes(12_341_208 << 10)),
            ("12341209KiB".into(), "12341208KiB".into())
        );
    }

    #[test]
    fn a_span_that_is_too_long_is_written_as_the_longest_that_can_be_read() {
        let written = Span(Duration::from_secs(60 * 365 * 86_400)).to_string();
        assert_eq!(written.parse(), Ok(Span(SPAN_MAX)));
    }

    #[test]
    fn people_write_them_in_several_ways() {
        assert_eq!("0.5".parse(), Ok(Cpus { milli: 500 }));
        assert_eq!("250m".parse(), Ok(Cpus { milli: 250 }));
        assert_eq!(["0.0001", "0"].map(|text| text.parse()), [Ok(Cpus { milli: 1 }), Ok(Cpus { milli: 0 })]);
        assert_eq!("1.5GiB".parse(), Ok(Bytes(3 << 29)));
        assert_eq!("512M".parse(), Ok(Bytes(512 << 20)));
        assert_eq!("90".parse(), Ok(Span::secs(90)));
        assert!("-1".parse::<Cpus>().is_err() && "nan".parse::<Bytes>().is_err() && "soon".parse::<Span>().is_err());
    }
}
