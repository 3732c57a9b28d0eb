//! The keys of sliding windows, and what is in the window of each.

use std::collections::VecDeque;

use super::Refused;
use super::keys::Keys;
use super::table::Layout;
use crate::aggregate::slide::{Plan, Slide};
use crate::batch::Batch;
use crate::state::{Reader, Saver, Unreadable, Writer};

#[derive(Debug)]
pub struct Slides {
    pub keys: Keys,
    pub groups: Vec<Group>,
    pub plan: Plan,
    saver: Option<Saver>,
}

#[derive(Clone, Debug)]
pub struct Group {
    pub slide: Slide,
    /// Of the events that are in, where the window is by time.
    pub times: VecDeque<i64>,
    /// Events that are not in yet.
    pub waiting: u64,
}

impl Group {
    fn of(plan: &Plan) -> Self {
        Self { slide: Slide::of(plan), times: VecDeque::new(), waiting: 0 }
    }
}

impl Slides {
    pub fn of(layout: &Layout, plan: Plan) -> Self {
        Self { keys: layout.keys(), groups: Vec::new(), plan, saver: None }
    }

    /// The number of each row's key, with a group for it that may be changed.
    pub fn number(&mut self, layout: &Layout, batch: &Batch, to: &mut Vec<u32>) -> Result<(), Refused> {
        let Slides { keys, groups, plan, saver } = self;
        let mut reuse = |keys: &Keys, number: u32| {
            if let Some(saver) = saver {
                saver.before(number, &|number, to| store(keys, groups, number, to));
            }
        };
        keys.number(batch, &layout.grouping.keys, layout.grouping.limits.keys_max, to, &mut reuse)?;
        groups.resize_with(keys.len().max(groups.len()), || Group::of(plan));
        to.iter().for_each(|key| self.touch(*key));
        Ok(())
    }

    /// What is held of the events that are in.
    pub fn bytes(&self) -> usize {
        self.groups.iter().map(|group| group.slide.bytes()).sum()
    }

    /// To be called before a group changes.
    pub fn touch(&mut self, key: u32) {
        let Slides { keys, groups, saver, .. } = self;
        if let Some(saver) = saver {
            saver.before(key, &|number, to| store(keys, groups, number, to));
        }
    }

    /// Forgets a key, which was touched.
    pub fn remove(&mut self, key: u32) {
        self.keys.remove(key);
        self.groups[key as usize] = Group::of(&self.plan);
    }

    pub fn begin(&mut self) {
        self.saver = Some(Saver::of(self.keys.len()));
    }

    /// Writes about so many keys of the snapshot; all pieces of it, once nothing is left.
    pub fn advance(&mut self, keys_at_once: usize) -> Option<Vec<Vec<u8>>> {
        let Slides { keys, groups, saver, .. } = self;
        let write = |number: usize, to: &mut Writer| store(keys, groups, number, to);
        if !saver.as_mut()?.advance(keys_at_once, &write) {
            return None;
        }
        saver.take().map(|saver| saver.finish(&write))
    }

    pub fn load(layout: &Layout, plan: Plan, from: &mut Reader<'_>) -> Result<Self, Unreadable> {
        let mut slides = Slides::of(layout, plan);
        for _ in 0..from.u64()? {
            let mut group = Group::of(&slides.plan);
            if slides.keys.load(from)? {
                group.waiting = from.u64()?;
                let times = from.count()?;
                group.times = (0..times).map(|_| from.i64()).collect::<Result<_, _>>()?;
                group.slide = Slide::load(&slides.plan, from)?;
            }
            slides.groups.push(group);
        }
        Ok(slides)
    }
}

fn store(keys: &Keys, groups: &[Group], number: usize, to: &mut Writer) {
    keys.store(number, to);
    if keys.is_live(number as u32) {
        let Group { slide, times, waiting } = &groups[number];
        to.u64(*waiting);
        to.count(times.len());
        times.iter().for_each(|time| to.i64(*time));
        slide.store(to);
    }
}
