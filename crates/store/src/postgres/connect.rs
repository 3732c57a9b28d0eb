//! The way to the server: its address, how many connections, and every bound on them with its reason.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use deadpool_postgres::{Connect, Hook, HookError, Manager, ManagerConfig, Pool, RecyclingMethod, Runtime};
use tokio::task::JoinHandle;
use tokio_postgres::config::Host;
use tokio_postgres::{Client, Config};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::errors;
use super::tls::Wanted;
use crate::StoreError;

/// Connections of one [`Postgres::open`](super::Postgres::open). PostgreSQL allows a hundred by default: room for several
/// managers, a person with a shell and a backup. More would not be faster: settlements are one at a time, and reads are
/// short.
pub const CONNECTIONS_MAX: usize = 8;
/// To reach the server, and for it to let us in.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// For somebody else to be done with a connection. Longer than any settlement should take.
const FREE_WITHIN: Duration = Duration::from_secs(30);
/// A server that vanished without a word (a pulled cable, a lost virtual machine) is noticed after about this long.
const SILENT_MAX: Duration = Duration::from_secs(20);
const KEEPALIVE_IDLE: Duration = Duration::from_secs(10);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(3);
const KEEPALIVE_PROBES: u32 = 3;
/// 13 is the oldest that the project still mended in 2025, and the first that vacuums tables which only grow.
const VERSION_MIN: u32 = 13;

/// For a row that somebody else has locked. Nobody of ours holds one for so long; a person with a shell may, or a process
/// that froze, and then whoever waits gives up, says so, and leaves the connection to others.
const LOCK_WITHIN: Duration = Duration::from_secs(10);
/// For the next word in a transaction of ours that has begun: whoever is silent for longer is frozen or cut off, and must
/// not hold its locks until somebody notices.
const NEXT_WORD_WITHIN: Duration = Duration::from_secs(60);

/// What is durable must not depend on how somebody set up the server. The stronger settings stay as they are.
const DURABLE: &str = "SELECT set_config('synchronous_commit', 'on', false)
    WHERE current_setting('synchronous_commit') = 'off'";

/// Bounds that a server's administrator set closer stay as they are.
fn bounds() -> String {
    let (lock_ms, word_ms) = (LOCK_WITHIN.as_millis(), NEXT_WORD_WITHIN.as_millis());
    format!(
        "SELECT set_config(b.name, most_ms::text, false)
         FROM (VALUES ('lock_timeout', {lock_ms}), ('idle_in_transaction_session_timeout', {word_ms})) b (name, most_ms)
         WHERE (SELECT setting::bigint FROM pg_settings s WHERE s.name = b.name) NOT BETWEEN 1 AND most_ms"
    )
}

pub(super) struct Plan {
    config: Config,
    tls: Wanted,
    /// Without the password.
    pub address: String,
}

impl Plan {
    pub fn read(url: &str) -> Result<Plan, StoreError> {
        let parsed = parse(url).map_err(|why| StoreError::Unusable { path: "the database".into(), why });
        let (mut config, tls) = parsed?;
        let address = address_of(&config);
        if config.get_application_name().is_none() {
            config.application_name("mutirao");
        }
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT_WITHIN);
        }
        config
            .tcp_user_timeout(SILENT_MAX)
            .keepalives_idle(KEEPALIVE_IDLE)
            .keepalives_interval(KEEPALIVE_INTERVAL)
            .keepalives_retries(KEEPALIVE_PROBES);
        Ok(Plan { config, tls, address })
    }

    pub fn pool(self, connections_max: usize) -> Result<Pool, StoreError> {
        // No question before each use: whoever gets a connection that has just died tries again anyway.
        let manager_config = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let unusable = |why| StoreError::Unusable { path: self.address.clone(), why };
        let connector = self.tls.connector().map_err(unusable)?;
        let manager = Manager::from_connect(self.config, Dial(connector), manager_config);
        let settings = format!("{DURABLE}; {}", bounds());
        let pool = Pool::builder(manager)
            .max_size(connections_max)
            .runtime(Runtime::Tokio1)
            .wait_timeout(Some(FREE_WITHIN))
            .create_timeout(Some(2 * CONNECT_WITHIN))
            .post_create(Hook::async_fn(move |client, _| {
                let settings = settings.clone();
                Box::pin(async move { client.batch_execute(&settings).await.map_err(HookError::Backend) })
            }))
            .build();
        pool.map_err(|error| unusable(error.to_string()))
    }
}

/// Makes connections. What ends one is told here at a low level, since whoever used it tells it as well.
struct Dial(MakeRustlsConnect);

impl Connect for Dial {
    fn connect(&self, config: &Config) -> Pin<Box<dyn Future<Output = Connected> + Send + '_>> {
        let (config, connector) = (config.clone(), self.0.clone());
        Box::pin(async move {
            let (client, connection) = config.connect(connector).await?;
            let driving = tokio::spawn(async move {
                if let Err(error) = connection.await {
                    tracing::debug!(error = &error as &dyn std::error::Error, "a connection to the database ended");
                }
            });
            Ok((client, driving))
        })
    }
}

type Connected = Result<(Client, JoinHandle<()>), tokio_postgres::Error>;

/// Whether this could be the address of a database; says how to write one when not.
pub fn check_url(url: &str) -> Result<(), String> {
    parse(url).map(drop)
}

fn parse(url: &str) -> Result<(Config, Wanted), String> {
    let form = "write it like postgres://user:password@host:5432/database";
    // The text may hold a password, so it is never repeated.
    if !["postgres://", "postgresql://"].iter().any(|scheme| url.starts_with(scheme)) {
        return Err(format!("is not the address of a PostgreSQL database; {form}"));
    }
    let (tls, rest) = Wanted::take_from(url)?;
    let mut config: Config = rest.parse().map_err(|error: tokio_postgres::Error| {
        let why = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
        format!("is not the address of a PostgreSQL database ({why}); {form}")
    })?;
    match (config.get_hosts(), config.get_user()) {
        ([], _) => Err(format!("names no host; {form}")),
        (_, None) => Err(format!("names no user; {form}")),
        _ => {
            config.ssl_mode(tls.mode);
            Ok((config, tls))
        }
    }
}

fn address_of(config: &Config) -> String {
    let port = |n: usize| config.get_ports().get(n).or(config.get_ports().first()).copied().unwrap_or(5432);
    let host = |(n, host): (usize, &Host)| match host {
        Host::Tcp(name) => format!("{name}:{}", port(n)),
        Host::Unix(path) => format!("{}:{}", path.display(), port(n)),
    };
    let hosts: Vec<String> = config.get_hosts().iter().enumerate().map(host).collect();
    let user = config.get_user().unwrap_or_default();
    format!("postgres://{user}@{}/{}", hosts.join(","), config.get_dbname().unwrap_or(user))
}

pub(super) async fn check_version(client: &Client, address: &str) -> Result<(), StoreError> {
    let row = client.query_one("SHOW server_version_num", &[]).await;
    let row = row.map_err(|error| errors::while_opening(error, address))?;
    let number: u32 = row.try_get::<_, &str>(0).ok().and_then(|text| text.parse().ok()).unwrap_or(0);
    will_do(number).map_err(|why| StoreError::Unusable { path: address.into(), why })
}

fn will_do(version_number: u32) -> Result<(), String> {
    match version_number / 10_000 {
        major if major >= VERSION_MIN => Ok(()),
        major => Err(format!("it is PostgreSQL {major}; upgrade it to {VERSION_MIN} or newer")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_shown_without_its_password() {
        let shown = |url: &str| Plan::read(url).unwrap().address;
        assert_eq!(shown("postgres://ana:s3cret@db.example:6000/lab"), "postgres://ana@db.example:6000/lab");
        assert_eq!(shown("postgresql://ana:s3cret@a,b/lab"), "postgres://ana@a:5432,b:5432/lab");
        assert_eq!(shown("postgres://ana@h"), "postgres://ana@h:5432/ana");
    }

    #[test]
    fn what_is_no_address_is_told_without_repeating_it() {
        for bad in
            ["", "s3cret", "mysql://a:s3cret@h/d", "postgres://a:s3cret@h:port/d", "postgres:///d", "postgres://h/d"]
        {
            let why = check_url(bad).unwrap_err();
            assert!(why.contains("postgres://user:password@host") && !why.contains("s3cret"), "{bad}: {why}");
        }
        assert_eq!(check_url("postgres://ana:pw@h:1/d?options=-csearch_path%3Dx"), Ok(()));
    }

    #[test]
    fn a_server_that_is_too_old_is_named_with_the_remedy() {
        assert_eq!(will_do(120_022), Err("it is PostgreSQL 12; upgrade it to 13 or newer".into()));
        assert_eq!(will_do(90_624), Err("it is PostgreSQL 9; upgrade it to 13 or newer".into()));
        assert_eq!((will_do(130_000), will_do(180_001)), (Ok(()), Ok(())));
    }
}
