//! Who put a message into a queue of reports. RabbitMQ lets a connection write no other user than its own into a
//! message, so a worker's user is as good as a signature; managers pass on what came over the link in their own name,
//! where it was vetted. What nobody vouches for is not believed: anybody can leave the user out.

use mutirao_core::sender::speaks_for_itself;

use super::names::Names;

pub(super) fn vouched(names: &Names, own_user: &str, user: Option<&str>, body: &[u8]) -> Result<(), String> {
    let Some(user) = user else { return Err("it does not say which user sent it".into()) };
    if user == own_user {
        return Ok(());
    }
    match names.worker_of(user) {
        Some(worker) => speaks_for_itself(&worker, body),
        None => Err(format!("the user {user} is no worker")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rabbit::PREFIX_DEFAULT;

    #[test]
    fn a_report_is_believed_from_its_worker_and_from_managers_and_from_nobody_else() {
        let names = Names::new(PREFIX_DEFAULT).unwrap();
        let said = |user: Option<&str>| vouched(&names, "boss", user, br#"{"worker":"w1"}"#);
        assert_eq!(said(Some("boss")), Ok(()));
        assert_eq!(said(Some("mutirao.worker.w1")), Ok(()));
        for forged in [None, Some(""), Some("guest"), Some("w1"), Some("mutirao.worker.w2"), Some("other.worker.w1")] {
            assert!(said(forged).is_err(), "{forged:?}");
        }
    }
}
