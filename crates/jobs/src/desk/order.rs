//! In which order the jobs of a queue are served. Whose turn it is takes one look, and so many steps more to go on as a
//! balanced tree of the jobs, or of those who share, is high: a million waiting tasks cost what a thousand do.
//!
//! Every job is in one account. First come first served and priority have a single one; a fair share has one for each owner
//! or label. Accounts go by what they used lately ([`super::usage`]), least first, among equals those who have waited
//! longest. Whoever comes anew begins with a little used, and what is used later is written larger: so somebody who
//! waits has, after so many half-lives as what it used can be halved, nobody before it who came later than that.
//! Within an account jobs go by priority (but for first come first served), then as they came.
//!
//! Usage is the owner's own: a next owner of the queue begins with even accounts.

pub mod steps;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use mutirao_core::Mono;
use mutirao_core::id::JobKey;
use mutirao_core::quantity::Cpus;
use mutirao_queues::{By, FairShare, Policy};

use super::usage::{Fading, Spent, Usage};
use steps::Step;

/// Accounts remembered, of which nothing waits and nothing is out, before all such are forgotten.
const ACCOUNTS_MAX: usize = 10_000;

/// What decides about a job's place, whatever the policy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rank {
    pub priority: i32,
    pub owner: String,
    pub labels: BTreeMap<String, String>,
}

/// A job's place within its account.
type Spot = Step<(Reverse<i32>, JobKey)>;
type Name = Arc<str>;

#[derive(Default)]
struct Account {
    jobs: BTreeSet<Spot>,
    usage: Usage,
    weight: u32,
    /// Since when it waits for its turn.
    since: Mono,
}

impl Account {
    fn is_idle(&self) -> bool {
        self.jobs.is_empty() && !self.usage.is_out()
    }
}

/// Jobs that may have a task to hand out.
pub struct Order {
    policy: Policy,
    fading: Fading,
    accounts: HashMap<Name, Account>,
    places: HashMap<JobKey, (Name, Spot)>,
    /// Accounts with jobs, by what they used, those who wait longest first among equals.
    by_usage: BTreeSet<Step<(u64, Mono, Name)>>,
    now: Mono,
    /// So many accounts, and those that are idle are forgotten.
    crowded_at: usize,
}

impl Default for Order {
    fn default() -> Self {
        Self::new(Policy::default(), Mono::default())
    }
}

impl Order {
    pub fn new(policy: Policy, now: Mono) -> Self {
        let half_life = match &policy {
            Policy::FairShare(fair) => fair.half_life,
            Policy::Fifo | Policy::Priority => FairShare::half_life(),
        };
        Self {
            policy,
            fading: Fading::new(half_life.0, now),
            accounts: HashMap::new(),
            places: HashMap::new(),
            by_usage: BTreeSet::new(),
            now,
            crowded_at: ACCOUNTS_MAX,
        }
    }

    /// The same jobs in the order of another policy. What was used stays, where the same people share.
    pub fn change<'a>(&mut self, policy: Policy, rank_of: impl Fn(JobKey) -> Option<&'a Rank>) {
        if policy == self.policy {
            return;
        }
        let before = std::mem::replace(self, Self::new(policy, self.now));
        if let (Policy::FairShare(now), Policy::FairShare(then)) = (&self.policy, &before.policy)
            && now.by == then.by
        {
            let shrink = 1.0 / before.fading.factor(self.now);
            for (name, mut account) in before.accounts {
                account.usage.rescale(shrink);
                let weight = self.weight_of(&name);
                self.accounts.insert(name, Account { usage: account.usage, weight, ..Account::default() });
            }
        }
        let mut jobs: Vec<JobKey> = before.places.into_keys().collect();
        jobs.sort_unstable();
        for job in jobs {
            if let Some(rank) = rank_of(job) {
                self.enter(job, rank);
            }
        }
    }

    /// Time passes.
    pub fn pass(&mut self, now: Mono) {
        self.now = self.now.max(now);
        if !self.is_shared() || !self.fading.is_worn(self.now) {
            return;
        }
        let shrink = 1.0 / self.fading.factor(self.now);
        self.fading = Fading::new(self.fading.half_life(), self.now);
        self.by_usage.clear();
        for (name, account) in &mut self.accounts {
            account.usage.rescale(shrink);
            if !account.jobs.is_empty() {
                self.by_usage.insert(Step((account.usage.place(account.weight), account.since, name.clone())));
            }
        }
    }

    pub fn enter(&mut self, job: JobKey, rank: &Rank) {
        if self.places.contains_key(&job) {
            return;
        }
        let name = self.open_account(rank);
        let priority = if self.policy == Policy::Fifo { 0 } else { rank.priority };
        let spot = Step((Reverse(priority), job));
        let (since, factor) = (self.now, self.fading.factor(self.now));
        self.places.insert(job, (name.clone(), spot.clone()));
        let Some(account) = self.accounts.get_mut(&name) else { return };
        if account.jobs.is_empty() {
            account.since = since;
            account.usage.came_in(account.weight, factor);
            self.by_usage.insert(Step((account.usage.place(account.weight), since, name)));
        }
        account.jobs.insert(spot);
    }

    pub fn leave(&mut self, job: JobKey) {
        let Some((name, spot)) = self.places.remove(&job) else { return };
        let Some(account) = self.accounts.get_mut(&name) else { return };
        account.jobs.remove(&spot);
        if account.jobs.is_empty() {
            self.by_usage.remove(&Step((account.usage.place(account.weight), account.since, name)));
        }
    }

    /// Whose turn it is.
    pub fn first(&self) -> Option<JobKey> {
        let Step((_, _, least)) = self.by_usage.first()?;
        self.accounts.get(least)?.jobs.first().map(|Step((_, job))| *job)
    }

    pub fn is_empty(&self) -> bool {
        self.by_usage.is_empty()
    }

    /// Whether it matters who is served how much, so that turns must be short.
    pub fn is_shared(&self) -> bool {
        matches!(self.policy, Policy::FairShare(_))
    }

    /// Jobs in line that go before this one: in a fair share, those of its own account.
    pub fn ahead(&self, job: JobKey) -> impl Iterator<Item = JobKey> + '_ {
        let place = self.places.get(&job);
        let account = place.and_then(|(name, spot)| Some((self.accounts.get(name)?, spot.clone())));
        account.into_iter().flat_map(|(account, spot)| account.jobs.range(..spot).map(|Step((_, job))| *job))
    }

    /// Tasks of a job in line were handed out together.
    pub fn handed_out(&mut self, job: JobKey, tasks: usize, cpus: Cpus) {
        if tasks == 0 || !self.is_shared() {
            return;
        }
        let Some((name, _)) = self.places.get(&job) else { return };
        let (name, now, factor) = (name.clone(), self.now, self.fading.factor(self.now));
        self.charge(&name, |account| {
            account.since = now;
            account.usage.handed_out(tasks as u32, cpus, factor);
        });
    }

    /// A task is out that an earlier owner had handed out.
    pub fn adopted(&mut self, rank: &Rank, cpus: Cpus) {
        if self.is_shared() {
            let (name, factor) = (self.open_account(rank), self.fading.factor(self.now));
            self.charge(&name, |account| account.usage.handed_out(1, cpus, factor));
        }
    }

    pub fn came_back(&mut self, rank: &Rank, cpus: Cpus, spent: Spent) {
        if self.is_shared() {
            let (name, factor) = (self.open_account(rank), self.fading.factor(self.now));
            self.charge(&name, |account| account.usage.came_back(cpus, spent, factor));
        }
    }

    /// Changes an account and puts it in its new place.
    fn charge(&mut self, name: &Name, change: impl FnOnce(&mut Account)) {
        let Some(account) = self.accounts.get_mut(name) else { return };
        let (place, since) = (account.usage.place(account.weight), account.since);
        change(account);
        if !account.jobs.is_empty() {
            self.by_usage.remove(&Step((place, since, name.clone())));
            self.by_usage.insert(Step((account.usage.place(account.weight), account.since, name.clone())));
        }
    }

    fn open_account(&mut self, rank: &Rank) -> Name {
        let name = match &self.policy {
            Policy::Fifo | Policy::Priority => "",
            Policy::FairShare(FairShare { by: By::Owner, .. }) => &rank.owner,
            Policy::FairShare(FairShare { by: By::Label(label), .. }) => {
                rank.labels.get(label).map_or("", String::as_str)
            }
        };
        if let Some((known, _)) = self.accounts.get_key_value(name) {
            return known.clone();
        }
        if self.accounts.len() >= self.crowded_at {
            self.accounts.retain(|_, account| !account.is_idle());
            // Where all are busy, looking again at once would be in vain.
            self.crowded_at = ACCOUNTS_MAX.max(self.accounts.len() * 2);
        }
        let name: Name = name.into();
        let weight = self.weight_of(&name);
        self.accounts.insert(name.clone(), Account { weight, ..Account::default() });
        name
    }

    fn weight_of(&self, name: &str) -> u32 {
        match &self.policy {
            Policy::FairShare(fair) => fair.shares.get(name).copied().unwrap_or(1),
            Policy::Fifo | Policy::Priority => 1,
        }
    }
}

#[cfg(test)]
mod tests;
