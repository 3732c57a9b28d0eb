//! The Redis, if the settings name one: does it answer, and is it one that can be used.

use std::sync::Arc;

use mutirao_client::Trust;
use mutirao_core::{Dice, SystemClock};
use mutirao_kv::cache::CacheError;
use mutirao_kv::cache::redis::Redis;

use super::{Finding, Mark};
use crate::config::Settings;
use crate::failure::Failure;

/// The first that lets a script ask for the time and write afterwards.
const MAJOR_MIN: u32 = 5;

pub async fn look(settings: &Settings) -> Vec<Finding> {
    let Some(url) = settings.cache.set() else { return Vec::new() };
    let version = match crate::tls::trust(settings, &url.0, None) {
        Ok(trust) => version(&url.0, &trust).await,
        Err(Failure::Said { line, .. }) => Err(line),
        Err(_) => return Vec::new(),
    };
    vec![match version {
        Ok(version) if is_old(&version) => Finding {
            what: "cache",
            mark: Mark::Fail,
            found: format!("Redis {version} is too old"),
            remedy: Some(format!("use one from {MAJOR_MIN}.0 on")),
        },
        Ok(version) => Finding::ok("cache", format!("Redis {version} answers, and does what is asked of it")),
        Err(error) => Finding {
            what: "cache",
            mark: Mark::Warn,
            found: error,
            remedy: Some("start it, or mend the setting cache; until then every read asks the database".into()),
        },
    }]
}

/// It is also tried out: one that is full, or lets us do too little, answers as well.
async fn version(url: &str, trust: &Trust) -> Result<String, String> {
    let dice = Arc::new(Dice::from_os());
    let prefix = format!("mutirao:doctor:{:016x}:", dice.u64());
    let tried = async {
        let redis = Redis::new(url, trust, &prefix, SystemClock::shared(), dice)?;
        let version = redis.version().await?;
        if !is_old(&version) {
            redis.try_out().await?;
        }
        Ok::<_, CacheError>(version)
    };
    tried.await.map_err(|error| error.to_string())
}

fn is_old(version: &str) -> bool {
    let major = version.split('.').next().and_then(|major| major.parse::<u32>().ok());
    major.is_none_or(|major| major < MAJOR_MIN)
}

#[cfg(test)]
mod tests {
    use super::is_old;

    #[test]
    fn versions_are_compared_as_numbers() {
        assert!(!is_old("7.0.15") && !is_old("10.1.0"));
        assert!(is_old("4.0.9") && is_old("what"));
    }
}
