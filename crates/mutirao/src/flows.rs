//! Flows as the settings ask for them, and the node inside this process that runs what the program itself brings.

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use mutirao_actions::Table;
use mutirao_actions::builtin::{Means, Publish};
use mutirao_client::{Client, Credentials};
use mutirao_core::Clock;
use mutirao_mqtt::{Port, Qos, TopicName};
use mutirao_nodes::embedded::Embedded;
use mutirao_nodes::errand::End;
use mutirao_nodes::hands::Hands;
use mutirao_nodes::switchboard::Switchboard;
use mutirao_nodes::{ActionName, NodeId, Offer};

use crate::checks;
use crate::config::Settings;
use crate::failure::Failure;
use crate::tls;

/// What the node inside this process is called.
pub const OWN_NODE: &str = "manager";

/// From now on the built-in actions are there. `url` and `token`: by which they reach keys, as any client would; it opens
/// nothing else to them.
pub fn host(
    settings: &Settings,
    board: &Switchboard,
    mqtt: Option<&Embedded>,
    clock: &Arc<dyn Clock>,
    (url, token): (&str, String),
) -> Result<(), Failure> {
    let trust = tls::trust(settings, url, Some(tls::pin_file(&settings.data.0)))?;
    let client = Client::trusting(url, Credentials::Token(token), &trust)
        .map_err(|error| Failure::failed(format!("built-in actions cannot reach keys: {error}")))?;
    let publish = mqtt.map(|mqtt| -> Arc<dyn Publish> { Arc::new(Topics(mqtt.port().clone())) });
    let means = Means { probes: Some(checks::calls(settings, clock)?), client: Some(client), publish };
    let table = Arc::new(Table::new(clock.clone()));
    means.put_into(&table, &settings.nodes_namespace).map_err(|full| Failure::failed(full.to_string()))?;
    let node: NodeId = OWN_NODE.parse().map_err(|bad| Failure::failed(format!("{bad}")))?;
    board.host(node, Arc::new(BuiltIn(table)));
    Ok(())
}

/// Never a program: those belong to nodes of their own.
struct BuiltIn(Arc<Table>);

#[async_trait]
impl Hands for BuiltIn {
    fn offers(&self) -> BTreeSet<Offer> {
        self.0.offers().into_iter().collect()
    }

    async fn run(&self, action: &ActionName, data: &str) -> End {
        self.0.run(action, data).await
    }
}

/// The topics of this manager's own listener.
struct Topics(Port);

#[async_trait]
impl Publish for Topics {
    async fn publish(&self, to: &str, text: String) -> Result<(), String> {
        let topic = TopicName::new(to).map_err(|error| format!("to: {error}"))?;
        let said = self.0.publish(topic, text.into(), Qos::AtLeastOnce);
        said.map(drop).map_err(|error| error.to_string())
    }
}
