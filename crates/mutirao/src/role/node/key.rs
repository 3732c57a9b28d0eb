//! A node's own key, in its folder, readable by its owner only; and the password that it makes with it at each start, which
//! nobody types and nothing keeps.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use mutirao_client::{Client, ClientError, Credentials, WorkerKey};
use mutirao_core::node::{AmqpPlace, NodeEnrol, NodePassword};
use mutirao_core::{Clock, Dice};
use mutirao_nodes::{NodeId, device, keys};
use serde::{Deserialize, Serialize};

use super::Transport;
use super::line::Login;
use crate::config::Settings;
use crate::failure::{Exit, Failure};
use crate::role::identity::keep_secret;
use crate::tls;

const FILE: &str = "key";
/// A manager that is away is asked again, less and less often.
const PAUSE_MIN: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(10);

#[derive(Serialize, Deserialize)]
struct Kept {
    node: NodeId,
    /// The secret key, base64.
    key: String,
}

/// Where a node's key is, and who would take it.
pub struct Parts<'a> {
    settings: &'a Settings,
    dir: &'a Path,
    node: &'a NodeId,
    transport: Transport,
    /// Where the API is, unless the settings say so.
    url: Option<&'a str>,
    clock: &'a Arc<dyn Clock>,
    dice: &'a Arc<Dice>,
}

impl<'a> Parts<'a> {
    pub fn new(
        (settings, dir, clock, dice): (&'a Settings, &'a PathBuf, &'a Arc<dyn Clock>, &'a Arc<Dice>),
        node: &'a NodeId,
        transport: Transport,
        server: Option<&'a str>,
    ) -> Self {
        let url = server.filter(|_| transport == Transport::Http);
        Self { settings, dir, node, transport, url, clock, dice }
    }

    /// None: it has no key, and was offered none.
    pub async fn login(&self) -> Result<Option<Login>, Failure> {
        let token = std::env::var("MUTIRAO_ENROL_TOKEN").ok().filter(|token| !token.is_empty());
        let key = match (self.load()?, &token) {
            (Some(key), _) => key,
            (None, Some(_)) => self.make()?,
            (None, None) => return Ok(None),
        };
        let client = self.client()?;
        let password = device::new_password();
        let (mut pause, mut told) = (PAUSE_MIN, false);
        // Until a manager has taken it, or says that it never will.
        loop {
            match self.change(&client, &key, token.as_deref(), &password).await {
                Ok(None) => return Ok(Some(Login { user: self.node.to_string(), password, amqp: None })),
                Ok(Some(place)) => {
                    return Ok(Some(Login { user: place.user.clone(), password, amqp: Some(place) }));
                }
                Err(error) if matches!(error.status(), Some(401 | 404 | 422)) => return Err(self.not_let_in(&error)),
                Err(error) if !told => {
                    tracing::warn!("the manager takes no password of this node yet: {error}; it is tried again");
                    told = true;
                }
                Err(error) => tracing::debug!(%error, "still no password"),
            }
            self.clock.sleep(self.dice.jitter(pause)).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Gives the key if the manager has none of this node, and then signs a password with it.
    async fn change(
        &self,
        client: &Client,
        key: &WorkerKey,
        token: Option<&str>,
        password: &str,
    ) -> Result<Option<AmqpPlace>, ClientError> {
        let node = self.node.as_str();
        let known = match (client.node_key(node).await, token) {
            (Err(error), Some(token)) if error.status() == Some(404) => {
                let public_key = key.public_base64();
                client.enrol_node(&NodeEnrol { token: token.to_owned(), public_key }).await?
            }
            (known, _) => known?,
        };
        let (change, digest) = (known.changes + 1, keys::written(self.node, password));
        let rabbit = (self.transport == Transport::Amqp).then(|| keys::written_for_rabbit(password));
        let signature = key.sign(&NodePassword::signed_bytes(node, change, &digest, rabbit.as_deref()));
        let said = NodePassword { change, digest, rabbit, signature };
        Ok(client.change_node_password(node, &said).await?.amqp)
    }

    fn file(&self) -> PathBuf {
        self.dir.join(FILE)
    }

    fn client(&self) -> Result<Client, Failure> {
        let url = self.settings.url.set().map(|url| url.0.as_str()).or(self.url);
        let url = url.ok_or_else(|| {
            Failure::usage(
                "a node with a key must know where its manager's API is: set MUTIRAO_URL to http://HOST:7070",
            )
        })?;
        let trust = tls::trust(self.settings, url, None)?;
        Ok(Client::with_clock(url, Credentials::None, &trust, self.clock.clone(), self.dice.clone())?)
    }

    fn load(&self) -> Result<Option<WorkerKey>, Failure> {
        let path = self.file();
        let unusable = |why: String| Failure::failed(format!("{}: {why}; remove it and enrol again", path.display()));
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(unusable(error.to_string())),
        };
        let kept: Kept = serde_json::from_str(&text).map_err(|error| unusable(error.to_string()))?;
        if kept.node != *self.node {
            let (path, node) = (path.display(), kept.node);
            return Err(Failure::usage(format!(
                "{path} is the key of node {node}; give --id {node}, or another --dir"
            )));
        }
        WorkerKey::from_base64(&kept.key).map(Some).map_err(|error| unusable(error.to_string()))
    }

    /// Kept before it is given: a token is spent once.
    fn make(&self) -> Result<WorkerKey, Failure> {
        let (key, path) = (WorkerKey::generate(), self.file());
        let kept = Kept { node: self.node.clone(), key: key.to_base64() };
        let written = serde_json::to_string(&kept).map_err(std::io::Error::from);
        written
            .and_then(|text| keep_secret(&path, &text))
            .map_err(|error| Failure::failed(format!("cannot keep {}: {error}", path.display())))?;
        Ok(key)
    }

    fn not_let_in(&self, error: &ClientError) -> Failure {
        let line = format!(
            "the manager does not take the key of this node ({error}); set MUTIRAO_ENROL_TOKEN to a new token of \
             `mutirao node invite {}`",
            self.node
        );
        Failure::new(Exit::NotAllowed, line)
    }
}
