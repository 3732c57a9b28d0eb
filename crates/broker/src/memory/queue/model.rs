//! The queue against a reference so plain that it can be believed: one list with the place of every message. Thousands
//! of random histories; after each step nothing is lost, nothing is in two places, and whatever comes twice says so.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Step {
    Publish(usize),
    Join(u32),
    Take(usize),
    Ack { who: usize, share: f64 },
    AckEach { who: usize, share: f64 },
    Reject { who: usize, share: f64 },
    Leave(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0usize..6).prop_map(Step::Publish),
        1 => (1u32..5).prop_map(Step::Join),
        4 => (0usize..8).prop_map(Step::Take),
        3 => (0usize..8, 0.0..1.0).prop_map(|(who, share)| Step::Ack { who, share }),
        2 => (0usize..8, 0.0..1.0).prop_map(|(who, share)| Step::AckEach { who, share }),
        1 => (0usize..8, 0.0..1.0).prop_map(|(who, share)| Step::Reject { who, share }),
        1 => (0usize..8).prop_map(Step::Leave),
    ]
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Place {
    Ready,
    With(MemberId),
    Acked,
    Dead,
}

struct Reference {
    /// By number, which is the order of publication.
    messages: Vec<(Place, bool)>,
    /// Credit, and what was seen and not settled: tag to number.
    members: BTreeMap<MemberId, (usize, BTreeMap<u64, usize>)>,
}

impl Reference {
    fn held(&self, id: MemberId) -> usize {
        self.messages.iter().filter(|(place, _)| *place == Place::With(id)).count()
    }

    fn count(&self, test: impl Fn(Place) -> bool) -> u64 {
        self.messages.iter().filter(|(place, _)| test(*place)).count() as u64
    }

    /// Takes over who got what, after checking that it is what a fair deal gives.
    fn check_deal(&mut self, queue: &Queue) {
        let spare: usize = self.members.iter().map(|(id, (credit, _))| credit - self.held(*id)).sum();
        let ready: Vec<usize> =
            (0..self.messages.len()).filter(|n| self.messages[*n].0 == Place::Ready).take(spare).collect();
        let mut gains = BTreeMap::new();
        for (id, member) in &queue.members {
            assert!(member.held.len() <= member.credit, "credit is respected");
            for held in &member.held {
                let number = number_of(&held.message.body);
                let (place, seen_before) = &mut self.messages[number];
                match *place {
                    Place::Ready => {
                        assert!(ready.contains(&number), "the oldest go first");
                        assert_eq!(held.message.redelivered, *seen_before, "a second time is marked, a first is not");
                        *place = Place::With(*id);
                        *seen_before = true;
                        *gains.entry(*id).or_insert(0usize) += 1;
                    }
                    Place::With(owner) => assert_eq!(owner, *id, "a message is with one consumer"),
                    Place::Acked | Place::Dead => panic!("{number} came back after it was settled"),
                }
            }
        }
        assert_eq!(gains.values().sum::<usize>(), ready.len(), "everything that has a taker is dealt");
        let most = gains.values().max().copied().unwrap_or(0);
        for id in self.members.keys() {
            let has_spare = queue.members[id].held.len() < queue.members[id].credit;
            let gain = gains.get(id).copied().unwrap_or(0);
            assert!(!has_spare || gain + 1 >= most, "nobody with credit is passed over twice");
        }
    }
}

fn number_of(body: &Bytes) -> usize {
    std::str::from_utf8(body).unwrap().parse().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn nothing_is_lost_and_only_what_is_marked_comes_twice(steps in prop::collection::vec(step(), 1..60)) {
        let limits = Limits { queue_messages_max: 20, dead_letters_max: 1_000, ..Limits::default() };
        let mut queue = Queue::default();
        let mut reference = Reference { messages: Vec::new(), members: BTreeMap::new() };
        for step in steps {
            let pick = |who: usize| {
                let ids: Vec<MemberId> = reference.members.keys().copied().collect();
                (!ids.is_empty()).then(|| ids[who % ids.len()])
            };
            match step {
                Step::Publish(n) => {
                    let from = reference.messages.len();
                    let batch = (from..from + n).map(|number| number.to_string().into()).collect();
                    let waiting = reference.count(|p| matches!(p, Place::Ready | Place::With(_))) as usize;
                    let fits = waiting + n <= limits.queue_messages_max;
                    prop_assert_eq!(queue.publish(batch, &limits).is_ok(), fits);
                    if fits {
                        reference.messages.extend(vec![(Place::Ready, false); n]);
                    }
                }
                Step::Join(credit) => {
                    reference.members.insert(queue.join(credit), (credit as usize, BTreeMap::new()));
                }
                Step::Take(who) => {
                    let Some(id) = pick(who) else { continue };
                    let (_, seen) = reference.members.get_mut(&id).unwrap();
                    for delivery in queue.take(id) {
                        prop_assert!(seen.last_key_value().is_none_or(|(last, _)| *last < delivery.tag), "tags grow");
                        seen.insert(delivery.tag, number_of(&delivery.body));
                    }
                }
                Step::Ack { who, share } => {
                    let Some(id) = pick(who) else { continue };
                    let (_, seen) = reference.members.get_mut(&id).unwrap();
                    let Some(tag) = seen.keys().nth((seen.len() as f64 * share) as usize).copied() else { continue };
                    queue.ack_through(id, tag);
                    let rest = seen.split_off(&(tag + 1));
                    for number in std::mem::replace(seen, rest).into_values() {
                        reference.messages[number].0 = Place::Acked;
                    }
                }
                Step::AckEach { who, share } => {
                    let Some(id) = pick(who) else { continue };
                    let (_, seen) = reference.members.get_mut(&id).unwrap();
                    // Every other one from there on, and one that nobody was given.
                    let from = (seen.len() as f64 * share) as usize;
                    let mut tags: Vec<u64> = seen.keys().skip(from).step_by(2).copied().collect();
                    tags.push(u64::MAX);
                    queue.ack_each(id, &tags);
                    for number in tags.iter().filter_map(|tag| seen.remove(tag)) {
                        reference.messages[number].0 = Place::Acked;
                    }
                }
                Step::Reject { who, share } => {
                    let Some(id) = pick(who) else { continue };
                    let (_, seen) = reference.members.get_mut(&id).unwrap();
                    let Some(tag) = seen.keys().nth((seen.len() as f64 * share) as usize).copied() else { continue };
                    queue.reject(id, tag, "no good", &limits);
                    reference.messages[seen.remove(&tag).unwrap()].0 = Place::Dead;
                }
                Step::Leave(who) => {
                    let Some(id) = pick(who) else { continue };
                    queue.leave(id);
                    reference.members.remove(&id);
                    for (place, _) in &mut reference.messages {
                        if *place == Place::With(id) {
                            *place = Place::Ready;
                        }
                    }
                }
            }
            queue.deal();
            reference.check_deal(&queue);
            let expected = Counts {
                ready: reference.count(|p| p == Place::Ready),
                unacked: reference.count(|p| matches!(p, Place::With(_))),
                dead: reference.count(|p| p == Place::Dead),
                consumers: reference.members.len() as u64,
            };
            prop_assert_eq!(queue.counts(), expected);
            let order: Vec<usize> = queue.ready.iter().map(|waiting| number_of(&waiting.body)).collect();
            prop_assert!(order.is_sorted(), "ready stays in the order of publication");
            let bytes: usize = queue.ready.iter().map(|w| w.body.len()).sum::<usize>()
                + queue.members.values().flat_map(|m| &m.held).map(|h| h.message.body.len()).sum::<usize>();
            prop_assert_eq!(queue.bytes, bytes);
        }
    }
}

#[test]
fn a_tag_nobody_was_given_settles_nothing() {
    let mut queue = Queue::default();
    let id = queue.join(10);
    queue.publish(vec!["a".into(), "b".into()], &Limits::default()).unwrap();
    queue.deal();
    queue.ack_through(id, u64::MAX);
    queue.ack_each(id, &[1, 2]);
    queue.reject(id, 1, "unseen", &Limits::default());
    assert_eq!(queue.counts().unacked, 2);
}

#[test]
fn bytes_fill_a_queue_as_well_as_messages() {
    let limits = Limits { queue_bytes_max: 10, ..Limits::default() };
    let mut queue = Queue::default();
    queue.publish(vec![vec![0; 11].into()], &limits).expect("one message always fits an empty queue");
    assert_eq!(queue.publish(vec!["x".into()], &limits), Err(NoRoom { bound: 1 }));
}

#[test]
fn old_dead_letters_make_way() {
    let limits = Limits { dead_letters_max: 2, ..Limits::default() };
    let mut queue = Queue::default();
    let id = queue.join(10);
    queue.publish(vec!["a".into(), "b".into(), "c".into()], &limits).unwrap();
    queue.deal();
    for delivery in queue.take(id) {
        queue.reject(id, delivery.tag, "bad", &limits);
    }
    let bodies: Vec<Bytes> = queue.dead_letters(10).into_iter().map(|letter| letter.body).collect();
    assert_eq!(bodies, ["b", "c"]);
    assert_eq!(queue.bytes, 0);
}
