//! A connection, and nothing more; or a look at the certificate that is shown on it.

use crate::check::{Tcp, Tls, split_address};
use crate::observation::Watch;
use crate::reach::{Fault, Reach};

pub async fn connect(check: &Tcp, reach: &Reach, watch: &mut Watch) -> Result<(), Fault> {
    let (host, port) = split_address(&check.address).map_err(Fault::Http)?;
    reach.connect(&host, port, watch).await.map(drop)
}

pub async fn certificate(check: &Tls, reach: &Reach, watch: &mut Watch) -> Result<(), Fault> {
    let (host, port) = split_address(&check.address).map_err(Fault::Http)?;
    let stream = reach.connect(&host, port, watch).await?;
    reach.encrypt(stream, check.name.as_deref().unwrap_or(&host), &[], watch).await.map(drop)
}
