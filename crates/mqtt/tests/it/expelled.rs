//! Somebody is expelled while the gate is still thinking about whether to let it in.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use async_trait::async_trait;
use mutirao_core::{Dice, SystemClock};
use mutirao_mqtt::codec::Answer;
use mutirao_mqtt::{Config, Gate, Guest, Knock, Limits, Listener, Refusal, Rights, Standing};
use mutirao_testkit::wait::eventually;
use tokio::sync::Semaphore;

use crate::house::{LONG, filter};
use crate::raw::{Raw, hello, within};

/// Looks first, and answers when it is told to.
struct Thinker {
    lets_in: AtomicBool,
    asked: AtomicU32,
    answers: Semaphore,
}

#[async_trait]
impl Gate for Thinker {
    async fn admit(&self, _: &Knock) -> Result<Guest, Refusal> {
        let lets_in = self.lets_in.load(Ordering::SeqCst);
        self.asked.fetch_add(1, Ordering::SeqCst);
        self.answers.acquire().await.unwrap().forget();
        let rights = Rights { publish: vec![filter("#")], subscribe: vec![filter("#")] };
        let guest = Guest { who: "device".into(), standing: Standing::Known, rights, sessions_max: 4 };
        if lets_in { Ok(guest) } else { Err(Refusal::BadCredentials) }
    }
}

#[tokio::test]
async fn what_the_gate_said_of_somebody_who_was_expelled_since_is_asked_again() {
    let gate =
        Arc::new(Thinker { lets_in: AtomicBool::new(true), asked: AtomicU32::new(0), answers: Semaphore::new(0) });
    let config = Config {
        listen: (Ipv4Addr::LOCALHOST, 0).into(),
        limits: Limits::default(),
        tls: None,
        gate: gate.clone(),
        clock: SystemClock::shared(),
        dice: Arc::new(Dice::seeded(1)),
    };
    let listener = Listener::start(config).await.unwrap();
    let knocking = tokio::spawn(Raw::knock(listener.address(), hello("c")));
    eventually("it is thought about", LONG, async || gate.asked.load(Ordering::SeqCst) == 1).await;
    // Its rights go, and whoever has its name; it has no session yet.
    gate.lets_in.store(false, Ordering::SeqCst);
    assert_eq!(listener.port().expel("device"), 0);
    gate.answers.add_permits(2);
    let (_, _, answer) = within("an answer", knocking).await.unwrap();
    assert_eq!(answer, Answer::BadCredentials);
    assert_eq!((gate.asked.load(Ordering::SeqCst), listener.port().gauges().sessions), (2, 0));
}
