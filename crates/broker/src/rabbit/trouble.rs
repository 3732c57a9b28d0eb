//! What went wrong, in words that name the remedy. RabbitMQ's errors are of two kinds for us: it said no, which asking
//! again would not change, or the connection or channel was lost, after which the same is asked again.

use lapin::types::ReplyCode;
use lapin::{Error, ErrorKind};

use super::denied::{Access, Asked, Denied};
use crate::BrokerError;

#[derive(Clone, Debug)]
pub(super) enum Trouble {
    Said(BrokerError),
    Lost(String),
}

impl Trouble {
    /// For what must not happen twice unasked.
    pub fn give_up(self) -> BrokerError {
        match self {
            Self::Said(error) => error,
            Self::Lost(why) => BrokerError::Unreachable(why),
        }
    }
}

pub(super) const ACCESS_REFUSED: ReplyCode = 403;
pub(super) const NOT_FOUND: ReplyCode = 404;
const CONTENT_TOO_LARGE: ReplyCode = 311;
const RESOURCE_LOCKED: ReplyCode = 405;
pub(super) const PRECONDITION_FAILED: ReplyCode = 406;
const NOT_ALLOWED: ReplyCode = 530;
const NOT_IMPLEMENTED: ReplyCode = 540;

/// RabbitMQ's own code for it, when it spoke.
pub(super) fn code(error: &Error) -> Option<ReplyCode> {
    match error.kind() {
        ErrorKind::ProtocolError(said) => Some(said.get_id()),
        _ => None,
    }
}

pub(super) fn text(error: &Error) -> String {
    match error.kind() {
        ErrorKind::ProtocolError(said) => said.get_message().to_string(),
        ErrorKind::IOError(error) => error.to_string(),
        _ => error.to_string(),
    }
}

/// An error of making or deleting something.
pub(super) fn configuring(name: &str) -> impl Fn(Error) -> Trouble {
    about(Asked::For(Access::Configure), name)
}

/// An error of sending to a queue or an exchange.
pub(super) fn writing(name: &str) -> impl Fn(Error) -> Trouble {
    about(Asked::For(Access::Write), name)
}

/// An error of taking from a queue, or of looking at it.
pub(super) fn reading(name: &str) -> impl Fn(Error) -> Trouble {
    about(Asked::For(Access::Read), name)
}

/// An error of something that was asked about `name`.
pub(super) fn about(asked: Asked, name: &str) -> impl Fn(Error) -> Trouble {
    move |error| {
        let text = text(&error);
        let why = match code(&error) {
            Some(ACCESS_REFUSED) => match Denied::read(&text, asked) {
                Some(denied) => denied.line(name),
                None => format!("{text}; grant it with rabbitmqctl set_permissions"),
            },
            Some(NOT_FOUND) => format!("{text}; something deleted it"),
            Some(PRECONDITION_FAILED) => {
                format!(
                    "it exists with other arguments ({text}); delete it with rabbitmqctl delete_queue {name}, \
                     or choose another prefix"
                )
            }
            Some(RESOURCE_LOCKED | CONTENT_TOO_LARGE | NOT_ALLOWED) => text,
            Some(NOT_IMPLEMENTED) => format!("{text}; enable it with rabbitmqctl enable_feature_flag all"),
            _ => return Trouble::Lost(text),
        };
        Trouble::Said(BrokerError::Refused { what: name.into(), why })
    }
}

/// Where a connection goes, without the password.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub address: String,
    pub vhost: String,
    pub user: String,
}

impl Place {
    pub fn unreachable(&self, why: impl std::fmt::Display) -> BrokerError {
        BrokerError::Unreachable(format!(
            "{}: {why}; is RabbitMQ running there, and is the broker's address right?",
            self.address
        ))
    }

    pub fn refused(&self, why: String) -> BrokerError {
        BrokerError::Refused { what: format!("the connection to {}", self.address), why }
    }

    /// An error of connecting, once the server had greeted us.
    pub fn not_let_in(&self, error: &Error) -> BrokerError {
        let Self { vhost, user, .. } = self;
        let text = text(error);
        match code(error) {
            Some(ACCESS_REFUSED) => self.refused(format!(
                "it knows no user {user} with this password; correct the broker's URL, or run rabbitmqctl add_user {user}"
            )),
            Some(NOT_ALLOWED) if text.contains("not found") => self.refused(format!(
                "it has no vhost {vhost}; correct the broker's URL, or run rabbitmqctl add_vhost {vhost}"
            )),
            Some(NOT_ALLOWED) => self.refused(format!(
                "{text}; user {user} needs permissions in vhost {vhost}: rabbitmqctl set_permissions -p {vhost} {user} …"
            )),
            _ => self.unreachable(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use lapin::protocol::AMQPError;

    use super::*;

    fn said(id: ReplyCode, text: &str) -> Error {
        ErrorKind::ProtocolError(AMQPError::from_id(id, text.into()).unwrap()).into()
    }

    #[test]
    fn what_asking_again_would_not_change_is_an_error_and_the_rest_is_asked_again() {
        for code in [403, 404, 405, 406, 530, 540] {
            let trouble = reading("mutirao.q")(said(code, "NO"));
            let Trouble::Said(BrokerError::Refused { what, why }) = trouble else { panic!("{code}: {trouble:?}") };
            assert!(what == "mutirao.q" && why.contains("NO"), "{what}: {why}");
        }
        for code in [320, 501, 504, 541] {
            assert!(matches!(reading("q")(said(code, "GONE")), Trouble::Lost(_)), "{code}");
        }
        let broken = Error::from(std::io::Error::from(std::io::ErrorKind::BrokenPipe));
        assert!(matches!(reading("q")(broken), Trouble::Lost(_)));
    }

    #[test]
    fn a_refused_connection_names_the_remedy_and_never_the_password() {
        let place = Place { address: "broker:5672".into(), vhost: "lab".into(), user: "ana".into() };
        let line = |code, text: &str| place.not_let_in(&said(code, text)).to_string();
        assert!(line(403, "ACCESS_REFUSED").contains("user ana with this password"));
        assert!(line(530, "NOT_ALLOWED - vhost lab not found").contains("rabbitmqctl add_vhost lab"));
        assert!(line(530, "NOT_ALLOWED - access to vhost 'lab' refused").contains("set_permissions -p lab ana"));
    }
}
