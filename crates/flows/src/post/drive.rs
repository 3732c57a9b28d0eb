//! Drives one foreman: carries out what it asks for ([`doing`](super::doing)), and tells it what happens. It waits for nobody:
//! what takes time is done beside it, and told when it is done.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use mutirao_core::Mono;
use mutirao_core::clock::ClockExt;
use mutirao_core::id::Attempt;
use mutirao_nodes::ActionName;
use mutirao_nodes::errand::{Gone, NotSent};
use mutirao_nodes::routing::Ended;
use mutirao_shards::{Asked, Fence};
use mutirao_store::StoreError;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use super::doing::{Left, STINT};
use super::looking::Found;
use super::seeking::{Came, Since};
use super::{Bench, Word};
use crate::foreman::reckoning::Reckoned;
use crate::foreman::words::{Batch, End, Input, Report, RunKey, StepKey};
use crate::foreman::{Foreman, Now};
use crate::meters;
use crate::store::Fate;
use crate::wire::{Reply, RequestId};

/// Whether the shard is still ours is asked at least this often.
const BLINK: Duration = Duration::from_millis(250);
pub(super) const PAUSE: Duration = Duration::from_millis(500);
/// Things done beside that may wait to be told.
const NEWS_MAX: usize = 4_096;
/// Reports whose runs are looked for; past this they are left lying.
const UNHEARD_MAX: usize = 1_000;

/// What was done beside.
pub(super) enum News {
    Written(u64, Result<Fate, StoreError>),
    Sent(StepKey, Attempt, ActionName, Result<Gone, NotSent>),
    Looked(Result<Found, StoreError>),
    LookedAt(Result<Found, StoreError>),
    /// The run that reports were for, if it is there.
    Sought(RunKey, Found),
    Answered(RunKey),
    Reckoned(Box<Reckoned>),
}

pub struct Post {
    pub(super) bench: Bench,
    pub(super) fence: Fence,
    pub(super) foreman: Foreman,
    words: mpsc::Receiver<Word>,
    news: mpsc::Receiver<News>,
    pub(super) tell: mpsc::Sender<News>,
    pub(super) beside: JoinSet<()>,
    /// Who waits to hear that a report is durable, by its mark.
    pub(super) reporters: HashMap<u64, oneshot::Sender<()>>,
    marks: u64,
    /// Reports of runs that are not known here: they wait until it is known what became of those.
    pub(super) unheard: HashMap<RunKey, Vec<Report>>,
    pub(super) replies: HashMap<RunKey, Reply>,
    /// With the store.
    pub(super) batch: Option<Arc<Batch>>,
    pub(super) looked: Looked,
    /// Runs that came lately: what was read before may have them as they were before.
    pub(super) since: Since,
    /// Rung while a look was under way.
    pub(super) rung: bool,
    pub(super) unreadable: HashSet<RunKey>,
    pub(super) runs_shown: usize,
    pub(super) bytes_shown: usize,
}

#[derive(Clone, Copy, PartialEq)]
pub(super) enum Looked {
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
        let foreman = Foreman::new(fence.generation, bench.rules, Vec::new(), now);
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
            unheard: HashMap::new(),
            replies: HashMap::new(),
            batch: None,
            looked: Looked::Never,
            since: Since::default(),
            rung: false,
            unreadable: HashSet::new(),
            runs_shown: 0,
            bytes_shown: 0,
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
            if self.hear_what_came() == Go::Away {
                break;
            }
            let left = self.work();
            self.look_if_due();
            let ready = self.looked != Looked::Never && self.looked != (Looked::Looking { before: false });
            let unheard: usize = self.unheard.values().map(Vec::len).sum();
            let hears = ready && self.foreman.takes_reports() && unheard < UNHEARD_MAX;
            if left == Left::More {
                tokio::task::yield_now().await;
            }
            let nap = match left {
                Left::More => Duration::ZERO,
                Left::Nothing => self.foreman.wake_at().map_or(BLINK, |at| at.since(clock.monotonic()).min(BLINK)),
            };
            tokio::select! {
                biased;
                Some(news) = self.news.recv() => if self.hear(news) == Go::Away { break },
                Some(word) = self.words.recv(), if hears => self.take(word),
                () = bells[shard.0 as usize].notified() => self.rung = true,
                () = clock.sleep(nap) => {}
            }
        }
        // What is on its way to the store gets there, or the next owner hears of it again.
        while self.batch.is_some() {
            match clock.timeout(Duration::from_secs(5), self.news.recv()).await {
                Ok(Some(News::Written(..))) | Ok(None) | Err(_) => break,
                Ok(Some(_)) => {}
            }
        }
    }

    /// What was done beside, as much of it as there is time for.
    fn hear_what_came(&mut self) -> Go {
        let begun = self.bench.clock.monotonic();
        while self.bench.clock.monotonic().since(begun) < STINT
            && let Ok(news) = self.news.try_recv()
        {
            if self.hear(news) == Go::Away {
                return Go::Away;
            }
        }
        Go::On
    }

    /// Whether the shard is still ours to work for. A tenure that has lapsed does not come back.
    fn stays(&self) -> bool {
        let tenure = self.bench.shards.tenure(self.fence.shard);
        tenure.is_some_and(|t| t.generation == self.fence.generation && t.asked == Asked::Stay)
    }

    pub(super) fn tell_foreman(&mut self, input: Input) {
        let now = now(&self.bench);
        self.foreman.handle(input, now);
    }

    fn hear(&mut self, news: News) -> Go {
        match news {
            News::Written(_, Ok(Fate::Fenced)) => return Go::Away,
            News::Written(number, Ok(Fate::Durable)) => {
                if let Some(batch) = self.batch.take() {
                    self.bench.tell_changed(&batch);
                }
                self.tell_foreman(Input::Written(number));
            }
            News::Written(number, Err(error)) => {
                self.batch = None;
                tracing::debug!(%error, "what came of tasks of flows could not be written; trying again");
                self.tell_foreman(Input::Unwritten(number));
            }
            // It was called back before it had gone: whoever got it is not waited for.
            News::Sent(key, attempt, _, Ok(_)) if !self.foreman.is_waited_for(key, attempt) => {
                self.bench.reach.ended(&self.request(key, attempt), Ended::Recalled);
            }
            News::Sent(key, attempt, action, sent) => self.tell_foreman(match sent {
                Ok(Gone { node, over, why, .. }) => {
                    meters::sent();
                    Input::Sent { key, attempt, node, over, why }
                }
                Err(NotSent::Impossible(why)) => Input::Impossible { key, attempt, why },
                // One that is away may come back: nobody was asked, so that costs no try.
                Err(none @ (NotSent::Nobody(_) | NotSent::Full | NotSent::Unreachable { .. })) => {
                    self.bench.queues.stand(action, self.fence.shard);
                    Input::NoRoom { key, attempt, why: none.to_string() }
                }
            }),
            News::Reckoned(reckoned) => self.tell_foreman(Input::Reckoned(reckoned)),
            News::Answered(run) => self.tell_foreman(Input::Announced(run)),
            News::Looked(Err(error)) => {
                let before = self.looked == (Looked::Looking { before: true });
                tracing::debug!(%error, "runs of flows could not be looked up; trying again");
                // Not at once: the store was asked a moment ago.
                self.looked = if before { Looked::At(self.bench.clock.monotonic()) } else { Looked::Never };
            }
            News::Looked(Ok(found)) => {
                self.looked = Looked::At(self.bench.clock.monotonic());
                self.find(found, Came::Listed);
            }
            News::LookedAt(Ok(found)) => self.find(found, Came::ByWord),
            // The next look finds it.
            News::LookedAt(Err(error)) => tracing::debug!(%error, "a run of a flow could not be looked up"),
            News::Sought(run, found) => {
                self.find(found, Came::ForReports);
                self.sought(run);
            }
        }
        Go::On
    }

    fn take(&mut self, word: Word) {
        match word {
            Word::Admit(admitted, reply) => {
                // One too many is found in the store when there is room.
                if self.foreman.takes_runs() && !self.foreman.knows(admitted.key) && self.since.insert(admitted.key) {
                    self.replies.extend(reply.map(|reply| (admitted.key, *reply)));
                    self.tell_foreman(Input::Admit(*admitted));
                }
            }
            Word::Returned { id: RequestId { key, attempt }, end, node, told } => {
                self.marks += 1;
                self.reporters.insert(self.marks, told);
                self.report(Report { key, attempt, end, node, mark: self.marks });
            }
            Word::Lost(node) => self.tell_foreman(Input::NodeLost(node)),
            Word::Room(action) => self.tell_foreman(Input::Room(action)),
            Word::Look(run) => self.look_at(run),
            Word::Explain(run, told) => {
                let _ = told.send(self.foreman.explain(run, self.bench.clock.monotonic()));
            }
        }
    }

    /// To the foreman, if it knows the run; else the run is looked for first.
    pub(super) fn report(&mut self, report: Report) {
        let Report { key, attempt, .. } = report;
        if !self.foreman.knows(key.run) {
            return self.seek(report);
        }
        let how = if matches!(report.end, End::Ok(_)) { Ended::Well } else { Ended::Badly };
        if self.foreman.may_answer(key, attempt, report.node.as_ref()) {
            self.ended(key, attempt, how);
        }
        self.tell_foreman(Input::Report(report));
    }
}

/// However it ends: no node is taken to be busy with what nobody here waits for.
impl Drop for Post {
    fn drop(&mut self) {
        for (key, attempt) in self.foreman.outs() {
            self.bench.reach.ended(&self.request(key, attempt), Ended::Recalled);
        }
        meters::open(-(self.runs_shown as f64));
        meters::held(-(self.bytes_shown as f64));
    }
}

#[derive(PartialEq)]
enum Go {
    On,
    Away,
}

pub(super) fn now(bench: &Bench) -> Now {
    Now { mono: bench.clock.monotonic(), wall: bench.clock.now() }
}
