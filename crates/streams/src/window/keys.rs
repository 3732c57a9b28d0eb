//! Which keys there are, each with a small number, so that what is known of a key stands in plain vectors. The number of each row
//! of a batch is found in one pass over the key's column.
//!
//! Numbers say nothing about keys and their order is not seen outside: results are by key. A number that is given back is
//! given out again, the least first, so that equal histories give equal numbers.

mod packed;
mod slots;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::hash::{BuildHasher, Hasher};

use foldhash::fast::FixedState;

use self::packed::{pack, unpack};
use self::slots::Slots;
use super::Refused;
use crate::batch::{Batch, Column};
use crate::schema::Kind;
use crate::state::{Reader, Unreadable, Writer};

/// What a key takes by itself: its number, and its place among the others.
const KEY_BYTES: usize = 32;

#[derive(Clone, Debug)]
pub struct Keys {
    kept: Kept,
    /// Numbers below the length of what is kept that nobody has.
    free: BTreeSet<u32>,
    slots: Slots,
    /// Grows whenever a key comes or goes.
    changes: u64,
    /// Of those keys that are texts, or several fields.
    bytes: usize,
}

/// Keys by their number.
#[derive(Clone, Debug)]
enum Kept {
    /// No field makes the key: there is one.
    One(usize),
    /// A single int or time, or bool as 0 and 1.
    Whole(Vec<i64>),
    /// A single text; or several fields, so packed that their order is that of the bytes.
    Bytes(Vec<Box<[u8]>>),
}

impl Kept {
    fn len(&self) -> usize {
        match self {
            Kept::One(len) => *len,
            Kept::Whole(all) => all.len(),
            Kept::Bytes(all) => all.len(),
        }
    }
}

/// Called before a number that was given back is given out again.
pub type Reuse<'a> = dyn FnMut(&Keys, u32) + 'a;

impl Keys {
    /// Of fields of these kinds.
    pub fn of(kinds: &[Kind]) -> Self {
        let kept = match kinds {
            [] => Kept::One(0),
            [Kind::Int | Kind::Time | Kind::Bool] => Kept::Whole(Vec::new()),
            _ => Kept::Bytes(Vec::new()),
        };
        Self { kept, free: BTreeSet::new(), slots: Slots::default(), changes: 0, bytes: 0 }
    }

    /// One more than the greatest number ever given out.
    pub fn len(&self) -> usize {
        self.kept.len()
    }

    /// How many bytes the keys have that there are, about.
    pub fn bytes_held(&self) -> usize {
        self.bytes + self.live() * KEY_BYTES
    }

    /// How many keys there are.
    pub fn live(&self) -> usize {
        self.len() - self.free.len()
    }

    pub fn is_live(&self, number: u32) -> bool {
        (number as usize) < self.len() && !self.free.contains(&number)
    }

    /// The number of each row's key; a key that is new gets one.
    pub fn number(
        &mut self,
        batch: &Batch,
        fields: &[usize],
        most: usize,
        to: &mut Vec<u32>,
        reuse: &mut Reuse<'_>,
    ) -> Result<(), Refused> {
        to.clear();
        to.reserve(batch.rows());
        if let Kept::One(len) = &mut self.kept {
            self.changes += u64::from(*len == 0);
            *len = 1;
            to.resize(batch.rows(), 0);
            return Ok(());
        }
        let state = FixedState::default();
        if fields.len() > 1 {
            let mut packed = Vec::new();
            for row in 0..batch.rows() {
                packed.clear();
                fields.iter().for_each(|field| pack(batch.column(*field), row, &mut packed));
                to.push(self.bytes(tag_of(&state, &packed), &packed, most, reuse)?);
            }
            return Ok(());
        }
        match batch.column(fields[0]) {
            Column::Int(all) | Column::Time(all) => {
                for value in all {
                    to.push(self.whole(&state, *value, most, reuse)?);
                }
            }
            Column::Bool(all) => {
                for value in all {
                    to.push(self.whole(&state, i64::from(*value), most, reuse)?);
                }
            }
            Column::Text(all) => {
                for row in 0..all.len() {
                    let text = all.bytes_of(row);
                    to.push(self.bytes(tag_of(&state, text), text, most, reuse)?);
                }
            }
            column => unreachable!("keys of {}", column.kind()),
        }
        Ok(())
    }

    #[inline]
    fn whole(&mut self, state: &FixedState, value: i64, most: usize, reuse: &mut Reuse<'_>) -> Result<u32, Refused> {
        let tag = (state.hash_one(value) >> 32) as u32;
        let Kept::Whole(all) = &self.kept else { unreachable!("whole keys in a table of others") };
        if let Some(number) = self.slots.find(tag, |number| all[number as usize] == value) {
            return Ok(number);
        }
        let number = self.next(most, reuse)?;
        let Kept::Whole(all) = &mut self.kept else { unreachable!("whole keys in a table of others") };
        set(all, number, value);
        self.slots.insert(tag, number);
        Ok(number)
    }

    #[inline]
    fn bytes(&mut self, tag: u32, key: &[u8], most: usize, reuse: &mut Reuse<'_>) -> Result<u32, Refused> {
        let Kept::Bytes(all) = &self.kept else { unreachable!("packed keys in a table of others") };
        if let Some(number) = self.slots.find(tag, |number| &*all[number as usize] == key) {
            return Ok(number);
        }
        let number = self.next(most, reuse)?;
        let Kept::Bytes(all) = &mut self.kept else { unreachable!("packed keys in a table of others") };
        set(all, number, key.into());
        self.bytes += key.len();
        self.slots.insert(tag, number);
        Ok(number)
    }

    /// The number for a key that is new.
    #[cold]
    fn next(&mut self, most: usize, reuse: &mut Reuse<'_>) -> Result<u32, Refused> {
        if self.live() >= most {
            return Err(Refused::Keys(most));
        }
        self.changes += 1;
        if let Some(number) = self.free.first().copied() {
            reuse(self, number);
            self.free.remove(&number);
            return Ok(number);
        }
        u32::try_from(self.len()).map_err(|_| Refused::Keys(most))
    }

    /// Forgets a key.
    pub fn remove(&mut self, number: u32) {
        if !self.is_live(number) {
            return;
        }
        let state = FixedState::default();
        match &mut self.kept {
            // The one window for all stays.
            Kept::One(_) => return,
            Kept::Whole(all) => self.slots.remove((state.hash_one(all[number as usize]) >> 32) as u32, number),
            Kept::Bytes(all) => {
                let key = std::mem::take(&mut all[number as usize]);
                self.bytes -= key.len();
                self.slots.remove(tag_of(&state, &key), number);
            }
        }
        self.free.insert(number);
        self.changes += 1;
    }

    /// Another number whenever the keys are others.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// All numbers, in the order of their keys.
    pub fn sorted(&self) -> Vec<u32> {
        let mut numbers: Vec<u32> = (0..self.len() as u32).filter(|number| !self.free.contains(number)).collect();
        match &self.kept {
            Kept::One(_) => {}
            Kept::Whole(all) => numbers.sort_unstable_by_key(|number| all[*number as usize]),
            Kept::Bytes(all) => numbers.sort_unstable_by(|a, b| all[*a as usize].cmp(&all[*b as usize])),
        }
        numbers
    }

    /// Puts the fields of a key at the end of their columns.
    pub fn read(&self, number: u32, to: &mut [Column]) {
        match (&self.kept, to) {
            (Kept::One(_), _) => {}
            (Kept::Whole(all), [Column::Int(to) | Column::Time(to)]) => to.push(all[number as usize]),
            (Kept::Whole(all), [Column::Bool(to)]) => to.push(all[number as usize] != 0),
            (Kept::Bytes(all), [Column::Text(to)]) => to.push(&String::from_utf8_lossy(&all[number as usize])),
            (Kept::Bytes(all), to) => {
                let mut rest = &*all[number as usize];
                to.iter_mut().for_each(|column| unpack(&mut rest, column));
            }
            (_, to) => unreachable!("a key of {} columns", to.len()),
        }
    }

    pub fn store(&self, number: usize, to: &mut Writer) {
        let live = !self.free.contains(&(number as u32));
        to.u8(u8::from(live));
        match &self.kept {
            Kept::Whole(all) if live => to.i64(all[number]),
            Kept::Bytes(all) if live => to.bytes(&all[number]),
            _ => {}
        }
    }

    /// The next key; whether there is one of that number.
    pub fn load(&mut self, from: &mut Reader<'_>) -> Result<bool, Unreadable> {
        let (number, live) = (self.len() as u32, from.u8()? == 1);
        let state = FixedState::default();
        match &mut self.kept {
            Kept::One(len) => *len += 1,
            Kept::Whole(all) if live => {
                let value = from.i64()?;
                self.slots.insert((state.hash_one(value) >> 32) as u32, number);
                all.push(value);
            }
            Kept::Bytes(all) if live => {
                let key = from.bytes()?;
                self.bytes += key.len();
                self.slots.insert(tag_of(&state, key), number);
                all.push(key.into());
            }
            Kept::Whole(all) => all.push(0),
            Kept::Bytes(all) => all.push(Box::default()),
        }
        if !live {
            self.free.insert(number);
        }
        Ok(live)
    }
}

fn set<T>(all: &mut Vec<T>, number: u32, value: T) {
    match all.get_mut(number as usize) {
        Some(place) => *place = value,
        None => all.push(value),
    }
}

fn tag_of(state: &FixedState, bytes: &[u8]) -> u32 {
    let mut hasher = state.build_hasher();
    hasher.write(bytes);
    (hasher.finish() >> 32) as u32
}
