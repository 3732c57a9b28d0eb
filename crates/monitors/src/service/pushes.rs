//! Monitors that are called: their tokens, and the calls themselves.

use std::net::IpAddr;
use std::time::Duration;

use mutirao_core::auth::Principal;
use mutirao_core::{Problem, Timestamp};
use mutirao_store::refused;
use serde::Deserialize;

use super::{MonitorView, Monitors};
use crate::health::Verdict;
use crate::push::door::Passing;
use crate::push::{Call, MESSAGE_CHARS_MAX, Token, TokenDigest};
use crate::spec::Subject;
use crate::store::MonitorRow;
use crate::store::pushes::{Given, Known};

/// A day: nothing that calls takes longer than it has time for.
const TOOK_MS_MAX: u64 = 86_400_000;

/// How long somebody who calls is kept waiting before it is told to come again.
const PATIENCE: Duration = Duration::from_secs(5);
/// Calls that are kept waiting at once. Half as many as requests may be worked on at once: whoever calls must not keep others
/// from being answered.
pub(super) const WAITING_MAX: usize = 512;

/// How a caller says that it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Said {
    #[default]
    Up,
    Down,
}

impl Monitors {
    /// Whoever knows the token says how it is. Written when this returns, whoever owns the monitor.
    pub async fn called(
        &self,
        token: &str,
        peer: IpAddr,
        said: Said,
        message: Option<String>,
        took_ms: Option<u64>,
    ) -> Result<(), Problem> {
        if took_ms.is_some_and(|took| took > TOOK_MS_MAX) {
            return Err(Problem::invalid("ms", "nothing takes longer than a day"));
        }
        let token = Token::read(token).ok_or_else(nobody)?.digest();
        match self.passing(token, peer).await {
            Passing::Wait(wait) => {
                return Err(Problem::busy("called too often", wait.as_secs().saturating_add(1)));
            }
            Passing::Stranger => match self.0.pushes.knows_token(token).await.map_err(refused)? {
                Known::No => {
                    self.0.door.lock().guessed(peer, self.0.clock.monotonic());
                    return Err(nobody());
                }
                Known::Yes => self.0.door.lock().welcome(token, peer, self.0.clock.monotonic()),
            },
            Passing::Known => {}
        }
        let call = Call {
            at: self.0.clock.now(),
            verdict: match said {
                Said::Up => Verdict::Good,
                Said::Down => Verdict::Bad,
            },
            took_us: took_ms.map(|took| took * 1_000),
            message: message
                .map(|text| text.chars().take(MESSAGE_CHARS_MAX).collect())
                .filter(|text: &String| !text.is_empty()),
        };
        match self.0.pushes.call(token, call).await.map_err(refused)? {
            Known::Yes => Ok(()),
            Known::No => {
                self.0.door.lock().forget(&token);
                Err(nobody())
            }
        }
    }

    /// Whoever would be told to come again waits here for a while instead: most that call do not come again, and what they had
    /// to say would be lost. Those that wait are bounded, and nobody waits whose neighbours have just guessed.
    async fn passing(&self, token: TokenDigest, peer: IpAddr) -> Passing {
        let clock = &self.0.clock;
        let knock = || self.0.door.lock().pass(token, peer, clock.monotonic());
        let mut passing = knock();
        let Passing::Wait(_) = passing else { return passing };
        if self.0.door.lock().guesses(peer, clock.monotonic()) {
            return passing;
        }
        let Ok(_place) = self.0.waiting_room.try_acquire() else { return passing };
        let until = clock.monotonic().plus(PATIENCE);
        while let Passing::Wait(wait) = passing
            && clock.monotonic().plus(wait) <= until
        {
            clock.sleep(wait).await;
            passing = knock();
        }
        passing
    }

    /// Another token; the former is good no more.
    pub async fn renew_token(&self, caller: &Principal, name: &str) -> Result<MonitorView, Problem> {
        let row = self.row(caller, name).await?;
        if !matches!(row.spec.subject, Subject::Push(_)) {
            return Err(Problem::conflict(format!("{name} is asked, it does not call, and so has no token")));
        }
        let token = Token::mint();
        self.0.pushes.renew_token(row.key, token.digest(), self.by(caller)).await.map_err(refused)?;
        Ok(MonitorView { push_token: Some(token.reveal()), ..self.view(row).await? })
    }

    /// The token of one that is new, or has just become one that calls.
    pub(super) async fn token_for(&self, row: &MonitorRow) -> Result<Option<String>, Problem> {
        match row.spec.subject {
            Subject::Push(_) => {
                let token = Token::mint();
                let given = self.0.pushes.give_token(row.key, token.digest()).await.map_err(refused)?;
                Ok((given == Given::Taken).then(|| token.reveal()))
            }
            // One that was just made has none.
            Subject::Check(_) if row.created_at == row.changed_at => Ok(None),
            Subject::Check(_) => {
                self.0.pushes.drop_token(row.key).await.map_err(refused)?;
                Ok(None)
            }
        }
    }

    pub(super) async fn called_at(&self, row: &MonitorRow) -> Result<Option<Timestamp>, Problem> {
        if !matches!(row.spec.subject, Subject::Push(_)) {
            return Ok(None);
        }
        let mut calls = self.0.pushes.calls(vec![row.key]).await.map_err(refused)?;
        Ok(calls.remove(&row.key).map(|call| call.at))
    }
}

/// The same for whatever is wrong with it: nobody learns anything by guessing.
fn nobody() -> Problem {
    Problem::not_found("no monitor waits for this call")
        .remedy("`mutirao monitor token NAME` makes a new address for one that does")
}
