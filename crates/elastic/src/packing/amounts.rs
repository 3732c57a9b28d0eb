//! Quantities of any number of resources. Cpu is in millicores and memory in bytes; the rest is in units of its own (gpus,
//! licences, …). A resource that is not named is there in no quantity, and needed in none.

use std::collections::BTreeMap;

use mutirao_core::quantity::{Bytes, Cpus};
use serde::{Deserialize, Serialize};

pub const CPU_MILLI: &str = "cpu_milli";
pub const MEMORY_BYTES: &str = "memory_bytes";

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Amounts(BTreeMap<String, u64>);

impl Amounts {
    pub fn of(cpus: Cpus, memory: Bytes) -> Self {
        Self::default().and(CPU_MILLI, u64::from(cpus.milli)).and(MEMORY_BYTES, memory.0)
    }

    pub fn and(mut self, resource: &str, amount: u64) -> Self {
        self.0.insert(resource.into(), amount);
        self
    }

    pub fn get(&self, resource: &str) -> u64 {
        self.0.get(resource).copied().unwrap_or(0)
    }

    pub fn is_nothing(&self) -> bool {
        self.0.values().all(|amount| *amount == 0)
    }

    pub fn fits_in(&self, free: &Amounts) -> bool {
        self.first_beyond(free).is_none()
    }

    /// The first resource of which there is too little: its name, what is asked and what there is.
    pub fn first_beyond(&self, free: &Amounts) -> Option<(&str, u64, u64)> {
        let beyond = self.0.iter().find(|(resource, asked)| **asked > free.get(resource));
        beyond.map(|(resource, asked)| (resource.as_str(), *asked, free.get(resource)))
    }

    /// How often this fits into an empty node.
    pub fn times_in(&self, capacity: &Amounts) -> u64 {
        let asked = self.0.iter().filter(|(_, amount)| **amount > 0);
        asked.map(|(resource, amount)| capacity.get(resource) / amount).min().unwrap_or(u64::MAX)
    }

    pub fn plus(&self, other: &Amounts) -> Amounts {
        self.merged(other, u64::saturating_add)
    }

    /// Nothing rather than less than nothing: a node may be fuller than it should be.
    pub fn minus(&self, other: &Amounts) -> Amounts {
        self.merged(other, u64::saturating_sub)
    }

    pub fn max(&self, other: &Amounts) -> Amounts {
        self.merged(other, u64::max)
    }

    fn merged(&self, other: &Amounts, with: fn(u64, u64) -> u64) -> Amounts {
        let names = self.0.keys().chain(other.0.keys());
        Amounts(names.map(|name| (name.clone(), with(self.get(name), other.get(name)))).collect())
    }

    /// Of the whole, the share of the resource that is needed most, in millionths.
    pub fn share_largest_ppm(&self, whole: &Amounts) -> u128 {
        self.shares_ppm(whole).max().unwrap_or(0)
    }

    pub fn share_sum_ppm(&self, whole: &Amounts) -> u128 {
        self.shares_ppm(whole).sum()
    }

    fn shares_ppm(&self, whole: &Amounts) -> impl Iterator<Item = u128> {
        self.0.iter().map(|(name, amount)| u128::from(*amount) * 1_000_000 / u128::from(whole.get(name).max(1)))
    }
}

/// Two amounts of the same, as people read them, and what they are of.
pub fn beside(resource: &str, one: u64, another: u64) -> (String, String, &str) {
    if resource == MEMORY_BYTES {
        let (one, another) = Bytes(one).beside(Bytes(another));
        return (one, another, "of memory");
    }
    let ((one, unit), (another, _)) = (said(resource, one), said(resource, another));
    (one, another, unit)
}

/// As people write it: the amount, and what it is of.
pub fn said(resource: &str, amount: u64) -> (String, &str) {
    match resource {
        CPU_MILLI => (Cpus { milli: u32::try_from(amount).unwrap_or(u32::MAX) }.to_string(), "cpus"),
        MEMORY_BYTES => (Bytes(amount).to_string(), "of memory"),
        other => (amount.to_string(), other),
    }
}
