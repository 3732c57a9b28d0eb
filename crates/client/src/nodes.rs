//! Nodes that run actions, and the devices behind them.

use mutirao_core::job::Page;
use mutirao_core::node::{
    Allowance, DeviceCreated, DeviceSpec, DeviceView, NodeEnrol, NodeInvited, NodeKeyView, NodePassword, RubbishView,
};

use crate::error::ClientError;
use crate::http::{Call, Client, Repeat};
use crate::jobs::PageArgs;
use crate::target::Target;

impl Client {
    /// Takes out a node that runs actions.
    pub async fn forget_node(&self, name: &str) -> Result<(), ClientError> {
        self.fetch_bytes(Call::delete(Target::new("/v1/nodes").part(name))).await.map(drop)
    }

    /// A one-time token with which a node of this id gives its key, and what it may say of itself.
    pub async fn invite_node(&self, node: &str, may: &Allowance) -> Result<NodeInvited, ClientError> {
        let call = Call::post(Target::new("/v1/nodes").part(node).part("invitation"), Repeat::Never);
        // A manager of before knows no body here.
        self.fetch(if may.is_all() { call } else { call.json(may)? }).await
    }

    /// Gives a node's key. Needs no credentials but the token.
    pub async fn enrol_node(&self, enrol: &NodeEnrol) -> Result<NodeKeyView, ClientError> {
        self.fetch(Call::post(Target::new("/v1/node-keys"), Repeat::Never).json(enrol)?).await
    }

    /// Needs no credentials.
    pub async fn node_key(&self, node: &str) -> Result<NodeKeyView, ClientError> {
        self.fetch(Call::get(Target::new("/v1/node-keys").part(node))).await
    }

    /// Needs no credentials but the signature in it.
    pub async fn change_node_password(&self, node: &str, password: &NodePassword) -> Result<NodeKeyView, ClientError> {
        let target = Target::new("/v1/node-keys").part(node).part("password");
        self.fetch(Call::put_json(target, password)?).await
    }

    /// Lets a device in. The answer is the only time that its password is seen.
    pub async fn add_device(&self, spec: &DeviceSpec) -> Result<DeviceCreated, ClientError> {
        self.fetch(Call::post(Target::new("/v1/devices"), Repeat::Never).json(spec)?).await
    }

    /// By name.
    pub async fn devices(&self, page: PageArgs) -> Result<Page<DeviceView>, ClientError> {
        self.fetch(Call::get(page.of(Target::new("/v1/devices")))).await
    }

    pub async fn remove_device(&self, name: &str) -> Result<(), ClientError> {
        self.fetch_bytes(Call::delete(Target::new("/v1/devices").part(name))).await.map(drop)
    }

    /// What was received from nodes and could not be worked with, the newest first.
    pub async fn rubbish(&self, limit: u32) -> Result<Vec<RubbishView>, ClientError> {
        self.fetch(Call::get(Target::new("/v1/rubbish").arg("limit", Some(limit)))).await
    }
}
