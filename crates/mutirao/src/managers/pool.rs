//! Managers that a resource manager starts beside the first, on the same machine and at the same address: how many there may be,
//! and what each is started with.
//!
//! **What lets them in.** Like the first they open the database and the broker with credentials of the installation. They get
//! everything that the first was told, over their stdin, in memory from end to end: nothing of it is in an argument, in the
//! environment or in a file. Only `up` has it to give; a resource manager elsewhere could not share the address anyway.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;

use clap::Args;
use mutirao_core::WorkerId;
use mutirao_elastic::Elastic;
use mutirao_resource::local::Trusted;
use serde::{Deserialize, Serialize};
use tokio::net::unix::pipe;

use crate::config::{Between, Config, Given, OVER_STDIN, Origin, Settings, TABLE};
use crate::failure::Failure;
use crate::role::launched::Parent;
use crate::role::worker;

/// What each has for itself.
const OWN: [&str; 4] = ["data", "listen", "mqtt.listen", "config"];

/// How many managers a resource manager keeps beside the first.
pub fn elastic(settings: &Settings) -> Result<Option<Elastic>, Failure> {
    let Some(Between { min, max }) = settings.api_managers.0 else { return Ok(None) };
    if settings.database.set().is_none() || settings.broker.set().is_none() {
        let line = "api.managers needs a PostgreSQL (MUTIRAO_DATABASE) and a RabbitMQ (MUTIRAO_BROKER): without them there can be \
                    one manager only; leave it out";
        return Err(Failure::usage(line));
    }
    if settings.listen.port() == 0 {
        let line = "managers that api.managers starts listen where this one does, also after it was started again: give it a port \
                    (--listen 127.0.0.1:7070)";
        return Err(Failure::usage(line));
    }
    Ok(Some(Elastic::of_managers(min, max)))
}

/// What the first was told, for those beside it.
#[derive(Serialize, Deserialize)]
struct Told {
    settings: BTreeMap<String, String>,
}

/// What they are started with, by a first manager that listens there.
pub fn launched_with(config: &Config, address: SocketAddr) -> Option<Trusted> {
    config.settings.api_managers.0?;
    let given = TABLE.iter().filter(|setting| !OWN.contains(&setting.key));
    let given = given.filter(|setting| config.values.get(setting).origin != Origin::Default);
    let settings = given.map(|setting| {
        let text = &config.values.get(setting).text;
        // Whoever starts them may stand elsewhere.
        let absolute = (setting.kind == "file").then(|| std::path::absolute(Path::new(text)).ok()).flatten();
        (setting.key.to_owned(), absolute.map_or_else(|| text.clone(), |path| path.display().to_string()))
    });
    let keys = serde_json::to_string(&Told { settings: settings.collect() }).ok()?;
    Some(Trusted { settings: vec![format!("listen={address}")], keys })
}

/// One that a node started.
#[derive(Debug, Args)]
pub struct Launched {
    /// Started by a node, which speaks over stdin
    #[arg(long, hide = true, requires = "worker")]
    launched: bool,
    /// What its resource manager calls it
    #[arg(long, hide = true)]
    worker: Option<String>,
    /// Its folder
    #[arg(long, hide = true)]
    dir: Option<String>,
}

/// Who started this manager.
pub struct Origins {
    pub parent: Option<Parent<pipe::Receiver>>,
    /// Who it is to the resource manager.
    pub worker: Option<WorkerId>,
}

impl Origins {
    pub const NOBODY: Self = Self { parent: None, worker: None };
}

impl Launched {
    /// Who started it, and what that says of settings.
    pub async fn meet(self) -> Result<(Origins, Vec<Given>), Failure> {
        if !self.launched {
            return Ok((Origins::NOBODY, Vec::new()));
        }
        let (parent, first) = Parent::meet(worker::line()?).await?;
        let bad = || Failure::failed("whoever started this manager did not say how the first one was started");
        let told: Told = first.and_then(|told| serde_json::from_str(&told).ok()).ok_or_else(bad)?;
        let folder = self.dir.map(|dir| Given::flag("--dir", "data", dir));
        let given = told.settings.iter().map(|(key, text)| Given::flag(OVER_STDIN, key, text)).chain(folder).collect();
        Ok((Origins { parent: Some(parent), worker: self.worker.map(WorkerId) }, given))
    }
}

#[cfg(test)]
mod tests {
    use crate::config::FromFlags;

    use super::*;

    fn told(pairs: &[(&str, &str)]) -> Config {
        let given = pairs.iter().map(|(key, text)| Given::flag("--set", key, *text)).collect();
        Config::load(&FromFlags { file: None, given }, []).unwrap()
    }

    #[test]
    fn those_beside_the_first_are_told_what_it_was_told_but_what_is_its_own_and_no_secret_is_an_argument() {
        let config = told(&[
            ("api.managers", "0..2"),
            ("database", "postgres://ana:s3cret@db/lab"),
            ("broker", "amqp://ana:s3cret@mq/lab"),
            ("data", "/srv/first"),
            ("mqtt.listen", "127.0.0.1:1883"),
            ("tls.cert", "here.pem"),
            ("tls.key", "key.pem"),
        ]);
        let Trusted { settings, keys } = launched_with(&config, "127.0.0.1:7171".parse().unwrap()).unwrap();
        assert_eq!(settings, ["listen=127.0.0.1:7171"]);
        let Told { settings: told } = serde_json::from_str(&keys).unwrap();
        assert_eq!(told["database"], "postgres://ana:s3cret@db/lab");
        assert_eq!(told["api.managers"], "0..2");
        assert!(Path::new(&told["tls.cert"]).is_absolute(), "{told:?}");
        assert!(["data", "listen", "mqtt.listen", "api.rate"].iter().all(|own| !told.contains_key(*own)), "{told:?}");
    }

    #[test]
    fn managers_beside_the_first_need_what_several_can_share() {
        let alone = told(&[("api.managers", "0..2")]);
        let Err(Failure::Said { code, line }) = elastic(&alone.settings) else { panic!("taken") };
        assert!(code == 2 && line.contains("MUTIRAO_DATABASE") && line.contains("MUTIRAO_BROKER"), "{line}");
        let both = told(&[("api.managers", "1..3"), ("database", "postgres://a@h/d"), ("broker", "amqp://a@h/v")]);
        let elastic = elastic(&both.settings).unwrap().unwrap();
        assert_eq!((elastic.min, elastic.max), (1, 3));
    }
}
