//! What a name server says of a name. The question always goes out: answers that are kept anywhere on the way of our own
//! programs would not tell of the server.

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{NameServerConfig, ResolverConfig};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::RecordType;

use crate::check::{Dns, RecordKind, split_address};
use crate::observation::{Phase, Watch};
use crate::reach::{Fault, Reach};

/// Records of one answer that are kept.
const RECORDS_MAX: usize = 100;

pub async fn ask(check: &Dns, reach: &Reach, watch: &mut Watch) -> Result<(), Fault> {
    let unusable = |error: hickory_resolver::net::NetError| Fault::Http(error.to_string());
    let mut builder = match &check.server {
        None => TokioResolver::builder_tokio().map_err(unusable)?,
        Some(server) => {
            let (host, port) = split_address(server).map_err(Fault::Http)?;
            let ip = host.parse().map_err(|_| Fault::Http(format!("{host} is not the address of a name server")))?;
            reach.allow(ip)?;
            watch.seen.address = Some((ip, port).into());
            let mut config = NameServerConfig::udp_and_tcp(ip);
            config.connections.iter_mut().for_each(|connection| connection.port = port);
            TokioResolver::builder_with_config(
                ResolverConfig::from_name_servers(vec![config]),
                TokioRuntimeProvider::default(),
            )
        }
    };
    builder.options_mut().cache_size = 0;
    let resolver = builder.build().map_err(unusable)?;
    watch.enter(Phase::FirstByte);
    // Whole names only: what a search list would find is not what was asked for.
    let name = if check.name.ends_with('.') { check.name.clone() } else { format!("{}.", check.name) };
    let found = resolver.lookup(name, record_type(check.record)).await;
    let found = found.map_err(|error| Fault::NoAddress { name: check.name.clone(), why: error.to_string() })?;
    let wanted = record_type(check.record);
    let records = found.answers().iter().filter(|record| record.record_type() == wanted);
    watch.seen.answers = records.take(RECORDS_MAX).map(|record| record.data.to_string()).collect();
    watch.seen.answers.sort();
    Ok(())
}

fn record_type(kind: RecordKind) -> RecordType {
    match kind {
        RecordKind::A => RecordType::A,
        RecordKind::Aaaa => RecordType::AAAA,
        RecordKind::Cname => RecordType::CNAME,
        RecordKind::Mx => RecordType::MX,
        RecordKind::Ns => RecordType::NS,
        RecordKind::Ptr => RecordType::PTR,
        RecordKind::Soa => RecordType::SOA,
        RecordKind::Srv => RecordType::SRV,
        RecordKind::Txt => RecordType::TXT,
    }
}
