//! Whose a vhost is. The names in it are the same for every installation, so two in one vhost would take each other's tasks
//! and reports: the first marks it, and whoever comes with another id is refused.
//!
//! The mark is a durable exchange that nobody can publish to, whose alternate exchange is named after the installation: the
//! one argument of an exchange that RabbitMQ compares when it is declared again, and tells when it differs. So one
//! declaration makes the mark, checks it or says whose it is, and of any number who come at once one wins. Every connection
//! of a manager does so before anything else, and again every few seconds: a server that was set up anew is marked again, and
//! one that has become another's is not used.
//!
//! Who may not make it (a permission that was taken away) is let pass: that is told, with its remedy, by everything else
//! that is then refused. Not here: whether a vhost without a mark may be taken (the binary's `installation`).

use lapin::options::{ExchangeDeclareOptions, ExchangeDeleteOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{Connection, ExchangeKind};
use mutirao_core::InstallationId;

use super::denied::{Access, Asked, Denied};
use super::names::Names;
use super::trouble::{ACCESS_REFUSED, NOT_FOUND, PRECONDITION_FAILED, Place, code, text};
use crate::BrokerError;

/// Whose a vhost is, as one installation sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Holder {
    Nobody,
    Us,
    /// In the words in which everybody who is not let in hears it.
    Another(BrokerError),
    /// Which permission is lacking to know it.
    Untold(BrokerError),
}

/// The mark of one installation.
#[derive(Clone, Debug)]
pub(super) struct Mark {
    exchange: String,
    value: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ask {
    Look,
    Make,
}

impl Mark {
    pub fn new(names: &Names, installation: &InstallationId) -> Self {
        Self { exchange: names.mark(), value: names.mark_of(installation) }
    }

    /// Makes nothing.
    pub async fn look(&self, connection: &Connection, place: &Place) -> Result<Holder, BrokerError> {
        match self.ask(connection, Ask::Look, place).await? {
            // It is there, so declaring it only compares.
            Ok(()) => self.declare(connection, place).await,
            Err(error) if code(&error) == Some(NOT_FOUND) => Ok(Holder::Nobody),
            Err(error) => self.understood(&error, place),
        }
    }

    /// The vhost is ours from here on, or it is another's.
    pub async fn hold(&self, connection: &Connection, place: &Place) -> Result<(), BrokerError> {
        match self.declare(connection, place).await? {
            Holder::Another(refusal) => Err(refusal),
            Holder::Us | Holder::Nobody | Holder::Untold(_) => Ok(()),
        }
    }

    /// Nobody's from here on, until somebody marks it.
    pub async fn remove(&self, connection: &Connection, place: &Place) -> Result<(), BrokerError> {
        let channel = connection.create_channel().await.map_err(|error| place.unreachable(text(&error)))?;
        let removed = channel.exchange_delete(self.exchange.as_str().into(), ExchangeDeleteOptions::default()).await;
        match removed.map_err(|error| self.understood(&error, place)) {
            Ok(()) => Ok(()),
            Err(Ok(Holder::Untold(refusal) | Holder::Another(refusal)) | Err(refusal)) => Err(refusal),
            Err(Ok(Holder::Nobody | Holder::Us)) => Ok(()),
        }
    }

    async fn declare(&self, connection: &Connection, place: &Place) -> Result<Holder, BrokerError> {
        match self.ask(connection, Ask::Make, place).await? {
            Ok(()) => Ok(Holder::Us),
            Err(error) => self.understood(&error, place),
        }
    }

    /// On a channel of its own: a refusal takes its channel along.
    async fn ask(&self, connection: &Connection, ask: Ask, place: &Place) -> Result<lapin::Result<()>, BrokerError> {
        // Nothing was asked yet that could be refused, whatever the client library reports here.
        let channel = connection.create_channel().await.map_err(|error| place.unreachable(text(&error)))?;
        let passive = ask == Ask::Look;
        let options = ExchangeDeclareOptions { durable: true, internal: true, passive, ..Default::default() };
        let mut arguments = FieldTable::default();
        arguments.insert("alternate-exchange".into(), AMQPValue::LongString(self.value.as_str().into()));
        let exchange = self.exchange.as_str().into();
        Ok(channel.exchange_declare(exchange, ExchangeKind::Fanout, options, arguments).await)
    }

    fn understood(&self, error: &lapin::Error, place: &Place) -> Result<Holder, BrokerError> {
        let words = text(error);
        let about_us = words.contains(&format!("exchange '{}'", self.exchange));
        match code(error) {
            Some(PRECONDITION_FAILED) if about_us => Ok(Holder::Another(self.anothers(&words, place))),
            Some(ACCESS_REFUSED) => {
                let denied = Denied::read(&words, Asked::For(Access::Configure));
                let why = denied.map_or(words, |denied| denied.line(&self.exchange));
                Ok(Holder::Untold(BrokerError::Refused { what: self.exchange.clone(), why }))
            }
            _ => Err(place.unreachable(words)),
        }
    }

    fn anothers(&self, words: &str, place: &Place) -> BrokerError {
        let Place { address, vhost, .. } = place;
        let named = self.named_in(words).map(|id| format!(" ({id})")).unwrap_or_default();
        let exchange = &self.exchange;
        let why = format!(
            "it belongs to another installation{named}, and the two would take each other's tasks; give this one a vhost of \
             its own in the broker's URL, or, when the other one is gone for good, delete the exchange {exchange} there, as \
             docs/operations.md says (a restore does so with --take-over)"
        );
        BrokerError::Refused { what: format!("the vhost {vhost} at {address}"), why }
    }

    /// The other's id, by the words of a refusal. They are cut at 255 bytes, and the id may be lost with their end.
    fn named_in<'a>(&self, words: &'a str) -> Option<&'a str> {
        let (_, current) = words.split_once(" but current is '")?;
        let id = current.split('\'').next()?.strip_prefix(self.exchange.as_str())?.strip_prefix('.')?;
        (!id.is_empty()).then_some(id)
    }
}

#[cfg(test)]
mod tests {
    use lapin::ErrorKind;
    use lapin::protocol::AMQPError;

    use super::super::PREFIX_DEFAULT;
    use super::*;

    fn understood(id: u16, words: &str) -> Result<Holder, BrokerError> {
        let mark = Mark::new(&Names::new(PREFIX_DEFAULT).unwrap(), &InstallationId("aa".into()));
        let place = Place { address: "broker:5672".into(), vhost: "lab".into(), user: "ana".into() };
        mark.understood(&ErrorKind::ProtocolError(AMQPError::from_id(id, words.into()).unwrap()).into(), &place)
    }

    #[test]
    fn the_mark_of_another_is_told_with_its_id_and_the_remedy() {
        let line = |words: &str| match understood(406, words) {
            Ok(Holder::Another(refusal)) => refusal.to_string(),
            other => panic!("{other:?}"),
        };
        let words = "PRECONDITION_FAILED - inequivalent arg 'alternate-exchange' for exchange 'mutirao.installation' in \
                     vhost 'lab': received 'mutirao.installation.aa' but current is 'mutirao.installation.bb'";
        let said = line(words);
        assert!(said.contains("vhost lab at broker:5672") && said.contains("installation (bb)"), "{said}");
        assert!(said.contains("a vhost of its own") && said.contains("exchange mutirao.installation there"), "{said}");
        for cut in ["mutirao.installation.", "mutirao.inst", "other", ""] {
            let said = line(&words.replace("mutirao.installation.bb'", cut));
            assert!(said.contains("another installation,"), "{said}");
        }
    }

    #[test]
    fn who_may_not_look_is_told_which_permission_is_lacking_and_the_rest_is_asked_again() {
        let words = "ACCESS_REFUSED - access to exchange 'mutirao.installation' in vhost 'lab' refused for user 'ana'";
        let Ok(Holder::Untold(said)) = understood(403, words) else { panic!("not understood") };
        assert!(said.to_string().contains("rabbitmqctl set_permissions -p lab ana"), "{said}");
        for (id, words) in [(541, "INTERNAL_ERROR"), (406, "PRECONDITION_FAILED - inequivalent arg of queue 'q'")] {
            assert!(matches!(understood(id, words), Err(BrokerError::Unreachable(_))), "{words}");
        }
    }
}
