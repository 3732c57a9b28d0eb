//! A moment of the whole store: one revision for each shard. There is no order between shards, so this, and not one number,
//! is what "up to here" means.

use mutirao_core::{Problem, ShardId};
use mutirao_surface::paging;
use serde::{Deserialize, Serialize};

use crate::SHARDS;

/// Opaque to whoever is given one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Point(Vec<u64>);

impl Point {
    /// Before everything.
    pub fn start() -> Self {
        Self(vec![0; SHARDS as usize])
    }

    pub fn of(revisions: impl IntoIterator<Item = (ShardId, u64)>) -> Self {
        let mut point = Self::start();
        for (shard, revision) in revisions {
            point.reach(shard, revision);
        }
        point
    }

    pub fn at(&self, shard: ShardId) -> u64 {
        self.0.get(shard.0 as usize).copied().unwrap_or(0)
    }

    pub fn reach(&mut self, shard: ShardId, revision: u64) {
        if let Some(at) = self.0.get_mut(shard.0 as usize) {
            *at = revision.max(*at);
        }
    }

    /// Whether it is of a moment that has not come.
    pub fn is_ahead_of(&self, other: &Point) -> bool {
        self.0.iter().zip(&other.0).any(|(revision, there)| revision > there)
    }

    pub fn encode(&self) -> String {
        paging::encode(self)
    }

    /// Of whoever goes on with a watch.
    pub fn decode(cursor: &str) -> Result<Self, Problem> {
        paging::decode::<Self>(cursor).and_then(Self::checked).map_err(|_| {
            Problem::invalid("cursor", "it is not one to watch from")
                .remedy("give the id of an event or `watch` of a list, or none to watch from now on")
        })
    }

    /// One that came from outside.
    pub fn checked(self) -> Result<Self, Problem> {
        let fits = self.0.len() == SHARDS as usize && self.0.iter().all(|revision| i64::try_from(*revision).is_ok());
        if fits { Ok(self) } else { Err(Problem::invalid("cursor", "it is not one of this installation")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_is_ahead_when_any_of_its_shards_is() {
        let point = |a, b| Point::of([(ShardId(0), a), (ShardId(15), b)]);
        assert!(point(1, 8).is_ahead_of(&point(9, 7)) && point(2, 0).is_ahead_of(&point(1, 9)));
        assert!(!point(1, 7).is_ahead_of(&point(1, 7)) && !Point::start().is_ahead_of(&point(0, 1)));
    }

    #[test]
    fn points_go_forward_only_and_survive_the_trip() {
        let mut point = Point::of([(ShardId(3), 7)]);
        point.reach(ShardId(3), 5);
        point.reach(ShardId(99), 5);
        assert_eq!((point.at(ShardId(3)), point.at(ShardId(0)), point.at(ShardId(99))), (7, 0, 0));
        assert_eq!(Point::decode(&point.encode()).unwrap(), point);
        let problem = Point::decode(&paging::encode(&vec![1, 2])).unwrap_err();
        assert!(
            problem.status == 422 && problem.line().contains("`watch` of a list"),
            "not of a page: {}",
            problem.line()
        );
        assert!(Point::decode(&paging::encode(&vec![u64::MAX; SHARDS as usize])).is_err());
    }
}
