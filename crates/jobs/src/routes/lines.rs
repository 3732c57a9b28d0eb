//! How far the output of many tasks was read, and the lines that are not whole yet. Pure.

use std::collections::{BTreeMap, BTreeSet};

use mutirao_core::blobs::LogStream;
use mutirao_core::id::Attempt;
use serde::{Deserialize, Serialize};

/// A line that does not end is cut here.
const LINE_BYTES_MAX: usize = 64 << 10;

/// Where reading goes on, as a client may keep it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Places {
    /// Every task below has been read to its end.
    pub low: u64,
    /// Above it, those that have as well.
    #[serde(default)]
    pub done: BTreeSet<u32>,
    /// And those that were read in part: which attempt of which task, and how far stdout and stderr.
    #[serde(default)]
    pub begun: Vec<(u32, Attempt, u64, u64)>,
}

/// Where one stream of one task goes on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Place {
    pub index: u32,
    pub stream: LogStream,
    pub offset: u64,
}

#[derive(Default)]
struct Reading {
    /// Bytes read, those in `rest` among them.
    offset: u64,
    rest: Vec<u8>,
}

struct Begun {
    attempt: Attempt,
    streams: [Reading; 2],
}

impl Begun {
    fn at(attempt: Attempt, [out, err]: [u64; 2]) -> Self {
        let reading = |offset| Reading { offset, rest: Vec::new() };
        Self { attempt, streams: [reading(out), reading(err)] }
    }
}

pub struct Lines {
    low: u64,
    done: BTreeSet<u32>,
    begun: BTreeMap<u32, Begun>,
}

impl From<Places> for Lines {
    fn from(Places { low, done, begun }: Places) -> Self {
        let begun = begun.into_iter().map(|(index, attempt, out, err)| (index, Begun::at(attempt, [out, err])));
        Self { low, done, begun: begun.collect() }
    }
}

impl Lines {
    pub fn low(&self) -> u64 {
        self.low
    }

    pub fn is_done(&self, index: u32) -> bool {
        u64::from(index) < self.low || self.done.contains(&index)
    }

    /// What a client that has heard all so far may come back with. A line that is not whole was not heard.
    pub fn places(&self) -> Places {
        let heard = |reading: &Reading| reading.offset - reading.rest.len() as u64;
        let begun = self.begun.iter().map(|(index, begun)| {
            let [out, err] = &begun.streams;
            (*index, begun.attempt, heard(out), heard(err))
        });
        Places { low: self.low, done: self.done.clone(), begun: begun.collect() }
    }

    /// Where to read on. A later attempt writes a log of its own, which is read from its beginning.
    pub fn place(&mut self, index: u32, attempt: Attempt, stream: LogStream) -> Place {
        let begun = self.begun.entry(index).or_insert_with(|| Begun::at(attempt, [0, 0]));
        if begun.attempt != attempt {
            *begun = Begun::at(attempt, [0, 0]);
        }
        Place { index, stream, offset: begun.streams[stream as usize].offset }
    }

    /// Takes what was read at a place; the whole lines in it, if there are any.
    pub fn push(&mut self, place: Place, bytes: &[u8]) -> Option<String> {
        let reading = &mut self.begun.get_mut(&place.index)?.streams[place.stream as usize];
        reading.offset += bytes.len() as u64;
        reading.rest.extend_from_slice(bytes);
        let whole = match reading.rest.iter().rposition(|byte| *byte == b'\n') {
            Some(last) => last + 1,
            None if reading.rest.len() >= LINE_BYTES_MAX => reading.rest.len(),
            None => return None,
        };
        let rest = reading.rest.split_off(whole);
        let whole = std::mem::replace(&mut reading.rest, rest);
        Some(String::from_utf8_lossy(&whole).into_owned())
    }

    /// The task says no more: its last lines, which do not end.
    pub fn finish(&mut self, index: u32) -> Vec<(LogStream, String)> {
        self.done.insert(index);
        let Some(Begun { streams, .. }) = self.begun.remove(&index) else { return Vec::new() };
        let rests = [LogStream::Stdout, LogStream::Stderr].into_iter().zip(streams);
        let some = rests.filter(|(_, reading)| !reading.rest.is_empty());
        some.map(|(stream, reading)| (stream, String::from_utf8_lossy(&reading.rest).into_owned())).collect()
    }

    /// Every task below `stop` was looked at: those at the bottom that are done with are forgotten.
    pub fn advance(&mut self, stop: u64) {
        while self.low < stop && self.done.remove(&(self.low as u32)) {
            self.low += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Attempt = Attempt { generation: 1, n: 1 };
    const SECOND: Attempt = Attempt { generation: 1, n: 2 };

    fn read(lines: &mut Lines, index: u32, attempt: Attempt, bytes: &[u8]) -> Option<String> {
        let place = lines.place(index, attempt, LogStream::Stdout);
        lines.push(place, bytes)
    }

    #[test]
    fn only_whole_lines_come_until_a_task_has_no_more_to_say() {
        let mut lines = Lines::from(Places { low: 1, ..Places::default() });
        assert_eq!(read(&mut lines, 1, FIRST, b"on"), None);
        assert_eq!(read(&mut lines, 2, FIRST, b"other\n"), Some("other\n".into()));
        assert_eq!(read(&mut lines, 1, FIRST, b"e\ntwo\nthr"), Some("one\ntwo\n".into()));
        assert_eq!(lines.finish(1), [(LogStream::Stdout, "thr".to_owned())]);
        lines.advance(3);
        assert_eq!((lines.low(), lines.is_done(1), lines.is_done(2)), (2, true, false));
    }

    #[test]
    fn who_comes_back_hears_what_it_did_not_and_nothing_twice() {
        let mut lines = Lines::from(Places { low: 1, ..Places::default() });
        read(&mut lines, 1, FIRST, b"one\ntw");
        read(&mut lines, 3, FIRST, b"x\n");
        lines.finish(3);
        let places = lines.places();
        assert_eq!(places.begun, [(1, FIRST, 4, 0)]);
        let mut again = Lines::from(places);
        assert_eq!(again.place(1, FIRST, LogStream::Stdout).offset, 4);
        assert!(again.is_done(3) && !again.is_done(2));
    }

    #[test]
    fn another_attempt_is_read_from_its_beginning() {
        let mut lines = Lines::from(Places { low: 1, ..Places::default() });
        read(&mut lines, 1, FIRST, b"lost");
        assert_eq!(lines.place(1, SECOND, LogStream::Stdout).offset, 0);
        assert_eq!(read(&mut lines, 1, SECOND, b"new\n"), Some("new\n".into()));
    }

    #[test]
    fn a_line_without_end_is_cut() {
        let mut lines = Lines::from(Places::default());
        assert!(read(&mut lines, 1, FIRST, &vec![b'x'; LINE_BYTES_MAX]).is_some());
    }
}
