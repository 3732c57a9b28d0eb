//! How many connections each address has. One address must not take all places, least of all with connections that
//! nobody has let in yet.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::limits::Limits;

#[derive(Clone, Copy, Debug, Default)]
struct Count {
    all: usize,
    strangers: usize,
}

#[derive(Debug, Default)]
pub struct Addresses(Mutex<HashMap<IpAddr, Count>>);

/// A connection's place, given back when it is dropped.
#[derive(Debug)]
pub struct Place {
    addresses: Arc<Addresses>,
    address: IpAddr,
    stranger: bool,
}

impl Addresses {
    /// None: this address has as many as it may.
    pub fn enter(self: &Arc<Self>, address: IpAddr, limits: &Limits) -> Option<Place> {
        let address = address.to_canonical();
        let mut counts = self.0.lock();
        let count = counts.entry(address).or_default();
        if count.all >= limits.connections_per_address_max || count.strangers >= limits.strangers_per_address_max {
            return None;
        }
        count.all += 1;
        count.strangers += 1;
        Some(Place { addresses: self.clone(), address, stranger: true })
    }
}

impl Place {
    /// It was let in.
    pub fn known(&mut self) {
        if std::mem::take(&mut self.stranger)
            && let Some(count) = self.addresses.0.lock().get_mut(&self.address)
        {
            count.strangers -= 1;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.known();
        let mut counts = self.addresses.0.lock();
        if let Some(count) = counts.get_mut(&self.address) {
            count.all -= 1;
            if count.all == 0 {
                counts.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_leaves_room_for_others_and_gets_its_own_back() {
        let limits = Limits { connections_per_address_max: 3, strangers_per_address_max: 2, ..Limits::default() };
        let addresses = Arc::new(Addresses::default());
        let enter = |text: &str| addresses.enter(text.parse().unwrap(), &limits);
        let (mut first, second) = (enter("10.0.0.1").unwrap(), enter("::ffff:10.0.0.1").unwrap());
        assert!(enter("10.0.0.1").is_none(), "two that nobody let in yet");
        assert!(enter("10.0.0.2").is_some());
        first.known();
        let third = enter("10.0.0.1").unwrap();
        drop(second);
        let fourth = enter("10.0.0.1").unwrap();
        assert!(enter("10.0.0.1").is_none(), "three in all");
        drop((first, third, fourth));
        assert!(addresses.0.lock().is_empty());
    }
}
