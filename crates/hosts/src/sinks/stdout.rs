//! Events as lines on the standard output of the host's process.

use std::io::Write;

use async_trait::async_trait;
use mutirao_streams::part::SinkRow;

use super::{Away, Given, Outlet};

pub struct Stdout;

#[async_trait]
impl Outlet for Stdout {
    async fn give(&mut self, rows: &[SinkRow]) -> Result<Given, Away> {
        let lines = super::lines(rows);
        // A pipe that nobody reads may keep us waiting, and must keep nobody else.
        let written = tokio::task::spawn_blocking(move || {
            let mut out = std::io::stdout().lock();
            out.write_all(&lines).and_then(|()| out.flush())
        });
        match written.await {
            Ok(Ok(())) => Ok(Given::default()),
            Ok(Err(error)) => Err(Away::before(format!("the standard output: {error}"))),
            Err(error) => Err(Away::before(error.to_string())),
        }
    }
}
