//! Moves as an owner carries them out: the next step of each, and what is written and told of it. Which step that is says
//! [`moving`].

use std::collections::{BTreeMap, HashMap};

use mutirao_core::ShardId;
use mutirao_streams::wire::{Part, Report, StreamId};

use super::Sight;
use crate::moving::{self, Move, Step};
use crate::placing::{Host, Wanted};
use crate::store::{Batch, PartRow};

/// Of a replica that moves: its copy was begun, it is there, it stays where it was.
const MOVE: &str = "move";
const MOVED: &str = "moved";
const STAY: &str = "stay";

impl Sight {
    /// The next step of each move.
    pub(super) fn moves(
        &self,
        me: &str,
        hosts: &[Host],
        wanted: &[Wanted],
        batches: &mut BTreeMap<ShardId, Batch>,
        shard_of: &HashMap<&StreamId, ShardId>,
    ) {
        for one in &self.held.moves {
            let Some(shard) = shard_of.get(&one.part.stream) else { continue };
            let said = |host: &str, part: &Part, epoch: u64| self.said(host, part, epoch);
            let step = moving::step(one, hosts, wanted, &self.held.moves, said, self.now);
            if step == Step::Stay {
                continue;
            }
            let (part, shown) = (one.part.clone(), self.shown(&one.part));
            let named = self.hosts.iter().find(|(row, _)| row.host.id == one.to);
            let to = named.map_or(one.to.as_str(), |(row, _)| row.host.name.as_str());
            let batch = batches.entry(*shard).or_default();
            let (what, detail) = match step {
                Step::Stay => continue,
                Step::Begin(begun) => {
                    batch.moves.push(Move { begun: Some(begun), since: self.now, ..one.clone() });
                    (MOVE, format!("{shown} is begun on {to} too, epoch {}: {}", begun.epoch, one.why))
                }
                Step::Over { seat, epoch, why } => {
                    batch.moved.push(part.clone());
                    let detail = format!("{shown} on {to}, epoch {epoch}: {why}");
                    batch.parts.push(PartRow { part, seat: Some(seat), epoch, why, since: self.now });
                    (MOVED, detail)
                }
                Step::End(why) => {
                    batch.moved.push(part);
                    (STAY, format!("{shown} does not move to {to}: {why}"))
                }
            };
            batch.events.push((one.part.stream.clone(), self.event(me, what, detail)));
        }
    }

    /// What a host says of a part under an epoch.
    pub(super) fn said(&self, host: &str, part: &Part, epoch: u64) -> Option<&Report> {
        let (row, _) = self.hosts.iter().find(|(row, _)| row.host.id == host)?;
        row.reports.iter().find(|report| report.part == *part && report.epoch == epoch)
    }
}
