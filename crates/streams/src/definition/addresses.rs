//! Where other brokers are, and where secrets are kept. A secret stands in no definition: definitions are shown, logged and kept.

use super::Fault;
use super::fields::{Fields, short};
use super::yaml::{Node, Word};
use crate::graph::{Address, Secret};

/// Keys of whatever may be at another broker.
pub const KEYS: [&str; 3] = ["url", "user", "password"];

/// `url: mqtts://broker.example.org`, with `user` and `password: { env: GRID_PASSWORD }` where it needs them.
pub fn address(fields: &Fields<'_>, schemes: [&str; 2], faults: &mut Vec<Fault>) -> Option<Address> {
    let user = fields.word("user", faults);
    let password = fields.get("password").and_then(|node| secret(node, faults));
    let Some(url) = fields.get("url").and_then(|_| fields.word("url", faults)) else {
        for name in ["user", "password"] {
            if let Some(node) = fields.get(name).filter(|_| fields.get("url").is_none()) {
                let fault = Fault::new(node.place, format!("{name} is for another broker than the installation's own"));
                faults.push(fault.hint(format!("write url: {}host, or leave {name} out", schemes[0])));
            }
        }
        return None;
    };
    let (url, named) = plain(url, &schemes, faults)?;
    if let (Some(named), Some(user)) = (&named, user)
        && *named != user.text
    {
        faults.push(Fault::new(user.place, format!("the url is of user \"{}\"", short(named))));
    }
    if let (Some(node), None, None) = (fields.get("password"), user, &named) {
        faults.push(Fault::new(node.place, "a password without a user").hint("write user: and who it is of"));
    }
    Some(Address { url, user: user.map(|user| user.text.clone()).or(named), password })
}

/// An address without whom it is of, and that. Never with a password, which is not repeated either.
fn plain(url: &Word, schemes: &[&str], faults: &mut Vec<Fault>) -> Option<(String, Option<String>)> {
    let like = || format!("write it like {}broker.example.org", schemes[0]);
    let Some((scheme, rest)) = schemes.iter().find_map(|scheme| Some((*scheme, url.text.strip_prefix(scheme)?))) else {
        let fault = Fault::new(url.place, format!("an address begins with {}", schemes.join(" or ")));
        faults.push(fault.hint(like()));
        return None;
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let (user, host) = match authority.rsplit_once('@') {
        Some((user, host)) => (Some(user), host),
        None => (None, authority),
    };
    let fault = if user.is_some_and(|user| user.contains(':')) {
        Fault::new(url.place, "a password stands in the url, where everybody sees it")
            .hint("take it out, and write password: { env: NAME } or password: { file: PATH }")
    } else if rest.contains(['?', '#']) {
        Fault::new(url.place, "an address has nothing behind ? or #").hint(like())
    } else if host.is_empty() || host.contains(char::is_whitespace) || user == Some("") {
        Fault::new(url.place, format!("\"{}\" names no host", short(&url.text))).hint(like())
    } else {
        let path = &rest[authority.len()..];
        return Some((format!("{scheme}{host}{path}"), user.map(str::to_owned)));
    };
    faults.push(fault);
    None
}

/// `{ env: NAME }` or `{ file: PATH }`.
pub fn secret(node: &Node, faults: &mut Vec<Fault>) -> Option<Secret> {
    let hint = "write { env: NAME } or { file: PATH }: where it is found on the host that uses it";
    if node.word().is_some() {
        faults.push(Fault::new(node.place, "a secret stands in the definition, where everybody sees it").hint(hint));
        return None;
    }
    let fields = Fields::of(node, "a secret", &["env", "file"], faults)?;
    match (fields.word("env", faults), fields.word("file", faults)) {
        (Some(name), None) => {
            let fits = |c: char| c.is_ascii_alphanumeric() || c == '_';
            if name.text.is_empty() || !name.text.chars().all(fits) {
                let fault = Fault::new(name.place, format!("\"{}\" is no name of a variable", short(&name.text)));
                faults.push(fault.hint("write letters, digits and _"));
                return None;
            }
            Some(Secret::Env(name.text.clone()))
        }
        (None, Some(path)) if !path.text.trim().is_empty() => Some(Secret::File(path.text.clone())),
        _ => {
            faults.push(Fault::new(node.place, "a secret is in one place").hint(hint));
            None
        }
    }
}

/// `https://example.org/hook`, without a password in it.
pub fn web(url: &Word, faults: &mut Vec<Fault>) {
    let rest = url.text.strip_prefix("https://").or_else(|| url.text.strip_prefix("http://"));
    let authority = rest.unwrap_or_default().split(['/', '?', '#']).next().unwrap_or_default();
    if authority.is_empty() || url.text.contains(char::is_whitespace) {
        let fault = Fault::new(url.place, format!("\"{}\" is no address of a web server", short(&url.text)));
        faults.push(fault.hint("write it like https://example.org/hook"));
    } else if authority.contains('@') {
        let fault = Fault::new(url.place, "a user stands in the url, where everybody sees it");
        faults.push(fault.hint("take it out, and write header: Authorization and secret: { env: NAME }"));
    }
}

/// `header: Authorization` with `secret: { env: HOOK_TOKEN }`: all of what the header says.
pub fn header(fields: &Fields<'_>, faults: &mut Vec<Fault>) -> Option<(String, Secret)> {
    let header = fields.word("header", faults);
    let secret = fields.get("secret").and_then(|node| secret(node, faults));
    for (one, other) in [("header", "secret"), ("secret", "header")] {
        if let (Some(node), None) = (fields.get(one), fields.get(other)) {
            let fault = Fault::new(node.place, format!("{one} needs {other}"));
            faults.push(fault.hint("write header: Authorization, secret: { env: NAME }"));
        }
    }
    let header = header?;
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    if header.text.is_empty() || header.text.len() > 64 || !header.text.chars().all(fits) {
        let fault = Fault::new(header.place, format!("\"{}\" is no name of a header", short(&header.text)));
        faults.push(fault.hint("write it like Authorization"));
        return None;
    }
    Some((header.text.clone(), secret?))
}

/// The host that is to run a part.
pub fn host(fields: &Fields<'_>, faults: &mut Vec<Fault>) -> Option<String> {
    let host = fields.word("host", faults)?;
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_.:".contains(c);
    if host.text.is_empty() || host.text.len() > 253 || !host.text.chars().all(fits) {
        let fault = Fault::new(host.place, format!("\"{}\" is no name of a host", short(&host.text)));
        faults.push(fault.hint("write the name of a node, as node list shows it"));
        return None;
    }
    Some(host.text.clone())
}
