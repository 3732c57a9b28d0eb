//! Saying that a node is there, when [`Enrolment`] asks for it. One registration is on its way at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mutirao_core::Mono;
use mutirao_nodes::enrolment::{Enrolment, Event, Patience, Standing};
use mutirao_nodes::wire::written;

use super::{Line, Me};
use crate::Table;

pub struct Registering {
    enrolment: Enrolment,
    me: Me,
    table: Arc<Table>,
    line: Arc<dyn Line>,
    under_way: Arc<AtomicBool>,
}

impl Registering {
    pub fn new(me: Me, table: Arc<Table>, line: Arc<dyn Line>) -> Self {
        let enrolment = Enrolment::new(me.node.clone(), Patience::default());
        Self { enrolment, me, table, line, under_way: Arc::default() }
    }

    pub fn hear(&mut self, event: Event, now: Mono) {
        let before = self.enrolment.standing();
        if self.enrolment.handle(event, now).is_some() {
            self.say();
        }
        match (before, self.enrolment.standing()) {
            (Standing::Registered, Standing::Registered) => {}
            (_, Standing::Registered) => tracing::info!(node = %self.me.node, "registered"),
            (Standing::Registered, _) => tracing::info!(node = %self.me.node, "not registered any more; trying again"),
            _ => {}
        }
    }

    /// Whoever knows us is to know what we have now.
    pub fn offers_changed(&mut self) {
        if self.enrolment.standing() != Standing::NotRegistered {
            self.say();
        }
    }

    fn say(&self) {
        if self.under_way.swap(true, Ordering::Relaxed) {
            return;
        }
        let text = written(&self.me.register(&self.table));
        let (line, under_way) = (self.line.clone(), self.under_way.clone());
        tokio::spawn(async move {
            if let Err(why) = line.register(text).await {
                tracing::debug!("a registration was not sent: {why}");
            }
            under_way.store(false, Ordering::Relaxed);
        });
    }
}
