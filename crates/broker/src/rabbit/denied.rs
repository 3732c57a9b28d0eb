//! A user that may not do what we need: which permission is lacking, on what, and the command that grants it. Read from the
//! words of RabbitMQ, which name user, vhost and resource, and since 3.12 also the permission.
//!
//! Not here: asking ([`super::probe`], [`super::topology`]), and other refusals ([`super::trouble`]).

use super::names::escaped;

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
        let prefix = name.split_once('.').map_or(name, |(prefix, _)| prefix);
        if self.user.starts_with(&format!("{prefix}.worker.")) {
            return "start the worker again, and its manager gives it a user anew".into();
        }
        let ours = escaped(&format!("{prefix}."));
        let (vhost, user) = (in_shell(&self.vhost), in_shell(&self.user));
        format!(
            "run rabbitmqctl set_permissions -p {vhost} {user} '^{ours}.*' '^({ours}.*|amq\\.default)$' '^{ours}.*'"
        )
    }

    pub fn line(&self, name: &str) -> String {
        format!("{}; {}", self.lack(), self.remedy(name))
    }
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
             '^mutirao\\..*' '^(mutirao\\..*|amq\\.default)$' '^mutirao\\..*'"
        );
        assert!(of("our lab", "ana").contains("-p 'our lab' ana"));
        assert!(of("lab", "mutirao.worker.w1").contains("start the worker again"));
    }
}
