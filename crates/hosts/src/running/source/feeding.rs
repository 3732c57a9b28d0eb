//! Takes what comes in a task of its own: what it waits for there is not begun anew each time that something else is looked at.

use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::running::Means;
use crate::sources::{Feed, Taken};

const PAUSE_MIN: Duration = Duration::from_millis(250);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// Tickets that wait to be settled: the last of them is what counts.
const SETTLED: usize = 16;

pub enum Fed {
    /// With how far it is, if it can go back there.
    Taken(Taken, Option<Vec<u8>>),
    /// Nothing can come at the moment.
    Trouble(String),
}

pub struct Feeding {
    fed: mpsc::Receiver<Fed>,
    settled: Option<mpsc::Sender<u64>>,
    /// What could not be told yet.
    owed: Option<u64>,
    position: Option<Vec<u8>>,
    is_settled: bool,
    troubled: bool,
    task: JoinHandle<()>,
    parted: Option<oneshot::Receiver<()>>,
}

impl Feeding {
    pub fn start(feed: Box<dyn Feed>, means: &Means) -> Self {
        let (tell, fed) = mpsc::channel(1);
        let (settled, heard) = mpsc::channel(SETTLED);
        let (gone, parted) = oneshot::channel();
        let (position, is_settled) = (feed.position(), feed.is_settled());
        let means = means.clone();
        let task = tokio::spawn(async move {
            take(feed, tell, heard, means).await;
            let _ = gone.send(());
        });
        Self {
            fed,
            settled: Some(settled),
            owed: None,
            position,
            is_settled,
            troubled: false,
            task,
            parted: Some(parted),
        }
    }

    /// Where it begins.
    pub fn position(&self) -> Option<Vec<u8>> {
        self.position.clone()
    }

    pub fn is_settled(&self) -> bool {
        self.is_settled
    }

    pub fn is_empty(&self) -> bool {
        self.fed.is_empty()
    }

    /// Whether nothing could come when it was looked at last.
    pub fn is_troubled(&self) -> bool {
        self.troubled
    }

    /// Cancel-safe.
    pub async fn next(&mut self) -> Fed {
        match self.fed.recv().await {
            Some(fed) => {
                self.troubled = matches!(fed, Fed::Trouble(_));
                fed
            }
            None => std::future::pending().await,
        }
    }

    pub fn settle(&mut self, ticket: u64) {
        if !self.is_settled {
            return;
        }
        let ticket = self.owed.take().map_or(ticket, |owed| owed.max(ticket));
        let told = self.settled.as_ref().is_some_and(|settled| settled.try_send(ticket).is_ok());
        self.owed = (!told).then_some(ticket);
    }

    /// What was settled is told to where it came from, and nothing more is taken.
    pub async fn part(&mut self) {
        if let (Some(ticket), Some(settled)) = (self.owed.take(), &self.settled) {
            let _ = settled.send(ticket).await;
        }
        self.settled = None;
        self.fed.close();
        if let Some(parted) = self.parted.take() {
            let _ = parted.await;
        }
    }
}

impl Drop for Feeding {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn take(mut feed: Box<dyn Feed>, tell: mpsc::Sender<Fed>, mut settled: mpsc::Receiver<u64>, means: Means) {
    let mut pause = PAUSE_MIN;
    loop {
        let fed = tokio::select! {
            biased;
            ticket = settled.recv() => match ticket {
                Some(ticket) => {
                    feed.settle(ticket);
                    continue;
                }
                None => return,
            },
            taken = feed.next() => match taken {
                Ok(taken) => {
                    pause = PAUSE_MIN;
                    let position = feed.position();
                    Fed::Taken(taken, position)
                }
                Err(why) => Fed::Trouble(why),
            },
        };
        let troubled = matches!(fed, Fed::Trouble(_));
        let mut giving = std::pin::pin!(tell.send(fed));
        loop {
            tokio::select! {
                given = &mut giving => match given {
                    Ok(()) => break,
                    Err(_) => break,
                },
                ticket = settled.recv() => match ticket {
                    Some(ticket) => feed.settle(ticket),
                    None => return,
                },
            }
        }
        if troubled {
            means.clock.sleep(means.dice.jitter(pause)).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }
}
