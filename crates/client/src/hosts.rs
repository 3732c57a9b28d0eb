//! What a host of streams says to its manager. The types are the streams' to name, which this crate does not know.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::ClientError;
use crate::http::{Call, Client, Repeat};
use crate::target::Target;

impl Client {
    /// How a host's parts are; the answer is which it is to run. Not repeated: the next is said a second later.
    pub async fn beat_host<T: DeserializeOwned>(&self, beat: &impl Serialize) -> Result<T, ClientError> {
        self.fetch(Call::post(Target::new("/v1/streams/beat"), Repeat::Never).json(beat)?).await
    }

    /// Rows of a sink that the manager keeps or starts flows for. Saying it twice does the same as once: rows are numbered.
    pub async fn deliver_rows<T: DeserializeOwned>(&self, delivery: &impl Serialize) -> Result<T, ClientError> {
        self.fetch(Call::post(Target::new("/v1/streams/deliver"), Repeat::Safe).json(delivery)?).await
    }
}
