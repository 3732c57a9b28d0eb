//! Those that call: at each of their instants it is looked how long ago the last call was. No check is made, so nothing is
//! lost by doing it a little late, nor by a successor doing again what its predecessor may not have written.

use std::collections::HashMap;
use std::time::Duration;

use mutirao_core::Timestamp;

use super::{Owner, Way};
use crate::agenda::Firing;
use crate::envelope::Told;
use crate::grid::MonitorKey;
use crate::push::{self, Call};

/// How late an instant is still judged.
const JUDGED_WITHIN: Duration = Duration::from_secs(60);
/// From where on instants are judged by whoever takes over. Those of which the outcome is known are left out, so it may begin
/// before its predecessor stopped.
pub(super) fn judged_so_far(now: Timestamp) -> Timestamp {
    Timestamp(now.0 - JUDGED_WITHIN.as_millis() as i64)
}

impl Owner {
    /// When something is to be judged next.
    pub fn next_call(&self) -> Option<Timestamp> {
        self.calls.next(self.judged)
    }

    /// The instants to be judged, those that were left out.
    pub fn calls_due(&self, now: Timestamp) -> Vec<Firing> {
        let is_new = |firing: &Firing| {
            let last = self.health.get(&firing.monitor).and_then(|health| health.last);
            last.is_none_or(|last| firing.at > last)
        };
        self.calls.due_within(self.judged, now, |_| JUDGED_WITHIN).into_iter().filter(is_new).collect()
    }

    /// What they come to by the last call of each. Of some nothing yet.
    pub fn judge(&self, due: &[Firing], last: &HashMap<MonitorKey, Call>, now: Timestamp) -> Vec<Told> {
        let one = |firing: &Firing| {
            let known = self.known.get(&firing.monitor)?;
            let Way::Call { grace } = known.way else { return None };
            let (patience, since) = (known.every + grace, known.since.max(self.heard_since));
            let judged = push::judge(last.get(&firing.monitor), firing.at, patience, since, now)?;
            Some(Told {
                monitor: firing.monitor,
                at: firing.at,
                verdict: judged.verdict,
                took_us: judged.took_us,
                detail: judged.detail,
                certificate_days: None,
            })
        };
        due.iter().filter_map(one).collect()
    }

    /// What was due up to then is judged, and written.
    pub fn judged(&mut self, until: Timestamp) {
        self.judged = self.judged.max(until);
    }

    /// Nobody could call until now, and so nobody is late.
    pub fn unheard(&mut self, now: Timestamp) {
        self.heard_since = now;
    }
}

#[cfg(test)]
mod tests {
    use mutirao_core::ShardId;

    use super::*;
    use crate::health::{State, Verdict};
    use crate::store::{MonitorRow, Recalled, Settlement};

    const T: i64 = 1_800_000_000_000;
    const KEY: MonitorKey = MonitorKey(1);

    fn row(revision: u64, rest: &str) -> MonitorRow {
        let json = format!(r#"{{"name": "backup", "every": "10s", "push": {{"grace": "5s"}}{rest}}}"#);
        MonitorRow {
            key: KEY,
            uuid: "uuid-1".into(),
            shard: ShardId(0),
            spec: serde_json::from_str(&json).unwrap(),
            revision,
            namespace: "default".into(),
            owner: "ana".into(),
            created_at: Timestamp(T),
            changed_at: Timestamp(T),
            changed_by: "ana".into(),
            removed_at: None,
        }
    }

    fn owner(recalled: Recalled, now: i64) -> Owner {
        Owner::new(recalled, Timestamp(now))
    }

    fn fresh() -> Owner {
        owner(Recalled { monitors: vec![row(1, "")], ..Recalled::default() }, T)
    }

    fn round(owner: &mut Owner, now: i64, call: Option<i64>) -> Settlement {
        let call = call.map(|at| Call { at: Timestamp(at), verdict: Verdict::Good, took_us: None, message: None });
        let due = owner.calls_due(Timestamp(now));
        let told = owner.judge(&due, &call.into_iter().map(|call| (KEY, call)).collect(), Timestamp(now));
        let settlement = owner.take(told);
        owner.judged(Timestamp(now));
        settlement
    }

    #[test]
    fn each_instant_has_one_outcome_by_the_last_call_and_no_check_is_made() {
        let mut owner = fresh();
        assert!(owner.due(Timestamp(T + 60_000), Timestamp(T)).is_empty() && owner.next().is_none());
        let mut outcomes = Vec::new();
        for second in 1..=60 {
            // It calls each 10 seconds, and stops after half a minute.
            let call = (second / 10 * 10).min(30);
            outcomes.extend(round(&mut owner, T + second * 1_000, (call > 0).then_some(T + call * 1_000)).outcomes);
        }
        let bad: Vec<i64> = outcomes.iter().filter(|o| o.verdict == Verdict::Bad).map(|o| o.at.0 - T).collect();
        assert!(outcomes.windows(2).all(|pair| pair[1].at.0 - pair[0].at.0 == 10_000), "{outcomes:?}");
        assert!(!bad.is_empty() && bad.iter().all(|at| *at >= 45_000), "{bad:?}");
        assert_eq!(outcomes.len() - bad.len(), outcomes.iter().filter(|o| o.at.0 < T + 45_000).count());
    }

    #[test]
    fn one_that_never_calls_goes_down_by_its_thresholds() {
        let mut owner = fresh();
        let opened: Vec<_> = (1..=60).flat_map(|second| round(&mut owner, T + second * 1_000, None).opened).collect();
        assert_eq!((opened.len(), opened[0].evidence.as_str()), (1, "never called"));
        assert!(owner.health[&KEY].state == State::Down);
        assert!(owner.look(Timestamp(T + 3_600_000)).health.is_empty(), "who is late is not silent besides");
    }

    #[test]
    fn a_successor_judges_what_was_left_out_and_nothing_twice() {
        let mut first = fresh();
        let before: Vec<_> = (1..=40)
            .flat_map(|second| round(&mut first, T + second * 1_000, Some(T + second * 1_000)).outcomes)
            .collect();
        let recalled = Recalled {
            monitors: vec![row(1, "")],
            health: vec![(KEY, first.health[&KEY].clone())],
            fired_until: Some(Timestamp(T + 40_000)),
        };
        // Killed at 40 s, taken over at 75 s; meanwhile calls reached others.
        let mut second = owner(recalled.clone(), T + 75_000);
        let after = round(&mut second, T + 75_000, Some(T + 70_000)).outcomes;
        let all: Vec<i64> = before.iter().chain(&after).map(|outcome| outcome.at.0).collect();
        assert!(all.len() >= 7 && all.windows(2).all(|pair| pair[1] - pair[0] == 10_000), "{all:?}");
        let mut alone = owner(recalled, T + 75_000);
        assert!(round(&mut alone, T + 75_000, Some(T + 40_000)).outcomes.iter().all(|o| o.verdict == Verdict::Good));
        assert!(
            round(&mut alone, T + 85_000, Some(T + 40_000)).outcomes.is_empty(),
            "nobody could call: nobody is late"
        );
        assert!(!round(&mut alone, T + 105_000, Some(T + 40_000)).outcomes.is_empty());
    }

    #[test]
    fn a_store_that_was_away_makes_nobody_late() {
        let mut owner = fresh();
        round(&mut owner, T + 20_000, Some(T + 19_000));
        owner.unheard(Timestamp(T + 60_000));
        assert!(round(&mut owner, T + 70_000, Some(T + 19_000)).outcomes.iter().all(|o| o.verdict == Verdict::Good));
        assert!(!round(&mut owner, T + 90_000, Some(T + 19_000)).outcomes.is_empty());
    }

    #[test]
    fn what_is_paused_or_becomes_a_check_is_not_judged() {
        let mut owner = fresh();
        owner.define(row(2, r#", "paused": true"#), Timestamp(T + 1_000));
        assert!(owner.calls_due(Timestamp(T + 60_000)).is_empty());
        owner.define(row(3, ""), Timestamp(T + 2_000));
        assert!(!owner.calls_due(Timestamp(T + 60_000)).is_empty());
        let asked = r#"{"name": "backup", "every": "10s", "tcp": {"address": "x:1"}}"#;
        let spec = serde_json::from_str(asked).unwrap();
        owner.define(MonitorRow { spec, ..row(4, "") }, Timestamp(T + 3_000));
        assert!(owner.calls_due(Timestamp(T + 60_000)).is_empty() && owner.next().is_some());
    }
}
