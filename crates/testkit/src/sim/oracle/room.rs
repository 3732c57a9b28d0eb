//! No more gathers at an owner than its budget and what one thing that happens adds to it.

use mutirao_jobs::foreman::Budget;

/// Words that an owner finds it has to say by itself while it takes nothing in.
const OF_ITS_OWN: usize = 4;

#[derive(Default)]
pub struct RoomBooks {
    /// The most that one thing has added.
    growth_max: usize,
}

impl RoomBooks {
    pub fn grew(&mut self, by: usize) {
        self.growth_max = self.growth_max.max(by);
    }

    /// What is wrong with so much, if something is.
    pub fn gathered(&self, gathered: usize, budget: Budget) -> Option<String> {
        let most = budget.items_max + self.growth_max + OF_ITS_OWN;
        (gathered > most).then(|| format!("{gathered} things gather where {} may", budget.items_max))
    }
}
