//! What would be refused of flows that somebody means to declare.

use std::collections::BTreeSet;

use mutirao_core::declared::Wrong;

use super::Flows;
use crate::FlowSpec;

impl Flows {
    /// Those that would be refused, and why. Nothing is written.
    pub async fn wrong_flows(&self, all: &[FlowSpec]) -> Vec<Wrong> {
        let (mut wrong, mut names) = (Vec::new(), BTreeSet::new());
        for (at, spec) in all.iter().enumerate() {
            let faults = self.check(spec).await.err().unwrap_or_default();
            wrong.extend(faults.into_iter().map(|problem| Wrong { at, problem }));
            if !names.insert(&spec.name) {
                wrong.push(Wrong::twice(at));
            }
        }
        wrong
    }
}
