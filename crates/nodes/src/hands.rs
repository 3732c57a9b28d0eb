//! A node inside the manager's process: what runs the actions that the program itself brings, with nothing on the way.

use std::collections::BTreeSet;

use async_trait::async_trait;

use crate::errand::End;
use crate::names::{ActionName, Offer};

#[async_trait]
pub trait Hands: Send + Sync + 'static {
    /// What it can do at the moment; asked again every few seconds.
    fn offers(&self) -> BTreeSet<Offer>;

    /// Tasks at once.
    fn slots(&self) -> u32 {
        64
    }

    /// Runs to its end, however long that takes: whoever sent it minds the time, and drops what it no longer wants.
    /// `data` is JSON as a text.
    async fn run(&self, action: &ActionName, data: &str) -> End;
}
