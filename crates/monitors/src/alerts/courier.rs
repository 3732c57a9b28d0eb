//! Tells channels what waits for them. Each owner of a shard has one at work, so an alert has one sender at a time; it is sent
//! again when the sender dies before it could write down that it was taken.
//!
//! Alerts of one channel go one after the other. One that fails lets the others of its channel wait as well: a pager that is
//! down is asked once a round and not once an alert.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use mutirao_core::{Clock, Dice, Timestamp};
use mutirao_probes::Probes;
use mutirao_shards::Fence;
use mutirao_store::StoreError;
use tokio::task::JoinSet;

use super::channel::{ChannelSpec, Way};
use super::fate::{Case, Fate, Known, Standing, decide, next_try};
use super::message::{About, Answer, Message, answer};
use crate::maintenance;
use crate::service::Programs;
use crate::store::Settling;
use crate::store::alerts::{Came, Delivery, Recorded, SharedAlerts, Waiting};

/// Alerts taken up in one round.
const ROUND_MAX: u32 = 200;
/// How long a channel may take to take one.
pub const SEND_WITHIN: Duration = Duration::from_secs(10);
/// How long one channel may keep a round from ending; what is left then waits for the next.
const CHANNEL_WITHIN: Duration = Duration::from_secs(20);
/// What is held back is looked at again this often: a silence may be taken back.
const LOOK_AGAIN: Duration = Duration::from_secs(60);

#[derive(Clone)]
pub struct Courier {
    pub store: SharedAlerts,
    pub probes: Probes,
    pub programs: Programs,
    pub clock: Arc<dyn Clock>,
    pub dice: Arc<Dice>,
}

/// What a round came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Round {
    /// All that was due was tried.
    Done,
    /// More is due.
    More,
    Fenced,
}

impl Courier {
    /// Once through what is due. `owned` says, before each is sent, whether the shard is still ours.
    pub async fn round(
        self: &Arc<Self>,
        fence: &Fence,
        now: Timestamp,
        owned: impl Fn() -> bool + Clone + Send + 'static,
    ) -> Result<Round, StoreError> {
        let due = self.store.due(fence.shard, now, ROUND_MAX).await?;
        let full = due.len() as u32 == ROUND_MAX;
        let mut by_channel: BTreeMap<(String, String), Vec<Waiting>> = BTreeMap::new();
        for one in due {
            by_channel.entry((one.namespace.clone(), one.raised.to.clone())).or_default().push(one);
        }
        let mut channels = JoinSet::new();
        for (_, waiting) in by_channel {
            let (courier, fence, owned) = (self.clone(), fence.clone(), owned.clone());
            channels.spawn(async move { courier.tell(fence, waiting, now, owned).await });
        }
        let mut round = if full { Round::More } else { Round::Done };
        while let Some(told) = channels.join_next().await {
            match told {
                Ok(Ok(Settling::Written { .. })) => {}
                Ok(Ok(Settling::Fenced)) => round = Round::Fenced,
                Ok(Err(error)) => return Err(error),
                Err(broke) => tracing::error!(%broke, "telling a channel broke; its alerts are tried again"),
            }
        }
        Ok(round)
    }

    /// Tells one channel, and writes down what came of it.
    async fn tell(
        self: Arc<Self>,
        fence: Fence,
        waiting: Vec<Waiting>,
        now: Timestamp,
        owned: impl Fn() -> bool,
    ) -> Result<Settling, StoreError> {
        let begin = self.clock.monotonic();
        let mut records = Vec::with_capacity(waiting.len());
        let mut down: Option<(Timestamp, String)> = None;
        for one in waiting {
            if !owned() || self.clock.monotonic().since(begin) > CHANNEL_WITHIN {
                break;
            }
            let record = self.take_up(&one, now, down.as_ref()).await;
            if let (Came::Later(at), Some(note), true) = (record.came, &record.note, record.tries > one.tries) {
                down = Some((at, note.clone()));
            }
            records.push(record);
        }
        match records.is_empty() {
            true => Ok(Settling::Written { new: 0 }),
            false => self.store.record(fence, records).await,
        }
    }

    async fn take_up(&self, one: &Waiting, now: Timestamp, down: Option<&(Timestamp, String)>) -> Recorded {
        let untried = |came, note: Option<String>| Recorded {
            key: one.key,
            tries: one.tries,
            first_at: one.first_at,
            came,
            note,
        };
        match decide(&case(one), now) {
            Fate::Drop(reason) => {
                return untried(Came::Ended(Delivery::Dropped, now), Some(reason.line().into()));
            }
            Fate::Hold(until) => {
                let again = until.min(now.plus(LOOK_AGAIN));
                return untried(Came::Later(again), Some(format!("it is silenced until {until}")));
            }
            Fate::Send => {}
        }
        let Some(channel) = &one.channel else {
            return untried(Came::Ended(Delivery::GivenUp, now), Some("there is no such channel any more".into()));
        };
        if let Some((at, why)) = down {
            return untried(Came::Later(*at), Some(why.clone()));
        }
        let (tries, first) = (one.tries.saturating_add(1), one.first_at.unwrap_or(now));
        let (came, note) = match self.send(channel, &Message::new(&one.raised, &about(one))).await {
            Answer::Taken => (Came::Ended(Delivery::Sent, now), None),
            Answer::Refused(why) => (Came::Ended(Delivery::GivenUp, now), Some(why)),
            Answer::NotNow(why) => match next_try(tries, first, now, self.dice.unit()) {
                Some(at) => (Came::Later(at), Some(why)),
                None => (Came::Ended(Delivery::GivenUp, now), Some(why)),
            },
        };
        Recorded { key: one.key, tries, first_at: Some(first), came, note }
    }

    /// Sends one, now.
    pub async fn send(&self, channel: &ChannelSpec, message: &Message) -> Answer {
        if matches!(channel.way, Way::Exec(_)) && self.programs == Programs::Refused {
            return Answer::Refused("programs are not allowed here: monitors.exec".into());
        }
        match message.put_for(&channel.way, self.clock.now()) {
            Ok(check) => answer(&self.probes.run(&check, SEND_WITHIN).await),
            Err(error) => Answer::Refused(error.to_string()),
        }
    }
}

fn case(one: &Waiting) -> Case<'_> {
    let acknowledged = one.attention.acknowledged.as_ref().is_some_and(|known| known.incident == one.raised.about);
    Case {
        event: one.raised.event,
        raised_at: one.raised.at,
        closed_at: one.closed_at,
        told: one.told,
        monitor: match () {
            _ if one.removed => Standing::Removed,
            _ if maintenance::covered(&one.spec.maintenance, one.raised.at) => Standing::InMaintenance,
            _ => Standing::Watched,
        },
        silence: one.attention.silence.as_ref(),
        incident: if acknowledged { Known::Acknowledged } else { Known::ToNobody },
    }
}

fn about(one: &Waiting) -> About<'_> {
    About {
        uuid: &one.uuid,
        monitor: &one.spec.name,
        namespace: &one.namespace,
        labels: &one.spec.labels,
        since: one.since,
        closed_at: one.closed_at,
        evidence: one.evidence.as_deref(),
    }
}
