//! Dead letters: messages that were rejected, or came back too often, kept for a person to look at and to remove.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Bytes of a digest that make an id. A queue has some thousand letters at most.
const ID_BYTES: usize = 6;

/// A rejected message and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadLetter {
    pub body: Bytes,
    pub reason: String,
}

/// Names a dead letter by what is in it: no broker numbers them in a way that lasts. The same message rejected twice has one
/// id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LetterId(pub String);

/// Which dead letters of a queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Letters {
    All,
    /// All that have this id.
    One(LetterId),
}

impl DeadLetter {
    pub fn id(&self) -> LetterId {
        let digest = Sha256::digest(&self.body);
        LetterId(digest.iter().take(ID_BYTES).map(|byte| format!("{byte:02x}")).collect())
    }
}

impl Letters {
    pub fn has(&self, letter: &DeadLetter) -> bool {
        match self {
            Self::All => true,
            Self::One(id) => letter.id() == *id,
        }
    }
}

impl std::fmt::Display for LetterId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}
