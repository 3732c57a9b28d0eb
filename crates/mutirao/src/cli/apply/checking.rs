//! What the manager would refuse of all that the files declare: asked before anything is made, and collected with its place.

use std::collections::HashMap;

use mutirao_client::{Client, Over};
use mutirao_core::declared::Wrong;
use mutirao_flows::FlowSpec;
use mutirao_monitors::alerts::channel::ChannelSpec;
use mutirao_monitors::service::declaring::{DECLARED_MAX, Declared, Pause};
use mutirao_queues::{QueueSpec, QueueView};

use super::declared::{Files, Place, Placed};
use crate::failure::Failure;

/// Definitions that are sent to be checked together.
const STREAMS_AT_ONCE: usize = 100;

/// What is to be done, all of it sound.
#[derive(Debug, Default)]
pub struct Planned {
    pub queues: Vec<Queue>,
    pub channels: Vec<ChannelSpec>,
    pub flows: Vec<FlowSpec>,
    pub monitors: Vec<Declared>,
    /// As they are written.
    pub streams: Vec<String>,
}

/// What is to become of a queue.
#[derive(Debug)]
pub enum Queue {
    Stays(Box<QueueView>),
    IsMade(Box<QueueSpec>),
    /// Only over this revision: whoever changes it meanwhile is not undone.
    Changes(Box<QueueSpec>, u64),
}

impl Queue {
    fn written(&self) -> Option<&QueueSpec> {
        match self {
            Queue::Stays(_) => None,
            Queue::IsMade(spec) | Queue::Changes(spec, _) => Some(spec),
        }
    }
}

/// What is wrong goes to the files' other wrongs.
pub async fn everything(client: &Client, files: &mut Files) -> Result<Planned, Failure> {
    let (queue_places, queues) = apart(std::mem::take(&mut files.queues));
    let queues = to_become(client, queues).await?;
    // One that stays is not judged again: what it asks for may be had no more, and that is no mistake of the file.
    let written: Vec<(&Place, &QueueSpec)> =
        queue_places.iter().zip(&queues).filter_map(|(place, queue)| Some((place, queue.written()?))).collect();
    if !written.is_empty() {
        let (places, specs): (Vec<&Place>, Vec<&QueueSpec>) = written.into_iter().unzip();
        let wrong = client.check_queues(&specs).await?;
        files.wrong.extend(placed(&places, wrong));
    }
    let (places, channels) = apart(std::mem::take(&mut files.channels));
    if !channels.is_empty() {
        files.wrong.extend(placed(&places, client.check_channels(&channels).await?));
    }
    let (places, flows) = apart(std::mem::take(&mut files.flows));
    if !flows.is_empty() {
        files.wrong.extend(placed(&places, client.check_flows(&flows).await?));
    }
    let (places, monitors) = apart(std::mem::take(&mut files.monitors));
    for (places, some) in places.chunks(DECLARED_MAX).zip(monitors.chunks(DECLARED_MAX)) {
        files.wrong.extend(placed(places, client.check_monitors(some, &files.channel_names).await?));
    }
    let (places, streams) = apart(std::mem::take(&mut files.streams));
    let texts: Vec<&str> = streams.iter().map(String::as_str).collect();
    for (places, some) in places.chunks(STREAMS_AT_ONCE).zip(texts.chunks(STREAMS_AT_ONCE)) {
        // One in whose place another comes forgets what it kept: that is asked for by name, with `stream deploy`.
        files.wrong.extend(placed(places, client.check_streams(some, Over::Refuse).await?));
    }
    Ok(Planned { queues, channels, flows, monitors, streams })
}

async fn to_become(client: &Client, all: Vec<(QueueSpec, Pause)>) -> Result<Vec<Queue>, Failure> {
    if all.is_empty() {
        return Ok(Vec::new());
    }
    let there = client.queues().await?.into_iter().map(|view| (view.definition.name.clone(), view));
    let mut there: HashMap<_, QueueView> = there.collect();
    let become_ = |(mut spec, pause): (QueueSpec, Pause)| {
        let Some(there) = there.remove(&spec.name) else { return Queue::IsMade(Box::new(spec)) };
        if there.unreadable.is_none() {
            if pause == Pause::NotSaid {
                spec.paused = there.definition.paused;
            }
            if there.definition == spec {
                return Queue::Stays(Box::new(there));
            }
        }
        Queue::Changes(Box::new(spec), there.revision)
    };
    Ok(all.into_iter().map(become_).collect())
}

fn apart<T>(all: Vec<Placed<T>>) -> (Vec<Place>, Vec<T>) {
    all.into_iter().map(|Placed { place, what }| (place, what)).unzip()
}

/// What the manager says of those that it was sent, at their places.
fn placed<P: std::borrow::Borrow<Place>>(places: &[P], wrong: Vec<Wrong>) -> Vec<(Place, String)> {
    let at = |Wrong { at, problem }: Wrong| Some((places.get(at)?.borrow().clone(), problem.line()));
    wrong.into_iter().filter_map(at).collect()
}
