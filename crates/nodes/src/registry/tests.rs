use mutirao_core::Timestamp;
use proptest::prelude::*;

use super::*;
use crate::Layer;

fn at(s: u64) -> Now {
    Now { mono: Mono(Duration::from_secs(s)), wall: Timestamp(s as i64 * 1_000) }
}

fn registry(change: impl FnOnce(&mut Rules)) -> Registry {
    let mut rules = Rules::of("sapparchi".parse().unwrap());
    change(&mut rules);
    Registry::new(rules, at(0).mono)
}

fn said(node: &str, endpoint: &str, actions: &[&str]) -> Register {
    Register {
        endpoint: endpoint.into(),
        layer: Layer::Fog,
        kind: "PYTHON".into(),
        node: node.parse().unwrap(),
        force_register: false,
        actions: actions.iter().map(|name| format!("urn:sapparchi:Action:{name}")).collect(),
        parameters: BTreeMap::new(),
        labels: BTreeMap::new(),
        slots: None,
    }
}

fn declaring(register: Register, action: &str, timeout: u64, retry: u32) -> Register {
    let urn = format!("urn:sapparchi:Action:{action}");
    let mut register = register;
    register.actions.push(urn.clone());
    register.parameters.insert(urn, Parameters { timeout, retry });
    register
}

#[test]
fn what_an_action_declares_is_that_of_its_newest_version_where_nodes_differ_the_most() {
    let mut registry = registry(|_| {});
    let mut say = |register: Register, ms| registry.register(register, user("u"), Protocol::Mqtt, at(ms));
    say(declaring(said("n1", "", &["x"]), "a", 60_000, 9), 0);
    say(declaring(said("n2", "", &["a"]), "a@2", 5_000, 1), 0);
    say(declaring(said("n3", "", &[]), "a@2", 1_000, 4), 0);
    let changed = say(declaring(said("n1", "", &["x"]), "a", 70_000, 9), 1);
    assert!(matches!(changed, Heard::Changed(..)), "{changed:?}");
    let of = |name: &str| registry.parameters(&format!("urn:sapparchi:Action:{name}").parse().unwrap());
    assert_eq!(of("a"), Some(Parameters { timeout: 5_000, retry: 4 }));
    assert_eq!((of("x"), of("unknown")), (None, None));
}

fn forced(register: Register) -> Register {
    Register { force_register: true, ..register }
}

fn user(name: &str) -> Proof {
    Proof::User(name.into())
}

fn id(node: &str) -> NodeId {
    node.parse().unwrap()
}

fn action(name: &str) -> ActionName {
    format!("urn:sapparchi:Action:{name}").parse().unwrap()
}

#[test]
fn a_new_node_is_answered_with_its_id_a_token_and_what_will_be_asked_of_it() {
    let mut registry = registry(|_| {});
    let mut register = said("a", "http://a", &["fetch", "sum"]);
    register.actions.extend(["urn:other:Action:x".into(), "rubbish".into()]);
    let Heard::New(ack) = registry.register(register, user("a"), Protocol::Amqp, at(0)) else { panic!() };
    assert_eq!(ack.node, id("a"));
    assert_eq!(ack.token.len(), 16);
    assert_eq!(ack.actions, ["urn:sapparchi:Action:fetch", "urn:sapparchi:Action:sum"]);
    assert_eq!(registry.offering(&action("sum"), None).count(), 1);
    assert_eq!(registry.catalogue(), [action("fetch"), action("sum")].into());
}

#[test]
fn actions_that_cannot_be_read_cost_themselves_and_a_node_that_has_no_others_is_refused() {
    let mut registry = registry(|_| {});
    let with = |actions: &[&str]| Register {
        actions: actions.iter().map(|text| text.to_string()).collect(),
        ..said("a", "http://a", &[])
    };
    let mixed = with(&["urn:sapparchi:Action:x", "urn:sapparchi:action:y", "urn:mutirao:Action:x"]);
    let Heard::New(ack) = registry.register(mixed.clone(), user("a"), Protocol::Amqp, at(0)) else { panic!() };
    assert_eq!(ack.actions, ["urn:sapparchi:Action:x"]);
    assert_eq!(registry.node(&id("a")).unwrap().0.not_understood, 2);
    let mended = registry.register(with(&["urn:sapparchi:Action:x"]), user("a"), Protocol::Amqp, at(1));
    assert!(matches!(mended, Heard::Changed(..)), "{mended:?}");
    assert_eq!(registry.node(&id("a")).unwrap().0.not_understood, 0);
    // It keeps what it had, and is away if it never says anything better.
    let bad = || forced(with(&["x", "urn:mutirao:Action:x"]));
    assert_eq!(registry.register(bad(), user("a"), Protocol::Amqp, at(100)), Heard::Refused(Refused::BadAction));
    assert_eq!(registry.sweep(at(200).mono), [Gone::Away(id("a"))]);
    let new = Register { node: id("b"), ..bad() };
    assert_eq!(registry.register(new, user("b"), Protocol::Amqp, at(200)), Heard::Refused(Refused::BadAction));
    let none = Register { node: id("c"), ..with(&[]) };
    assert!(matches!(registry.register(none, user("c"), Protocol::Amqp, at(200)), Heard::New(_)), "it may have none");
}

#[test]
fn whoever_is_believed_less_gets_no_work_of_others_also_while_they_are_away_nor_declares_anything_of_it() {
    let mut registry = registry(|rules| rules.strangers = Strangers::LetIn);
    let by_key =
        || Papers { proof: user("gate"), warrant: Warrant { by_key: true, ..Warrant::default() }.into(), near: false };
    let shared = ["x"];
    let of = |registry: &Registry, named: Option<&str>| {
        let named = named.map(id);
        let action = action("x");
        let all = registry.offering(&action, named.as_ref()).map(|(record, _)| record.node.to_string());
        all.collect::<Vec<_>>()
    };
    registry.register(said("stranger", "", &shared), Proof::Nothing, Protocol::Mqtt, at(0));
    assert_eq!(of(&registry, None), ["stranger"]);
    registry.register(declaring(said("lamp", "", &[]), "x@9", 1, 0), user("lamp"), Protocol::Mqtt, at(0));
    assert_eq!(of(&registry, None), ["lamp"]);
    assert_eq!(registry.parameters(&action("x")), Some(Parameters { timeout: 1, retry: 0 }));
    registry.register(declaring(said("gate", "", &[]), "x", 5_000, 2), by_key(), Protocol::Mqtt, at(0));
    assert_eq!(of(&registry, None), ["gate"]);
    assert_eq!(registry.parameters(&action("x")), Some(Parameters { timeout: 5_000, retry: 2 }));
    assert_eq!(of(&registry, Some("lamp")), ["gate", "lamp"]);
    registry.register(forced(said("lamp", "", &shared)), user("lamp"), Protocol::Mqtt, at(200));
    registry.sweep(at(201).mono);
    assert_eq!(of(&registry, None), [""; 0], "it comes back, or somebody forgets it");
    registry.remove(&id("gate"), at(202).wall);
    assert_eq!(of(&registry, None), ["lamp"]);
}

#[test]
fn the_same_within_five_minutes_changes_nothing_unless_forced_and_is_answered_all_the_same() {
    let mut registry = registry(|_| {});
    let register = said("a", "http://a", &["x", "y"]);
    let Heard::New(first) = registry.register(register.clone(), user("a"), Protocol::Amqp, at(0)) else { panic!() };
    let again = registry.register(said("a", "http://a", &["y", "x"]), user("a"), Protocol::Amqp, at(299));
    assert_eq!(again, Heard::Repeated(first.clone()));
    assert_eq!(
        registry.register(forced(register.clone()), user("a"), Protocol::Amqp, at(299)),
        Heard::Same(first.clone())
    );
    assert_eq!(registry.register(register.clone(), user("a"), Protocol::Amqp, at(598)), Heard::Repeated(first.clone()));
    assert_eq!(registry.register(register, user("a"), Protocol::Amqp, at(599)), Heard::Same(first));
}

#[test]
fn what_changed_is_named_and_counts_at_once_though_nothing_was_forced() {
    let mut registry = registry(|_| {});
    registry.register(said("a", "http://a", &["x@1"]), user("a"), Protocol::Amqp, at(0));
    let moved = registry.register(said("a", "http://b", &["x@1"]), user("a"), Protocol::Amqp, at(1));
    assert!(matches!(moved, Heard::Changed(_, changes) if changes == Changes { endpoint: true, ..Changes::default() }));
    let grown = registry.register(said("a", "http://b", &["x@1", "x@2"]), user("a"), Protocol::Amqp, at(2));
    assert!(matches!(grown, Heard::Changed(_, changes) if changes == Changes { actions: true, ..Changes::default() }));
    let (record, _) = registry.node(&id("a")).unwrap();
    assert_eq!(record.endpoint, "http://b");
    assert_eq!(record.offer(&action("x")).unwrap().version, 2, "new tasks go to the newest");
    let heard = registry.register(said("a", "http://b", &["x@1", "x@2"]), user("a"), Protocol::Mqtt, at(3));
    assert!(matches!(heard, Heard::Changed(_, changes) if changes.over));
}

#[test]
fn a_stolen_id_is_refused_and_counted_and_its_owner_notices_nothing() {
    let mut registry = registry(|rules| rules.strangers = Strangers::LetIn);
    registry.register(said("a", "http://a", &["x"]), user("a"), Protocol::Amqp, at(0));
    for (n, thief) in [user("b"), Proof::Key("k".into()), Proof::Nothing].into_iter().enumerate() {
        for _ in 0..100 {
            let heard =
                registry.register(forced(said("a", "http://evil", &["x"])), thief.clone(), Protocol::Http, at(1));
            assert_eq!(heard, Heard::Refused(Refused::Stolen));
        }
        assert_eq!(registry.refusals(Refused::Stolen), 100 * (n as u64 + 1));
    }
    assert_eq!(registry.node(&id("a")).unwrap().0.endpoint, "http://a");
    let owner = registry.register(forced(said("a", "http://a", &["x"])), user("a"), Protocol::Amqp, at(1));
    assert!(matches!(owner, Heard::Same(_)), "a thief uses up nothing of its owner's: {owner:?}");
}

#[test]
fn who_shows_nothing_is_let_in_only_where_allowed_and_yields_to_one_that_can() {
    let nobody =
        |registry: &mut Registry| registry.register(said("a", "", &["x"]), Proof::Nothing, Protocol::Mqtt, at(0));
    let mut strict = registry(|_| {});
    assert_eq!(nobody(&mut strict), Heard::Refused(Refused::Stranger));
    assert!(strict.is_empty());
    let mut open = registry(|rules| rules.strangers = Strangers::LetIn);
    assert!(matches!(nobody(&mut open), Heard::New(_)));
    assert_eq!(open.node(&id("a")).unwrap().0.proof, Proof::Nothing, "it is marked");
    let shown = open.register(said("a", "", &["x"]), user("a"), Protocol::Mqtt, at(1));
    assert!(matches!(shown, Heard::Changed(_, changes) if changes.proof), "{shown:?}");
    assert_eq!(nobody(&mut open), Heard::Refused(Refused::Stolen));
}

#[test]
fn a_silent_node_is_away_and_one_that_comes_back_after_days_is_the_same() {
    let mut registry = registry(|_| {});
    let silence = registry.rules.silence.as_secs();
    let register = said("a", "http://a", &["x"]);
    registry.register(register.clone(), user("a"), Protocol::Amqp, at(0));
    assert!(registry.sweep(at(silence).mono).is_empty());
    assert_eq!(registry.sweep(at(silence + 1).mono), [Gone::Away(id("a"))]);
    assert!(registry.sweep(at(silence + 2).mono).is_empty(), "told once");
    assert_eq!(registry.offering(&action("x"), None).count(), 0);
    assert!(registry.catalogue().contains(&action("x")), "flows may still name it");
    let days = 5 * 86_400;
    assert_eq!(
        registry.register(said("a", "http://a", &["x"]), user("thief"), Protocol::Amqp, at(days)),
        Heard::Refused(Refused::Stolen)
    );
    let back = registry.register(register.clone(), user("a"), Protocol::Amqp, at(days));
    assert!(matches!(back, Heard::Changed(_, changes) if changes == Changes { came_back: true, ..Changes::default() }));
    assert_eq!(registry.node(&id("a")).unwrap().0.first_at, at(0).wall);
    let forgotten = days + registry.rules.forget.as_secs() + 1;
    assert_eq!(registry.sweep(at(forgotten).mono), [Gone::Forgotten(id("a"))]);
    assert!(matches!(registry.register(register, user("other"), Protocol::Amqp, at(forgotten)), Heard::New(_)));
}

#[test]
fn results_keep_a_node_there_and_time_in_which_we_could_not_hear_counts_against_nobody() {
    let mut registry = registry(|_| {});
    registry.register(said("a", "", &["x"]), user("a"), Protocol::Amqp, at(0));
    for s in (0..1_000).step_by(100) {
        registry.saw(&id("a"), at(s));
        assert!(registry.sweep(at(s + 99).mono).is_empty());
    }
    registry.hear_again(at(5_000).mono);
    assert!(registry.sweep(at(5_001).mono).is_empty());
}

#[test]
fn a_restarted_registry_has_its_nodes_and_owners_back() {
    let mut before = registry(|_| {});
    before.register(said("a", "http://a", &["x"]), user("a"), Protocol::Amqp, at(0));
    let record = before.node(&id("a")).unwrap().0.clone();
    let stored = serde_json::to_string(&record).unwrap();
    let mut after = registry(|_| {});
    after.restore(vec![serde_json::from_str(&stored).unwrap()], at(0));
    assert!(after.catalogue().contains(&action("x")));
    assert_eq!(
        after.register(said("a", "http://a", &["x"]), user("thief"), Protocol::Amqp, at(1)),
        Heard::Refused(Refused::Stolen)
    );
    let again = after.register(forced(said("a", "http://a", &["x"])), user("a"), Protocol::Amqp, at(1));
    assert!(matches!(again, Heard::Same(_)), "two hundred that register again write nothing: {again:?}");
}

/// The document's table of registration from the manager's side: what a node was, how long ago, and what it is after a
/// restart, before and after it registers.
#[test]
fn after_a_restart_nobody_is_registered_before_it_says_so() {
    let mut before = registry(|_| {});
    let silence = before.rules.silence.as_secs();
    for (name, over) in [("hears", Protocol::Mqtt), ("also", Protocol::Amqp), ("asks", Protocol::Http)] {
        before.register(said(name, "http://x", &[name]), user(name), over, at(0));
    }
    let records: Vec<Record> = before.all().map(|(record, _)| record.clone()).collect();
    for (ago_s, name, presence, given) in [
        (silence, "hears", Presence::Unconfirmed, false),
        (silence, "also", Presence::Unconfirmed, false),
        (silence, "asks", Presence::Unconfirmed, true),
        (silence + 1, "hears", Presence::Away, false),
        (silence + 1, "asks", Presence::Away, false),
    ] {
        let mut after = registry(|_| {});
        after.restore(records.clone(), at(ago_s));
        assert_eq!(after.node(&id(name)).unwrap().1, presence, "{name} after {ago_s} s");
        assert_eq!(after.offering(&action(name), None).count(), usize::from(given), "{name} after {ago_s} s");
        after.saw(&id(name), at(ago_s));
        assert_eq!(after.node(&id(name)).unwrap().1, presence, "a result of before says nothing of what it has now");
        after.register(said(name, "http://x", &[name]), user(name), Protocol::Mqtt, at(ago_s));
        assert_eq!(after.node(&id(name)).unwrap().1, Presence::Registered);
        assert_eq!(after.offering(&action(name), None).count(), 1);
    }
    let mut after = registry(|_| {});
    after.restore(records, at(silence));
    assert!(after.sweep(at(2 * silence).mono).is_empty(), "they are given the time");
    assert_eq!(after.sweep(at(2 * silence + 1).mono).len(), 3, "and no more");
}

#[test]
fn one_that_was_taken_out_stays_out_whoever_speaks_of_it_until_it_comes_again() {
    let mut here = registry(|_| {});
    here.register(said("a", "", &["x"]), user("a"), Protocol::Mqtt, at(10));
    let old = here.node(&id("a")).unwrap().0.clone();
    assert!(here.remove(&id("a"), at(20).wall).is_some());
    assert!(here.remove(&id("a"), at(20).wall).is_none(), "told twice");
    // Another manager had it still, and wrote it down.
    here.learn(vec![Record { last_at: at(30).wall, ..old.clone() }], at(31));
    assert!(here.node(&id("a")).is_none());
    // Our clock is behind that of who took it out.
    let mut late = registry(|_| {});
    late.restore(vec![old.clone()], at(5));
    assert!(late.remove(&id("a"), at(20).wall).is_some());
    late.restore(vec![old], at(5));
    assert!(late.is_empty());
    assert!(matches!(late.register(said("a", "", &["x"]), user("b"), Protocol::Mqtt, at(6)), Heard::New(_)));
    assert!(late.remove(&id("a"), at(20).wall).is_none(), "an old word does not reach the new one");
    assert!(late.node(&id("a")).unwrap().0.first_at > at(20).wall);
}

#[test]
fn what_cannot_be_read_is_counted_by_what_was_wrong() {
    use crate::wire::Word;
    let mut registry = registry(|_| {});
    for (text, why) in [
        (r#"{"nodeId":"a","layer":"MIST"}"#, Refused::WrongLayer),
        (r#"{"nodeId":"a/b","layer":"FOG"}"#, Refused::Unreadable),
        ("no json", Refused::Unreadable),
    ] {
        let rubbish = Register::read(text.as_bytes()).unwrap_err();
        let before = registry.refusals(why);
        registry.refuse(Refused::from(&rubbish));
        assert_eq!(registry.refusals(why), before + 1, "{text}");
    }
}

#[test]
fn labels_and_slots_of_newer_nodes_are_kept_and_older_ones_take_sixteen() {
    let mut registry = registry(|_| {});
    registry.register(said("old", "", &["x"]), user("a"), Protocol::Amqp, at(0));
    let labels = BTreeMap::from([("zone".into(), "a".into())]);
    let newer = Register { labels: labels.clone(), slots: Some(4), ..said("new", "", &["x"]) };
    registry.register(newer.clone(), user("b"), Protocol::Amqp, at(0));
    assert_eq!(registry.node(&id("old")).unwrap().0.slots, 16);
    let record = registry.node(&id("new")).unwrap().0;
    assert_eq!((record.slots, &record.labels), (4, &labels));
    let moved = registry.register(Register { slots: Some(8), ..newer }, user("b"), Protocol::Amqp, at(1));
    assert!(matches!(moved, Heard::Changed(_, changes) if changes.standing));
}

#[test]
fn floods_are_bounded_and_a_flood_of_new_ids_keeps_out_nobody_who_is_there() {
    let mut registry = registry(|rules| (rules.newcomers_burst, rules.nodes_max) = (50, 70));
    registry.register(said("good", "", &["x"]), user("good"), Protocol::Mqtt, at(0));
    let flood = |registry: &mut Registry, from: u32, s: u64| {
        let new = |n: u32| said(&format!("bot-{n}"), "", &["x"]);
        (from..from + 500)
            .filter(|n| matches!(registry.register(new(*n), user("bot"), Protocol::Mqtt, at(s)), Heard::New(_)))
            .count()
    };
    assert_eq!(flood(&mut registry, 0, 0), 49);
    assert!(registry.refusals(Refused::Flood) > 0);
    flood(&mut registry, 1_000, 100);
    assert_eq!(registry.len(), 70);
    assert!(registry.refusals(Refused::Full) > 0);
    assert!(matches!(
        registry.register(forced(said("good", "", &["x"])), user("good"), Protocol::Mqtt, at(100)),
        Heard::Same(_)
    ));
    // A device that reboots in a loop.
    let loops = (0..100).filter(|_| {
        matches!(
            registry.register(forced(said("good", "", &["x"])), user("good"), Protocol::Mqtt, at(200)),
            Heard::Refused(Refused::Flood)
        )
    });
    assert_eq!(loops.count(), 90);
}

#[test]
fn invented_ids_have_half_of_the_room_and_are_soon_forgotten_and_those_that_work_are_not() {
    let mut registry = registry(|rules| {
        (rules.newcomers_burst, rules.nodes_max, rules.strangers) = (10_000, 100, Strangers::LetIn);
    });
    let hour = registry.rules.forget_unproven.as_secs();
    registry.register(said("works", "", &["x"]), Proof::somebody(), Protocol::Amqp, at(0));
    registry.worked(&id("works"), at(0));
    for (n, proof) in
        [Proof::Nothing, Proof::somebody(), Proof::of_broker("guest")].iter().cycle().take(300).enumerate()
    {
        registry.register(said(&format!("bot-{n}"), "", &["x"]), proof.clone(), Protocol::Mqtt, at(0));
    }
    assert_eq!((registry.len(), registry.refusals(Refused::Full)), (51, 250));
    for n in 0..49 {
        let (node, proof) = (format!("own-{n}"), user(&format!("own-{n}")));
        let heard = registry.register(said(&node, "", &["x"]), proof, Protocol::Mqtt, at(1));
        assert!(matches!(heard, Heard::New(_)), "the other half is for those that can show something");
    }
    registry.sweep(at(hour).mono);
    assert_eq!(registry.len(), 100);
    registry.sweep(at(hour + 2).mono);
    assert_eq!(registry.len(), 50);
    assert!(registry.node(&id("works")).is_some());

    // As old after a restart as before it, however young the machine's own clock is.
    let mut again = self::registry(|_| {});
    let mut records: Vec<Record> = registry.all().map(|(record, _)| record.clone()).collect();
    let stale = Record { node: id("stale"), worked: false, proof: Proof::Nothing, ..records[0].clone() };
    records.push(stale);
    let now = Now { mono: at(10).mono, wall: at(hour + 10).wall };
    again.restore(records, now);
    again.sweep(now.mono);
    assert!(again.node(&id("stale")).is_none() && again.len() == 50);
}

#[test]
fn no_node_is_given_more_at_once_than_a_share_of_what_is_let_out() {
    let mut registry = registry(|_| {});
    let greedy = Register { slots: Some(1_000_000), ..said("greedy", "", &["x"]) };
    registry.register(greedy, user("greedy"), Protocol::Mqtt, at(0));
    assert_eq!(registry.node(&id("greedy")).unwrap().0.slots, 256);
}

#[test]
fn an_id_goes_from_whoever_shows_nothing_of_its_own_to_one_whose_credentials_are_for_it() {
    let named = Proof::of_broker("guest");
    for (first, second, may) in [
        (Proof::somebody(), user("a"), true),
        (Proof::somebody(), named.clone(), false),
        (named.clone(), user("a"), false),
        (user("a"), Proof::somebody(), false),
        (user("a"), user("b"), false),
    ] {
        let mut registry = registry(|_| {});
        registry.register(said("a", "", &["x"]), first.clone(), Protocol::Amqp, at(0));
        let heard = registry.register(said("a", "", &["x"]), second.clone(), Protocol::Amqp, at(1));
        assert_eq!(heard != Heard::Refused(Refused::Stolen), may, "{first:?} {second:?}");
        assert_eq!(registry.blamed(&id("a")), u64::from(!may));
    }
}

#[derive(Clone, Debug)]
struct Move {
    node: u8,
    endpoint: u8,
    proof: u8,
    force: bool,
    wait_s: u16,
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let one = (0u8..4, 0u8..2, 0u8..3, any::<bool>(), 0u16..400)
        .prop_map(|(node, endpoint, proof, force, wait_s)| Move { node, endpoint, proof, force, wait_s });
    prop::collection::vec(one, 1..80)
}

proptest! {
    /// Held against a model: who has an id, and what it said last.
    #[test]
    fn an_id_stays_with_who_had_it_and_its_record_is_what_it_said_last(moves in moves()) {
        let mut registry = registry(|rules| rules.strangers = Strangers::LetIn);
        let mut model: BTreeMap<u8, (Proof, u8)> = BTreeMap::new();
        let mut s = 0;
        for Move { node, endpoint, proof, force, wait_s } in moves {
            s += u64::from(wait_s);
            registry.sweep(at(s).mono);
            let proof = match proof { 0 => Proof::Nothing, n => user(&format!("u{n}")) };
            let register = Register { force_register: force, ..said(&format!("n{node}"), &format!("http://{endpoint}"), &["x"]) };
            // Whoever showed nothing and was away for an hour may be anybody when it is back.
            model.retain(|node, (proof, _)| *proof != Proof::Nothing || registry.node(&id(&format!("n{node}"))).is_some());
            let before = model.get(&node).cloned();
            match registry.register(register, proof.clone(), Protocol::Amqp, at(s)) {
                Heard::New(_) => prop_assert!(before.is_none()),
                Heard::Refused(Refused::Stolen) => {
                    prop_assert!(before.is_some_and(|(owner, _)| owner != proof && owner != Proof::Nothing));
                    continue;
                }
                Heard::Refused(Refused::Flood) => continue,
                Heard::Refused(other) => prop_assert!(false, "{:?}", other),
                Heard::Changed(..) => prop_assert!(before.is_some()),
                Heard::Same(_) => prop_assert_eq!(before, Some((proof.clone(), endpoint))),
                Heard::Repeated(_) => {
                    prop_assert!(!force);
                    prop_assert_eq!(before, Some((proof.clone(), endpoint)));
                }
            }
            model.insert(node, (proof, endpoint));
            for (node, (proof, endpoint)) in &model {
                let (record, _) = registry.node(&id(&format!("n{node}"))).unwrap();
                prop_assert_eq!(&record.proof, proof);
                prop_assert_eq!(&record.endpoint, &format!("http://{endpoint}"));
            }
        }
    }
}
