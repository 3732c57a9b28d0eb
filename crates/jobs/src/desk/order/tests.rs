//! Whatever comes and goes: the order is kept, shares become what they should be, nobody is forgotten.

use std::time::Duration;

use mutirao_core::Dice;
use mutirao_core::quantity::Span;
use proptest::prelude::*;

use super::*;

fn rank(priority: i32, owner: &str) -> Rank {
    Rank { priority, owner: owner.into(), labels: BTreeMap::new() }
}

fn fair(half_life: Span, shares: &[(&str, u32)]) -> Policy {
    let shares = shares.iter().map(|(who, weight)| ((*who).to_owned(), *weight)).collect();
    Policy::FairShare(FairShare { by: By::Owner, half_life, shares })
}

fn at(s: f64) -> Mono {
    Mono(Duration::from_secs_f64(s))
}

proptest! {
    /// Jobs come and go at random; whose turn it is, is always whom a plain sort would name.
    #[test]
    fn the_first_is_the_highest_and_among_equals_the_earliest(
        moves in prop::collection::vec((0u64..40, -3i32..3, any::<bool>()), 1..200),
        by_priority: bool,
    ) {
        let policy = if by_priority { Policy::Priority } else { Policy::Fifo };
        let mut order = Order::new(policy, Mono::default());
        let mut plain: BTreeMap<JobKey, i32> = BTreeMap::new();
        for (job, priority, comes) in moves {
            let job = JobKey(job);
            if comes {
                order.enter(job, &rank(priority, "ana"));
                plain.entry(job).or_insert(priority);
            } else {
                order.leave(job);
                plain.remove(&job);
            }
            let key = |(job, priority): (&JobKey, &i32)| (Reverse(if by_priority { *priority } else { 0 }), *job);
            prop_assert_eq!(order.first(), plain.iter().map(key).min().map(|(_, job)| job));
        }
    }

    /// A policy may change at any time: the jobs stay, and are in the new order at once.
    #[test]
    fn a_change_of_policy_keeps_every_job(priorities in prop::collection::vec(-5i32..5, 1..50)) {
        let ranks: Vec<Rank> = priorities.iter().enumerate().map(|(n, p)| rank(*p, &format!("o{}", n % 3))).collect();
        let rank_of = |job: JobKey| ranks.get(job.0 as usize);
        let mut order = Order::default();
        for (n, rank) in ranks.iter().enumerate() {
            order.enter(JobKey(n as u64), rank);
        }
        for policy in [fair(Span::secs(60), &[]), Policy::Priority, Policy::Fifo, Policy::Priority] {
            order.change(policy, rank_of);
        }
        let mut served = Vec::new();
        while let Some(job) = order.first() {
            served.push(job);
            order.leave(job);
        }
        let mut expected: Vec<JobKey> = (0..ranks.len() as u64).map(JobKey).collect();
        expected.sort_by_key(|job| (Reverse(priorities[job.0 as usize]), *job));
        prop_assert_eq!(served, expected);
    }
}

/// A queue with `slots` places, where tasks of each owner take as long as given, for `seconds`. Says how many cpu seconds
/// each owner was given.
fn live(policy: Policy, owners: &[(&str, f64)], slots: usize, seconds: f64, seed: u64) -> Vec<f64> {
    let dice = Dice::seeded(seed);
    let mut order = Order::new(policy, Mono::default());
    for (n, (owner, _)) in owners.iter().enumerate() {
        order.enter(JobKey(n as u64), &rank(0, owner));
    }
    let mut given = vec![0.0; owners.len()];
    let mut out: Vec<(f64, usize, f64)> = Vec::new();
    let mut now = 0.0;
    while now < seconds {
        order.pass(at(now));
        while out.len() < slots {
            let job = order.first().unwrap();
            let who = job.0 as usize;
            order.handed_out(job, 1, Cpus::ONE);
            let took = owners[who].1 * (0.5 + dice.below(1_000) as f64 / 1_000.0);
            out.push((now + took, who, took));
        }
        out.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (end, who, took) = out.remove(0);
        now = end;
        order.pass(at(now));
        order.came_back(&rank(0, owners[who].0), Cpus::ONE, Spent::Time(Duration::from_secs_f64(took)));
        given[who] += took;
    }
    given
}

#[test]
fn shares_become_what_the_weights_say() {
    for seed in 0..20 {
        let policy = fair(Span::secs(3_600), &[("ana", 3), ("bob", 2)]);
        let owners = [("ana", 1.0), ("bob", 1.0), ("eva", 1.0)];
        let given = live(policy, &owners, 4, 3_000.0, seed);
        let all: f64 = given.iter().sum();
        for (share, weight) in given.iter().zip([3.0, 2.0, 1.0]) {
            let got = share / all * 6.0;
            assert!((got - weight).abs() < 0.1 * weight, "seed {seed}: {got} instead of {weight}");
        }
    }
}

#[test]
fn whoever_has_long_tasks_gets_no_more_time_than_whoever_has_short_ones() {
    for seed in 0..20 {
        let given = live(fair(Span::secs(3_600), &[]), &[("ana", 8.0), ("bob", 0.2)], 4, 3_000.0, seed);
        let ratio = given[0] / given[1];
        assert!((0.85..1.18).contains(&ratio), "seed {seed}: {ratio}");
    }
}

proptest! {
    /// One who has used much waits while others come in a stream, each with nothing on its account, faster than anybody can
    /// be served: from the moment on when its usage would have faded to what a newcomer begins with, newcomers go after it.
    #[test]
    fn whoever_comes_after_usage_has_faded_goes_after_those_who_wait(
        used_s in 2.0f64..1e6,
        weight in 1u32..9,
        gaps_ms in prop::collection::vec((0u64..4_000, 1u64..4), 50..300),
    ) {
        let half_life = 5.0;
        let mut order = Order::new(fair(Span::secs(5), &[("eva", weight)]), at(0.0));
        order.came_back(&rank(0, "eva"), Cpus::ONE, Spent::Time(Duration::from_secs_f64(used_s)));
        order.enter(JobKey(0), &rank(0, "eva"));
        let faded_s = half_life * (used_s / f64::from(weight)).log2().max(0.0);
        let (mut now_ms, mut newcomers) = (0, 0);
        let mut came_at = vec![0.0];
        for (gap_ms, come) in gaps_ms {
            now_ms += gap_ms;
            order.pass(at(now_ms as f64 / 1e3));
            for _ in 0..come {
                newcomers += 1;
                came_at.push(now_ms as f64 / 1e3);
                order.enter(JobKey(newcomers), &rank(0, &format!("n{newcomers}")));
            }
            let served = order.first().unwrap();
            if served == JobKey(0) {
                return Ok(());
            }
            let came_s = came_at[served.0 as usize];
            prop_assert!(came_s <= faded_s + 1e-3, "who came after {came_s} s went before, {faded_s} s were due");
            order.handed_out(served, 1, Cpus::ONE);
            order.leave(served);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// However many share, and however long their tasks are: where what was used is remembered for some rounds, time is
    /// shared as the weights say; where it is forgotten within a round, whoever has more shares still gets more.
    #[test]
    fn many_with_long_tasks_are_served_by_their_weights_and_not_in_turns(seed: u64, others in 10usize..40) {
        let names: Vec<String> = (0..=others).map(|n| format!("o{n}")).collect();
        let owners: Vec<(&str, f64)> = names.iter().map(|name| (name.as_str(), 60.0)).collect();
        let round_s = 60 * others as u64 / 2;
        for (half_life_s, at_least) in [(10 * round_s, 4.0), (round_s / 4, 1.5)] {
            let policy = fair(Span::secs(half_life_s), &[("o0", 5)]);
            let given = live(policy, &owners, 2, 40.0 * round_s as f64, seed);
            let mean = given[1..].iter().sum::<f64>() / others as f64;
            prop_assert!(given[0] > at_least * mean, "{half_life_s} s: five shares gave {}, one {mean}", given[0]);
        }
    }
}

#[test]
fn what_was_used_long_ago_is_forgotten() {
    let mut order = Order::new(fair(Span::secs(10), &[]), at(0.0));
    order.enter(JobKey(1), &rank(0, "ana"));
    order.enter(JobKey(2), &rank(0, "bob"));
    let spent = |s: f64| Spent::Time(Duration::from_secs_f64(s));
    order.came_back(&rank(0, "ana"), Cpus::ONE, spent(1_000.0));
    order.came_back(&rank(0, "bob"), Cpus::ONE, spent(1.0));
    assert_eq!(order.first(), Some(JobKey(2)));
    // Past the point where all is written smaller, too: ten half-lives make a thousand one.
    order.pass(at(5.0));
    for s in [100.0, 800.0] {
        order.leave(JobKey(1));
        order.leave(JobKey(2));
        order.pass(at(s));
        order.enter(JobKey(1), &rank(0, "ana"));
        order.enter(JobKey(2), &rank(0, "bob"));
        order.came_back(&rank(0, "bob"), Cpus::ONE, spent(2.0));
        assert_eq!(order.first(), Some(JobKey(1)), "after {s} s");
    }
}

#[test]
fn each_ones_own_jobs_go_by_priority() {
    let mut order = Order::new(fair(Span::secs(60), &[]), at(0.0));
    order.enter(JobKey(1), &rank(0, "ana"));
    order.enter(JobKey(2), &rank(5, "ana"));
    order.enter(JobKey(3), &rank(9, "bob"));
    order.came_back(&rank(0, "bob"), Cpus::ONE, Spent::Time(Duration::from_secs(1)));
    assert_eq!(order.first(), Some(JobKey(2)));
    assert_eq!(order.ahead(JobKey(1)).collect::<Vec<_>>(), [JobKey(2)]);
}

#[test]
fn a_label_may_be_what_is_shared_by() {
    let policy = Policy::FairShare(FairShare { by: By::Label("team".into()), ..FairShare::default() });
    let of = |team: Option<&str>| Rank {
        labels: team.map(|team| ("team".to_owned(), team.to_owned())).into_iter().collect(),
        ..rank(0, "ana")
    };
    let mut order = Order::new(policy, at(0.0));
    order.enter(JobKey(1), &of(Some("x")));
    order.enter(JobKey(2), &of(Some("y")));
    order.enter(JobKey(3), &of(None));
    for team in [Some("x"), None] {
        order.came_back(&of(team), Cpus::ONE, Spent::Time(Duration::from_secs(1)));
    }
    assert_eq!(order.first(), Some(JobKey(2)));
}
