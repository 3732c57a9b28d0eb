//! Free TCP ports. Taken from below the range that the kernel gives to outgoing connections, so that a service which
//! was killed finds its port still free when it comes back.
//!
//! A port is free when we look; nothing keeps it so. Whoever uses one starts again with others when it was snatched.

use std::net::{Ipv4Addr, TcpListener};

use mutirao_core::Dice;

/// No service is known to live here.
const FIRST: u64 = 28_100;
const COUNT: u64 = 4_600;
const LOOKS_MAX: usize = 1_000;

/// `N` different ports on which nobody listens on loopback.
pub fn free<const N: usize>(dice: &Dice) -> anyhow::Result<[u16; N]> {
    let mut held = Vec::with_capacity(N);
    for _ in 0..LOOKS_MAX {
        if held.len() == N {
            break;
        }
        let port = (FIRST + dice.below(COUNT)) as u16;
        // Held until all are found: the second must differ from the first.
        held.extend(TcpListener::bind((Ipv4Addr::LOCALHOST, port)));
    }
    let ports: Vec<u16> = held.iter().filter_map(|l| Some(l.local_addr().ok()?.port())).collect();
    ports.try_into().map_err(|found: Vec<u16>| anyhow::anyhow!("only {} of {N} ports are free", found.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_taken_port_is_not_given() {
        let [taken] = free(&Dice::seeded(1)).unwrap();
        // A process that another test is just starting holds our sockets until its exec, and so the port.
        let bind = || TcpListener::bind((Ipv4Addr::LOCALHOST, taken)).ok();
        let _holder = crate::wait::some("the port to be free", std::time::Duration::from_secs(5), bind);
        // The same seed draws the same port first.
        let [other] = free(&Dice::seeded(1)).unwrap();
        assert_ne!(taken, other);
    }
}
