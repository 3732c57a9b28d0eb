//! What hosts say, and what they hear.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use mutirao_core::Problem;
use mutirao_core::auth::Principal;
use mutirao_store::refused;
use mutirao_streams::wire::{Beat, Mode, Order, Orders, StreamId, What, log_of};

use super::Streams;
use crate::keeping;
use crate::placing::Seat;
use crate::store::{HostRow, Kept, StreamState};

/// Parts of one host.
const PARTS_MAX: usize = 2_000;
const LABELS_MAX: usize = 64;
const TEXT_CHARS_MAX: usize = 200;
/// Why a part waits or failed; the rest of a longer text is dropped.
const WHY_CHARS_MAX: usize = 1_000;

impl Streams {
    /// Of a host apart, by its key.
    pub async fn beat_of(&self, caller: &Principal, beat: Beat) -> Result<Orders, Problem> {
        self.must_be_host(caller).await?;
        if beat.host.id != caller.id {
            return Err(Problem::forbidden(format!(
                "this key is that of {}, and a host speaks for itself only",
                caller.id
            )));
        }
        if beat.host.standing != mutirao_streams::wire::Standing::Apart {
            return Err(Problem::invalid("host.standing", "only a manager has a host inside"));
        }
        self.beat(beat).await
    }

    /// Of the one inside this process, or of one that was let in.
    pub async fn beat(&self, beat: Beat) -> Result<Orders, Problem> {
        check(&beat)?;
        let Beat { host, boot, parts: mut reports, node, knows } = beat;
        for report in &mut reports {
            shorten(&mut report.state);
        }
        let seat = Seat { host: host.id.clone(), boot };
        let (known, followed) = {
            let (ears, now) = (self.0.bench.ears.lock(), self.0.clock.monotonic());
            (ears.knows(&host.id, boot), ears.is_followed(&host.id, boot, now))
        };
        if followed {
            return Err(Problem::conflict(format!(
                "another process was started as the host {} ({}), and has taken its place; each needs a folder and an identity of \
                 its own: enrol it anew with a token of `mutirao worker invite --streams`",
                host.name, host.id
            )));
        }
        let row = HostRow { host, boot, beats: 0, heard_at: self.0.clock.now(), node, reports };
        self.0.store.beat(row).await.map_err(refused)?;
        if !known {
            self.0.bench.bell.notify_one();
        }
        self.orders(seat, &knows).await
    }

    async fn orders(&self, seat: Seat, knows: &[StreamId]) -> Result<Orders, Problem> {
        let seated = self.0.store.seated(seat).await.map_err(refused)?;
        if seated.is_empty() {
            return Ok(Orders::default());
        }
        let streams: BTreeSet<StreamId> = seated.iter().map(|seated| seated.part.stream.clone()).collect();
        let graphs = self.0.graphs.of(&streams).await.map_err(refused)?;
        let kept = self.0.store.snapshots(streams.iter().cloned().collect()).await.map_err(refused)?;
        let mut of: BTreeMap<&StreamId, Vec<Kept>> = BTreeMap::new();
        for one in &kept {
            of.entry(&one.part.stream).or_default().push(one.clone());
        }
        let mut orders = Orders { log_bytes: self.0.pushers.log_bytes(), ..Orders::default() };
        for one in &seated {
            let Some(Ok(graph)) = graphs.get(&one.part.stream).map(|read| &read.graph) else { continue };
            let (stream, what) = (&one.part.stream, one.part.what);
            let kept = of.get(stream).map(Vec::as_slice).unwrap_or_default();
            let feeds = mutirao_streams::graph::plan(graph).part(what).map(|part| part.feeds.clone());
            let needed = |to: What| Some((log_of(stream, to)?, keeping::needed(kept, stream, to)));
            orders.parts.push(Order {
                part: one.part.clone(),
                epoch: one.epoch,
                mode: if one.state == StreamState::Paused { Mode::Pause } else { Mode::Run },
                snapshots: keeping::newest_first(kept, stream, what),
                needed: feeds.unwrap_or_default().into_iter().filter_map(needed).collect(),
            });
        }
        let knows: HashSet<&StreamId> = knows.iter().collect();
        let unknown = streams.iter().filter(|id| !knows.contains(id));
        orders.definitions = unknown.filter_map(|id| Some((id.clone(), graphs.get(id)?.text.clone()))).collect();
        Ok(orders)
    }

    /// A key that was enrolled for something else speaks for no host.
    pub(super) async fn must_be_host(&self, caller: &Principal) -> Result<(), Problem> {
        match self.0.roll.is_host(&caller.id).await? {
            true => Ok(()),
            false => Err(Problem::forbidden("this key was not let in for streams")
                .remedy("make a one-time token for a host: mutirao worker invite --streams")),
        }
    }
}

fn check(beat: &Beat) -> Result<(), Problem> {
    let host = &beat.host;
    let fits =
        |text: &str| !text.is_empty() && text.chars().count() <= TEXT_CHARS_MAX && !text.chars().any(char::is_control);
    for (field, text) in [("host.id", &host.id), ("host.name", &host.name), ("host.layer", &host.layer)] {
        if !fits(text) {
            return Err(Problem::invalid(field, format!("it has 1 to {TEXT_CHARS_MAX} characters that can be seen")));
        }
    }
    let labels = host.labels.iter().all(|(name, value)| fits(name) && value.chars().count() <= TEXT_CHARS_MAX);
    if host.labels.len() > LABELS_MAX || !labels {
        return Err(Problem::invalid("host.labels", format!("at most {LABELS_MAX}, each short")));
    }
    if beat.parts.len() > PARTS_MAX {
        return Err(Problem::invalid("parts", format!("a host runs at most {PARTS_MAX}")));
    }
    Ok(())
}

fn shorten(state: &mut mutirao_streams::wire::State) {
    use mutirao_streams::wire::State;
    if let State::Waiting(why) | State::Failed(why) = state
        && why.chars().count() > WHY_CHARS_MAX
    {
        *why = why.chars().take(WHY_CHARS_MAX).collect();
    }
}
