//! The in-process broker.

use std::sync::Arc;

use mutirao_broker::suite::{Bounds, Harness};
use mutirao_broker::{Limits, Memory, Shared};
use tempfile::TempDir;

/// Small enough that the suite reaches every one of them.
pub fn limits() -> Limits {
    Limits {
        queue_messages_max: 200,
        backlog_messages_max: 50,
        log_bytes_max: 100_000,
        segment_bytes: 20_000,
        ..Limits::default()
    }
}

pub struct InProcess {
    pub broker: Arc<Memory>,
    _folder: TempDir,
}

impl InProcess {
    pub fn new() -> Self {
        Self::within(limits())
    }

    pub fn within(limits: Limits) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        Self { broker: Memory::new(Some(folder.path().into()), limits), _folder: folder }
    }
}

#[async_trait::async_trait]
impl Harness for InProcess {
    async fn broker(&self) -> Shared {
        self.broker.clone()
    }

    fn bounds(&self) -> Bounds {
        Bounds { queue_messages: 200, backlog_messages: 50, log_bytes: 150_000 }
    }
}

async fn harness() -> InProcess {
    InProcess::new()
}

mutirao_broker::broker_suite!(harness);
/// As an installation has it.
async fn roomy() -> InProcess {
    InProcess::within(Limits::default())
}

mutirao_broker::behaviours!(roomy; logs::records_as_large_as_a_message_pass_and_larger_ones_do_not);
mutirao_broker::behaviours!(harness; logs::concurrent_appends_keep_their_batches_together);
