//! Texts back to back in one buffer, and where each ends: no allocation for a text, and a copy of many is one copy.

use std::ops::Range;

/// Of one text, so that a full batch of the longest is still numbered by 32 bits.
pub const TEXT_BYTES_MAX: usize = 32 * 1024;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Texts {
    ends: Vec<u32>,
    all: String,
}

impl Texts {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn with_capacity(texts: usize, bytes: usize) -> Self {
        Self { ends: Vec::with_capacity(texts), all: String::with_capacity(bytes) }
    }

    /// Of a buffer and where each of its texts ends. Nothing when those are no ends of texts.
    pub fn of(ends: Vec<u32>, all: String) -> Option<Self> {
        let mut start = 0;
        for end in &ends {
            let end = *end as usize;
            if end < start || end - start > TEXT_BYTES_MAX || !all.is_char_boundary(end) {
                return None;
            }
            start = end;
        }
        (start == all.len()).then_some(Self { ends, all })
    }

    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Where each text ends in [`all`](Self::all).
    pub fn ends(&self) -> &[u32] {
        &self.ends
    }

    pub fn all(&self) -> &str {
        &self.all
    }

    fn start(&self, n: usize) -> usize {
        if n == 0 { 0 } else { self.ends[n - 1] as usize }
    }

    pub fn get(&self, n: usize) -> &str {
        &self.all[self.start(n)..self.ends[n] as usize]
    }

    /// The same as bytes, for those who only compare or hash.
    pub fn bytes_of(&self, n: usize) -> &[u8] {
        &self.all.as_bytes()[self.start(n)..self.ends[n] as usize]
    }

    pub fn iter(&self) -> impl ExactSizeIterator<Item = &str> {
        let mut start = 0;
        self.ends.iter().map(move |end| {
            let text = &self.all[start..*end as usize];
            start = *end as usize;
            text
        })
    }

    /// The same as bytes: their order is that of the texts.
    pub fn iter_bytes(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        let (mut start, bytes) = (0, self.all.as_bytes());
        self.ends.iter().map(move |end| {
            let text = &bytes[start..*end as usize];
            start = *end as usize;
            text
        })
    }

    /// What is longer than may be is cut.
    pub fn push(&mut self, text: &str) {
        self.all.push_str(cut(text, TEXT_BYTES_MAX));
        self.end();
    }

    /// A text that is written piece by piece. What is longer than may be is cut.
    pub fn push_with(&mut self, write: impl FnOnce(&mut String)) {
        let start = self.all.len();
        write(&mut self.all);
        if self.all.len() - start > TEXT_BYTES_MAX {
            let end = start + cut(&self.all[start..], TEXT_BYTES_MAX).len();
            self.all.truncate(end);
        }
        self.end();
    }

    fn end(&mut self) {
        self.ends.push(u32::try_from(self.all.len()).unwrap_or(u32::MAX));
    }

    pub fn clear(&mut self) {
        self.ends.clear();
        self.all.clear();
    }

    pub fn truncate(&mut self, texts: usize) {
        if texts < self.ends.len() {
            self.all.truncate(self.start(texts));
            self.ends.truncate(texts);
        }
    }

    /// Adds some of another's, in one copy.
    pub fn append(&mut self, other: &Texts, texts: Range<usize>) {
        if texts.is_empty() {
            return;
        }
        let from = other.start(texts.start);
        let to = other.ends[texts.end - 1] as usize;
        let base = self.all.len();
        self.all.push_str(&other.all[from..to]);
        self.ends.extend(other.ends[texts].iter().map(|end| (base + (*end as usize - from)) as u32));
    }

    /// The texts of these numbers, in place of what is in `into`.
    pub fn take_into(&self, rows: &[u32], into: &mut Texts) {
        into.clear();
        into.ends.reserve(rows.len());
        for n in rows {
            into.all.push_str(self.get(*n as usize));
            into.end();
        }
    }
}

impl<T: AsRef<str>> FromIterator<T> for Texts {
    fn from_iter<I: IntoIterator<Item = T>>(texts: I) -> Self {
        let mut all = Texts::new();
        texts.into_iter().for_each(|text| all.push(text.as_ref()));
        all
    }
}

/// As much of a text as fits, in whole characters.
pub fn cut(text: &str, bytes: usize) -> &str {
    if text.len() <= bytes {
        return text;
    }
    let end = (0..=bytes).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    &text[..end]
}
