//! Alerts, from an outcome to whoever is told, on either engine and over real sockets.

use std::collections::BTreeSet;
use std::sync::Arc;

use mutirao_broker::memory::{Limits, Memory};
use mutirao_core::{Clock, SystemClock};
use mutirao_monitors::alerts::AlertEvent;
use mutirao_monitors::alerts::channel::{ChannelSpec, Secret};
use mutirao_monitors::alerts::message::signature;
use mutirao_monitors::service::Based;
use mutirao_monitors::service::alerts::SilenceSpec;
use mutirao_monitors::store::alerts::Delivery;
use mutirao_monitors::{Monitors, State};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::engine::{Engine, on_both};
use crate::running::{ana, service, spec, start, until};

on_both!(
    who_is_down_is_told_signed_and_in_people_s_words_and_told_again_when_the_channel_broke,
    an_owner_that_dies_while_it_tells_is_followed_by_one_that_says_the_same_id,
    in_a_silence_nobody_is_told_and_what_is_known_is_not_repeated,
);

/// What came, and how to answer.
struct Pager {
    address: std::net::SocketAddr,
    /// Heads and bodies.
    heard: Arc<Mutex<Vec<(String, String)>>>,
    /// What is answered to the next ones; then 200. None is no answer at all.
    answers: Arc<Mutex<Vec<Option<u16>>>>,
}

impl Pager {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (heard, answers) = (Arc::<Mutex<Vec<_>>>::default(), Arc::<Mutex<Vec<_>>>::default());
        let pager = Self { address, heard: heard.clone(), answers: answers.clone() };
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let (heard, answers) = (heard.clone(), answers.clone());
                tokio::spawn(async move {
                    let (mut text, mut buffer) = (String::new(), [0; 4096]);
                    let whole = loop {
                        let Ok(read @ 1..) = stream.read(&mut buffer).await else { return };
                        text.push_str(&String::from_utf8_lossy(&buffer[..read]));
                        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
                        let length = header(head, "content-length").and_then(|length| length.parse().ok());
                        if body.len() >= length.unwrap_or(0) {
                            break (head.to_owned(), body.to_owned());
                        }
                    };
                    let answer = {
                        let mut answers = answers.lock();
                        if answers.is_empty() { Some(200) } else { answers.remove(0) }
                    };
                    heard.lock().push(whole);
                    match answer {
                        Some(status) => {
                            let said = format!("HTTP/1.1 {status} x\r\ncontent-length: 0\r\n\r\n");
                            let _ = stream.write_all(said.as_bytes()).await;
                        }
                        // Until whoever asked goes away.
                        None => drop(stream.read(&mut buffer).await),
                    }
                });
            }
        });
        pager
    }

    fn heard(&self) -> Vec<(String, String)> {
        self.heard.lock().clone()
    }
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines()
        .filter_map(|line| line.split_once(": "))
        .find(|(key, _)| key.eq_ignore_ascii_case(name))
        .map(|(_, v)| v)
}

fn channel(json: String) -> ChannelSpec {
    serde_json::from_str(&json).unwrap_or_else(|e| panic!("{json}: {e}"))
}

async fn state(monitors: &Monitors) -> State {
    monitors.monitor(&ana(), "shop").await.unwrap().state
}

/// Events that were sent to a channel, in order.
async fn sent(monitors: &Monitors, to: &str) -> Vec<AlertEvent> {
    let mut alerts = monitors.alerts(&ana(), "shop", 100).await.unwrap();
    alerts.reverse();
    alerts.retain(|alert| alert.to == to && alert.delivery == Some(Delivery::Sent));
    alerts.into_iter().map(|alert| alert.event).collect()
}

async fn who_is_down_is_told_signed_and_in_people_s_words_and_told_again_when_the_channel_broke(engine: &Engine) {
    let (database, service, pager, chat) =
        (engine.database().await, service().await, Pager::start().await, Pager::start().await);
    let monitors = start(&database, Memory::new(None, Limits::default()), "one").await;
    let (ops, talk) = (pager.address, chat.address);
    let hook = format!(
        r#"{{"name": "ops", "webhook": {{"url": "http://{ops}/in?key=geheim", "secret": "s3cret",
            "template": "{{\"say\": \"{{{{monitor}}}} {{{{event}}}} {{{{detail}}}}\"}}"}}}}"#
    );
    let view = monitors.put_channel(&ana(), channel(hook)).await.unwrap();
    let shown = serde_json::to_string(&view).unwrap() + &format!("{:?}", monitors.channels(&ana()).await.unwrap());
    assert!(!shown.contains("geheim") && !shown.contains("s3cret"), "{shown}");
    monitors
        .put_channel(&ana(), channel(format!(r#"{{"name": "chat", "slack": {{"url": "http://{talk}/"}}}}"#)))
        .await
        .unwrap();
    let unknown = spec("shop", service.address, r#", "alerts": [{"to": "opps"}]"#);
    let refused = monitors.put(&ana(), unknown, Based::OnNothing).await.unwrap_err();
    assert!(refused.line().starts_with("alerts[0].to: there is no channel \"opps\""), "{}", refused.line());
    let told = spec("shop", service.address, r#", "alerts": [{"to": "ops"}, {"to": "chat", "on": ["incident"]}]"#);
    monitors.put(&ana(), told, Based::OnNothing).await.unwrap();
    until("it to be up", async || state(&monitors).await == State::Up).await;
    assert!(monitors.alerts(&ana(), "shop", 100).await.unwrap().is_empty(), "all is well");
    pager.answers.lock().extend([Some(500), Some(200)]);
    service.well.store(false, std::sync::atomic::Ordering::Relaxed);
    until("the chat to hear", async || sent(&monitors, "chat").await == [AlertEvent::Opened]).await;
    assert_eq!(chat.heard()[0].1, r#"{"text":"shop is down: status 503"}"#);
    until("the pager to hear at the second try", async || sent(&monitors, "ops").await == [AlertEvent::Opened]).await;
    let heard = pager.heard();
    assert_eq!(heard.len(), 2, "{heard:?}");
    for (head, body) in &heard {
        assert_eq!(body, r#"{"say": "shop opened status 503"}"#);
        let signed = header(head, "mutirao-signature").unwrap();
        let seconds: i64 = signed.trim_start_matches("t=").split(',').next().unwrap().parse().unwrap();
        let expected = signature(&Secret("s3cret".into()), body, mutirao_core::Timestamp(seconds * 1_000));
        assert_eq!(signed, expected);
        assert!(SystemClock.now().0 - seconds * 1_000 < 120_000);
    }
    let ids: BTreeSet<_> = heard.iter().map(|(head, _)| header(head, "mutirao-alert-id").unwrap().to_owned()).collect();
    assert_eq!(ids.len(), 1, "one alert has one id");
    let alerts = monitors.alerts(&ana(), "shop", 100).await.unwrap();
    assert_eq!(alerts.iter().find(|alert| alert.to == "ops").map(|alert| alert.tries), Some(2), "{alerts:?}");
    service.well.store(true, std::sync::atomic::Ordering::Relaxed);
    for to in ["ops", "chat"] {
        until("the end to be told", async || sent(&monitors, to).await == [AlertEvent::Opened, AlertEvent::Closed])
            .await;
    }
    monitors.stop().await;
    database.close().await;
}

async fn an_owner_that_dies_while_it_tells_is_followed_by_one_that_says_the_same_id(engine: &Engine) {
    let (database, service, pager) = (engine.database().await, service().await, Pager::start().await);
    let broker = Memory::new(None, Limits::default());
    let first = start(&database, broker.clone(), "one").await;
    let hook = format!(r#"{{"name": "ops", "webhook": {{"url": "http://{}/"}}}}"#, pager.address);
    first.put_channel(&ana(), channel(hook)).await.unwrap();
    let told = spec("shop", service.address, r#", "alerts": [{"to": "ops"}]"#);
    first.put(&ana(), told, Based::OnNothing).await.unwrap();
    until("it to be up", async || state(&first).await == State::Up).await;
    pager.answers.lock().push(None);
    service.well.store(false, std::sync::atomic::Ordering::Relaxed);
    until("the pager to hear", async || pager.heard().len() == 1).await;
    // Dropped in the middle of a word: nobody has written that it was heard.
    drop(first);
    let second = start(&database, broker, "two").await;
    until("it to be written that it was told", async || sent(&second, "ops").await == [AlertEvent::Opened]).await;
    let ids: Vec<_> =
        pager.heard().iter().map(|(head, _)| header(head, "mutirao-alert-id").unwrap().to_owned()).collect();
    assert!(ids.len() >= 2 && ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    let opened = second.alerts(&ana(), "shop", 100).await.unwrap();
    assert_eq!(opened.iter().filter(|alert| alert.event == AlertEvent::Opened).count(), 1, "{opened:?}");
    second.stop().await;
    database.close().await;
}

async fn in_a_silence_nobody_is_told_and_what_is_known_is_not_repeated(engine: &Engine) {
    let (database, service, pager) = (engine.database().await, service().await, Pager::start().await);
    let monitors = start(&database, Memory::new(None, Limits::default()), "one").await;
    let hook = format!(r#"{{"name": "ops", "webhook": {{"url": "http://{}/"}}}}"#, pager.address);
    monitors.put_channel(&ana(), channel(hook)).await.unwrap();
    monitors.test_channel(&ana(), "ops").await.unwrap();
    assert_eq!(pager.heard().len(), 1, "a test is sent at once");
    let told = spec("shop", service.address, r#", "alerts": [{"to": "ops"}]"#);
    monitors.put(&ana(), told, Based::OnNothing).await.unwrap();
    assert_eq!(monitors.acknowledge(&ana(), "shop").await.unwrap_err().status, 409);
    let hour = SilenceSpec { length: mutirao_core::quantity::Span::secs(3_600), why: None };
    monitors.silence(&ana(), "shop", hour.clone()).await.unwrap();
    service.well.store(false, std::sync::atomic::Ordering::Relaxed);
    let held = async || {
        let alerts = monitors.alerts(&ana(), "shop", 100).await.unwrap();
        alerts.first().is_some_and(|alert| alert.note.as_deref().is_some_and(|note| note.contains("silenced until")))
    };
    until("the alert to be held", held).await;
    assert!(monitors.monitor(&ana(), "shop").await.unwrap().silence.is_some());
    assert_eq!(pager.heard().len(), 1, "nobody is told");
    monitors.unsilence(&ana(), "shop").await.unwrap();
    until("it to be told after all", async || sent(&monitors, "ops").await == [AlertEvent::Opened]).await;
    let known = monitors.acknowledge(&ana(), "shop").await.unwrap();
    let view = monitors.monitor(&ana(), "shop").await.unwrap();
    assert_eq!((view.acknowledged, view.silence), (Some(known), None));
    // Goes to an address of the machine's surroundings: refused as for probes, and said.
    let away = channel(r#"{"name": "meta", "webhook": {"url": "http://169.254.169.254/latest"}}"#.into());
    monitors.put_channel(&ana(), away).await.unwrap();
    let line = monitors.test_channel(&ana(), "meta").await.unwrap_err().line();
    assert!(line.contains("monitors.surroundings"), "{line}");
    let program = channel(r#"{"name": "run", "exec": {"command": ["true"]}}"#.into());
    assert!(monitors.put_channel(&ana(), program).await.unwrap_err().line().starts_with("exec: programs would run"));
    monitors.stop().await;
    database.close().await;
}
