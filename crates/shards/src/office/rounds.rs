//! The rounds of one member: beat and renew, look around, run errands, wait. One question at a time, each with a limit;
//! what fails is asked again in the next round, because the next look around shows that it is still to be done.

use std::future::Future;
use std::sync::Arc;

use mutirao_core::Mono;
use mutirao_core::clock::ClockExt;
use mutirao_store::StoreError;

use super::Office;
use crate::tenancy::{Errands, Pace};

/// A round could not be finished. Why is in the log.
struct Cut;

pub(super) struct Rounds {
    office: Arc<Office>,
    next_beat: Mono,
    goodbye_said: bool,
}

impl Rounds {
    pub fn of(office: Arc<Office>) -> Self {
        Self { office, next_beat: Mono::default(), goodbye_said: false }
    }

    pub async fn run(mut self) {
        let office = self.office.clone();
        loop {
            let pace = match self.round().await {
                Ok(pace) => {
                    if office.trouble.lock().take().is_some() {
                        tracing::info!(group = office.group, "leases can be renewed again");
                    }
                    pace
                }
                Err(Cut) => {
                    // The beat counts as not made.
                    self.next_beat = Mono::default();
                    Pace::Brisk
                }
            };
            if self.goodbye_said && pace == Pace::Steady && office.tenancy.lock().held().is_empty() {
                office.gone.send_replace(true);
                return;
            }
            let now = office.clock.monotonic();
            let pause = match pace {
                Pace::Steady => self.next_beat.since(now).min(office.dice.jitter(office.terms.glance)),
                Pace::Brisk => office.dice.jitter(office.terms.look),
            };
            tokio::select! {
                () = office.clock.sleep(pause) => {}
                () = office.hurry.notified() => {}
            }
        }
    }

    async fn round(&mut self) -> Result<Pace, Cut> {
        let office = self.office.clone();
        let leaving = office.tenancy.lock().is_leaving();
        if leaving && !self.goodbye_said {
            // First of all, so that the others know whose turn it is when the shards are released.
            self.ask(office.store.forget(office.group, &office.member, None)).await?;
            self.goodbye_said = true;
        }
        let now = office.clock.monotonic();
        if now >= self.next_beat {
            self.beat_and_renew().await?;
            self.next_beat = now.plus(office.dice.jitter(office.terms.beat));
        }
        let members = self.ask(office.store.members(office.group)).await?;
        let leases = self.ask(office.store.leases(office.group)).await?;
        let received_at = office.clock.monotonic();
        let errands = office.change(|tenancy| tenancy.looked(members, leases, received_at));
        self.run_errands(errands).await
    }

    /// Both at once: a store that groups its commits pays for one.
    async fn beat_and_renew(&mut self) -> Result<(), Cut> {
        let office = self.office.clone();
        let sent_at = office.clock.monotonic();
        let (held, leaving) = office.change(|tenancy| (tenancy.to_renew(sent_at), tenancy.is_leaving()));
        let beat = async {
            // Whoever leaves was struck off and must not come back.
            if leaving { Ok(()) } else { office.store.beat(office.group, &office.member, &office.address).await }
        };
        let renew = async {
            if held.is_empty() { Ok(Vec::new()) } else { office.store.renew(office.group, &office.member, &held).await }
        };
        let both = async {
            let (beaten, kept) = tokio::join!(beat, renew);
            beaten.and(kept)
        };
        let kept = self.ask(both).await?;
        office.change(|tenancy| tenancy.renewed(&held, &kept, sent_at));
        Ok(())
    }

    async fn run_errands(&mut self, errands: Errands) -> Result<Pace, Cut> {
        let office = self.office.clone();
        let mut pace = errands.pace;
        for (shard, generation) in errands.releases {
            self.ask(office.store.release(office.group, &office.member, shard, generation)).await?;
        }
        for claim in errands.claims {
            // A long list of claims must not keep what is already held from being renewed.
            if office.clock.monotonic() >= self.next_beat {
                return Ok(Pace::Brisk);
            }
            let sent_at = office.clock.monotonic();
            let claimed = office.store.claim(office.group, claim.shard, claim.seen, &office.member, office.terms.lease);
            let generation = self.ask(claimed).await?;
            office.change(|tenancy| tenancy.claimed(claim, generation, sent_at));
            match generation {
                Some(generation) => {
                    tracing::debug!(group = office.group, shard = claim.shard.0, generation, "claimed a shard")
                }
                // Somebody was quicker, or its owner woke up.
                None => pace = Pace::Brisk,
            }
        }
        for (member, beats) in errands.forget {
            self.ask(office.store.forget(office.group, &member, Some(beats))).await?;
        }
        Ok(pace)
    }

    async fn ask<T: Send>(&mut self, question: impl Future<Output = Result<T, StoreError>> + Send) -> Result<T, Cut> {
        let (why, is_told) = match self.office.clock.timeout(self.office.terms.call_max, question).await {
            Ok(Ok(answer)) => return Ok(answer),
            // A lack of rights the store tells by itself, once for everybody.
            Ok(Err(error @ StoreError::Denied { .. })) => (error.to_string(), true),
            Ok(Err(error)) => (error.to_string(), false),
            Err(_) => (format!("no answer within {:?}", self.office.terms.call_max), false),
        };
        // Each trouble is logged once.
        let before = self.office.trouble.lock().replace(why.clone());
        if before.as_ref() != Some(&why) && !is_told {
            tracing::warn!(
                group = self.office.group,
                error = why,
                "leases cannot be renewed; shards lapse if this lasts"
            );
        }
        Err(Cut)
    }
}
