use super::*;

pub(super) fn at(s: u64) -> Mono {
    Mono(Duration::from_secs(s))
}

pub(super) fn node(name: &str) -> NodeName {
    NodeName(name.into())
}

pub(super) fn books(at_most: u32) -> Books {
    let kinds =
        [("small".to_owned(), (at_most, Duration::from_secs(600))), ("big".to_owned(), (1, Duration::from_secs(600)))];
    Books::new(Limits { at_most, kinds: kinds.into() }, Duration::from_secs(10))
}

fn listed(name: &str) -> Listed {
    Listed { node: node(name), kind: None, place: Some(Place::Folder("/x".into())), leaving: None }
}

/// As a pass does: whatever is due is begun, and a listing is answered at once with these.
fn look(books: &mut Books, now: u64, names: &[&str]) -> Vec<Job> {
    let mut jobs = books.due(at(now));
    if let Some(list) = jobs.iter().position(|job| *job == Job::List) {
        jobs.remove(list);
        books.listed(at(now), at(now), Ok(names.iter().map(|name| listed(name)).collect()));
    }
    jobs
}

fn create(name: &str) -> Job {
    Job::Create { node: node(name), kind: "small".into() }
}

fn destroy(name: &str) -> Job {
    Job::Destroy { node: node(name) }
}

/// One that works.
fn at_work(books: &mut Books, now: u64, name: &str) {
    books.want(&node(name), "small", at(now)).unwrap();
    assert_eq!(look(books, now, &[]), [create(name)]);
    books.created(&node(name), at(now), Ok(()));
    look(books, now, &[name]);
    books.heard(&node(name), at(now), Heard::Answers { workers: 0 });
    assert_eq!(books.machines()[&node(name)].at(at(now)), At::Work);
}

#[test]
fn a_machine_is_created_once_listed_used_and_destroyed_until_the_list_has_it_no_more() {
    let mut books = books(2);
    assert_eq!(books.room("small", at(0)), 0, "what is there is not known yet");
    assert!(books.want(&node("small-1-1"), "small", at(0)).is_err());
    look(&mut books, 0, &[]);
    at_work(&mut books, 10, "small-1-1");
    books.want(&node("small-1-1"), "small", at(11)).unwrap();
    assert_eq!(look(&mut books, 11, &["small-1-1"]), [], "asked twice, created once");
    assert_eq!((books.room("small", at(11)), books.room("big", at(11))), (1, 1));
    books.unwant(&node("small-1-1"), at(12));
    assert_eq!(look(&mut books, 12, &["small-1-1"]), [], "its agent is told first");
    books.heard(&node("small-1-1"), at(13), Heard::Silent("gone".into()));
    assert_eq!(look(&mut books, 13, &["small-1-1"]), [destroy("small-1-1")]);
    books.destroyed(&node("small-1-1"), at(14), Err("busy".into()));
    assert!(books.machines()[&node("small-1-1")].note().unwrap().ends_with("not needed any more: busy"));
    assert_eq!(look(&mut books, 15, &["small-1-1"]), [], "after a while");
    assert_eq!(look(&mut books, 20, &["small-1-1"]), [destroy("small-1-1")]);
    books.destroyed(&node("small-1-1"), at(21), Ok(()));
    look(&mut books, 21, &["small-1-1"]);
    assert_eq!(look(&mut books, 32, &["small-1-1"]), [destroy("small-1-1")], "the list is the truth");
    books.destroyed(&node("small-1-1"), at(33), Ok(()));
    look(&mut books, 33, &[]);
    assert!(books.machines().is_empty());
}

#[test]
fn what_a_predecessor_made_is_taken_over_and_what_is_not_listed_twice_is_forgotten() {
    let mut books = books(2);
    look(&mut books, 0, &["small-7-1", "odd-1-1"]);
    let machine = &books.machines()[&node("small-7-1")];
    assert_eq!((machine.kind.as_deref(), machine.at(at(0))), (Some("small"), At::Coming));
    let odd = &books.machines()[&node("odd-1-1")];
    assert_eq!((odd.kind.as_deref(), odd.going()), (None, Some(Why::Former)), "of a kind that nobody knows");
    look(&mut books, 10, &[]);
    assert_eq!(books.machines().len(), 2, "a list may forget once");
    look(&mut books, 20, &[]);
    assert!(books.machines().is_empty());
}

#[test]
fn a_creation_that_failed_takes_up_its_place_until_it_is_known_what_it_made() {
    for (shown, left) in [(vec!["small-1-1"], 1), (vec![], 0)] {
        let mut books = books(1);
        look(&mut books, 0, &[]);
        books.want(&node("small-1-1"), "small", at(1)).unwrap();
        look(&mut books, 1, &[]);
        books.created(&node("small-1-1"), at(2), Err("no answer".into()));
        assert_eq!(books.paused(at(2)), [("small".to_owned(), "no answer".to_owned())]);
        assert_eq!(books.want(&node("small-1-2"), "small", at(3)), Err("no answer".into()));
        look(&mut books, 3, &[]);
        assert_eq!(books.room("small", at(10)), 0, "it may have been made");
        [13, 24, 35, 46].into_iter().for_each(|now| drop(look(&mut books, now, &[])));
        assert_eq!(books.room("small", at(46)), 0, "clouds are slow to say");
        look(&mut books, 57, &shown);
        assert_eq!(books.machines().len(), left);
    }
}

#[test]
fn a_kind_that_fails_again_and_again_is_left_alone_longer_and_others_are_not() {
    let mut books = books(9);
    look(&mut books, 0, &[]);
    let mut waited = Vec::new();
    let mut now = 1;
    for n in 0..6 {
        let name = format!("small-1-{n}");
        books.want(&node(&name), "small", at(now)).unwrap();
        look(&mut books, now, &[]);
        books.created(&node(&name), at(now), Err("none left".into()));
        assert!(books.room("big", at(now)) > 0);
        let from = now;
        while books.room("small", at(now)) == 0 {
            now += 1;
            look(&mut books, now, &[]);
        }
        waited.push(now - from);
    }
    assert!(waited.is_sorted() && waited[0] >= 5 && waited[5] <= 300, "{waited:?}");
}

#[test]
fn what_never_takes_work_is_destroyed_and_what_is_lost_is_given_up_and_then_destroyed() {
    let mut books = books(3);
    look(&mut books, 0, &["small-1-1", "small-1-2", "small-1-3"]);
    let all = ["small-1-1", "small-1-2", "small-1-3"];
    books.heard(&node("small-1-2"), at(1), Heard::Answers { workers: 1 });
    books.heard(&node("small-1-3"), at(1), Heard::Refused("it has 1 cpu".into()));
    let mut destroyed = BTreeMap::new();
    for now in 1..700 {
        for name in ["small-1-1", "small-1-2"] {
            if now > 1 || name == "small-1-1" {
                books.heard(&node(name), at(now), Heard::Silent("no route".into()));
            }
        }
        for job in look(&mut books, now, &all) {
            let Job::Destroy { node } = job else { panic!("{job:?}") };
            books.destroyed(&node, at(now), Err("not yet".into()));
            destroyed.entry(node.0).or_insert(now);
        }
        if now == 60 {
            assert_eq!(books.machines()[&node("small-1-2")].at(at(now)), At::Silent);
        }
        if now == 70 {
            assert_eq!(books.machines()[&node("small-1-2")].at(at(now)), At::Lost);
        }
    }
    let when: Vec<u64> = destroyed.into_values().collect();
    assert_eq!(when, [600, 602, 1], "never took work; lost for ten minutes; does not fit");
}

#[test]
fn without_a_listing_nothing_is_created_and_nobody_is_forgotten() {
    let mut books = books(3);
    look(&mut books, 0, &["small-1-1"]);
    let mut asked = 0;
    for now in 1..300 {
        if books.due(at(now)) == [Job::List] {
            asked += 1;
            books.listed(at(now), at(now), Err("list: no network".into()));
        }
    }
    assert!((5..15).contains(&asked), "asked {asked} times");
    assert_eq!((books.machines().len(), books.room("small", at(300))), (1, 0));
    let why = books.want(&node("small-1-2"), "small", at(300)).unwrap_err();
    assert_eq!(why, "what is there is not known: list: no network");
}

#[test]
fn one_of_a_former_kind_goes_once_its_workers_have() {
    let mut books = books(3);
    look(&mut books, 0, &["odd-1-1"]);
    for now in 1..200 {
        books.heard(&node("odd-1-1"), at(now), Heard::Answers { workers: 1 });
        assert_eq!(look(&mut books, now, &["odd-1-1"]), []);
    }
    books.heard(&node("odd-1-1"), at(200), Heard::Silent("gone".into()));
    assert_eq!(look(&mut books, 200, &["odd-1-1"]), [], "a connection may break");
    books.heard(&node("odd-1-1"), at(260), Heard::Silent("gone".into()));
    assert_eq!(look(&mut books, 260, &["odd-1-1"]), [destroy("odd-1-1")]);
}

#[test]
fn a_notice_is_shown_and_the_machine_is_there_until_it_is_not() {
    let mut books = books(3);
    look(&mut books, 0, &["small-1-1"]);
    books.heard(&node("small-1-1"), at(1), Heard::Answers { workers: 1 });
    books.due(at(10));
    let said = Listed { leaving: Some("21:00".into()), ..listed("small-1-1") };
    books.listed(at(10), at(10), Ok(vec![said]));
    let machine = &books.machines()[&node("small-1-1")];
    assert_eq!((machine.at(at(10)), machine.leaving.as_deref()), (At::Work, Some("21:00")));
    assert!(machine.note().unwrap().contains("taken back 21:00"));
}

#[test]
fn whoever_goes_for_good_takes_over_nothing_more_and_leaves_alone_what_is_anothers() {
    let mut books = books(3);
    look(&mut books, 0, &[]);
    at_work(&mut books, 10, "small-1-1");
    books.want(&node("small-1-2"), "small", at(30)).unwrap();
    assert_eq!(look(&mut books, 30, &["small-1-1"]), [create("small-1-2")]);
    books.created(&node("small-1-2"), at(30), Ok(()));
    look(&mut books, 30, &["small-1-1", "small-1-2"]);
    books.heard(&node("small-1-2"), at(30), Heard::Answers { workers: 1 });
    books.close();
    books.cede(&node("small-1-1"));
    ["small-1-1", "small-1-2"].iter().for_each(|name| books.unwant(&node(name), at(41)));
    look(&mut books, 42, &["small-1-1", "small-1-2", "small-2-1"]);
    assert_eq!(books.machines().len(), 2, "whoever made another has it");
    books.heard(&node("small-1-2"), at(43), Heard::Silent("gone".into()));
    assert_eq!(look(&mut books, 44, &["small-1-1", "small-1-2", "small-2-1"]), [destroy("small-1-2")]);
    let done_with = |name: &str| books.machines()[&node(name)].is_done_with();
    assert_eq!((done_with("small-1-1"), done_with("small-1-2")), (true, false));
}
