//! The last changes of jobs, numbered, so that whoever follows everything can fall behind or come back without missing any,
//! or is told that some were missed. Of this process only: another's numbers mean nothing here.

use std::collections::VecDeque;
use std::sync::Arc;

use mutirao_core::id::JobKey;
use mutirao_shards::MemberId;
use parking_lot::Mutex;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::watch;

use crate::news::News;

/// Changes that are kept.
const KEPT_MAX: usize = 16_384;

/// Clones share it.
#[derive(Clone)]
pub struct Hub {
    /// Whose numbers these are.
    me: Arc<str>,
    kept: Arc<Mutex<Kept>>,
    last: watch::Sender<u64>,
}

#[derive(Default)]
struct Kept {
    /// The number of the first in `jobs`, less one.
    before: u64,
    jobs: VecDeque<JobKey>,
}

impl Kept {
    fn push(&mut self, job: Option<JobKey>) -> u64 {
        match job {
            Some(job) => self.jobs.push_back(job),
            // What was missed has a number that nobody can go on from.
            None => {
                self.before += self.jobs.len() as u64 + 1;
                self.jobs.clear();
            }
        }
        if self.jobs.len() > KEPT_MAX {
            self.jobs.pop_front();
            self.before += 1;
        }
        self.last()
    }

    fn last(&self) -> u64 {
        self.before + self.jobs.len() as u64
    }
}

/// What changed since a number.
#[derive(Debug, PartialEq, Eq)]
pub enum Since {
    /// These, each once, in the order of their last change, up to this number.
    Jobs(Vec<JobKey>, u64),
    /// That is too long ago; it goes on from here.
    Gap(u64),
}

impl Hub {
    pub fn new(me: &MemberId) -> Self {
        Self { me: me.0.as_str().into(), kept: Arc::default(), last: watch::Sender::new(0) }
    }

    /// Keeps what is told, for as long as this process lives.
    pub async fn listen(self, news: News) {
        let mut changes = news.follow();
        loop {
            match changes.recv().await {
                Ok(job) => self.push(Some(job)),
                Err(RecvError::Lagged(_)) => self.push(None),
                Err(RecvError::Closed) => return,
            }
        }
    }

    fn push(&self, job: Option<JobKey>) {
        let last = self.kept.lock().push(job);
        self.last.send_replace(last);
    }

    /// The number of the last change, as it grows.
    pub fn follow(&self) -> watch::Receiver<u64> {
        self.last.subscribe()
    }

    pub fn since(&self, number: u64, most: usize) -> Since {
        let kept = self.kept.lock();
        if number < kept.before || number > kept.last() {
            return Since::Gap(kept.last());
        }
        let from = (number - kept.before) as usize;
        let some: Vec<JobKey> = kept.jobs.iter().skip(from).take(most).copied().collect();
        let through = number + some.len() as u64;
        let mut once: Vec<JobKey> = Vec::new();
        for job in some.into_iter().rev() {
            if !once.contains(&job) {
                once.push(job);
            }
        }
        once.reverse();
        Since::Jobs(once, through)
    }

    /// As an event is numbered for clients.
    pub fn id_of(&self, number: u64) -> String {
        format!("{}/{number}", self.me)
    }

    /// The number in an id of this process; none of another's.
    pub fn number_in(&self, id: &str) -> Option<u64> {
        let (who, number) = id.rsplit_once('/')?;
        (*who == *self.me).then(|| number.parse().ok())?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(of: &[u64]) -> Vec<JobKey> {
        of.iter().map(|key| JobKey(*key)).collect()
    }

    #[test]
    fn who_comes_back_hears_each_change_since_or_that_some_were_missed() {
        let hub = Hub::new(&MemberId("here".into()));
        [1, 2, 1, 3].into_iter().for_each(|job| hub.push(Some(JobKey(job))));
        assert_eq!(hub.since(0, 10), Since::Jobs(keys(&[2, 1, 3]), 4));
        assert_eq!(hub.since(3, 10), Since::Jobs(keys(&[3]), 4));
        assert_eq!(hub.since(0, 2), Since::Jobs(keys(&[1, 2]), 2), "a bound");
        assert_eq!(hub.since(4, 10), Since::Jobs(vec![], 4));
        assert_eq!(hub.since(9, 10), Since::Gap(4), "a number that was never given");
        hub.push(None);
        assert_eq!(hub.since(4, 10), Since::Gap(5));
        assert_eq!(hub.since(5, 10), Since::Jobs(vec![], 5));
        for job in 0..KEPT_MAX as u64 + 5 {
            hub.push(Some(JobKey(job)));
        }
        assert!(matches!(hub.since(6, 10), Since::Gap(_)), "too long ago");
    }

    #[test]
    fn numbers_of_another_process_mean_nothing() {
        let hub = Hub::new(&MemberId("a/b".into()));
        assert_eq!(hub.number_in(&hub.id_of(7)), Some(7));
        assert_eq!(hub.number_in("other/7"), None);
        assert_eq!((hub.number_in("7"), hub.number_in("a/b/x")), (None, None));
    }
}
