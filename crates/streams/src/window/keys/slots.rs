//! Where the number of a key is found by its hash.

const SLOTS_MIN: usize = 16;

/// Open addressing: a slot is the number plus one below 32 bits of the hash, so that most strangers are told apart without a look at
/// their key; at most half of the slots are taken.
#[derive(Clone, Debug)]
pub struct Slots {
    slots: Vec<u64>,
    taken: usize,
}

impl Default for Slots {
    fn default() -> Self {
        Self { slots: vec![0; SLOTS_MIN], taken: 0 }
    }
}

impl Slots {
    #[inline]
    pub fn find(&self, tag: u32, same: impl Fn(u32) -> bool) -> Option<u32> {
        let mask = self.slots.len() - 1;
        let mut at = tag as usize & mask;
        loop {
            let slot = self.slots[at & mask];
            if slot == 0 {
                return None;
            }
            if (slot >> 32) as u32 == tag && same(slot as u32 - 1) {
                return Some(slot as u32 - 1);
            }
            at = (at + 1) & mask;
        }
    }

    pub fn insert(&mut self, tag: u32, number: u32) {
        if (self.taken + 1) * 2 > self.slots.len() {
            let twice = vec![0; self.slots.len() * 2];
            let before = std::mem::replace(&mut self.slots, twice);
            before.into_iter().filter(|slot| *slot != 0).for_each(|slot| self.place(slot));
        }
        self.place(u64::from(tag) << 32 | u64::from(number + 1));
        self.taken += 1;
    }

    fn place(&mut self, slot: u64) {
        let mask = self.slots.len() - 1;
        let mut at = (slot >> 32) as usize & mask;
        while self.slots[at] != 0 {
            at = (at + 1) & mask;
        }
        self.slots[at] = slot;
    }

    /// Those behind move up, so that nobody is looked for behind an empty slot.
    pub fn remove(&mut self, tag: u32, number: u32) {
        let mask = self.slots.len() - 1;
        let slot = u64::from(tag) << 32 | u64::from(number + 1);
        let mut hole = tag as usize & mask;
        while self.slots[hole] != slot {
            if self.slots[hole] == 0 {
                return;
            }
            hole = (hole + 1) & mask;
        }
        let mut at = hole;
        loop {
            at = (at + 1) & mask;
            let next = self.slots[at];
            if next == 0 {
                break;
            }
            // It may move up to the hole if its own place is not between the two.
            let home = (next >> 32) as usize & mask;
            if (at.wrapping_sub(home) & mask) >= (at.wrapping_sub(hole) & mask) {
                self.slots[hole] = next;
                hole = at;
            }
        }
        self.slots[hole] = 0;
        self.taken -= 1;
    }
}
