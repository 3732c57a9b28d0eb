//! What one connection may do. The API makes a permit from who is there; the server holds every request against it.

use std::sync::Arc;

use bytes::Bytes;

use crate::{BrokerError, Name};

/// Looks at a body before it is published, so that a worker cannot speak for another. An error is the reason.
pub type Vet = Arc<dyn Fn(&Name, &Bytes) -> Result<(), String> + Send + Sync>;

/// Which names may be used, and how. A name that ends in `.` stands for every name that begins with it.
///
/// ```
/// use mutirao_broker::link::Permit;
/// let permit = Permit::nothing().consume("tasks.default").publish("results.jobs.").subscribe("control.default");
/// ```
#[derive(Clone, Default)]
pub struct Permit {
    publish: Names,
    consume: Names,
    announce: Names,
    subscribe: Names,
    append: Names,
    read: Names,
    delete: Names,
    vet: Option<Vet>,
}

#[derive(Clone, Debug)]
enum Names {
    All,
    Only(Vec<String>),
}

impl Default for Names {
    fn default() -> Self {
        Self::Only(Vec::new())
    }
}

impl Names {
    fn has(&self, name: &Name) -> bool {
        match self {
            Names::All => true,
            Names::Only(some) => some.iter().any(|one| match one.strip_suffix('.') {
                Some(_) => name.len() > one.len() && name.starts_with(one),
                None => one == name,
            }),
        }
    }

    fn add(&mut self, name: &Name) {
        if let Names::Only(some) = self {
            some.push(name.into());
        }
    }
}

/// What is done with a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Deed {
    Publish,
    Consume,
    /// Counts are for whoever fills a queue or empties it.
    Count,
    Announce,
    Subscribe,
    Append,
    /// Records and extents of logs.
    Read,
    /// For whoever may do everything.
    Delete,
    /// Logs, for whoever may do everything: others may need what is let go.
    Trim,
    Forget,
}

impl Deed {
    fn as_str(self) -> &'static str {
        match self {
            Deed::Publish => "publishing to",
            Deed::Consume => "consuming from",
            Deed::Count => "counting",
            Deed::Announce => "announcing on",
            Deed::Subscribe => "subscribing to",
            Deed::Append => "appending to",
            Deed::Read => "reading",
            Deed::Delete => "deleting",
            Deed::Trim => "trimming",
            Deed::Forget => "removing",
        }
    }
}

impl Permit {
    pub fn everything() -> Self {
        Self {
            publish: Names::All,
            consume: Names::All,
            announce: Names::All,
            subscribe: Names::All,
            append: Names::All,
            read: Names::All,
            delete: Names::All,
            vet: None,
        }
    }

    pub fn nothing() -> Self {
        Self::default()
    }

    pub fn publish(mut self, name: &Name) -> Self {
        self.publish.add(name);
        self
    }

    pub fn consume(mut self, name: &Name) -> Self {
        self.consume.add(name);
        self
    }

    pub fn announce(mut self, name: &Name) -> Self {
        self.announce.add(name);
        self
    }

    pub fn subscribe(mut self, name: &Name) -> Self {
        self.subscribe.add(name);
        self
    }

    pub fn append(mut self, name: &Name) -> Self {
        self.append.add(name);
        self
    }

    pub fn read(mut self, name: &Name) -> Self {
        self.read.add(name);
        self
    }

    /// Every published body is shown to `vet` first.
    pub fn vet(mut self, vet: Vet) -> Self {
        self.vet = Some(vet);
        self
    }

    pub(super) fn check(&self, deed: Deed, name: &Name) -> Result<(), BrokerError> {
        let allowed = match deed {
            Deed::Publish => self.publish.has(name),
            Deed::Consume => self.consume.has(name),
            Deed::Count => self.publish.has(name) || self.consume.has(name),
            Deed::Announce => self.announce.has(name),
            Deed::Subscribe => self.subscribe.has(name),
            Deed::Append => self.append.has(name),
            Deed::Read => self.read.has(name),
            Deed::Delete | Deed::Trim | Deed::Forget => self.delete.has(name),
        };
        if allowed { Ok(()) } else { Err(refusal(deed, name, "this connection may not")) }
    }

    pub(super) fn check_bodies(&self, queue: &Name, bodies: &[Bytes]) -> Result<(), BrokerError> {
        let Some(vet) = &self.vet else { return Ok(()) };
        bodies.iter().try_for_each(|body| vet(queue, body)).map_err(|why| refusal(Deed::Publish, queue, &why))
    }
}

fn refusal(deed: Deed, name: &Name, why: &str) -> BrokerError {
    let shown: String = name.chars().take(mutirao_core::limits::NAME_CHARS_MAX).collect();
    BrokerError::Refused { what: format!("{} {shown}", deed.as_str()), why: why.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_allowed_exactly_or_by_its_prefix() {
        let permit = Permit::nothing().publish("results.jobs.").consume("tasks.a");
        assert!(permit.check(Deed::Publish, "results.jobs.0").is_ok());
        assert!(permit.check(Deed::Consume, "tasks.a").is_ok() && permit.check(Deed::Count, "tasks.a").is_ok());
        for name in ["results.jobs.", "results.jobs", "results.jobsx", "tasks.a"] {
            assert!(permit.check(Deed::Publish, name).is_err(), "{name}");
        }
        assert!(permit.check(Deed::Delete, "tasks.a").is_err(), "who takes from a queue may not delete it");
        let writes = Permit::nothing().append("streams.").read("streams.");
        for deed in [Deed::Trim, Deed::Forget] {
            assert!(
                writes.check(deed, "streams.a").is_err(),
                "who writes a log and reads it may not be {}",
                deed.as_str()
            );
            assert!(Permit::everything().check(deed, "streams.a").is_ok());
        }
        assert!(permit.check(Deed::Consume, "tasks.ab").is_err() && permit.check(Deed::Append, "tasks.a").is_err());
    }

    #[test]
    fn one_bad_body_refuses_the_batch() {
        let permit = Permit::everything().vet(Arc::new(|_, body| match &body[..] {
            b"forged" => Err("not yours".into()),
            _ => Ok(()),
        }));
        assert!(permit.check_bodies("q", &["fine".into()]).is_ok());
        let refused = permit.check_bodies("q", &["fine".into(), "forged".into()]);
        assert!(matches!(refused, Err(BrokerError::Refused { why, .. }) if why == "not yours"));
    }
}
