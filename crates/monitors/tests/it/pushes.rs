//! Services that call: what the store keeps of it, and what owners make of it, on either engine.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use mutirao_broker::memory::{Limits, Memory};
use mutirao_core::{Clock, SystemClock, Timestamp};
use mutirao_monitors::health::Verdict;
use mutirao_monitors::push::{Call, Token};
use mutirao_monitors::service::pushes::Said;
use mutirao_monitors::service::{Based, MonitorView};
use mutirao_monitors::store::pushes::{Given, Known, open};
use mutirao_monitors::{MonitorSpec, Monitors, State, store};
use mutirao_store::Database;

use crate::engine::{Engine, on_both};
use crate::running::{ana, start_with, until};
use crate::store::{by, made};

on_both!(
    a_token_is_somebody_s_until_it_is_renewed_or_its_monitor_is_gone,
    a_call_counts_whichever_manager_is_called_and_silence_opens_an_incident,
    a_successor_goes_on_with_the_calls_that_others_took,
    whoever_calls_too_often_or_by_guessing_is_told_to_wait,
    services_that_all_call_in_the_moment_a_manager_is_back_are_all_heard,
    a_call_that_a_wrong_clock_dates_ahead_is_good_for_a_minute,
);

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn spec(name: &str, rest: &str) -> MonitorSpec {
    let json = format!(
        r#"{{"name": "{name}", "every": "1s", "push": {{"grace": "1s"}}, "thresholds": {{"failures": 2}}{rest}}}"#
    );
    serde_json::from_str(&json).unwrap()
}

async fn add(monitors: &Monitors, name: &str) -> String {
    let (view, _) = monitors.put(&ana(), spec(name, ""), Based::OnNothing).await.unwrap();
    view.push_token.expect("it is shown when it is made")
}

async fn call(monitors: &Monitors, token: &str) {
    monitors.called(token, HERE, Said::Up, None, Some(7)).await.unwrap();
}

async fn see(monitors: &Monitors, name: &str) -> MonitorView {
    monitors.monitor(&ana(), name).await.unwrap()
}

async fn a_token_is_somebody_s_until_it_is_renewed_or_its_monitor_is_gone(engine: &Engine) {
    let database = engine.database().await;
    let (monitors, pushes) = (store::open(&database), open(&database));
    let key = made(&monitors, "backup").await;
    let (one, two) = (Token::mint().digest(), Token::mint().digest());
    assert_eq!(pushes.give_token(key, one).await.unwrap(), Given::Taken);
    assert_eq!(pushes.give_token(key, two).await.unwrap(), Given::HasOne);
    let said =
        |at| Call { at: Timestamp(at), verdict: Verdict::Bad, took_us: Some(7), message: Some("no\0disk".into()) };
    assert!(pushes.calls(vec![key]).await.unwrap().is_empty());
    assert_eq!(pushes.call(one, said(5)).await.unwrap(), Known::Yes);
    assert_eq!(pushes.call(two, said(6)).await.unwrap(), Known::No);
    let kept = pushes.calls(vec![key]).await.unwrap().remove(&key).unwrap();
    assert_eq!((kept.at, kept.verdict, kept.took_us), (Timestamp(5), Verdict::Bad, Some(7)));
    pushes.renew_token(key, two, by(7)).await.unwrap();
    assert_eq!(pushes.knows_token(one).await.unwrap(), Known::No);
    assert_eq!(
        (pushes.knows_token(two).await.unwrap(), pushes.call(two, said(8)).await.unwrap()),
        (Known::Yes, Known::Yes)
    );
    monitors.remove("backup".into(), by(9)).await.unwrap();
    assert_eq!(
        (pushes.knows_token(two).await.unwrap(), pushes.call(two, said(9)).await.unwrap()),
        (Known::No, Known::No)
    );
    monitors.sweep(Timestamp(100), 10).await.unwrap();
    assert!(pushes.calls(vec![key]).await.unwrap().is_empty(), "nothing of it is left");
}

async fn a_call_counts_whichever_manager_is_called_and_silence_opens_an_incident(engine: &Engine) {
    let (database, broker) = (engine.database().await, Memory::new(None, Limits::default()));
    let one = start_with(&database, broker.clone(), "one", None).await;
    let two = start_with(&database, broker, "two", None).await;
    let tokens = [add(&one, "a").await, add(&two, "b").await, add(&one, "c").await, add(&two, "d").await];
    until("all to be up", async || {
        // Each manager takes calls of all, and owns some.
        for (n, token) in tokens.iter().enumerate() {
            call(if n < 2 { &two } else { &one }, token).await;
        }
        SystemClock.sleep(Duration::from_millis(400)).await;
        let views = one.page(&ana(), "", 10).await.unwrap();
        views.len() == 4 && views.iter().all(|view| view.state == State::Up)
    })
    .await;
    assert!(see(&one, "a").await.called_at.is_some() && see(&one, "a").await.push_token.is_none());
    two.called(&tokens[0], HERE, Said::Down, Some("disk full".into()), None).await.unwrap();
    until("what was said to be known", async || {
        let history = one.history(&ana(), "a", None, 100).await.unwrap();
        history.outcomes.iter().any(|outcome| outcome.detail.as_deref() == Some("disk full"))
    })
    .await;
    until("silence to be noticed", async || see(&two, "b").await.state == State::Down).await;
    let history = two.history(&ana(), "b", None, 1_000).await.unwrap();
    assert!(history.incidents.len() == 1 && history.incidents[0].evidence.starts_with("not called for"), "{history:?}");
    let took: Vec<_> = history.outcomes.iter().filter_map(|outcome| outcome.took_us).collect();
    assert!(!took.is_empty() && took.iter().all(|took| *took == 7_000), "{history:?}");
    let at: Vec<i64> = history.outcomes.iter().map(|outcome| outcome.at.0).collect();
    // A manager that has just taken it over has nothing to say for a moment: nobody could call it before.
    let follows = |pair: &[i64]| pair[0] > pair[1] && (pair[0] - pair[1]) % 1_000 == 0;
    assert!(at.windows(2).all(follows), "one outcome an instant: {at:?}");
    call(&one, &tokens[1]).await;
    until("it to be up again", async || see(&one, "b").await.state == State::Up).await;
    one.stop().await;
    two.stop().await;
    database.close().await;
}

async fn a_successor_goes_on_with_the_calls_that_others_took(engine: &Engine) {
    let (database, broker) = (engine.database().await, Memory::new(None, Limits::default()));
    let first = start_with(&database, broker.clone(), "one", None).await;
    let token = add(&first, "backup").await;
    until("it to be up", async || {
        call(&first, &token).await;
        SystemClock.sleep(Duration::from_millis(400)).await;
        see(&first, "backup").await.state == State::Up
    })
    .await;
    let second = start_with(&database, broker, "two", None).await;
    // Dropped without a word: its leases must run out.
    drop(first);
    let before = see(&second, "backup").await.last_at.unwrap();
    until("the other to go on", async || {
        call(&second, &token).await;
        SystemClock.sleep(Duration::from_millis(400)).await;
        see(&second, "backup").await.last_at.is_some_and(|at| at.0 > before.0 + 20_000)
    })
    .await;
    let history = second.history(&ana(), "backup", None, 1_000).await.unwrap();
    let at: Vec<i64> = history.outcomes.iter().map(|outcome| outcome.at.0).collect();
    assert!(at.windows(2).all(|pair| pair[0] - pair[1] == 1_000), "none is missing and none is there twice: {at:?}");
    assert!(history.outcomes.iter().all(|outcome| outcome.verdict == Verdict::Good), "{history:?}");
    second.stop().await;
    database.close().await;
}

/// With SQLite there is one manager, whose clock is the owner's: it looks when it judges.
async fn a_call_that_a_wrong_clock_dates_ahead_is_good_for_a_minute(engine: &Engine) {
    let database = engine.database().await;
    let (monitors, pushes) = (store::open(&database), open(&database));
    let key = made(&monitors, "backup").await;
    let token = Token::mint().digest();
    pushes.give_token(key, token).await.unwrap();
    let now = SystemClock.now();
    let ahead = Call { at: now.plus(Duration::from_secs(3_600)), verdict: Verdict::Good, took_us: None, message: None };
    assert_eq!(pushes.call(token, ahead.clone()).await.unwrap(), Known::Yes);
    let kept = pushes.calls(vec![key]).await.unwrap().remove(&key).unwrap();
    match &database {
        Database::Sqlite(_) => assert_eq!(kept, ahead),
        Database::Postgres(_) => assert!((55..=120).contains(&kept.at.since(now).as_secs()), "{kept:?}"),
    }
    database.close().await;
}

async fn whoever_calls_too_often_or_by_guessing_is_told_to_wait(engine: &Engine) {
    let database = engine.database().await;
    let monitors = start_with(&database, Memory::new(None, Limits::default()), "one", None).await;
    let token = add(&monitors, "backup").await;
    call(&monitors, &token).await;
    let statuses = called_at_once(&monitors, vec![token; 100]).await;
    assert!(statuses.contains(&429) && statuses.iter().filter(|status| **status == 204).count() >= 20, "{statuses:?}");
    let guess = || Token::mint().reveal();
    let problem = monitors.called(&guess(), HERE, Said::Up, None, None).await.unwrap_err();
    assert_eq!((problem.status, problem.line().contains("backup")), (404, false));
    assert_eq!(monitors.called("short", HERE, Said::Up, None, None).await.unwrap_err().status, 404);
    let other = add(&monitors, "other").await;
    call(&monitors, &other).await;
    let statuses = called_at_once(&monitors, (0..500).map(|_| guess()).collect()).await;
    assert!(statuses.contains(&429) && !statuses.contains(&204), "whoever guesses is slowed down: {statuses:?}");
    call(&monitors, &other).await;
    let renewed = monitors.renew_token(&ana(), "other").await.unwrap().push_token.unwrap();
    assert_eq!(monitors.called(&other, HERE, Said::Up, None, None).await.unwrap_err().status, 404);
    until("the new one to be taken", async || monitors.called(&renewed, HERE, Said::Up, None, None).await.is_ok())
        .await;
    assert_eq!(monitors.try_now(&ana(), "other").await.unwrap_err().status, 409);
    monitors.stop().await;
    database.close().await;
}

/// How each of them is answered.
async fn called_at_once(monitors: &Monitors, tokens: Vec<String>) -> Vec<u16> {
    let mut calling = tokio::task::JoinSet::new();
    for token in tokens {
        let monitors = monitors.clone();
        calling.spawn(async move {
            monitors.called(&token, HERE, Said::Up, None, None).await.err().map_or(204, |problem| problem.status)
        });
    }
    calling.join_all().await
}

async fn services_that_all_call_in_the_moment_a_manager_is_back_are_all_heard(engine: &Engine) {
    let (database, broker) = (engine.database().await, Memory::new(None, Limits::default()));
    let before = start_with(&database, broker.clone(), "one", None).await;
    let mut tokens = Vec::new();
    for n in 0..400 {
        tokens.push(add(&before, &format!("m{n}")).await);
    }
    before.stop().await;
    // It has seen none of them, and all come from one place.
    let back = start_with(&database, broker, "one", None).await;
    let statuses = called_at_once(&back, tokens).await;
    assert!(statuses.iter().all(|status| *status == 204), "nobody is turned away: {statuses:?}");
    back.stop().await;
    database.close().await;
}
