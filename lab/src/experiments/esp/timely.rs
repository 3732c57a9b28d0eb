//! The same with `timely`, on one worker thread: rows instead of columns, and what is done with them compiled in.

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::Hash;
use std::rc::Rc;
use std::sync::Mutex;

use anyhow::Context;
use timely::dataflow::channels::pact::Pipeline;
use timely::dataflow::operators::vec::{Filter, Map};
use timely::dataflow::operators::{Capability, Operator, Probe};
use timely::dataflow::{InputHandle, ProbeHandle};

use super::four::Done;
use super::load::{self, KeyKind};

pub fn jumping(keys: KeyKind, events: u64) -> anyhow::Result<(f64, Done)> {
    match keys {
        KeyKind::Int => run(events, load::key),
        KeyKind::Text => run(events, load::text_key),
    }
}

fn run<K: Hash + Eq + Clone + Send + 'static>(events: u64, key: fn(u64) -> K) -> anyhow::Result<(f64, Done)> {
    let batch = |first: u64| {
        let numbers = first..events.min(first + load::BATCH as u64);
        let end = load::time(numbers.end);
        (numbers.map(|n| (key(n), load::value(n))).collect::<Vec<_>>(), load::time(first) / load::WINDOW_US, end)
    };
    // A batch is in the window of its first event; the few at its end that are in the next make no difference to the cost.
    let batches: Vec<_> = (0..events).step_by(load::BATCH).map(batch).collect();
    let batches = Mutex::new(Some(batches));
    let measured = timely::execute::execute_directly(move |worker| {
        let done = Rc::new(RefCell::new(Done::default()));
        let said = done.clone();
        let (mut input, probe) = (InputHandle::<u64, _>::new(), ProbeHandle::new());
        worker.dataflow(|scope| {
            input
                .to_stream(scope)
                .filter(|(_, value): &(K, f64)| *value > 10.0)
                .map(|(key, value)| (key, value * 1.1))
                .unary_frontier(Pipeline, "window", move |_, _| {
                    // One or two are open at a time.
                    let mut windows = Vec::new();
                    move |(input, frontier), output| {
                        input.for_each(|time, rows| {
                            let known =
                                windows.iter().position(|(open, _): &(Capability<u64>, _)| open.time() == time.time());
                            let at = known.unwrap_or_else(|| {
                                windows.push((time.retain(0), HashMap::<K, (u64, f64)>::new()));
                                windows.len() - 1
                            });
                            for (key, value) in rows.drain(..) {
                                let sum = windows[at].1.entry(key).or_default();
                                *sum = (sum.0 + 1, sum.1 + value);
                            }
                        });
                        windows.retain_mut(|(time, window)| {
                            let open = frontier.less_equal(time.time());
                            if !open {
                                let rows = window.drain().map(|(key, (count, sum))| (key, count, sum));
                                output.session(time).give_iterator(rows);
                            }
                            open
                        });
                    }
                })
                .map(move |(_, count, sum)| {
                    let mut said = said.borrow_mut();
                    said.count += count;
                    said.sum += sum;
                })
                .probe_with(&probe);
        });
        let batches = batches.lock().ok().and_then(|mut batches| batches.take()).unwrap_or_default();
        let begin = load::cpu();
        for (mut rows, window, _) in batches {
            input.advance_to(window as u64);
            input.send_batch(&mut rows);
            worker.step();
        }
        drop(input);
        while !probe.done() {
            worker.step();
        }
        let took = load::cpu() - begin;
        let done = *done.borrow();
        (took, done)
    });
    let (took, done) = measured;
    anyhow::ensure!(done.count > 0, "timely said nothing");
    Some((events as f64 / took.as_secs_f64(), done)).context("timely took no time")
}
