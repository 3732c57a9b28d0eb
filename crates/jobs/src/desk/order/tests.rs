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
/// each owner was given, and the longest that one who waited was passed over.
fn live(policy: Policy, owners: &[(&str, f64)], slots: usize, seconds: f64, seed: u64) -> (Vec<f64>, f64) {
    let dice = Dice::seeded(seed);
    let mut order = Order::new(policy, Mono::default());
    for (n, (owner, _)) in owners.iter().enumerate() {
        order.enter(JobKey(n as u64), &rank(0, owner));
    }
    let mut given = vec![0.0; owners.len()];
    let mut served = vec![0.0; owners.len()];
    let mut waited: f64 = 0.0;
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
            waited = waited.max(now - served[who]);
            served[who] = now;
        }
        out.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (end, who, took) = out.remove(0);
        now = end;
        order.pass(at(now));
        order.came_back(&rank(0, owners[who].0), Cpus::ONE, Spent::Time(Duration::from_secs_f64(took)));
        given[who] += took;
    }
    let last = served.iter().map(|at| now - at).fold(0.0, f64::max);
    (given, waited.max(last))
}

#[test]
fn shares_become_what_the_weights_say() {
    for seed in 0..20 {
        let policy = fair(Span::secs(3_600), &[("ana", 3), ("bob", 2)]);
        let owners = [("ana", 1.0), ("bob", 1.0), ("eva", 1.0)];
        let (given, _) = live(policy, &owners, 4, 3_000.0, seed);
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
        let (given, _) = live(fair(Span::secs(3_600), &[]), &[("ana", 8.0), ("bob", 0.2)], 4, 3_000.0, seed);
        let ratio = given[0] / given[1];
        assert!((0.85..1.18).contains(&ratio), "seed {seed}: {ratio}");
    }
}

#[test]
fn nobody_is_passed_over_for_longer_than_a_half_life() {
    for seed in 0..20 {
        // One share in two million would come up once in days; the half-life is a minute.
        let policy = fair(Span::secs(60), &[("ana", 1_000_000), ("bob", 1_000_000)]);
        let (_, waited) = live(policy, &[("ana", 1.0), ("bob", 1.0), ("eva", 1.0)], 2, 1_000.0, seed);
        // Until the next task ends, at most one and a half seconds, nobody can be served.
        assert!(waited <= 60.0 + 1.6, "seed {seed}: passed over for {waited} s");
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
