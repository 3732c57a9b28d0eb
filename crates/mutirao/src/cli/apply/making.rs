//! What was found sound is made so, kind by kind: monitors last, since they name channels. Each kind of monitors and flows is
//! written whole or not at all; should the manager go away between two writes, the file is applied again, and what is there
//! already stays.

use mutirao_client::{Client, Over};
use mutirao_conductor::view::StreamDeployed;
use mutirao_core::declared::Became;
use mutirao_flows::FlowSpec;
use mutirao_flows::view::FlowDeclared;
use mutirao_monitors::alerts::channel::ChannelSpec;
use mutirao_monitors::service::alerts::ChannelView;
use mutirao_monitors::service::declaring::{DECLARED_MAX, Declaration, Declared};

use super::checking::{Planned, Queue};
use super::{Applied, Made};
use crate::failure::Failure;

pub async fn everything(client: &Client, planned: Planned) -> Result<Vec<Applied>, Failure> {
    let mut all = Vec::new();
    match in_order(client, planned, &mut all).await {
        Ok(()) => Ok(all),
        Err(Failure::Said { code, line }) if all.iter().any(|one| one.became != Became::Unchanged) => {
            let line = format!("{line}; what the file declares is made in part: apply it again");
            Err(Failure::Said { code, line })
        }
        Err(failure) => Err(failure),
    }
}

async fn in_order(client: &Client, planned: Planned, all: &mut Vec<Applied>) -> Result<(), Failure> {
    let Planned { queues, channels, flows, monitors, streams } = planned;
    for queue in queues {
        let (became, view) = match queue {
            Queue::Stays(there) => (Became::Unchanged, there),
            Queue::IsMade(spec) => (Became::Made, Box::new(client.create_queue(&spec).await?)),
            Queue::Changes(spec, over) => (Became::Changed, Box::new(client.put_queue(&spec, Some(over)).await?)),
        };
        all.push(Applied { became, thing: Made::Queue(view) });
    }
    for channel in channels {
        all.push(channel_made_so(client, channel).await?);
    }
    flows_made_so(client, &flows, all).await?;
    monitors_made_so(client, &monitors, all).await?;
    // After the flows that they start.
    for text in &streams {
        let StreamDeployed { name, became, .. } = client.deploy_stream(text, Over::Refuse).await?;
        all.push(Applied { became, thing: Made::Stream { name } });
    }
    Ok(())
}

/// All of them or none, as many at once as are taken.
async fn monitors_made_so(client: &Client, monitors: &[Declared], all: &mut Vec<Applied>) -> Result<(), Failure> {
    for some in monitors.chunks(DECLARED_MAX) {
        let told: Vec<Declaration> = client.declare_monitors(&some).await?;
        let applied = |Declaration { became, monitor }| Applied { became, thing: Made::Monitor(Box::new(monitor)) };
        all.extend(told.into_iter().map(applied));
    }
    Ok(())
}

/// All of them or none.
async fn flows_made_so(client: &Client, flows: &[FlowSpec], all: &mut Vec<Applied>) -> Result<(), Failure> {
    if !flows.is_empty() {
        let told: Vec<FlowDeclared> = client.declare_flows(&flows).await?;
        let applied =
            |FlowDeclared { name, became, warnings }| Applied { became, thing: Made::Flow { name, warnings } };
        all.extend(told.into_iter().map(applied));
    }
    Ok(())
}

/// Written in any case: what is secret in it is not shown, so nobody here can tell whether it is the same.
async fn channel_made_so(client: &Client, spec: ChannelSpec) -> Result<Applied, Failure> {
    let there: Option<ChannelView> = match client.channel(&spec.name).await {
        Ok(there) => Some(there),
        Err(error) if error.status() == Some(404) => None,
        Err(error) => return Err(error.into()),
    };
    let view: ChannelView = client.put_channel(&spec.name, &spec).await?;
    // What is secret is not shown, so only the manager can tell whether it is the same; then it writes nothing.
    let became = match there {
        None => Became::Made,
        Some(there) if there.changed_at == view.changed_at => Became::Unchanged,
        Some(_) => Became::Changed,
    };
    Ok(Applied { became, thing: Made::Channel(Box::new(view)) })
}
