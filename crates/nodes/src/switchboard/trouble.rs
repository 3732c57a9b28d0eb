//! Trouble with the store is told once while it lasts, not each time that something is tried again. A lack of rights the
//! store tells by itself, once for everybody.

use std::collections::BTreeMap;

use mutirao_store::StoreError;
use parking_lot::Mutex;

/// The last error, by what could not be done.
#[derive(Default)]
pub struct Trouble(Mutex<BTreeMap<&'static str, String>>);

impl Trouble {
    /// The answer, if there is one. `what` says in the log what could not be done.
    pub fn told<T>(&self, what: &'static str, answer: Result<T, StoreError>) -> Option<T> {
        match answer {
            Ok(answer) => {
                self.0.lock().remove(what);
                Some(answer)
            }
            Err(error) => {
                if self.is_new(what, &error) {
                    tracing::warn!(%error, "{what}");
                }
                None
            }
        }
    }

    fn is_new(&self, what: &'static str, error: &StoreError) -> bool {
        if matches!(error, StoreError::Denied { .. }) {
            return false;
        }
        let line = error.to_string();
        self.0.lock().insert(what, line.clone()).as_ref() != Some(&line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_new_once_and_again_after_it_was_over_and_a_lack_of_rights_never() {
        let trouble = Trouble::default();
        let away = StoreError::Unreachable { why: "nobody listens".into() };
        let denied = StoreError::Denied { why: "no right".into(), remedy: "grant it" };
        assert_eq!([trouble.is_new("read", &away), trouble.is_new("read", &away)], [true, false]);
        assert!(trouble.is_new("write", &away), "another thing that cannot be done");
        assert_eq!(trouble.told("read", Ok(1)), Some(1));
        assert!(trouble.is_new("read", &away));
        assert!(!trouble.is_new("other", &denied));
    }
}
