//! Moves of replicas while they run. No I/O and no clock: what is asked for, where parts are and what hosts say go in, the next
//! step comes out; whoever holds the shard writes it down.
//!
//! A move has one intermediate state, in which both hosts run the replica: the one it is on, and the one it goes to, which
//! begins from the newest snapshot and reads on. What both say is the same, row by row, and whoever reads it takes the first
//! copy, so that nothing waits: once the other has caught up it is the replica, and the first is stopped. Whatever happens in
//! between ends in one of two states:
//!
//! - the replica is where it was: the other host was lost, failed, or did not catch up in time;
//! - the replica is where it was to go: the other caught up, or the first host was lost meanwhile.
//!
//! Only replicas of stages move so. A source or a sink must never be twice at once.
//!
//! One replica of a stage moves at a time: what would kill one move must not kill another of the same stage. The epoch of the
//! other copy is the next one; that of a move that came to nothing may be given again, which does no harm, since copies of a
//! stage's replica say the same whatever their epoch.

use std::time::Duration;

use mutirao_core::Timestamp;
use mutirao_streams::wire::{Part, Report, State, What};

use crate::placing::{self, Host, HostId, Life, Refused, Seat, Wanted, Wish};

#[cfg(test)]
mod tests;

/// A copy that has not caught up by then is given up.
pub const CAUGHT_UP_WITHIN: Duration = Duration::from_secs(600);

/// A move that was asked for, and where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move {
    pub part: Part,
    pub to: HostId,
    /// In which life of that host the copy runs, and under which epoch, once it was begun.
    pub begun: Option<Begun>,
    pub who: String,
    /// In words, for `explain`.
    pub why: String,
    /// When it was asked for; once it was begun, when that was.
    pub since: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Begun {
    pub boot: u64,
    pub epoch: u64,
}

impl Move {
    /// Where the copy runs.
    pub fn seat(&self) -> Option<Seat> {
        self.begun.map(|begun| Seat { host: self.to.clone(), boot: begun.boot })
    }
}

/// What comes next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    Stay,
    /// A copy is to run there too.
    Begin(Begun),
    /// The replica is there from now on, and nowhere else.
    Over {
        seat: Seat,
        epoch: u64,
        why: String,
    },
    /// It stays where it is.
    End(String),
}

/// Whether a move may be begun: by the rules of places, and one replica of a stage at a time.
pub fn may(hosts: &[Host], parts: &[Wanted], moves: &[Move], wish: &Wish) -> Result<Begun, Refused> {
    let What::Stage(_) = wish.part.what else { return Err(Refused::OnlyStages) };
    let of_stage = |one: &&Move| one.part.stream == wish.part.stream && one.part.what == wish.part.what;
    if let Some(other) = moves.iter().filter(of_stage).find(|one| one.part != wish.part || one.to != wish.to) {
        let replica = other.part.replica;
        return Err(Refused::Moving { replica });
    }
    let decision = placing::wish(hosts, parts, wish)?;
    let boot = decision.to.map_or(0, |seat| seat.boot);
    Ok(Begun { boot, epoch: decision.epoch })
}

/// `said`: what a host says of a part under an epoch.
pub fn step<'a>(
    one: &Move,
    hosts: &[Host],
    parts: &[Wanted],
    moves: &[Move],
    said: impl Fn(&str, &Part, u64) -> Option<&'a Report>,
    now: Timestamp,
) -> Step {
    let Some(wanted) = parts.iter().find(|wanted| wanted.part == one.part) else {
        return Step::End("it is no part of the stream any more".into());
    };
    let Some(begun) = one.begun else {
        let bytes = memory_of(wanted, &said);
        let wish = Wish { part: one.part.clone(), to: one.to.clone(), why: one.why.clone(), bytes };
        // Of two that were asked for at once the first goes.
        let before = |other: &&Move| other.begun.is_some() || (other.since, &other.part) < (one.since, &one.part);
        let before: Vec<Move> = moves.iter().filter(before).cloned().collect();
        return match may(hosts, parts, &before, &wish) {
            Ok(begun) => Step::Begin(begun),
            Err(refused) => Step::End(refused.to_string()),
        };
    };
    let target = hosts.iter().find(|host| host.id == one.to);
    let name = target.map_or(one.to.as_str(), |host| host.name.as_str());
    if !lives(hosts, &one.to, begun.boot) {
        return Step::End(format!("{name} was lost before it had caught up"));
    }
    let over = |why: String| Step::Over {
        seat: Seat { host: one.to.clone(), boot: begun.boot },
        epoch: begun.epoch,
        why: format!("moved to {name}: {}; {why}", one.why),
    };
    let Some(seat) = wanted.seat.as_ref().filter(|seat| lives(hosts, &seat.host, seat.boot)) else {
        return over("where it was before was lost meanwhile".into());
    };
    let here = said(&seat.host, &one.part, wanted.epoch);
    let there = said(&one.to, &one.part, begun.epoch);
    match there.map(|report| (&report.state, report.next)) {
        Some((State::Failed(why), _)) => return Step::End(format!("it failed on {name}: {why}")),
        Some((State::Running | State::Ended, next)) if next >= here.map_or(0, |report| report.next) => {
            return over(format!("it had caught up after {} s", now.since(one.since).as_secs()));
        }
        _ => {}
    }
    if now.since(one.since) > CAUGHT_UP_WITHIN {
        return Step::End(format!("it had not caught up on {name} after {} s", CAUGHT_UP_WITHIN.as_secs()));
    }
    Step::Stay
}

fn lives(hosts: &[Host], id: &str, boot: u64) -> bool {
    hosts.iter().any(|host| host.id == id && host.boot == boot && host.life == Life::Alive)
}

/// What it remembers, where it is now.
pub fn memory_of<'a>(wanted: &Wanted, said: &impl Fn(&str, &Part, u64) -> Option<&'a Report>) -> u64 {
    let report = wanted.seat.as_ref().and_then(|seat| said(&seat.host, &wanted.part, wanted.epoch));
    report.map_or(0, |report| report.measures.memory_bytes)
}
