//! What actions declare of themselves, for steps that do not say otherwise. A run has it as it was when the run began, in its
//! definition: whoever reads the run back, and whatever nodes declare by then, comes to the same.

use std::time::Duration;

use mutirao_core::quantity::Span;
use mutirao_nodes::wire::Parameters;
use mutirao_nodes::{ActionName, Namespace};

use super::check::TRY_MAX;
use super::{FlowSpec, RETRIES_MAX};

impl FlowSpec {
    /// With what `declared` says of the actions of its steps, within what a step may say.
    pub fn with(mut self, namespace: &Namespace, declared: impl Fn(&ActionName) -> Option<Parameters>) -> Self {
        for step in self.steps.iter_mut().filter(|step| step.timeout.is_none() || step.retries.is_none()) {
            let action = ActionName::within(namespace, &step.action).ok();
            let Some(Parameters { timeout, retry }) = action.and_then(|action| declared(&action)) else { continue };
            let timeout = Duration::from_millis(timeout).clamp(Duration::from_millis(1), TRY_MAX);
            step.timeout = step.timeout.or(Some(Span(timeout)));
            step.retries = step.retries.or(Some(retry.min(RETRIES_MAX)));
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::definition::check::Catalogue;

    fn planned(declared: Option<Parameters>) -> Vec<(u64, u32)> {
        let steps = json!([{"name": "a", "action": "x"}, {"name": "b", "action": "x", "timeout": "10s"},
                           {"name": "c", "action": "x", "retries": 0}]);
        let spec: FlowSpec = serde_json::from_value(json!({"name": "f", "steps": steps})).unwrap();
        let spec = spec.with(&Namespace::default(), |action| declared.filter(|_| action.short() == "x"));
        let plan = spec.plan(&Namespace::default(), Catalogue::Unknown).unwrap();
        plan.steps.iter().map(|step| (step.timeout.as_millis() as u64, step.retries)).collect()
    }

    #[test]
    fn a_step_has_what_its_action_declares_unless_it_says_otherwise() {
        assert_eq!(planned(None), [(30_000, 3), (10_000, 3), (30_000, 0)]);
        let declared = Parameters { timeout: 5_000, retry: 7 };
        assert_eq!(planned(Some(declared)), [(5_000, 7), (10_000, 7), (5_000, 0)]);
    }

    #[test]
    fn whatever_is_declared_can_be_kept_to() {
        let day = 86_400_000;
        assert_eq!(planned(Some(Parameters { timeout: u64::MAX, retry: u32::MAX }))[0], (day, RETRIES_MAX));
        assert_eq!(planned(Some(Parameters { timeout: 0, retry: 0 }))[0], (1, 0));
    }
}
