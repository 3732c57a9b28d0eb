//! A change of keys that is cut short at each of its steps, and gone on with.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::sync::Mutex;

use super::*;

const NOW: Timestamp = Timestamp(5);

/// A manager that knows keys by their public half, and goes away at one of its calls.
#[derive(Default)]
struct Office {
    good: Mutex<BTreeMap<String, String>>,
    calls: Mutex<u32>,
    issued: Mutex<u32>,
    /// At which call no answer comes, and whether it was carried out all the same.
    fails_at: Option<(u32, Lands)>,
}

#[derive(Clone, Copy, PartialEq)]
enum Lands {
    Yes,
    No,
}

impl Office {
    fn call<T>(&self, work: impl FnOnce(&mut BTreeMap<String, String>) -> Result<T, Failure>) -> Result<T, Failure> {
        let mut calls = self.calls.lock().expect("no panic");
        *calls += 1;
        let lost = self.fails_at.filter(|(at, _)| at == &*calls).map(|(_, lands)| lands);
        if lost == Some(Lands::No) {
            return Err(Failure::failed("nobody answers"));
        }
        let done = work(&mut self.good.lock().expect("no panic"));
        if lost.is_some() { Err(Failure::failed("the answer is lost")) } else { done }
    }

    fn let_in(&self, good: &mut BTreeMap<String, String>, public: String) -> Result<String, Failure> {
        let next = || {
            let mut issued = self.issued.lock().expect("no panic");
            *issued += 1;
            format!("e{issued}")
        };
        Ok(good.entry(public).or_insert_with(next).clone())
    }

    fn knows(&self, identity: &Identity) -> bool {
        self.good.lock().expect("no panic").get(&identity.key.public_base64()).is_some_and(|id| *id == identity.id)
    }
}

#[async_trait]
impl Keys for Office {
    async fn enrol(&self, _: &str, public_key: String) -> Result<String, Failure> {
        self.call(|good| match good.is_empty() || good.contains_key(&public_key) {
            true => self.let_in(good, public_key),
            false => Err(Failure::failed("the one-time token is spent")),
        })
    }

    async fn add(&self, present: &Identity, public_key: String) -> Result<String, Failure> {
        assert!(self.knows(present), "signed with a key that is not good");
        self.call(|good| self.let_in(good, public_key))
    }

    async fn revoke(&self, present: &Identity, key: &str) -> Result<(), Failure> {
        assert!(self.knows(present), "signed with a key that is not good");
        self.call(|good| {
            good.retain(|_, id| id != key);
            Ok(())
        })
    }
}

/// What a start finds, and how it goes on; as the program does it.
async fn go_on(office: &Office, dir: &Path) -> Result<Identity, Failure> {
    let identity = match load(dir)? {
        Some(identity) => identity,
        None => enrol(office, dir, "ela_1", NOW).await?,
    };
    let identity = switch(office, dir, identity).await?;
    drop_former(office, dir, identity).await
}

#[test]
fn a_key_is_kept_for_its_owner_only_and_read_back_with_all_that_is_under_way() {
    let dir = tempfile::tempdir().unwrap();
    assert!(load(dir.path()).unwrap().is_none());
    let next = Some((WorkerKey::generate(), Timestamp(9)));
    let made = Identity { id: "e2".into(), key: WorkerKey::generate(), made_at: NOW, next, former: Some("e1".into()) };
    keep(dir.path(), made.clone()).unwrap();
    assert_eq!(std::fs::metadata(file(dir.path())).unwrap().permissions().mode() & 0o777, 0o600);
    let read = load(dir.path()).unwrap().unwrap();
    assert_eq!((read.id, read.former, read.made_at), (made.id, made.former, made.made_at));
    let public = |next: Option<(WorkerKey, Timestamp)>| next.map(|(key, at)| (key.public_base64(), at));
    assert_eq!(public(read.next), public(made.next));
}

#[test]
fn an_identity_of_the_version_before_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let key = WorkerKey::generate().to_base64();
    let old = format!(r#"{{"id":"e1","key":"{key}","made_at":7,"former":null}}"#);
    std::fs::write(file(dir.path()), old).unwrap();
    assert!(load(dir.path()).unwrap().unwrap().is_settled());
}

#[tokio::test]
async fn a_token_whose_answer_was_lost_still_lets_the_same_one_in() {
    for lands in [Lands::Yes, Lands::No] {
        let dir = tempfile::tempdir().unwrap();
        let office = Office { fails_at: Some((1, lands)), ..Office::default() };
        assert!(go_on(&office, dir.path()).await.is_err());
        let identity = go_on(&office, dir.path()).await.unwrap();
        assert!(office.knows(&identity) && office.good.lock().unwrap().len() == 1);
        assert!(!dir.path().join(DRAFT).exists());
    }
}

#[tokio::test]
async fn wherever_a_change_of_keys_is_cut_short_it_is_gone_on_with_and_one_key_is_good_in_the_end() {
    // The second call makes the new key known, the third revokes the former.
    for fails_at in 2..=4 {
        for lands in [Lands::Yes, Lands::No] {
            let dir = tempfile::tempdir().unwrap();
            let office = Office { fails_at: Some((fails_at, lands)), ..Office::default() };
            let first = go_on(&office, dir.path()).await.unwrap();
            let begun = begin(dir.path(), first.clone(), NOW).unwrap();
            let again = begin(dir.path(), begun, NOW).unwrap();
            drop(again);
            let cut = go_on(&office, dir.path()).await;
            assert_eq!(cut.is_err(), fails_at < 4);
            let kept = load(dir.path()).unwrap().unwrap();
            assert!(office.knows(&kept), "what is kept is good at every point");
            let last = go_on(&office, dir.path()).await.unwrap();
            assert!(office.knows(&last) && last.is_settled() && last.id != first.id);
            assert_eq!(office.good.lock().unwrap().len(), 1, "and nothing else is");
        }
    }
}

#[tokio::test]
async fn a_former_key_that_could_not_be_revoked_is_not_forgotten_by_the_next_change() {
    let dir = tempfile::tempdir().unwrap();
    let office = Office { fails_at: Some((3, Lands::No)), ..Office::default() };
    let first = go_on(&office, dir.path()).await.unwrap();
    begin(dir.path(), first, NOW).unwrap();
    assert!(go_on(&office, dir.path()).await.is_err());
    let second = load(dir.path()).unwrap().unwrap();
    begin(dir.path(), second, NOW).unwrap();
    let last = go_on(&office, dir.path()).await.unwrap();
    assert!(office.knows(&last) && office.good.lock().unwrap().len() == 1);
}
