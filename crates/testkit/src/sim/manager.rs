//! A simulated manager process: rounds for its shards, a post for each that it owns, and requests of clients.
//!
//! The supervisor's order: a shard appears (or appears with another generation): load it from the store, then work; asked
//! to leave: hand out nothing more, settle, release; gone: drop it at once.

mod post;
mod requests;
mod rounds;

use std::collections::BTreeMap;
use std::time::Duration;

use mutirao_core::Mono;
use mutirao_jobs::desk::Now;
use mutirao_shards::tenancy::Asked;
use mutirao_shards::{MemberId, ShardId};

use super::clock::LocalClock;
use super::flaw::Flaw;
use super::ground::{Event, Ground, MS};
use super::link::{Link, News};
use super::wire::{Answer, Body, Call, ConnId, FromBroker, Name, NoAnswer, Pid, Question, Request, ToBroker};
use post::{Hands, Post, Turn};
use rounds::Rounds;

const TICK_US: u64 = 100 * MS;
/// Between two looks at what became of queues.
const FOLLOW: Duration = Duration::from_secs(5);
/// How long a question to the store is waited for.
const CALL_MAX: Duration = Duration::from_secs(5);

/// What a post may use of this manager, without the post itself.
macro_rules! hands {
    ($manager:expr, $ground:expr, $shard:expr) => {
        Hands {
            me: &$manager.me,
            now: $manager.clock.at($ground.now_us),
            tenure: $manager.rounds.tenancy.held().get(&$shard).copied(),
            ground: &mut *$ground,
            link: &mut $manager.link,
            calls: &mut $manager.calls,
        }
    };
}

/// Why the store was asked.
#[derive(Clone, Debug)]
pub enum Purpose {
    Round,
    Load(ShardId, u64),
    Settle(ShardId),
    Compare(ShardId),
    /// What became of queues, for all shards.
    Follow,
    Release,
    Request(u64, Request),
}

/// Questions to the store that wait for their answers.
pub struct Calls {
    pid: Pid,
    last: u64,
    open: BTreeMap<u64, (Purpose, Mono)>,
}

impl Calls {
    fn ask(&mut self, purpose: Purpose, question: Question, now: Mono, ground: &mut Ground) -> u64 {
        self.last += 1;
        self.open.insert(self.last, (purpose, now));
        ground.ask_store(Call { pid: self.pid, id: self.last, question });
        self.last
    }

    fn overdue(&self, now: Mono) -> Vec<u64> {
        self.open.iter().filter(|(_, (_, since))| now.since(*since) > CALL_MAX).map(|(id, _)| *id).collect()
    }
}

pub struct Manager {
    pub pid: Pid,
    pub me: MemberId,
    pub clock: LocalClock,
    link: Link,
    rounds: Rounds,
    posts: BTreeMap<ShardId, Post>,
    calls: Calls,
    follow_at: Mono,
    leaves_by: Option<Mono>,
}

impl Manager {
    pub fn start(pid: Pid, clock: LocalClock, ground: &mut Ground) -> Self {
        let me = MemberId(format!("m{}", pid.0));
        ground.note(|| format!("{me}: starts"));
        let rounds = Rounds::new(me.clone(), ground.weather.terms);
        Self::with(pid, me, rounds, clock, ground)
    }

    /// As the successor of one that was killed, in the same folder.
    pub fn start_again(pid: Pid, me: MemberId, clock: LocalClock, ground: &mut Ground) -> Self {
        ground.note(|| format!("{me}: starts again"));
        let rounds = Rounds::after_death(me.clone(), ground.weather.terms);
        Self::with(pid, me, rounds, clock, ground)
    }

    fn with(pid: Pid, me: MemberId, rounds: Rounds, clock: LocalClock, ground: &mut Ground) -> Self {
        ground.after(0, Event::Tick(pid));
        Self {
            pid,
            rounds,
            me,
            clock,
            link: Link::new(pid),
            posts: BTreeMap::new(),
            calls: Calls { pid, last: 0, open: BTreeMap::new() },
            follow_at: Mono::default(),
            leaves_by: None,
        }
    }

    pub fn conn(&self) -> ConnId {
        self.link.conn()
    }

    pub fn is_leaving(&self) -> bool {
        self.leaves_by.is_some()
    }

    pub fn is_gone(&self, ground: &Ground) -> bool {
        let late = self.leaves_by.is_some_and(|by| self.now(ground).mono >= by);
        late || self.rounds.is_over() && self.posts.is_empty()
    }

    /// Tasks that workers are believed to hold.
    pub fn tasks_out(&self) -> usize {
        self.posts.values().map(Post::tasks_out).sum()
    }

    pub fn is_quiet(&self) -> bool {
        self.posts.values().all(Post::is_quiet)
    }

    fn now(&self, ground: &Ground) -> Now {
        self.clock.at(ground.now_us)
    }

    pub fn leave(&mut self, ground: &mut Ground) {
        ground.note(|| format!("{}: leaves", self.me));
        let (now, terms) = (self.now(ground).mono, ground.weather.terms);
        self.rounds.tenancy.leave(now);
        self.leaves_by = Some(now.plus(terms.settle_max + terms.lease));
        self.follow(ground);
    }

    pub fn tick(&mut self, ground: &mut Ground) {
        let now = self.now(ground).mono;
        self.link.tick(now, ground);
        self.rounds.tenancy.tick(now);
        self.follow(ground);
        for id in self.calls.overdue(now) {
            self.answered(id, Err(NoAnswer), ground);
        }
        self.go_round(ground);
        self.follow_queues(ground);
        for shard in self.shards() {
            self.with_post(shard, ground, |post, h| post.tick(h));
        }
        ground.after(TICK_US, Event::Tick(self.pid));
    }

    /// As `jobs::queues::follow`: a word that got lost costs seconds.
    fn follow_queues(&mut self, ground: &mut Ground) {
        let now = self.now(ground).mono;
        if now >= self.follow_at && !self.posts.is_empty() {
            self.follow_at = now.plus(FOLLOW);
            self.calls.ask(Purpose::Follow, Question::Queues, now, ground);
        }
    }

    fn shards(&self) -> Vec<ShardId> {
        self.posts.keys().copied().collect()
    }

    fn go_round(&mut self, ground: &mut Ground) {
        let now = self.now(ground).mono;
        if let Some(question) = self.rounds.step(self.calls.last + 1, &ground.dice, now) {
            self.calls.ask(Purpose::Round, question, now, ground);
        }
    }

    /// Opens, empties and closes posts, by what is owned.
    fn follow(&mut self, ground: &mut Ground) {
        let held = self.rounds.tenancy.held().clone();
        for shard in self.shards() {
            let generation = self.posts.get(&shard).map(|post| post.generation);
            let tenure = held.get(&shard);
            let gone = tenure.map(|tenure| tenure.generation) != generation;
            if gone && !(ground.has(Flaw::TrustsItsTenure) && tenure.is_none()) {
                self.close(shard, ground);
            }
        }
        for (shard, tenure) in held {
            if !self.posts.contains_key(&shard) {
                let post = {
                    let mut hands = hands!(self, ground, shard);
                    Post::open(shard, tenure.generation, &mut hands)
                };
                self.posts.insert(shard, post);
            }
            if tenure.asked == Asked::Leave {
                self.with_post(shard, ground, |post, h| post.leave(h));
            }
        }
    }

    fn close(&mut self, shard: ShardId, ground: &mut Ground) {
        if let Some(mut post) = self.posts.remove(&shard) {
            post.close(&mut hands!(self, ground, shard));
        }
    }

    fn release(&mut self, shard: ShardId, ground: &mut Ground) {
        let Some(post) = self.posts.remove(&shard) else { return };
        ground.note(|| format!("{}: releases shard {shard}", self.me));
        if self.rounds.tenancy.let_go(shard, post.generation) {
            let question = Question::Release(self.me.clone(), shard, post.generation);
            let now = self.now(ground).mono;
            self.calls.ask(Purpose::Release, question, now, ground);
        }
    }

    /// Lets something happen to a post, and then whatever follows from it.
    fn with_post(&mut self, shard: ShardId, ground: &mut Ground, f: impl FnOnce(&mut Post, &mut Hands<'_>)) {
        let Some(mut post) = self.posts.remove(&shard) else { return };
        let turn = {
            let mut hands = hands!(self, ground, shard);
            f(&mut post, &mut hands);
            post.turn(&mut hands)
        };
        self.posts.insert(shard, post);
        self.turned(shard, turn, ground);
    }

    fn turned(&mut self, shard: ShardId, turn: Turn, ground: &mut Ground) {
        match turn {
            Turn::Stay => {}
            Turn::Release => self.release(shard, ground),
            Turn::Drop => {
                // The lease is another's by now; the next look around says so.
                self.close(shard, ground);
                if let Some(tenure) = self.rounds.tenancy.held().get(&shard).copied() {
                    self.rounds.tenancy.let_go(shard, tenure.generation);
                }
            }
        }
    }

    pub fn hear(&mut self, conn: ConnId, letter: FromBroker, ground: &mut Ground) {
        let now = self.now(ground).mono;
        match self.link.hear(conn, letter, now) {
            News::Up => {
                self.link.send(ToBroker::Subscribe(Name::Answers(self.pid)), ground);
                self.all_posts(ground, |post, h| post.connected(h));
            }
            News::Down => self.all_posts(ground, |post, h| post.disconnected(h)),
            News::Letter(FromBroker::Delivery { consumer, tag, body: Body::Reports(reports) }) => {
                let found = self.posts.values().find(|post| post.consumes_as(consumer)).map(|post| post.shard);
                if let Some(shard) = found {
                    self.with_post(shard, ground, |post, h| post.hear(tag, reports, h));
                }
            }
            News::Letter(FromBroker::Confirmed(number)) => self.all_posts(ground, |post, _| post.confirmed(number)),
            News::Letter(FromBroker::Counted { id, lying }) => {
                self.all_posts(ground, |post, h| post.counted(id, lying, h));
            }
            News::Letter(FromBroker::Heard(Name::Asks(shard), Body::Ask(question, asker))) => {
                self.with_post(shard, ground, |post, h| post.asked(question, asker, h));
            }
            News::Letter(FromBroker::Heard(_, Body::Answer(answer, asker))) => {
                asker.answer(answer, &mut self.link, ground);
            }
            News::Letter(_) | News::Old => {}
        }
    }

    fn all_posts(&mut self, ground: &mut Ground, f: impl Fn(&mut Post, &mut Hands<'_>)) {
        for shard in self.shards() {
            self.with_post(shard, ground, &f);
        }
    }

    pub fn answered(&mut self, id: u64, answer: Result<Answer, NoAnswer>, ground: &mut Ground) {
        let Some((purpose, _)) = self.calls.open.remove(&id) else { return };
        match purpose {
            Purpose::Round => {
                let now = self.now(ground).mono;
                self.rounds.hear(id, answer, now);
                self.follow(ground);
                self.go_round(ground);
            }
            Purpose::Load(shard, generation) => {
                if self.posts.get(&shard).is_some_and(|post| post.generation == generation) {
                    self.with_post(shard, ground, |post, h| post.loaded(answer, h));
                }
            }
            Purpose::Settle(shard) => {
                self.with_post(shard, ground, |post, h| post.settled(id, answer, h));
            }
            Purpose::Compare(shard) => self.with_post(shard, ground, |post, h| post.compared(id, answer, h)),
            Purpose::Follow => {
                if let Ok(Answer::Queues(defined, removed, resting)) = answer {
                    self.all_posts(ground, |post, h| post.follow(&defined, &removed, &resting, h));
                }
            }
            Purpose::Release => {}
            Purpose::Request(request, what) => self.respond(request, what, answer, ground),
        }
    }
}
