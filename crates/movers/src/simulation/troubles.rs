//! What the document did not try: noise alone, a host that gets slow, states that are large, a host that is lost, a hundred hosts.
//! Operators of two replicas, two thirds of what the hosts can do unless said otherwise, moved live.

use mutirao_core::Dice;

use super::chapter::{Kind, SERVICE_S, STATE_BYTES, Thirteen};
use super::load::Load;
use super::setup::{HostSetup, Moving, Noise, OperatorSetup, Setup};

const QUIET: Noise = Noise { service: 0.2, measures: 0.02, hiccups: 0.03, hiccup_s: 0.1, messages: 0.0 };

/// Thirteen operators on six hosts, each at the same steady rate.
fn steady(rate: f64) -> Setup {
    let chapter = super::chapter::setup(Kind::Stable, Thirteen::BeginsLow, Moving::live());
    let operators = chapter.operators.iter().map(|one| OperatorSetup { load: Load::steady(rate), ..one.clone() });
    Setup { operators: operators.collect(), noise: QUIET, ..chapter }
}

/// Replicas that stop for up to 400 ms in a tenth of all seconds, measures off by a tenth, messages that are lost, late, doubled.
pub fn noise_only() -> Setup {
    let noise = Noise { service: 0.5, measures: 0.1, hiccups: 0.1, hiccup_s: 0.2, messages: 0.05 };
    Setup { noise, ..steady(300.0) }
}

/// At 120 s everything begins to take three times as long on one host.
pub fn slow_host() -> Setup {
    let mut setup = steady(250.0);
    setup.hosts[3].slow = Some((120.0, 3.0));
    setup
}

/// Chapter 4's load, where every other operator remembers 5 GB.
pub fn large_states() -> Setup {
    let mut setup = super::chapter::setup(Kind::Varied, Thirteen::BeginsLow, Moving::live());
    setup.hosts.iter_mut().for_each(|host| host.memory_bytes = 64e9);
    setup.operators.iter_mut().step_by(2).for_each(|operator| operator.state_bytes = 5e9);
    setup
}

/// One host of six is gone at 200 s; the others have just about enough.
pub fn lost_host() -> Setup {
    let mut setup = steady(330.0);
    setup.hosts[4].lost_s = Some(200.0);
    setup
}

/// A hundred hosts, 215 operators, periods high and low by chance; five minutes.
pub fn hundred_hosts(seed: u64) -> Setup {
    let dice = Dice::seeded(seed ^ 0x100);
    let hosts = 100;
    let operator = |number: usize| {
        let periods = (0..5).map(|_| dice.below(2) == 0).collect();
        let first = number * 2 % hosts;
        // Every seventh shares a host that has its share already.
        let second = if number.is_multiple_of(7) { (first + 2) % hosts } else { (first + 1) % hosts };
        OperatorSetup {
            load: Load { low: 75.0, high: 575.0, period_s: 60.0, ramp_s: 20.0, periods },
            hosts: vec![first, second],
            service_s: SERVICE_S,
            threads: 2,
            state_bytes: STATE_BYTES,
        }
    };
    Setup {
        hosts: vec![HostSetup { cores: 4, memory_bytes: 4e9, slow: None, lost_s: None }; hosts],
        operators: (0..215).map(operator).collect(),
        seconds: 300,
        noise: QUIET,
        ..steady(0.0)
    }
}
