use super::*;
use crate::Heard;

fn drain(state: &mut State) -> Vec<Ask> {
    let mut asks = Vec::new();
    while let Some(Parting::Frames(frames)) = state.next_parting() {
        asks.extend(frames.iter().map(|frame| frame.head.clone()));
    }
    asks
}

fn publish(state: &mut State, on_loss: OnLoss) -> (u64, oneshot::Receiver<Reply>) {
    state.ask(|id| Ask::Publish { id, queue: "q".into() }, vec!["x".into()], on_loss, Room::new())
}

fn up() -> State {
    let mut state = State::default();
    state.went_up();
    state
}

fn consumer(state: &mut State) -> u64 {
    let (channel, _) = state.open(Kind::Consumer { queue: "q".into(), credit: 10 });
    state.heard(Frame::bare(Tell::Opened { channel })).unwrap();
    drain(state);
    channel
}

fn deliver(state: &mut State, channel: u64, tags: &[u64]) -> Vec<u64> {
    let head = Tell::Deliveries { channel, tags: tags.iter().map(|tag| (*tag, false)).collect() };
    state.heard(Frame { head, bodies: vec![Bytes::new(); tags.len()] }).unwrap();
    state.deliveries(channel).unwrap().into_iter().map(|delivery| delivery.tag).collect()
}

#[test]
fn what_was_not_confirmed_is_asked_again_in_order_and_what_was_is_not() {
    let mut state = up();
    let asked: Vec<u64> = (0..3).map(|_| publish(&mut state, OnLoss::AskAgain).0).collect();
    drain(&mut state);
    state.heard(Frame::bare(Tell::Done { id: asked[1], answer: Answer::Nothing })).unwrap();
    state.went_down("cut");
    let late = publish(&mut state, OnLoss::AskAgain).0;
    assert!(drain(&mut state).is_empty(), "nothing leaves while down");
    state.went_up();
    let again: Vec<Ask> =
        [asked[0], asked[2], late].map(|id| Ask::Publish { id, queue: "q".into() }).into_iter().collect();
    assert_eq!(drain(&mut state), again);
}

#[test]
fn what_must_not_happen_twice_fails_when_its_connection_breaks_and_waits_when_there_is_none() {
    let mut state = up();
    let (_, mut sent) = publish(&mut state, OnLoss::Fail);
    state.went_down("cut");
    assert_eq!(sent.try_recv().unwrap(), Err(BrokerError::Unreachable("cut".into())));
    let (id, mut waiting) = publish(&mut state, OnLoss::Fail);
    state.went_down("still away");
    assert!(waiting.try_recv().is_err(), "it was never sent, so it can wait");
    state.went_up();
    assert_eq!(drain(&mut state), [Ask::Publish { id, queue: "q".into() }]);
}

#[test]
fn an_acknowledgement_of_a_former_connection_settles_nothing() {
    let mut state = up();
    let channel = consumer(&mut state);
    let old = deliver(&mut state, channel, &[1, 2]);
    state.went_down("cut");
    state.went_up();
    drain(&mut state);
    let new = deliver(&mut state, channel, &[1, 2]);
    assert!(new[0] > old[1], "tags grow over reconnects");
    state.ack_through(channel, old[1]);
    state.reject(channel, old[0], "stale");
    assert!(drain(&mut state).is_empty());
    state.ack_through(channel, new[0]);
    assert_eq!(drain(&mut state), [Ask::AckThrough { channel, tag: 1 }]);
}

#[test]
fn deliveries_nobody_has_seen_are_dropped_with_their_connection() {
    let mut state = up();
    let channel = consumer(&mut state);
    let head = Tell::Deliveries { channel, tags: vec![(1, false)] };
    state.heard(Frame { head, bodies: vec!["x".into()] }).unwrap();
    state.went_down("cut");
    assert_eq!(state.deliveries(channel), Ok(Vec::new()));
}

#[test]
fn acknowledgements_in_a_row_become_one_but_never_overtake_a_rejection() {
    let mut state = up();
    let channel = consumer(&mut state);
    let tags = deliver(&mut state, channel, &[1, 2, 3, 4]);
    state.ack_through(channel, tags[0]);
    state.ack_through(channel, tags[1]);
    state.reject(channel, tags[2], "bad");
    state.ack_through(channel, tags[3]);
    state.ack_through(channel, tags[3]);
    assert_eq!(
        drain(&mut state),
        [
            Ask::AckThrough { channel, tag: 2 },
            Ask::Reject { channel, tag: 3, reason: "bad".into() },
            Ask::AckThrough { channel, tag: 4 },
        ]
    );
}

#[test]
fn consumers_and_subscriptions_are_opened_again_and_subscriptions_hear_of_the_gap() {
    let mut state = up();
    let consumer = consumer(&mut state);
    let (ear, _) = state.open(Kind::Subscription { topic: "t".into() });
    state.heard(Frame::bare(Tell::Opened { channel: ear })).unwrap();
    let (closed, _) = state.open(Kind::Subscription { topic: "u".into() });
    state.close(closed);
    state.went_down("cut");
    state.went_up();
    let opens = [
        Ask::Consume { channel: consumer, queue: "q".into(), credit: 10 },
        Ask::Subscribe { channel: ear, topic: "t".into() },
    ];
    assert_eq!(drain(&mut state), opens);
    assert_eq!(state.hear(ear), Ok(Some(Heard::Gap)));
    assert_eq!(state.hear(ear), Ok(None));
}

#[test]
fn everything_ends_when_the_link_is_closed() {
    let mut state = up();
    let channel = consumer(&mut state);
    let (_, mut before) = publish(&mut state, OnLoss::AskAgain);
    state.shut();
    let (_, mut after) = publish(&mut state, OnLoss::AskAgain);
    assert_eq!(before.try_recv().unwrap(), Err(BrokerError::Closed));
    assert_eq!(after.try_recv().unwrap(), Err(BrokerError::Closed));
    assert_eq!(state.deliveries(channel), Err(BrokerError::Closed));
}

#[test]
fn a_forgotten_read_is_called_off_and_not_asked_again() {
    let mut state = up();
    let make = |id| Ask::Read { id, log: "l".into(), offset: 0, limit: 1 };
    let (id, _) = state.ask(make, Vec::new(), OnLoss::AskAgain, Room::new());
    drain(&mut state);
    state.forget(id);
    assert_eq!(drain(&mut state), [Ask::Forget { id }]);
    state.went_down("cut");
    state.went_up();
    assert!(drain(&mut state).is_empty());
}
