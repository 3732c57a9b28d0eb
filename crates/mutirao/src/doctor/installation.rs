//! Whose the vhost of RabbitMQ is: what a manager with these settings would find at its start.

use mutirao_broker::Rabbit;
use mutirao_broker::rabbit::{Config, Holder};
use mutirao_core::InstallationId;
use mutirao_store::installation::{Installation, known_if_any, known_in_file};
use mutirao_store::{Database, Postgres, StoreError};

use super::Finding;
use crate::config::Settings;
use crate::database::{file_in, refuse_elsewhere};
use crate::installation::{Others, Verdict, judge, watched};

const WHAT: &str = "installation";

/// The database that a manager here would use, as far as it can be read.
enum Found {
    Server(Database, Option<Installation>),
    File(Option<Installation>),
}

impl Found {
    fn installation(&self) -> Option<&Installation> {
        match self {
            Self::Server(_, own) | Self::File(own) => own.as_ref(),
        }
    }

    async fn others(&self) -> Option<Others> {
        let Self::Server(database, _) = self else { return Some(Others::Silent) };
        let leases = mutirao_shards::store::open(database, None).await.ok()?;
        watched(&leases).await.ok()
    }
}

/// None where the database cannot be read, which is told elsewhere.
pub async fn look(settings: &Settings, config: impl Fn() -> Config) -> Option<Finding> {
    let found = match settings.database.set() {
        Some(url) => {
            let database = Database::from(Postgres::apart(&url.0, 1).await.ok()?);
            let own = known_if_any(&database).await;
            own.map(|own| Found::Server(database, own))
        }
        None if refuse_elsewhere(settings).is_err() => return None,
        None => {
            let file = file_in(&settings.data.0);
            tokio::task::spawn_blocking(move || known_in_file(&file)).await.ok()?.map(Found::File)
        }
    };
    let found = match found {
        Ok(found) => found,
        Err(error) => return Some(unknown(&error)),
    };
    // One that was never started has no id yet, and the vhost of another is another's whatever it will be.
    let id = found.installation().map_or_else(InstallationId::random, |own| own.id.clone());
    let markings = found.installation().map_or(0, |own| own.markings);
    let holder = match Rabbit::holder(config(), &id).await {
        Ok(Holder::Untold(_)) | Err(_) => return None,
        Ok(holder) => holder,
    };
    let verdict = match judge(&holder, markings, &Others::Unseen) {
        Verdict::Watch => judge(&holder, markings, &found.others().await?),
        verdict => verdict,
    };
    Some(finding(verdict))
}

/// One that was started and cannot be read is not one that was never started.
fn unknown(error: &StoreError) -> Finding {
    let found = format!("whether the vhost is this installation's cannot be said: {error}");
    Finding::warn(WHAT, found, "run doctor as the user that runs the manager")
}

fn finding(verdict: Verdict) -> Finding {
    match verdict {
        Verdict::ComeIn => Finding::ok(WHAT, "the vhost is this installation's"),
        Verdict::Mark | Verdict::Watch => {
            Finding::ok(WHAT, "the vhost is nobody's yet; the next manager that starts marks it as this installation's")
        }
        // The line carries its own remedy, after the last semicolon.
        Verdict::Refuse(line) | Verdict::Elsewhere(line) => match line.rsplit_once("; ") {
            Some((found, remedy)) => Finding::fail(WHAT, found, remedy),
            None => Finding::fail(WHAT, line, "give this installation a vhost of its own"),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::super::Mark;
    use super::*;

    #[test]
    fn a_database_that_cannot_be_read_is_told_and_not_taken_for_a_new_one() {
        let told = unknown(&StoreError::Unusable { path: "/data/mutirao.db".into(), why: "Permission denied".into() });
        assert_eq!(told.mark, Mark::Warn);
        assert!(told.found.contains("Permission denied") && told.remedy.is_some(), "{}", told.found);
    }

    #[test]
    fn what_a_manager_would_refuse_is_a_failure_with_its_remedy() {
        assert_eq!([finding(Verdict::ComeIn).mark, finding(Verdict::Mark).mark], [Mark::Ok, Mark::Ok]);
        let refused = finding(Verdict::Refuse("it is another's; take your own".into()));
        assert_eq!((refused.mark, refused.found.as_str()), (Mark::Fail, "it is another's"));
        assert_eq!(refused.remedy.as_deref(), Some("take your own"));
    }
}
