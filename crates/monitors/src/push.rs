//! Services that say themselves that they are well: each has an address of its own that must be called in time. Nobody is
//! asked, so no checker is involved: the owner of the monitor looks, at each of its instants, how long ago the last call was.
//!
//! ```yaml
//! kind: Monitor
//! name: backup
//! every: 1h
//! push: { grace: 10m }
//! ```
//!
//! The address ends in a token that nobody can guess. It is shown once, when it is made, and kept as a digest only.
//! Pure but for [`Token::mint`].

pub mod door;

use std::fmt;
use std::time::Duration;

use mutirao_core::dice::os_random;
use mutirao_core::quantity::Span;
use mutirao_core::{Problem, Timestamp};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::health::Verdict;

const TOKEN_BYTES: usize = 20;
/// Of what a caller says, this much is kept.
pub const MESSAGE_CHARS_MAX: usize = 300;

/// Waits to be called, at least once in `every` and a grace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Push {
    /// How much later than that a call may come; half of `every` unless said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace: Option<Span>,
}

impl Push {
    pub fn grace(&self, every: Duration) -> Duration {
        self.grace.map_or(every / 2, |grace| grace.0)
    }

    pub fn check(&self, every: Duration) -> Result<(), Problem> {
        match self.grace {
            Some(grace) if grace.0 > every => {
                let detail = format!("{grace} is longer than the interval, {}", Span(every));
                Err(Problem::invalid("push.grace", detail).remedy("write a longer `every`, or more failures"))
            }
            _ => Ok(()),
        }
    }
}

/// What was said by whoever called last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    pub at: Timestamp,
    pub verdict: Verdict,
    pub took_us: Option<u64>,
    pub message: Option<String>,
}

/// What an instant comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judged {
    pub verdict: Verdict,
    pub took_us: Option<u64>,
    pub detail: Option<String>,
}

/// How much the clocks of managers may differ.
const AHEAD_MAX: Duration = Duration::from_secs(60);

/// What the last call says about an instant. Nothing while nobody can be late yet: `since` is when its calls began to be
/// heard. A call that came after the instant and before it was looked at counts for it.
pub fn judge(
    last: Option<&Call>,
    at: Timestamp,
    patience: Duration,
    since: Timestamp,
    now: Timestamp,
) -> Option<Judged> {
    match last {
        // It would be good until then, whatever happens.
        Some(call) if call.at.since(now) > AHEAD_MAX => {
            let ahead = Span(Duration::from_secs(call.at.since(now).as_secs()));
            let detail = format!("the last call is dated {ahead} ahead of the clock of its owner");
            Some(Judged { verdict: Verdict::Bad, took_us: None, detail: Some(detail) })
        }
        Some(call) if at.since(call.at) < patience => Some(Judged {
            verdict: call.verdict,
            took_us: call.took_us,
            detail: call.message.clone().or_else(|| (call.verdict == Verdict::Bad).then(|| "it said so".into())),
        }),
        _ if at.since(since) < patience => None,
        Some(call) => {
            let ago = Span(Duration::from_secs(at.since(call.at).as_secs()));
            Some(Judged { verdict: Verdict::Bad, took_us: None, detail: Some(format!("not called for {ago}")) })
        }
        None => Some(Judged { verdict: Verdict::Bad, took_us: None, detail: Some("never called".into()) }),
    }
}

/// What an address ends in. It is a secret, so it does not show itself.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

/// What is kept of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TokenDigest(pub [u8; 32]);

impl Token {
    pub fn mint() -> Self {
        let mut bytes = [0u8; TOKEN_BYTES];
        os_random(&mut bytes);
        Self(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// None of what cannot be one.
    pub fn read(text: &str) -> Option<Self> {
        let fits = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
        (text.len() == 2 * TOKEN_BYTES && text.chars().all(fits)).then(|| Self(text.into()))
    }

    pub fn digest(&self) -> TokenDigest {
        TokenDigest(Sha256::digest(self.0.as_bytes()).into())
    }

    /// For the one answer in which it is shown.
    pub fn reveal(self) -> String {
        self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(***)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: i64 = 1_800_000_000_000;
    const PATIENCE: Duration = Duration::from_secs(90);

    fn call(at: i64, verdict: Verdict) -> Call {
        Call { at: Timestamp(at), verdict, took_us: Some(7_000), message: None }
    }

    fn judged(last: Option<&Call>, at: i64) -> Option<(Verdict, Option<String>)> {
        judge(last, Timestamp(at), PATIENCE, Timestamp(T), Timestamp(at)).map(|judged| (judged.verdict, judged.detail))
    }

    #[test]
    fn nobody_is_late_before_it_could_have_called_and_then_it_is() {
        assert_eq!(judged(None, T + 89_999), None);
        assert_eq!(judged(None, T + 90_000), Some((Verdict::Bad, Some("never called".into()))));
        let before = call(T - 60_000, Verdict::Good);
        assert_eq!(judged(Some(&before), T + 29_999), Some((Verdict::Good, None)), "what came before still counts");
        assert_eq!(judged(Some(&before), T + 30_000), None, "who could not be heard is not called late");
        assert_eq!(judged(Some(&before), T + 90_000), Some((Verdict::Bad, Some("not called for 2m 30s".into()))));
    }

    #[test]
    fn the_last_call_counts_for_as_long_as_it_is_in_time() {
        let good = call(T + 100_000, Verdict::Good);
        assert_eq!(judged(Some(&good), T + 189_999), Some((Verdict::Good, None)));
        assert_eq!(judged(Some(&good), T + 190_000).unwrap().0, Verdict::Bad);
        assert_eq!(judged(Some(&good), T + 99_000), Some((Verdict::Good, None)), "a moment after the instant");
        let bad = call(T + 100_000, Verdict::Bad);
        assert_eq!(judged(Some(&bad), T + 100_001), Some((Verdict::Bad, Some("it said so".into()))));
        let why = Call { message: Some("disk full".into()), ..bad };
        assert_eq!(judged(Some(&why), T + 100_001), Some((Verdict::Bad, Some("disk full".into()))));
    }

    #[test]
    fn a_call_that_is_dated_ahead_is_not_good_until_then() {
        let ahead = call(T + 3_600_000, Verdict::Good);
        let (verdict, why) = judged(Some(&ahead), T).unwrap();
        assert_eq!(
            (verdict, why.as_deref()),
            (Verdict::Bad, Some("the last call is dated 1h ahead of the clock of its owner"))
        );
        let nearly = call(T + 60_000, Verdict::Good);
        assert_eq!(judged(Some(&nearly), T), Some((Verdict::Good, None)), "clocks differ by a little");
    }

    #[test]
    fn a_token_is_long_random_and_does_not_show_itself() {
        let (one, other) = (Token::mint(), Token::mint());
        assert!(one != other && one.digest() != other.digest());
        assert_eq!(format!("{one:?}"), "Token(***)");
        let text = one.clone().reveal();
        assert!(text.len() == 40 && Token::read(&text).unwrap().digest() == one.digest());
        for wrong in ["", "abc", &text.to_uppercase().replace(['0', '1', '2', '3', '4', '5', '6', '7', '8', '9'], "A")]
        {
            assert_eq!(Token::read(wrong), None);
        }
    }

    #[test]
    fn a_grace_is_half_the_interval_unless_said_and_not_longer_than_it() {
        let minute = Duration::from_secs(60);
        assert_eq!(Push::default().grace(minute), Duration::from_secs(30));
        assert!(Push { grace: Some(Span(minute)) }.check(minute).is_ok());
        let long = Push { grace: Some(Span::secs(61)) }.check(minute).unwrap_err().line();
        assert!(long.starts_with("push.grace: 1m 1s is longer than the interval, 1m"), "{long}");
    }
}
