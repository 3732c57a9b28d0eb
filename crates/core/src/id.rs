//! Identities. Inside the system keys are small integers, which keep the store's trees dense (measured: five to eight
//! times the throughput of random UUIDs); outside they are short opaque texts, so that nobody counts our jobs or
//! guesses a neighbour's.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A job's key in the store. Shown to people as an opaque text of the form `j7f3k9q2`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobKey(pub u64);

/// One task of a job: the job and the task's index in it. Shown as `j7f3k9q2.17`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskKey {
    pub job: JobKey,
    pub index: u32,
}

/// Which try at a task this is. The generation belongs to the owner that handed it out and only grows, so two owners
/// never hand out the same attempt and no handing out needs a durable write.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, utoipa::ToSchema,
)]
pub struct Attempt {
    pub generation: u64,
    pub n: u32,
}

impl Attempt {
    /// None comes after it.
    pub const LAST: Self = Self { generation: u64::MAX, n: u32::MAX };
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.generation, self.n)
    }
}

/// What a person typed is not an id of this kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("\"{text}\" is not {what}: expected the form {form}")]
pub struct BadId {
    pub text: String,
    pub what: &'static str,
    pub form: &'static str,
}

// An id is the key, scrambled by an invertible multiplication and written in Crockford's base 32. Keys below 2^35 take
// seven characters; the rest take thirteen.
const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
const SHORT_BITS: u32 = 35;
const SHORT_MASK: u64 = (1 << SHORT_BITS) - 1;
const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
const ODD_INVERSE: u64 = invert(ODD);

const fn invert(odd: u64) -> u64 {
    // Newton's iteration doubles the number of correct low bits each time: 3, 6, 12, 24, 48, 96.
    let mut x = odd;
    let mut i = 0;
    while i < 5 {
        x = x.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(x)));
        i += 1;
    }
    x
}

fn scramble(key: u64, bits: u32) -> u64 {
    let mask = if bits == 64 { u64::MAX } else { (1 << bits) - 1 };
    let a = key.wrapping_mul(ODD) & mask;
    let b = a ^ (a >> (bits / 2 + 1));
    b.wrapping_mul(ODD) & mask
}

fn unscramble(text: u64, bits: u32) -> u64 {
    let mask = if bits == 64 { u64::MAX } else { (1 << bits) - 1 };
    let b = text.wrapping_mul(ODD_INVERSE) & mask;
    // The shift is over half the width, so one application undoes it.
    let a = b ^ (b >> (bits / 2 + 1));
    a.wrapping_mul(ODD_INVERSE) & mask
}

impl fmt::Display for JobKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (digits, value) =
            if self.0 <= SHORT_MASK { (7, scramble(self.0, SHORT_BITS)) } else { (13, scramble(self.0, 64)) };
        f.write_str("j")?;
        for place in (0..digits).rev() {
            let digit = (value >> (5 * place)) & 31;
            write!(f, "{}", ALPHABET[digit as usize] as char)?;
        }
        Ok(())
    }
}

impl FromStr for JobKey {
    type Err = BadId;

    fn from_str(text: &str) -> Result<Self, BadId> {
        let bad = || BadId { text: text.chars().take(64).collect(), what: "a job id", form: "j7f3k9q2" };
        let digits = text.strip_prefix('j').ok_or_else(bad)?.as_bytes();
        let mut value: u128 = 0;
        if digits.len() != 7 && digits.len() != 13 {
            return Err(bad());
        }
        for digit in digits {
            let place = ALPHABET.iter().position(|a| a == digit).ok_or_else(bad)?;
            value = (value << 5) | place as u128;
        }
        let key = if digits.len() == 7 {
            unscramble(value as u64, SHORT_BITS)
        } else {
            unscramble(u64::try_from(value).map_err(|_| bad())?, 64)
        };
        // Reject a long spelling of a short key: every key has one id.
        if (digits.len() == 7) != (key <= SHORT_MASK) { Err(bad()) } else { Ok(Self(key)) }
    }
}

impl fmt::Debug for JobKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}#{}", self.0)
    }
}

impl fmt::Display for TaskKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.job, self.index)
    }
}

impl fmt::Debug for TaskKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for TaskKey {
    type Err = BadId;

    fn from_str(text: &str) -> Result<Self, BadId> {
        let bad = || BadId { text: text.chars().take(64).collect(), what: "a task id", form: "j7f3k9q2.17" };
        let (job, index) = text.split_once('.').ok_or_else(bad)?;
        Ok(Self { job: job.parse().map_err(|_| bad())?, index: index.parse().map_err(|_| bad())? })
    }
}

macro_rules! as_text {
    ($($id:ty),*) => { $(
        impl Serialize for $id {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.collect_str(self)
            }
        }
        impl<'de> Deserialize<'de> for $id {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<'de, str>::deserialize(from)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    )* };
}
as_text!(JobKey, TaskKey, QueueName);

/// A queue's name: letters, digits, `-` and `_`, at most 64 of them. It becomes part of broker names, so nothing that
/// AMQP or MQTT would read as a wildcard or separator is let in.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueName(std::sync::Arc<str>);

impl QueueName {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The queue that exists from the first start.
impl Default for QueueName {
    fn default() -> Self {
        Self("default".into())
    }
}

impl FromStr for QueueName {
    type Err = BadId;

    fn from_str(text: &str) -> Result<Self, BadId> {
        let fits =
            (1..=64).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
        if fits {
            Ok(Self(text.into()))
        } else {
            Err(BadId {
                text: text.chars().take(64).collect(),
                what: "a queue name",
                form: "1 to 64 of a-z, A-Z, 0-9, - and _",
            })
        }
    }
}

impl fmt::Display for QueueName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for QueueName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// An enrolled worker. Stable over restarts; its key proves it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(transparent)]
pub struct WorkerId(pub String);

impl fmt::Display for WorkerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One life of a worker process. Leases belong to sessions, so a worker that was killed and started again never
/// inherits what it held.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(transparent)]
pub struct SessionId(pub String);

impl SessionId {
    pub fn random() -> Self {
        let mut bytes = [0u8; 12];
        crate::dice::os_random(&mut bytes);
        Self(bytes.iter().map(|b| format!("{b:02x}")).collect())
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One installation: all managers of one database, and what is theirs elsewhere. A restored one is another.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct InstallationId(pub String);

impl InstallationId {
    pub fn random() -> Self {
        let mut bytes = [0u8; 8];
        crate::dice::os_random(&mut bytes);
        Self(bytes.iter().map(|b| format!("{b:02x}")).collect())
    }
}

impl fmt::Display for InstallationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_key_survives_its_spelling(key: u64) {
            for key in [key, key & SHORT_MASK] {
                let text = JobKey(key).to_string();
                prop_assert_eq!(text.parse::<JobKey>(), Ok(JobKey(key)));
            }
        }

        #[test]
        fn no_text_panics_and_every_accepted_text_is_the_only_spelling(text in "j?[0-9a-z.]{0,16}") {
            if let Ok(key) = text.parse::<JobKey>() {
                prop_assert_eq!(key.to_string(), text);
            }
        }
    }

    #[test]
    fn neighbours_look_nothing_alike() {
        let (a, b) = (JobKey(1).to_string(), JobKey(2).to_string());
        let alike = a.bytes().zip(b.bytes()).filter(|(x, y)| x == y).count();
        assert!(alike <= 3, "{a} {b}");
    }
}
