//! Settings that are never shown whole, since there is a password in them or may be: not by `config show`, not in a log, and
//! not by a refusal.

use std::fmt;
use std::str::FromStr;

use super::Kind;
use crate::config::table::Secrecy;

macro_rules! masked {
    ($( $(#[doc = $what:literal])+ $kind:ident, $name:literal, $check:expr; )+) => { $(
        $(#[doc = $what])+
        #[derive(Clone, PartialEq, Eq)]
        pub struct $kind(pub String);

        impl Kind for $kind {
            const NAME: &'static str = $name;
            const SECRECY: Secrecy = Secrecy::Masked;
        }

        impl FromStr for $kind {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                let check: fn(&str) -> Result<(), String> = $check;
                check(text.trim()).map(|()| Self(text.trim().into()))
            }
        }

        impl fmt::Debug for $kind {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(concat!(stringify!($kind), "(…)"))
            }
        }
    )+ };
}

masked! {
    /// A text.
    Secret, "secret", not_empty;
    /// The address of a database.
    DatabaseUrl, "url", mutirao_store::postgres::check_url;
    /// The address of a RabbitMQ.
    BrokerUrl, "url", mutirao_broker::rabbit::check_url;
    /// The address of a Redis.
    CacheUrl, "url", mutirao_kv::cache::redis::check_url;
    /// The address of RabbitMQ's management API.
    ManagementUrl, "url", management;
}

fn not_empty(text: &str) -> Result<(), String> {
    if text.is_empty() { Err("is empty; give it or leave it out".into()) } else { Ok(()) }
}

fn management(text: &str) -> Result<(), String> {
    if text.starts_with("http://") || text.starts_with("https://") {
        return Ok(());
    }
    Err("it is not an address: write it like http://user:password@host:15672".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_masked_is_checked_and_never_printed() {
        let database: DatabaseUrl = "postgres://ana:s3cret@db/lab".parse().unwrap();
        let broker: BrokerUrl = "amqp://ana:s3cret@rabbit/lab".parse().unwrap();
        let management: ManagementUrl = "http://ana:s3cret@rabbit:15672".parse().unwrap();
        let secret: Secret = "s3cret".parse().unwrap();
        let printed = format!("{database:?} {broker:?} {management:?} {secret:?}");
        assert_eq!(printed, "DatabaseUrl(…) BrokerUrl(…) ManagementUrl(…) Secret(…)");
    }

    #[test]
    fn a_refusal_says_how_to_write_it_and_not_what_was_written() {
        let refusals = [
            "mysql://ana:s3cret@db/lab".parse::<DatabaseUrl>().unwrap_err(),
            "redis://ana:s3cret@rabbit".parse::<BrokerUrl>().unwrap_err(),
            "ana:s3cret@rabbit".parse::<ManagementUrl>().unwrap_err(),
        ];
        for why in refusals {
            assert!(why.contains("write it like") && !why.contains("s3cret"), "{why}");
        }
        assert!(" ".parse::<Secret>().is_err());
    }
}
