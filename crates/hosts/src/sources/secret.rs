//! Secrets and addresses of a definition, looked up on the host that uses them.

use mutirao_streams::graph::{Address, Secret};
use mutirao_tls::Trust;

const SECRET_BYTES_MAX: u64 = 64 << 10;

pub fn read(secret: &Secret) -> Result<String, String> {
    match secret {
        Secret::Env(name) => std::env::var(name).map_err(|_| format!("this host has no variable {name}")),
        Secret::File(path) => {
            let length = std::fs::metadata(path).map_err(|error| format!("{path}: {error}"))?.len();
            if length > SECRET_BYTES_MAX {
                return Err(format!("{path} is too long for a secret"));
            }
            let text = std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
            Ok(text.trim_end_matches(['\n', '\r']).to_owned())
        }
    }
}

/// Where to, as whom, and whom to believe there.
pub struct Found {
    pub url: reqwest::Url,
    pub user: Option<String>,
    pub password: Option<String>,
    pub trust: Trust,
}

pub fn address(address: &Address, trust: &Trust) -> Result<Found, String> {
    let url = reqwest::Url::parse(&address.url).map_err(|error| format!("{}: {error}", address.url))?;
    let password = address.password.as_ref().map(read).transpose()?;
    Ok(Found { url, user: address.user.clone(), password, trust: trust.clone() })
}
