//! Topic names and topic filters: which may be, which matches which, and which lies inside which.
//!
//! `+` stands for one level, `#` for the rest, the parent included. A wildcard at the beginning does not match a name
//! that begins with `$`: those are the server's own.

mod trie;

use std::fmt;
use std::sync::Arc;

pub use trie::Trie;

/// Bytes of a topic. A bound of ours too: the standard's 65,535, for each subscription of each session, would be gigabytes.
pub const BYTES_MAX: usize = 1_024;
/// Levels of a topic. A bound of ours: a name of slashes alone would make a tree of 65,000 floors.
pub const LEVELS_MAX: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadTopic {
    #[error("it is empty")]
    Empty,
    #[error("it has a null character")]
    Null,
    #[error("it is longer than {BYTES_MAX} bytes")]
    TooLong,
    #[error("it has more than {LEVELS_MAX} levels")]
    TooDeep,
    #[error("a name has no wildcards")]
    WildcardInName,
    #[error("'+' and '#' stand alone in their level, and '#' is the last")]
    Wildcard,
}

/// Where a message is published.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TopicName(Arc<str>);

/// What a subscriber wants to hear.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TopicFilter(Arc<str>);

impl TopicName {
    pub fn new(text: &str) -> Result<Self, BadTopic> {
        check_text(text)?;
        if text.contains(['+', '#']) {
            return Err(BadTopic::WildcardInName);
        }
        Ok(Self(text.into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn levels(&self) -> impl Iterator<Item = &str> {
        self.0.split('/')
    }

    /// Is it one of the server's own, which wildcards do not reach?
    pub fn is_the_servers(&self) -> bool {
        self.0.starts_with('$')
    }
}

impl TopicFilter {
    pub fn new(text: &str) -> Result<Self, BadTopic> {
        check_text(text)?;
        let mut levels = text.split('/').peekable();
        while let Some(level) = levels.next() {
            let misplaced = level == "#" && levels.peek().is_some();
            if misplaced || (level.len() > 1 && level.contains(['+', '#'])) {
                return Err(BadTopic::Wildcard);
            }
        }
        Ok(Self(text.into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn levels(&self) -> impl Iterator<Item = &str> {
        self.0.split('/')
    }

    pub fn matches(&self, name: &TopicName) -> bool {
        self.reaches(name.as_str())
    }

    /// Does every name that `other` matches match this too? So what one who may hear this may subscribe to.
    pub fn covers(&self, other: &TopicFilter) -> bool {
        // To `+` and `#` on the other side only their like on this side is wide enough, and those stand in `reaches` for
        // any text, the other's wildcards included; a literal meets them as the different texts that they are. Only a
        // `#` that stands for the parent too must not be met by what wants a level more: `a/+` does not cover `a/#`.
        if other.0.ends_with('#') && !self.0.ends_with('#') {
            return false;
        }
        self.reaches(other.as_str())
    }

    fn reaches(&self, text: &str) -> bool {
        if text.starts_with('$') && self.0.starts_with(['+', '#']) {
            return false;
        }
        let mut wanted = self.levels();
        let mut levels = text.split('/');
        loop {
            match (wanted.next(), levels.next()) {
                (Some("#"), _) => return true,
                // `a/+` against the filter `a/#` was refused before; against a name there is no such level.
                (Some("+"), Some(level)) if level != "#" => {}
                (Some(one), Some(other)) if one == other => {}
                (None, None) => return true,
                _ => return false,
            }
        }
    }
}

fn check_text(text: &str) -> Result<(), BadTopic> {
    if text.is_empty() {
        return Err(BadTopic::Empty);
    }
    if text.len() > BYTES_MAX {
        return Err(BadTopic::TooLong);
    }
    if text.contains('\0') {
        return Err(BadTopic::Null);
    }
    if text.split('/').count() > LEVELS_MAX {
        return Err(BadTopic::TooDeep);
    }
    Ok(())
}

/// Quoted and escaped: a client chose it, and it goes into logs.
impl fmt::Debug for TopicName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

impl fmt::Debug for TopicFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use proptest::prelude::*;

    pub fn name(text: &str) -> TopicName {
        TopicName::new(text).unwrap()
    }

    pub fn filter(text: &str) -> TopicFilter {
        TopicFilter::new(text).unwrap()
    }

    /// Few letters, so that they meet.
    pub fn names() -> impl Strategy<Value = TopicName> {
        proptest::collection::vec(proptest::sample::select(vec!["", "a", "b", "$s"]), 1..5)
            .prop_filter_map("an empty name", |levels| TopicName::new(&levels.join("/")).ok())
    }

    pub fn filters() -> impl Strategy<Value = TopicFilter> {
        proptest::collection::vec(proptest::sample::select(vec!["", "a", "b", "$s", "+", "#"]), 1..5)
            .prop_filter_map("not a filter", |levels| TopicFilter::new(&levels.join("/")).ok())
    }

    /// The standard's words, level by level, without any thought of speed.
    pub fn naive(filter: &[&str], name: &[&str], first: bool) -> bool {
        if first && name[0].starts_with('$') && (filter[0] == "+" || filter[0] == "#") {
            return false;
        }
        match (filter, name) {
            (["#"], _) => true,
            ([], []) => true,
            (["+", filter @ ..], [_, name @ ..]) => naive(filter, name, false),
            ([one, filter @ ..], [other, name @ ..]) => one == other && naive(filter, name, false),
            _ => false,
        }
    }

    #[test]
    fn the_examples_of_the_standard() {
        for (wanted, text, matches) in [
            ("sport/tennis/player1/#", "sport/tennis/player1", true),
            ("sport/tennis/player1/#", "sport/tennis/player1/score/wimbledon", true),
            ("sport/#", "sport", true),
            ("sport/tennis/+", "sport/tennis/player1", true),
            ("sport/tennis/+", "sport/tennis/player1/ranking", false),
            ("sport/+", "sport", false),
            ("sport/+", "sport/", true),
            ("+/+", "/finance", true),
            ("/+", "/finance", true),
            ("+", "/finance", false),
            ("#", "$SYS/x", false),
            ("+/monitor/Clients", "$SYS/monitor/Clients", false),
            ("$SYS/#", "$SYS/x", true),
            ("sapparchi.manager.available", "sapparchi.manager.available", true),
        ] {
            assert_eq!(filter(wanted).matches(&name(text)), matches, "{wanted} and {text}");
        }
    }

    #[test]
    fn what_cannot_be_is_refused_with_its_reason() {
        assert_eq!(TopicName::new(""), Err(BadTopic::Empty));
        assert_eq!(TopicName::new("a\0"), Err(BadTopic::Null));
        assert_eq!(TopicName::new("a/+"), Err(BadTopic::WildcardInName));
        assert_eq!(TopicName::new(&"/".repeat(LEVELS_MAX)), Err(BadTopic::TooDeep));
        assert!(TopicName::new(&"/".repeat(LEVELS_MAX - 1)).is_ok());
        assert_eq!(TopicName::new(&"a".repeat(BYTES_MAX + 1)), Err(BadTopic::TooLong));
        assert!(TopicFilter::new(&"a".repeat(BYTES_MAX)).is_ok());
        for bad in ["a#", "#/a", "a/#/b", "a+", "+a/b", "##", "a/b+/c"] {
            assert_eq!(TopicFilter::new(bad), Err(BadTopic::Wildcard), "{bad}");
        }
    }

    #[test]
    fn one_filter_covers_another_only_when_it_hears_all_of_it() {
        for (wide, narrow, covers) in [
            ("a/#", "a/+", true),
            ("a/#", "a/#", true),
            ("a/#", "a", true),
            ("a/+", "a/#", false),
            ("a/+", "a/b", true),
            ("a/+/c", "a/#", false),
            ("#", "$SYS/#", false),
            ("+/b", "a/b", true),
            ("a/b", "a/+", false),
        ] {
            assert_eq!(filter(wide).covers(&filter(narrow)), covers, "{wide} and {narrow}");
        }
    }

    proptest! {
        #[test]
        fn a_filter_matches_what_the_standard_says(filter in filters(), name in names()) {
            let wanted: Vec<_> = filter.levels().collect();
            let levels: Vec<_> = name.levels().collect();
            prop_assert_eq!(filter.matches(&name), naive(&wanted, &levels, true));
        }

        #[test]
        fn who_covers_a_filter_hears_whatever_it_hears(wide in filters(), narrow in filters(), name in names()) {
            prop_assert!(!(wide.covers(&narrow) && narrow.matches(&name)) || wide.matches(&name));
            prop_assert!(narrow.covers(&narrow));
        }
    }
}
