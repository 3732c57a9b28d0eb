//! Writes that nobody confirmed, and messages that are lost, doubled and late: what is said of each is what is so.

use std::collections::BTreeMap;
use std::time::Duration;

use mutirao_core::{Dice, Problem};
use mutirao_kv::problems::{STATE, WRITE};
use mutirao_kv::service::{WriteState, WriteView};
use mutirao_kv::write::Named;
use mutirao_kv::{Condition, Kv, Until};
use mutirao_store::Database;

use crate::engine::{Engine, on_both};
use crate::faulty::{Fault, Faulty};
use crate::queued::{BACKLOG_MAX, Member, PATIENCE, broker, history, join, shared_out};
use crate::running::{ana, text};

on_both!(
    a_write_that_nobody_confirmed_is_in_doubt_until_it_is_applied_or_never_will_be,
    messages_that_are_lost_doubled_and_late_lose_no_answered_write_and_bring_none_back,
);

async fn write(member: &Member, key: &str, value: &str) -> Result<WriteView, Problem> {
    let (key, change) = (key.parse().unwrap(), text(value));
    member.on(|kv: Kv| async move { kv.write(&ana(), key, change, Condition::None, Until::Durable).await }).await
}

/// The name that an answer of doubt tells to ask after.
fn doubted(answer: Result<WriteView, Problem>) -> String {
    let problem = answer.unwrap_err();
    assert_eq!(problem.status, 503, "{problem:?}");
    let member = |name: &str| problem.members[name].as_str().unwrap().to_owned();
    assert_eq!(member(STATE), "in_doubt", "programs need not read the prose");
    let name = member(WRITE);
    assert!(problem.remedy.as_deref().unwrap_or_default().contains(&format!("mutirao kv write {name}")), "{problem:?}");
    name
}

async fn refused(member: &Member, name: &str) -> u16 {
    let named = match name.parse::<Named>() {
        Ok(named) => named,
        Err(problem) => return problem.status,
    };
    member.on(move |kv| async move { kv.settled(&ana(), named, Duration::ZERO).await }).await.unwrap_err().status
}

async fn a_write_that_nobody_confirmed_is_in_doubt_until_it_is_applied_or_never_will_be(engine: &Engine) {
    let (database, queue) = (engine.database().await, broker());
    let mut fates = [Fault::Lost, Fault::Unconfirmed].into_iter();
    let faulty = Faulty::new(queue.clone(), Box::new(move || fates.next().unwrap_or(Fault::None)));
    let (member, other) = (join(&database, faulty, BACKLOG_MAX).await, join(&database, queue, BACKLOG_MAX).await);
    shared_out(&database, &[&member, &other]).await;
    let lost = doubted(write(&member, "a", "lost").await);
    for asked in [&member, &other] {
        assert_eq!(
            asked.settled(&lost, Duration::ZERO).await.state,
            WriteState::InDoubt,
            "any manager knows no better"
        );
    }
    let made = doubted(write(&member, "a", "made").await);
    let applied = loop {
        let view = other.settled(&made, PATIENCE).await;
        assert_eq!(view.write, made);
        if view.state != WriteState::InDoubt {
            break view.state;
        }
    };
    assert_eq!(applied, WriteState::Applied, "it had arrived");
    assert_eq!(other.settled(&lost, Duration::ZERO).await.state, WriteState::NotMade, "a later one was applied");
    assert_eq!(history(&database, "a").await, ["made"]);
    assert_eq!(refused(&other, "d0-00000000000000ff-1-0").await, 404, "nobody of that name");
    assert_eq!(refused(&other, "x0-00000000000000ff-1-0").await, 422);
    member.kill();
    other.kill();
}

/// Each key has one writer, whose values grow.
async fn checked(database: &Database, members: [&Member; 2], answered: &BTreeMap<String, Vec<(u64, String)>>) {
    for (n, (key, writes)) in answered.iter().enumerate() {
        let mut last = 0;
        for (value, write) in writes {
            let view = members[n % 2].settled(write, PATIENCE).await;
            assert!(matches!(view.state, WriteState::Applied | WriteState::Superseded), "{key} {value}: {view:?}");
            assert!(view.revision.unwrap() > last, "{key}: in the order of the answers");
            last = view.revision.unwrap();
        }
        let told: Vec<u64> = history(database, key).await.iter().map(|value| value.parse().unwrap()).collect();
        assert!(told.windows(2).all(|two| two[0] < two[1]), "{key}: none twice, none comes back: {told:?}");
        let missing = writes.iter().find(|(value, _)| !told.contains(value));
        assert!(missing.is_none(), "{key}: {missing:?} was answered and is not there");
    }
}

async fn messages_that_are_lost_doubled_and_late_lose_no_answered_write_and_bring_none_back(engine: &Engine) {
    let (database, queue) = (engine.database().await, broker());
    let seed = Dice::from_os().u64();
    println!("seed {seed}");
    let faulty = |salt: u64| {
        let dice = Dice::seeded(seed ^ salt);
        let fate = move || match dice.u64() % 8 {
            0 => Fault::Lost,
            1 => Fault::Unconfirmed,
            2 => Fault::Twice,
            3 => Fault::Again,
            _ => Fault::None,
        };
        Faulty::new(queue.clone(), Box::new(fate))
    };
    let members = [join(&database, faulty(1), BACKLOG_MAX).await, join(&database, faulty(2), BACKLOG_MAX).await];
    shared_out(&database, &[&members[0], &members[1]]).await;
    let mut answered: BTreeMap<String, Vec<(u64, String)>> = BTreeMap::new();
    let mut doubts = Vec::new();
    for n in 0..600_u64 {
        let key = format!("k{}", n % 12);
        match write(&members[(n / 12 % 2) as usize], &key, &n.to_string()).await {
            Ok(view) => answered.entry(key).or_default().push((n, view.write)),
            doubt => doubts.push((key, n, doubted(doubt))),
        }
    }
    checked(&database, [&members[0], &members[1]], &answered).await;
    assert!(!doubts.is_empty());
    for (key, n, name) in doubts {
        let state = members[1].settled(&name, Duration::ZERO).await.state;
        let made = history(&database, &key).await.contains(&n.to_string());
        match state {
            WriteState::Applied | WriteState::Superseded => assert!(made, "{key} {n} {name}"),
            WriteState::NotMade | WriteState::InDoubt => assert!(!made, "{key} {n} {name}: {state:?}"),
            other => panic!("{key} {n}: {other:?}"),
        }
    }
    for member in members {
        member.kill();
    }
}
