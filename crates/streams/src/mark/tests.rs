use proptest::prelude::*;

use super::*;

/// What an upstream says: numbers of events and times, in the one order that all its replicas agree on.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Word {
    Event(u64),
    Time(i64),
}

fn words(events: u64, every: u64) -> Vec<Word> {
    let said = |n: u64| {
        let time = n.is_multiple_of(every).then_some(Word::Time(n as i64 * 10));
        [time, Some(Word::Event(n))].into_iter().flatten()
    };
    (0..events).flat_map(said).collect()
}

/// A replica that begins at some event and flushes when it likes: records, each with its events.
fn records(upstream: u32, words: &[Word], from: u64, flushes: &[usize]) -> Vec<(Header, Vec<u64>)> {
    let begin = words.iter().position(|word| *word == Word::Event(from)).unwrap_or(words.len());
    let mut rest = &words[begin..];
    let before =
        words[..begin].iter().rev().find_map(|word| if let Word::Time(time) = word { Some(*time) } else { None });
    let mut numbering = Numbering::starting_at(from, before.unwrap_or(BEGINNING));
    let mut records = Vec::new();
    for flush in flushes.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (now, later) = rest.split_at((*flush).min(rest.len()));
        rest = later;
        let (mut events, mut times) = (Vec::new(), Vec::new());
        for word in now {
            match word {
                Word::Event(event) => events.push(*event),
                Word::Time(time) => times.push((events.len(), *time)),
            }
        }
        let who = Who { upstream, origin: Origin::Fixed, replica: 0 };
        records.push((numbering.header(who, events.len() as u32, &times), events));
    }
    records
}

fn read(marks: &mut Marks, header: &Header, events: &[u64], to: &mut Vec<Word>) {
    let fresh = marks.take(header).unwrap();
    let new = &events[fresh.rows.clone()];
    let mut from = 0;
    for (before, time) in &fresh.watermarks {
        to.extend(new[from..*before].iter().map(|event| Word::Event(*event)));
        to.push(Word::Time(*time));
        from = *before;
    }
    to.extend(new[from..].iter().map(|event| Word::Event(*event)));
}

fn flushes() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(1..12usize, 1..10)
}

impl Marks {
    fn next(&self, upstream: u32) -> u64 {
        match self.upstreams.get(&upstream).map(|mark| &mark.counts) {
            Some(Counts::Fixed(next)) => *next,
            _ => 0,
        }
    }
}

proptest! {
    /// Two replicas flush as they like, one of them goes back to an earlier event and says everything again, records come
    /// twice: the reader hears each event once, and each watermark where it stood.
    #[test]
    fn whatever_was_flushed_doubled_and_sent_again_is_heard_once_and_in_order(
        events in 0u64..60,
        every in 1u64..9,
        one in flushes(),
        other in flushes(),
        again in flushes(),
        back_to in 0u64..60,
        turns in prop::collection::vec((0..3usize, any::<bool>()), 0..200),
        restarts in any::<prop::sample::Index>(),
    ) {
        let words = words(events, every);
        let mut lines = [
            records(0, &words, 0, &one),
            records(0, &words, 0, &other),
            // Nobody begins behind what it has said: it goes back.
            Vec::new(),
        ];
        let mut third = Some(records(0, &words, back_to, &again));
        let (mut marks, mut heard) = (Marks::default(), Vec::new());
        let all = turns.len();
        for (turn, (who, twice)) in turns.into_iter().chain((0..400).map(|n| (n % 3, false))).enumerate() {
            if turn >= all / 2 && marks.next(0) >= back_to && let Some(third) = third.take() {
                lines[2] = third;
            }
            if lines[who].is_empty() {
                continue;
            }
            let (header, rows) = lines[who].remove(0);
            read(&mut marks, &header, &rows, &mut heard);
            if twice {
                prop_assert!(marks.take(&header).unwrap().is_empty());
            }
            // The reader too goes back to a snapshot of its marks, which changes nothing.
            if restarts.index(all + 1) == turn {
                let mut to = Writer::default();
                marks.store(&mut to);
                let bytes = to.into_bytes();
                marks = Marks::load(&mut Reader::new(&bytes)).unwrap();
            }
        }
        prop_assert_eq!(heard, words);
    }
}

fn header(origin: Origin, first: u64, rows: u32) -> Header {
    Header { upstream: 3, origin, replica: 0, first, rows, watermarks: vec![] }
}

fn again(marks: &Marks) -> Marks {
    let mut to = Writer::default();
    marks.store(&mut to);
    let bytes = to.into_bytes();
    Marks::load(&mut Reader::new(&bytes)).unwrap()
}

#[test]
fn a_gap_is_told_and_changes_nothing() {
    let mut marks = Marks::default();
    let header = |first, rows| header(Origin::Fixed, first, rows);
    assert_eq!(marks.take(&header(0, 5)).map(|fresh| fresh.rows), Ok(0..5));
    let gap = marks.take(&header(7, 5)).unwrap_err();
    assert_eq!(gap, Untaken::Missing { upstream: 3, wanted: 5, found: 7 });
    assert_eq!(marks.take(&header(3, 4)).map(|fresh| fresh.rows), Ok(2..4));
    assert_eq!((marks.next(3), marks.next(4)), (7, 0));
    assert_eq!(marks.take_what_is_there(&header(9, 5)).rows, 0..5);
    assert_eq!(marks.take(&header(9, 6)).map(|fresh| fresh.rows), Ok(5..6));
}

#[test]
fn whoever_was_succeeded_is_heard_no_more() {
    let mut marks = Marks::default();
    let take = |marks: &mut Marks, epoch, first, rows| marks.take(&header(Origin::Epoch(epoch), first, rows));
    assert_eq!(take(&mut marks, 4, 0, 5).map(|fresh| fresh.rows), Ok(0..5));
    assert_eq!(take(&mut marks, 6, 0, 2).map(|fresh| fresh.rows), Ok(0..2));
    let stale = Untaken::Stale { upstream: 3, newest: 6, found: 4 };
    assert_eq!(take(&mut again(&marks), 4, 5, 5), Err(stale));
    assert_eq!(take(&mut marks, 4, 5, 5), Err(stale));
    assert_eq!(take(&mut marks, 6, 0, 3).map(|fresh| fresh.rows), Ok(2..3));
    assert_eq!(take(&mut marks, 7, 1, 3), Err(Untaken::Missing { upstream: 3, wanted: 0, found: 1 }));
    assert_eq!(marks.take(&header(Origin::Fixed, 3, 1)), Err(Untaken::Other { upstream: 3 }));
}

#[test]
fn several_writers_are_counted_each_by_itself() {
    let mut marks = Marks::default();
    let take = |marks: &mut Marks, writer, first, rows| {
        marks.take(&header(Origin::Free(writer), first, rows)).map(|fresh| fresh.rows.len())
    };
    assert_eq!(take(&mut marks, 1, 0, 5), Ok(5));
    assert_eq!(take(&mut marks, 2, 0, 3), Ok(3));
    assert_eq!(take(&mut marks, 1, 0, 7), Ok(2), "five of them are known");
    assert_eq!(take(&mut marks, 2, 5, 1), Ok(1), "what was refused to its sender is missed by nobody");
    for writer in 0..WRITERS_MAX as u64 - 1 {
        take(&mut marks, 100 + writer, 0, 1).unwrap();
    }
    let mut marks = again(&marks);
    assert_eq!(take(&mut marks, 2, 0, 6), Ok(0), "it is among the last that wrote");
    assert_eq!(take(&mut marks, 1, 0, 7), Ok(7), "and this one is forgotten");
}

#[test]
fn the_clock_moves_time_forward_only() {
    let mut marks = Marks::default();
    assert!(marks.tick(3, 50));
    assert!(!marks.tick(3, 40));
    let behind = Header { watermarks: vec![(0, 45), (1, 60)], ..header(Origin::Fixed, 0, 2) };
    assert_eq!(marks.take(&behind).map(|fresh| fresh.watermarks), Ok(vec![(1, 60)]));
    assert_eq!(marks.time(3), 60);
}

#[test]
fn places_are_in_the_order_of_the_log() {
    let place = |offset, row| Place { offset, row };
    assert!(place(1, 9) < place(2, 0) && place(2, 0) < place(2, 1));
}
