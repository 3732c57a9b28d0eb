//! A source that has something and cannot get rid of it says that it is not silent, or its readers would let its time go on by the
//! clock, and what it has would be late.

use std::time::Duration;

use mutirao_core::Mono;
use mutirao_streams::graph::Port;
use mutirao_streams::part::not_silent;
use tokio::task::JoinHandle;

use super::super::Job;
use super::super::outputs::Outputs;

/// What is given to a log and not there by then is held up.
const HELD: Duration = Duration::from_millis(250);
const EVERY_MIN: Duration = Duration::from_millis(250);
const EVERY_MAX: Duration = Duration::from_secs(5);
/// It is said so many times within what counts as silence.
const OFTEN: u32 = 4;

pub struct Signs {
    source: usize,
    every: Duration,
    /// Of each log in which somebody minds its silence.
    logs: Vec<Sign>,
}

struct Sign {
    log: String,
    durable: u64,
    /// When something of it got there last, or nothing waited.
    moved: Mono,
    said: Option<Mono>,
    saying: Option<JoinHandle<()>>,
}

impl Signs {
    pub fn of(job: &Job, source: usize, outputs: &Outputs, now: Mono) -> Self {
        let of = &job.graph.sources[source];
        let readers = job.graph.readers(Port::Source(source));
        let minds = of.idle.filter(|_| of.time.is_some());
        let logs = outputs.writers().filter(|(what, _)| minds.is_some() && readers.contains(what));
        let sign = |log: &str| Sign { log: log.to_owned(), durable: 0, moved: now, said: None, saying: None };
        let logs = logs.map(|(_, writer)| sign(writer.log())).collect();
        let every = minds.map_or(EVERY_MAX, |idle| (idle / OFTEN).clamp(EVERY_MIN, EVERY_MAX));
        Self { source, every, logs }
    }

    pub fn look(&mut self, job: &Job, outputs: &Outputs, now: Mono) {
        let takes = outputs.has_room();
        for sign in &mut self.logs {
            let Some((_, writer)) = outputs.writers().find(|(_, writer)| writer.log() == sign.log) else { continue };
            let durable = writer.durable();
            if writer.is_idle() || durable != sign.durable {
                (sign.durable, sign.moved) = (durable, now);
            }
            let is_held = !takes || now.since(sign.moved) >= HELD;
            let is_due = sign.said.is_none_or(|said| now.since(said) >= self.every);
            let is_free = sign.saying.as_ref().is_none_or(JoinHandle::is_finished);
            if is_held && is_due && is_free {
                sign.said = Some(now);
                let (broker, log) = (job.means.broker.clone(), sign.log.clone());
                let word = not_silent(self.source, job.means.now_us());
                // Who does not hear it now hears the next one.
                sign.saying = Some(tokio::spawn(async move { drop(broker.add(&log, vec![word.into()]).await) }));
            }
        }
    }
}
