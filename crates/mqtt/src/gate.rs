//! Who is at the door. The server asks a [`Gate`] once for each CONNECT; what it answers holds for the connection. It asks
//! again when somebody was expelled while the gate was thinking, for it may have been this one: whoever takes rights away
//! changes what the gate will say first, and expels then.

use std::net::SocketAddr;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;

use crate::codec::Answer;
use crate::topics::{TopicFilter, TopicName};

/// What somebody at the door shows.
#[derive(Clone)]
pub struct Knock {
    pub peer: SocketAddr,
    pub client_id: String,
    /// Nobody when the device has a field for it and left it empty, as small ones do.
    pub user: Option<String>,
    pub password: Option<Bytes>,
}

/// Without the password.
impl std::fmt::Debug for Knock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { peer, client_id, user, password: _ } = self;
        write!(f, "client {client_id:?} of user {user:?} from {peer}")
    }
}

/// Says who somebody is and what they may do.
#[async_trait]
pub trait Gate: Send + Sync + 'static {
    async fn admit(&self, knock: &Knock) -> Result<Guest, Refusal>;
}

/// Somebody who was let in.
#[derive(Clone, Debug)]
pub struct Guest {
    /// Sessions belong to this name together with the client id, so that nobody takes over another's by knowing its id.
    pub who: Arc<str>,
    pub standing: Standing,
    pub rights: Rights,
    /// Sessions under this name, those that are away included. Past it the one that is away longest is forgotten.
    pub sessions_max: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Showed what proves it.
    Known,
    /// Showed nothing, and was let in nevertheless.
    Anonymous,
}

/// Topics that somebody may use.
#[derive(Clone, Debug, Default)]
pub struct Rights {
    pub publish: Vec<TopicFilter>,
    pub subscribe: Vec<TopicFilter>,
}

impl Rights {
    pub fn may_publish(&self, topic: &TopicName) -> bool {
        !topic.is_the_servers() && self.publish.iter().any(|right| right.matches(topic))
    }

    pub fn may_subscribe(&self, filter: &TopicFilter) -> bool {
        self.subscribe.iter().any(|right| right.covers(filter))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("the user or the password is wrong")]
    BadCredentials,
    #[error("it has no credentials, or may not come in")]
    NotAuthorized,
    #[error("the client id cannot be used; give one of 1 to 128 bytes, or none with a clean session")]
    ClientId,
    #[error("nobody can be let in at the moment; it will be tried again")]
    Unavailable,
}

impl From<Refusal> for Answer {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::BadCredentials => Answer::BadCredentials,
            Refusal::NotAuthorized => Answer::NotAuthorized,
            Refusal::ClientId => Answer::ClientIdRejected,
            Refusal::Unavailable => Answer::Unavailable,
        }
    }
}
