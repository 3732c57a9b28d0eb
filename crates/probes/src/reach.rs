//! The way to a service: its name looked up, its address allowed, a connection, and TLS over it.
//!
//! Whoever may define a monitor makes our machines connect to where they say. Addresses that only mean something to the
//! machine itself or to its cloud, above all the metadata services that hand out its credentials, are therefore not probed
//! unless somebody allowed it. The address is looked at after the name was resolved, on each connection, so no name and no
//! redirect leads around it. Monitors may look at services of the machine itself; whoever has requests made for other reasons
//! ([`Reach::for_calls`]) may not, unless that was allowed too: much that listens there lets in whoever comes.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use hickory_resolver::TokioResolver;
use mutirao_tls::{Believe, TlsError, Trust};
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::observation::{Certificate, Phase, Watch};

/// Addresses of one name that are tried, one after the other.
const TRIED_MAX: usize = 4;

/// Why there was no answer.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    #[error("{name} has no address: {why}")]
    NoAddress { name: String, why: String },
    #[error("{ip} is an address of this machine or of its cloud, which is not probed unless {setting} allows it")]
    Forbidden { ip: IpAddr, setting: &'static str },
    #[error("{address}: {why}")]
    Refused { address: SocketAddr, why: String },
    #[error("{0}")]
    Tls(String),
    #[error("{0}")]
    Http(String),
}

/// Whether addresses are probed that are no service of anybody.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strangers {
    #[default]
    Refused,
    Allowed,
}

#[derive(Clone)]
pub struct Reach {
    resolver: Arc<TokioResolver>,
    trust: Trust,
    surroundings: Bar,
    loopback: Bar,
}

/// Whether a kind of address is gone to, and which setting says so.
#[derive(Clone, Copy)]
struct Bar {
    strangers: Strangers,
    setting: &'static str,
}

impl Reach {
    /// With the system's resolver settings and authorities, and those in `believe`.
    pub fn new(believe: &Believe, strangers: Strangers) -> Result<Self, ReachError> {
        let resolver = TokioResolver::builder_tokio().and_then(|builder| builder.build());
        let resolver = Arc::new(resolver.map_err(|error| ReachError::Resolver(error.to_string()))?);
        let surroundings = Bar { strangers, setting: "monitors.surroundings" };
        let loopback = Bar { strangers: Strangers::Allowed, setting: "" };
        Ok(Self { resolver, trust: Trust::for_url("https:", believe)?, surroundings, loopback })
    }

    /// For requests that are more than a look: the machine's own addresses are strangers too, unless they are allowed.
    pub fn for_calls(self, loopback: Strangers) -> Self {
        Self {
            surroundings: Bar { setting: "flows.surroundings", ..self.surroundings },
            loopback: Bar { strangers: loopback, setting: "flows.loopback" },
            ..self
        }
    }

    /// A connection, to the first address of the name that takes one.
    pub async fn connect(&self, host: &str, port: u16, watch: &mut Watch) -> Result<TcpStream, Fault> {
        watch.enter(Phase::Dns);
        let addresses = self.addresses(host).await?;
        watch.enter(Phase::Connect);
        let mut last = None;
        for ip in addresses.into_iter().take(TRIED_MAX) {
            self.allow(ip)?;
            let address = SocketAddr::new(ip, port);
            watch.seen.address = Some(address);
            match TcpStream::connect(address).await {
                Ok(stream) => {
                    // A request is one small write: waiting to fill a packet would only be measured.
                    let _ = stream.set_nodelay(true);
                    return Ok(stream);
                }
                Err(error) => last = Some(Fault::Refused { address, why: plain(&error) }),
            }
        }
        Err(last.unwrap_or_else(|| Fault::NoAddress { name: host.into(), why: "none was found".into() }))
    }

    /// TLS over a connection, with the best of these protocols (ALPN).
    pub async fn encrypt(
        &self,
        stream: TcpStream,
        name: &str,
        protocols: &[&[u8]],
        watch: &mut Watch,
    ) -> Result<TlsStream<TcpStream>, Fault> {
        watch.enter(Phase::Tls);
        let server = ServerName::try_from(name.to_owned())
            .map_err(|_| Fault::Tls(format!("\"{name}\" is not a name that a certificate could be for")))?;
        let mut config = (*self.trust.config_for(None)).clone();
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        let connected = TlsConnector::from(Arc::new(config)).connect(server, stream).await;
        let stream = connected.map_err(|error| Fault::Tls(words(&error)))?;
        let chain = stream.get_ref().1.peer_certificates().unwrap_or_default();
        watch.seen.certificate = chain.first().and_then(|own| {
            let until = mutirao_tls::ends_at(own).ok()?;
            let days_left = mutirao_tls::days_left(until, watch.clock().now());
            Some(Certificate { until, days_left, chain: chain.len() })
        });
        Ok(stream)
    }

    /// Where a name leads, if one may go there.
    pub async fn first_address(&self, host: &str) -> Result<IpAddr, Fault> {
        let none = || Fault::NoAddress { name: host.into(), why: "none was found".into() };
        let ip = self.addresses(host).await?.into_iter().next().ok_or_else(none)?;
        self.allow(ip).map(|()| ip)
    }

    pub fn allow(&self, ip: IpAddr) -> Result<(), Fault> {
        let bar = match ip {
            _ if is_stranger(ip) => self.surroundings,
            _ if is_loopback(ip) => self.loopback,
            _ => return Ok(()),
        };
        match bar.strangers {
            Strangers::Allowed => Ok(()),
            Strangers::Refused => Err(Fault::Forbidden { ip, setting: bar.setting }),
        }
    }

    async fn addresses(&self, host: &str) -> Result<Vec<IpAddr>, Fault> {
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        if let Ok(ip) = bare.parse() {
            return Ok(vec![ip]);
        }
        let found = self.resolver.lookup_ip(host).await;
        let found = found.map_err(|error| Fault::NoAddress { name: host.into(), why: error.to_string() })?;
        Ok(found.iter().collect())
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ReachError {
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error("the system's DNS settings cannot be used: {0}")]
    Resolver(String),
}

/// Link-local and metadata addresses, and those that are no single host.
pub fn is_stranger(ip: IpAddr) -> bool {
    match behind(ip) {
        IpAddr::V4(ip) => {
            ip.is_link_local() || ip.is_unspecified() || ip.is_broadcast() || ip.is_multicast()
                // Metadata services of clouds that are not link-local.
                || ip.octets() == [100, 100, 100, 200] || ip.octets() == [168, 63, 129, 16]
        }
        IpAddr::V6(ip) => {
            ip.is_unicast_link_local()
                || ip.is_unspecified()
                || ip.is_multicast()
                || ip.segments() == [0xfd00, 0x0ec2, 0, 0, 0, 0, 0, 0x0254]
        }
    }
}

/// The machine itself, however it is written.
pub fn is_loopback(ip: IpAddr) -> bool {
    behind(ip).is_loopback()
}

/// Where an address leads: some of the sixth version only carry one of the fourth (mapped, NAT64, 6to4).
fn behind(ip: IpAddr) -> IpAddr {
    let IpAddr::V6(six) = ip.to_canonical() else { return ip.to_canonical() };
    let four = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        IpAddr::from([a, b, c, d])
    };
    match six.segments() {
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] => four(high, low),
        _ => IpAddr::V6(six),
    }
}

fn plain(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::ConnectionRefused => "nobody listens there".into(),
        std::io::ErrorKind::NetworkUnreachable | std::io::ErrorKind::HostUnreachable => "there is no way to it".into(),
        _ => error.to_string(),
    }
}

/// An error with its causes, each said once.
pub(crate) fn words(error: &(dyn std::error::Error + 'static)) -> String {
    if let Some(fault) = mutirao_tls::Fault::find(error) {
        return fault.to_string();
    }
    let (mut line, mut cause) = (error.to_string(), error.source());
    while let Some(inner) = cause {
        let said = inner.to_string();
        if !line.contains(&said) {
            line = format!("{line}: {said}");
        }
        cause = inner.source();
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_the_machine_s_own_surroundings_are_strangers_however_they_are_written() {
        for ip in
            ["169.254.169.254", "::ffff:169.254.169.254", "fe80::1", "fd00:ec2::254", "0.0.0.0", "::", "224.0.0.1"]
        {
            assert!(is_stranger(ip.parse().unwrap()), "{ip}");
        }
        for ip in ["64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::1"] {
            assert!(is_stranger(ip.parse().unwrap()), "{ip} carries 169.254.169.254");
        }
        for ip in ["127.0.0.1", "10.0.0.1", "192.0.2.7", "::1", "2001:db8::1"] {
            assert!(!is_stranger(ip.parse().unwrap()), "{ip}");
        }
    }

    #[tokio::test]
    async fn calls_go_to_the_machine_itself_only_if_that_is_allowed_and_looks_always() {
        let reach = || Reach::new(&Believe::default(), Strangers::Refused).unwrap();
        for ip in ["127.0.0.1", "127.8.9.1", "::1", "::ffff:127.0.0.1", "64:ff9b::7f00:1"] {
            let ip: IpAddr = ip.parse().unwrap();
            assert!(reach().allow(ip).is_ok(), "a monitor looks at {ip}");
            let line = reach().for_calls(Strangers::Refused).allow(ip).unwrap_err().to_string();
            assert!(line.contains("unless flows.loopback allows it"), "{line}");
            assert!(reach().for_calls(Strangers::Allowed).allow(ip).is_ok(), "{ip}");
        }
        let cloud = reach().for_calls(Strangers::Allowed).allow("169.254.169.254".parse().unwrap());
        assert!(cloud.unwrap_err().to_string().contains("unless flows.surroundings allows it"));
        let allowed = Reach::new(&Believe::default(), Strangers::Allowed).unwrap().for_calls(Strangers::Refused);
        assert!(allowed.allow("169.254.169.254".parse().unwrap()).is_ok());
        assert!(allowed.allow("127.0.0.1".parse().unwrap()).is_err());
    }
}
