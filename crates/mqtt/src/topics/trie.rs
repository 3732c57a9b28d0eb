//! A tree of levels that finds, for a name, every filter that matches it, and for a filter every name that it matches,
//! by walking down it once. A level has at most three ways on, so that a walk costs the depth of the name and the number
//! of wildcards on its way, however many filters there are.

use std::collections::HashMap;

use super::{TopicFilter, TopicName};

/// Values under filters (who subscribed) or under names (what is retained). A place without values and ways is taken away.
#[derive(Debug)]
pub struct Trie<V> {
    root: Level<V>,
    len: usize,
}

#[derive(Debug)]
struct Level<V> {
    value: Option<V>,
    below: HashMap<Box<str>, Level<V>>,
}

impl<V> Default for Level<V> {
    fn default() -> Self {
        Self { value: None, below: HashMap::new() }
    }
}

impl<V> Default for Trie<V> {
    fn default() -> Self {
        Self { root: Level::default(), len: 0 }
    }
}

impl<V> Trie<V> {
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn get<'a>(&self, levels: impl Iterator<Item = &'a str>) -> Option<&V> {
        let mut at = &self.root;
        for level in levels {
            at = at.below.get(level)?;
        }
        at.value.as_ref()
    }

    /// The value there, made when there is none.
    pub fn entry<'a>(&mut self, levels: impl Iterator<Item = &'a str>, make: impl FnOnce() -> V) -> &mut V {
        let mut at = &mut self.root;
        for level in levels {
            if !at.below.contains_key(level) {
                at.below.insert(level.into(), Level::default());
            }
            at = at.below.get_mut(level).expect("it was just put there");
        }
        if at.value.is_none() {
            self.len += 1;
        }
        at.value.get_or_insert_with(make)
    }

    /// Changes the value there; it is taken away when `stays` says no.
    pub fn change<'a>(
        &mut self,
        levels: impl Iterator<Item = &'a str>,
        stays: impl FnOnce(&mut V) -> bool,
    ) -> Option<V> {
        let gone = self.root.change(levels, stays);
        self.len -= usize::from(gone.is_some());
        gone
    }

    /// The values of every filter that matches `name`.
    pub fn who_match<'a>(&'a self, name: &TopicName, mut found: impl FnMut(&'a V)) {
        let levels: Vec<_> = name.levels().collect();
        self.root.who_match(&levels, name.is_the_servers(), &mut found);
    }

    /// The values of every name that matches `filter`, as far as `steps` go: each level that is looked at costs one.
    pub fn matched_by<'a>(&'a self, filter: &TopicFilter, steps: &mut usize, mut found: impl FnMut(&'a V)) {
        let levels: Vec<_> = filter.levels().collect();
        self.root.matched_by(&levels, Whole::Yes, steps, &mut found);
    }
}

/// Does a wildcard here stand for the first level, where it does not reach the server's own?
#[derive(Clone, Copy, PartialEq)]
enum Whole {
    Yes,
    No,
}

impl<V> Level<V> {
    fn change<'a>(
        &mut self,
        mut levels: impl Iterator<Item = &'a str>,
        stays: impl FnOnce(&mut V) -> bool,
    ) -> Option<V> {
        let Some(level) = levels.next() else {
            return if self.value.as_mut().is_some_and(|value| !stays(value)) { self.value.take() } else { None };
        };
        let next = self.below.get_mut(level)?;
        let gone = next.change(levels, stays);
        if next.value.is_none() && next.below.is_empty() {
            self.below.remove(level);
        }
        gone
    }

    fn who_match<'a>(&'a self, levels: &[&str], servers_own: bool, found: &mut impl FnMut(&'a V)) {
        if !servers_own && let Some(rest) = self.below.get("#") {
            rest.value.iter().for_each(&mut *found);
        }
        let Some((level, further)) = levels.split_first() else {
            self.value.iter().for_each(found);
            return;
        };
        if let Some(next) = self.below.get(*level) {
            next.who_match(further, false, found);
        }
        if !servers_own && let Some(next) = self.below.get("+") {
            next.who_match(further, false, found);
        }
    }

    fn matched_by<'a>(&'a self, levels: &[&str], whole: Whole, steps: &mut usize, found: &mut impl FnMut(&'a V)) {
        let Some(left) = steps.checked_sub(1) else { return };
        *steps = left;
        match levels.split_first() {
            None => self.value.iter().for_each(found),
            Some((&"#", _)) => self.all(whole, steps, found),
            Some((&"+", further)) => {
                for (_, next) in self.reached(whole).take(left) {
                    next.matched_by(further, Whole::No, steps, found);
                }
            }
            Some((level, further)) => {
                if let Some(next) = self.below.get(*level) {
                    next.matched_by(further, Whole::No, steps, found);
                }
            }
        }
    }

    fn all<'a>(&'a self, whole: Whole, steps: &mut usize, found: &mut impl FnMut(&'a V)) {
        self.value.iter().for_each(&mut *found);
        for (_, next) in self.reached(whole) {
            let Some(left) = steps.checked_sub(1) else { return };
            *steps = left;
            next.all(Whole::No, steps, found);
        }
    }

    fn reached(&self, whole: Whole) -> impl Iterator<Item = (&Box<str>, &Level<V>)> {
        self.below.iter().filter(move |(level, _)| whole == Whole::No || !level.starts_with('$'))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{filters, names};
    use super::*;
    use proptest::prelude::*;

    fn sorted(mut found: Vec<usize>) -> Vec<usize> {
        found.sort_unstable();
        found.dedup();
        found
    }

    proptest! {
        #[test]
        fn a_walk_finds_the_filters_that_match_one_by_one(
            all in proptest::collection::vec(filters(), 0..30),
            gone in proptest::collection::vec(any::<bool>(), 30),
            name in names(),
        ) {
            let mut trie = Trie::<Vec<usize>>::default();
            for (at, filter) in all.iter().enumerate() {
                trie.entry(filter.levels(), Vec::new).push(at);
            }
            for (at, filter) in all.iter().enumerate().filter(|(at, _)| gone[*at]) {
                trie.change(filter.levels(), |there| { there.retain(|one| *one != at); !there.is_empty() });
            }
            let mut found = vec![];
            trie.who_match(&name, |there| found.extend(there));
            let naive = (0..all.len()).filter(|at| !gone[*at] && all[*at].matches(&name)).collect::<Vec<_>>();
            prop_assert_eq!(sorted(found), naive);
            let kept = (0..all.len()).filter(|at| !gone[*at]).map(|at| &all[at]).collect::<std::collections::HashSet<_>>();
            prop_assert_eq!(trie.len(), kept.len());
            if kept.is_empty() {
                prop_assert!(trie.root.below.is_empty(), "places without values stay");
            }
        }

        #[test]
        fn a_walk_finds_the_names_that_a_filter_matches(
            all in proptest::collection::vec(names(), 0..30),
            filter in filters(),
        ) {
            let mut trie = Trie::<usize>::default();
            let mut first = std::collections::HashMap::new();
            for (at, name) in all.iter().enumerate() {
                trie.entry(name.levels(), || at);
                first.entry(name.clone()).or_insert(at);
            }
            let mut found = vec![];
            trie.matched_by(&filter, &mut 100_000, |at| found.push(*at));
            let naive = first.iter().filter(|(name, _)| filter.matches(name)).map(|(_, at)| *at).collect();
            prop_assert_eq!(sorted(found), sorted(naive));
        }
    }
}
