//! A user that may not do what we need: which permission is lacking, on what, and the command that grants it. Read from the
//! words of RabbitMQ, which name user, vhost and resource, and since 3.12 also the permission.
//!
//! Not here: asking ([`super::probe`], [`super::topology`]), and other refusals ([`super::trouble`]).

use super::names::{PREFIX_DEFAULT, escaped};
use super::trouble::{ACCESS_REFUSED, code, text};

/// One of RabbitMQ's three permissions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Access {
    Configure,
    Write,
    Read,
}

impl Access {
    const ALL: [Self; 3] = [Self::Configure, Self::Write, Self::Read];

    fn word(self) -> &'static str {
        match self {
            Self::Configure => "configure",
            Self::Write => "write",
            Self::Read => "read",
        }
    }
}

/// What was asked for. A server that does not say which permission was lacking lets it be known by this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    For(Access),
    /// Writes to a queue what it reads from an exchange.
    Bind,
}

/// The exchange by which every queue is reached under its name. Nobody can make it or bind to it.
const DEFAULT_EXCHANGE: &str = "exchange 'amq.default'";

/// A permission that a user lacks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Denied {
    pub access: Access,
    /// As RabbitMQ writes it: `queue 'mutirao.tasks.default'`.
    pub resource: String,
    vhost: String,
    user: String,
}

impl Denied {
    /// None when the words are not about a permission.
    pub fn read(text: &str, asked: Asked) -> Option<Self> {
        let (before, rest) = text.split_once("access to ")?;
        let (resource, rest) = rest.split_once(" in vhost '")?;
        let (vhost, user) = rest.split_once("' refused for user '")?;
        let user = user.strip_suffix('\'')?;
        let said = before.split_whitespace().next_back().unwrap_or_default();
        let said = Access::ALL.into_iter().find(|access| access.word() == said);
        let access = said.unwrap_or(match asked {
            _ if resource == DEFAULT_EXCHANGE => Access::Write,
            Asked::For(access) => access,
            Asked::Bind if resource.starts_with("exchange") => Access::Read,
            Asked::Bind => Access::Write,
        });
        Some(Self { access, resource: resource.into(), vhost: vhost.into(), user: user.into() })
    }

    pub fn lack(&self) -> String {
        format!("user {} has no {} permission on {}", self.user, self.access.word(), self.resource)
    }

    /// The command that gives a manager everything it needs. `name` is of something that is ours, and begins with our
    /// prefix.
    pub fn remedy(&self, name: &str) -> String {
        let prefix = first_part(name);
        if self.user.starts_with(&format!("{prefix}.worker.")) {
            return "start the worker again, and its manager gives it a user anew".into();
        }
        self.grant(&[prefix])
    }

    /// What it needs for nodes as well, of whose namespace `name` is.
    pub fn remedy_for_nodes(&self, name: &str) -> String {
        self.grant(&[first_part(PREFIX_DEFAULT), first_part(name)])
    }

    /// The same for names that begin in several ways, as where nodes have a namespace of their own. It takes the place of
    /// what the user may now, so it grants everything. Devices and servers meet on `amq.topic`.
    fn grant(&self, prefixes: &[&str]) -> String {
        let mut each: Vec<String> = prefixes.iter().map(|prefix| escaped(&format!("{prefix}."))).collect();
        each.dedup();
        let ours = if let [one] = &each[..] { one.clone() } else { format!("({})", each.join("|")) };
        let (vhost, user) = (in_shell(&self.vhost), in_shell(&self.user));
        format!(
            "run rabbitmqctl set_permissions -p {vhost} {user} '^{ours}.*' '^({ours}.*|amq\\.(default|topic))$' \
             '^({ours}.*|amq\\.topic)$'"
        )
    }

    pub fn line(&self, name: &str) -> String {
        format!("{}; {}", self.lack(), self.remedy(name))
    }
}

/// What the user of a connection that speaks for nodes of a namespace lacks, with the command that grants it. None: the error
/// is about something else.
pub fn lacking_permission(error: &lapin::Error, namespace: &str) -> Option<String> {
    if code(error) != Some(ACCESS_REFUSED) {
        return None;
    }
    let denied = Denied::read(&text(error), Asked::Bind)?;
    Some(format!("{}; {}", denied.lack(), denied.remedy_for_nodes(namespace)))
}

fn first_part(name: &str) -> &str {
    name.split_once('.').map_or(name, |(first, _)| first)
}

/// As one word of a command.
fn in_shell(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-/@".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.into();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: Asked = Asked::For(Access::Read);

    fn read(text: &str, asked: Asked) -> (Access, String) {
        let denied = Denied::read(text, asked).unwrap_or_else(|| panic!("not understood: {text}"));
        (denied.access, denied.resource)
    }

    #[test]
    fn the_lacking_permission_is_the_one_that_the_server_names_or_else_what_was_asked_for() {
        let old = "ACCESS_REFUSED - access to queue 'mutirao.q' in vhost 'lab' refused for user 'ana'";
        assert_eq!(read(old, READ), (Access::Read, "queue 'mutirao.q'".into()));
        assert_eq!(read(old, Asked::Bind).0, Access::Write);
        let new = "ACCESS_REFUSED - configure access to queue 'mutirao.q' in vhost 'lab' refused for user 'ana'";
        assert_eq!(read(new, READ).0, Access::Configure);
        let default = "ACCESS_REFUSED - access to exchange 'amq.default' in vhost '/' refused for user 'ana'";
        assert_eq!(read(default, READ), (Access::Write, "exchange 'amq.default'".into()));
        let bound = "ACCESS_REFUSED - access to exchange 'mutirao.results' in vhost '/' refused for user 'ana'";
        assert_eq!(read(bound, Asked::Bind).0, Access::Read);
        for other in ["", "ACCESS_REFUSED", "access to queue 'q'", "ACCESS_REFUSED - operation not permitted on x"] {
            assert_eq!(Denied::read(other, READ), None, "{other}");
        }
    }

    #[test]
    fn the_remedy_is_a_command_that_can_be_pasted() {
        let of = |vhost: &str, user: &str| {
            let text =
                format!("ACCESS_REFUSED - access to queue 'mutirao.q' in vhost '{vhost}' refused for user '{user}'");
            Denied::read(&text, READ).map(|denied| denied.line("mutirao.q")).unwrap_or_default()
        };
        assert_eq!(
            of("/", "ana"),
            "user ana has no read permission on queue 'mutirao.q'; run rabbitmqctl set_permissions -p / ana \
             '^mutirao\\..*' '^(mutirao\\..*|amq\\.(default|topic))$' '^(mutirao\\..*|amq\\.topic)$'"
        );
        assert!(of("our lab", "ana").contains("-p 'our lab' ana"));
        assert!(of("lab", "mutirao.worker.w1").contains("start the worker again"));
    }

    #[test]
    fn where_nodes_have_a_namespace_of_their_own_both_are_granted_and_once_if_it_is_the_same() {
        let words = "ACCESS_REFUSED - access to exchange 'amq.topic' in vhost '/' refused for user 'ana'";
        let said = lapin::protocol::AMQPError::from_id(403, words.into()).unwrap();
        let error: lapin::Error = lapin::ErrorKind::ProtocolError(said).into();
        let line = lacking_permission(&error, "sapparchi").unwrap();
        assert!(line.starts_with("user ana has no read permission on exchange 'amq.topic'; run rabbitmqctl"), "{line}");
        assert!(line.contains(r"'^(mutirao\.|sapparchi\.).*'"), "{line}");
        let same = lacking_permission(&error, "mutirao").unwrap();
        assert!(same.contains(r"'^mutirao\..*'"), "{same}");
        let gone = lapin::protocol::AMQPError::from_id(404, "NOT_FOUND".into()).unwrap();
        assert_eq!(lacking_permission(&lapin::ErrorKind::ProtocolError(gone).into(), "x"), None);
    }
}
