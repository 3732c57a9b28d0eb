//! Drives one foreman: carries out what it asks for, and tells it what happens. It waits for nobody: what takes time is done
//! beside it, and told when it is done.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use mutirao_core::Mono;
use mutirao_core::clock::ClockExt;
use mutirao_core::id::Attempt;
use mutirao_nodes::ActionName;
use mutirao_nodes::errand::{Errand, Gone, NotSent};
use mutirao_nodes::routing::Ended;
use mutirao_nodes::wire::TaskRequest;
use mutirao_shards::{Asked, Fence};
use mutirao_store::StoreError;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use super::looking::{self, Found};
use super::{Bench, Word};
use crate::foreman::words::{Because, Dispatch, Effect, End, Input, Report, RunEnd, RunKey, StepKey};
use crate::foreman::{Foreman, Now, Rules};
use crate::store::Writing;
use crate::view::RunState;
use crate::wire::RequestId;
use crate::{meters, wire};

/// At least this often the store is looked at for what nobody told.
const LOOK_EVERY: Duration = Duration::from_secs(3);
/// Whether the shard is still ours is asked at least this often.
const BLINK: Duration = Duration::from_millis(250);
const PAUSE: Duration = Duration::from_millis(500);
/// Things done beside that may wait to be told.
const NEWS_MAX: usize = 4_096;
/// A larger answer cannot travel: its client is told where to read it.
const ANSWER_BYTES_MAX: usize = 4 << 20;

/// What was done beside.
enum News {
    Written(u64, Result<Writing, StoreError>),
    Sent(StepKey, Attempt, ActionName, Result<Gone, NotSent>),
    Looked(Result<Found, StoreError>),
    LookedAt(Result<Found, StoreError>),
    Answered(RunKey),
}

pub struct Post {
    bench: Bench,
    fence: Fence,
    foreman: Foreman,
    words: mpsc::Receiver<Word>,
    news: mpsc::Receiver<News>,
    tell: mpsc::Sender<News>,
    beside: JoinSet<()>,
    /// Who waits to hear that a report is durable, by its mark.
    reporters: HashMap<u64, oneshot::Sender<()>>,
    marks: u64,
    replies: HashMap<RunKey, TaskRequest>,
    writing: bool,
    looked: Looked,
    /// Runs that came by another way since the look that is under way began: it may find them as they were before.
    since: HashSet<RunKey>,
    /// Rung while a look was under way.
    rung: bool,
    unreadable: HashSet<RunKey>,
    runs_shown: usize,
}

#[derive(Clone, Copy, PartialEq)]
enum Looked {
    /// Nothing is known yet of what was there before.
    Never,
    Looking {
        before: bool,
    },
    At(Mono),
}

impl Post {
    pub fn new(bench: Bench, fence: Fence, words: mpsc::Receiver<Word>) -> Self {
        let (tell, news) = mpsc::channel(NEWS_MAX);
        let now = now(&bench);
        let foreman = Foreman::new(fence.generation, Rules::default(), Vec::new(), now);
        Self {
            bench,
            fence,
            foreman,
            words,
            news,
            tell,
            beside: JoinSet::new(),
            reporters: HashMap::new(),
            marks: 0,
            replies: HashMap::new(),
            writing: false,
            looked: Looked::Never,
            since: HashSet::new(),
            rung: false,
            unreadable: HashSet::new(),
            runs_shown: 0,
        }
    }

    /// Until the shard is another's, or is to be given back.
    pub async fn run(mut self) {
        let (bells, clock, shard) = (self.bench.bells.clone(), self.bench.clock.clone(), self.fence.shard);
        while self.stays() {
            while self.beside.try_join_next().is_some() {}
            if self.foreman.wake_at().is_some_and(|at| at <= clock.monotonic()) {
                self.tell_foreman(Input::Tick);
            }
            self.work();
            self.look_if_due();
            let ready = self.looked != Looked::Never && self.looked != (Looked::Looking { before: false });
            let hears = ready && self.foreman.takes_reports();
            let nap = self.foreman.wake_at().map_or(BLINK, |at| at.since(clock.monotonic()).min(BLINK));
            tokio::select! {
                biased;
                Some(news) = self.news.recv() => if self.hear(news) == Go::Away { break },
                Some(word) = self.words.recv(), if hears => self.take(word),
                () = bells[shard.0 as usize].notified() => self.rung = true,
                () = clock.sleep(nap) => {}
            }
        }
        // What is on its way to the store gets there, or the next owner hears of it again.
        while self.writing {
            match clock.timeout(Duration::from_secs(5), self.news.recv()).await {
                Ok(Some(News::Written(..))) | Ok(None) | Err(_) => break,
                Ok(Some(_)) => {}
            }
        }
    }

    /// Whether the shard is still ours to work for. A tenure that has lapsed does not come back.
    fn stays(&self) -> bool {
        let tenure = self.bench.shards.tenure(self.fence.shard);
        tenure.is_some_and(|t| t.generation == self.fence.generation && t.asked == Asked::Stay)
    }

    fn tell_foreman(&mut self, input: Input) {
        let now = now(&self.bench);
        self.foreman.handle(input, now);
    }

    fn work(&mut self) {
        let now = now(&self.bench);
        while let Some(effect) = self.foreman.poll(now) {
            match effect {
                Effect::Dispatch(dispatch) => self.send(dispatch),
                Effect::Recall { key, attempt, because } => {
                    let how = if because == Because::Overdue { Ended::Badly } else { Ended::Recalled };
                    self.ended(key, attempt, how);
                }
                Effect::Write(batch) => {
                    self.writing = true;
                    let (store, fence, tell) = (self.bench.store.clone(), self.fence.clone(), self.tell.clone());
                    let clock = self.bench.clock.clone();
                    self.beside.spawn(async move {
                        let (number, begun) = (batch.number, clock.monotonic());
                        let written = store.write(fence, batch).await;
                        meters::written(clock.monotonic().since(begun));
                        let _ = tell.send(News::Written(number, written)).await;
                    });
                }
                Effect::Acknowledge(mark) => {
                    if let Some(reporter) = self.reporters.remove(&mark) {
                        let _ = reporter.send(());
                    }
                }
                Effect::Announce { run, end, answer } => self.announce(run, &end, &answer),
            }
        }
        let runs = self.foreman.runs();
        if runs != self.runs_shown {
            meters::open(runs as f64 - self.runs_shown as f64);
            self.bench.doors.count(self.fence.shard, runs);
            self.runs_shown = runs;
        }
    }

    fn request(&self, key: StepKey, attempt: Attempt) -> String {
        RequestId { key, attempt }.sealed(&self.bench.secret)
    }

    /// A task is out no more: its node may have room for another, whoever waits.
    fn ended(&self, key: StepKey, attempt: Attempt, how: Ended) {
        self.bench.reach.ended(&self.request(key, attempt), how);
        let Some(action) = self.foreman.action_of(key) else { return };
        if let Some(door) = self.bench.queues.next(&action).and_then(|shard| self.bench.doors.of(shard)) {
            // One that does not hear it looks by itself.
            let _ = door.try_send(Word::Room(action));
        }
    }

    fn send(&mut self, dispatch: Dispatch) {
        let Dispatch { key, attempt, action, input, place, timeout, not } = dispatch;
        let request = self.request(key, attempt);
        let errand = Errand { request, action: action.clone(), data: input.to_string(), place, timeout, not };
        let (reach, tell) = (self.bench.reach.clone(), self.tell.clone());
        let (shards, fence) = (self.bench.shards.clone(), self.fence.clone());
        self.beside.spawn(async move {
            // Whoever was frozen since sends nothing.
            if shards.tenure(fence.shard).is_some_and(|tenure| tenure.generation == fence.generation) {
                let sent = reach.send(errand).await;
                let _ = tell.send(News::Sent(key, attempt, action, sent)).await;
            }
        });
    }

    /// Whoever waits here is told; a client of the wire until its answer is where it looks for it.
    fn announce(&mut self, run: RunKey, end: &RunEnd, answer: &Value) {
        meters::ended(RunState::from(end).as_str());
        let _ = self.bench.ended.send(run);
        let Some(task) = self.replies.remove(&run) else { return self.tell_foreman(Input::Announced(run)) };
        let mut text = wire::answer_of(&task, answer);
        if text.len() > ANSWER_BYTES_MAX {
            let reason =
                format!("its answer of {} bytes is too large to travel; read it at /v1/runs/{}", text.len(), run.0);
            text = wire::answer_of(&task, &json!({"run": run, "state": "failed", "reason": reason}));
        }
        let (reach, clock, tell) = (self.bench.reach.clone(), self.bench.clock.clone(), self.tell.clone());
        self.beside.spawn(async move {
            while let Err(problem) = reach.answer(text.clone()).await {
                if (400..500).contains(&problem.status) && problem.status != 429 {
                    tracing::warn!(run = run.0, problem = problem.line(), "an answer is refused, and not sent again");
                    break;
                }
                tracing::debug!(run = run.0, problem = problem.line(), "an answer could not leave; trying again");
                clock.sleep(PAUSE).await;
            }
            let _ = tell.send(News::Answered(run)).await;
        });
    }

    fn hear(&mut self, news: News) -> Go {
        match news {
            News::Written(_, Ok(Writing::Fenced)) => return Go::Away,
            News::Written(number, Ok(Writing::Done)) => {
                self.writing = false;
                self.tell_foreman(Input::Written(number));
            }
            News::Written(number, Err(error)) => {
                self.writing = false;
                tracing::debug!(%error, "what came of tasks of flows could not be written; trying again");
                self.tell_foreman(Input::Unwritten(number));
            }
            // It was called back before it had gone: whoever got it is not waited for.
            News::Sent(key, attempt, _, Ok(_)) if !self.foreman.is_waited_for(key, attempt) => {
                self.bench.reach.ended(&self.request(key, attempt), Ended::Recalled);
            }
            News::Sent(key, attempt, action, sent) => self.tell_foreman(match sent {
                Ok(Gone { node, why, .. }) => {
                    meters::sent();
                    Input::Sent { key, attempt, node, why }
                }
                Err(NotSent::Impossible(why)) => Input::Impossible { key, attempt, why },
                // One that is away may come back: nobody was asked, so that costs no try.
                Err(none @ (NotSent::Nobody(_) | NotSent::Full | NotSent::Unreachable { .. })) => {
                    self.bench.queues.stand(action, self.fence.shard);
                    Input::NoRoom { key, attempt, why: none.to_string() }
                }
            }),
            News::Answered(run) => self.tell_foreman(Input::Announced(run)),
            News::Looked(Err(error)) => {
                let before = self.looked == (Looked::Looking { before: true });
                tracing::debug!(%error, "runs of flows could not be looked up; trying again");
                // Not at once: the store was asked a moment ago.
                self.looked = if before { Looked::At(self.bench.clock.monotonic()) } else { Looked::Never };
            }
            News::Looked(Ok(found)) => {
                self.looked = Looked::At(self.bench.clock.monotonic());
                self.find(found);
                self.since.clear();
            }
            News::LookedAt(Ok(found)) => self.find(found),
            // The next look finds it.
            News::LookedAt(Err(error)) => tracing::debug!(%error, "a run of a flow could not be looked up"),
        }
        Go::On
    }

    fn find(&mut self, found: Found) {
        let Found { runs, cancelled, unreadable } = found;
        for (stored, reply) in runs {
            let run = stored.admitted.key;
            // One that came while it was read may have ended by now: what was read is of no meaning.
            if !self.foreman.knows(run) && self.since.insert(run) {
                self.replies.extend(reply.map(|task| (run, task)));
                self.tell_foreman(Input::Found(Box::new(stored)));
            }
        }
        cancelled.into_iter().for_each(|run| self.tell_foreman(Input::Cancel(run)));
        for (run, problem) in unreadable {
            if self.unreadable.insert(run) {
                tracing::warn!(
                    run = run.0,
                    problem = problem.line(),
                    "this program cannot read a run's flow; it is left for one that can"
                );
            }
        }
    }

    fn take(&mut self, word: Word) {
        match word {
            Word::Admit(admitted, reply) => {
                // One too many is found in the store when there is room.
                if self.foreman.takes_runs() && !self.foreman.knows(admitted.key) && self.since.insert(admitted.key) {
                    self.replies.extend(reply.map(|task| (admitted.key, *task)));
                    self.tell_foreman(Input::Admit(*admitted));
                }
            }
            Word::Returned { id: RequestId { key, attempt }, end, node, told } => {
                let how = if matches!(end, End::Ok(_)) { Ended::Well } else { Ended::Badly };
                if self.foreman.may_answer(key, attempt, node.as_ref()) {
                    self.ended(key, attempt, how);
                }
                self.marks += 1;
                self.reporters.insert(self.marks, told);
                self.tell_foreman(Input::Report(Report { key, attempt, end, node, mark: self.marks }));
            }
            Word::Lost(node) => self.tell_foreman(Input::NodeLost(node)),
            Word::Room(action) => self.tell_foreman(Input::Room(action)),
            Word::Look(run) => {
                let (bench, tell) = (self.bench.clone(), self.tell.clone());
                self.beside.spawn(async move {
                    let found = looking::look_at(&bench, run).await;
                    let _ = tell.send(News::LookedAt(found)).await;
                });
            }
            Word::Explain(run, told) => {
                let _ = told.send(self.foreman.explain(run, self.bench.clock.monotonic()));
            }
        }
    }

    fn look_if_due(&mut self) {
        let now = self.bench.clock.monotonic();
        let before = match self.looked {
            Looked::Looking { .. } => return,
            Looked::Never => false,
            Looked::At(at) if self.rung || now.since(at) >= LOOK_EVERY => true,
            Looked::At(_) => return,
        };
        self.looked = Looked::Looking { before };
        self.rung = false;
        self.since.clear();
        let room = Rules::default().runs_max.saturating_sub(self.foreman.runs());
        let known: HashSet<RunKey> = self.foreman.known().collect();
        let (bench, fence, tell) = (self.bench.clone(), self.fence.clone(), self.tell.clone());
        self.beside.spawn(async move {
            let found = looking::look(&bench, &fence, room, |run| known.contains(&run)).await;
            if found.is_err() {
                bench.clock.sleep(PAUSE).await;
            }
            let _ = tell.send(News::Looked(found)).await;
        });
    }
}

/// However it ends: no node is taken to be busy with what nobody here waits for.
impl Drop for Post {
    fn drop(&mut self) {
        for (key, attempt) in self.foreman.outs() {
            self.bench.reach.ended(&self.request(key, attempt), Ended::Recalled);
        }
        meters::open(-(self.runs_shown as f64));
    }
}

#[derive(PartialEq)]
enum Go {
    On,
    Away,
}

fn now(bench: &Bench) -> Now {
    Now { mono: bench.clock.monotonic(), wall: bench.clock.now() }
}
