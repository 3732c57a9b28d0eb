//! What a worker's user may do, by what the worker was let in for: as patterns, since RabbitMQ knows no others.

use mutirao_core::auth::{Duty, STREAMS};
use mutirao_core::check::{CHECKS, CheckKind, PLACES};
use mutirao_core::envelope::{control_of, tasks_of};
use serde_json::{Value, json};

use super::{CHANNELS_MAX, Management, NOTHING};
use crate::rabbit::names::escaped;

/// Of a host: each log that it reads takes one, and those of its last life may still be there.
const CHANNELS_OF_HOST_MAX: u32 = 4_096;

pub(super) fn channels_max(duty: &Duty) -> u32 {
    match duty {
        Duty::Tasks(_) | Duty::Checks(_) => CHANNELS_MAX,
        Duty::Streams => CHANNELS_OF_HOST_MAX,
    }
}

impl Management {
    pub(super) fn permissions(&self, duty: &Duty) -> Value {
        let (ears, name) = (self.names.ears_pattern(), |name: &str| escaped(&self.names.whole(name)));
        let fanout = escaped(&self.names.exchange());
        let (entrance, takes) = match duty {
            Duty::Tasks(queue) => (self.names.entrance(), name(&tasks_of(queue))),
            Duty::Checks(kinds) => {
                let words: Vec<&str> = kinds.iter().map(CheckKind::as_str).collect();
                // Those that anybody may make, and those of any place.
                let takes = format!("{}({})(\\.[0-9a-f]{{16}})?", name(CHECKS), words.join("|"));
                (self.names.entrance_of_checkers(), takes)
            }
            Duty::Streams => {
                let (logs, entrance) = (self.names.streams_pattern(), escaped(&self.names.entrance_of_streams()));
                let uses = format!("^({ears}|{fanout}|{entrance}|{logs})$");
                return json!({ "configure": format!("^({ears}|{logs})$"), "write": uses, "read": uses });
            }
        };
        json!({
            "configure": format!("^{ears}$"),
            "write": format!("^({ears}|{})$", escaped(&entrance)),
            "read": format!("^({ears}|{fanout}|{takes})$"),
        })
    }

    pub(super) fn topics(&self, duty: &Duty) -> Value {
        let hears = match duty {
            Duty::Tasks(queue) => control_of(queue),
            Duty::Checks(_) => PLACES.to_owned(),
            Duty::Streams => {
                // Without the signs that stand for any word: those would reach beyond a host's business.
                let own = format!("^{}[A-Za-z0-9_.-]+$", escaped(STREAMS));
                return json!({ "exchange": self.names.exchange(), "write": own, "read": own });
            }
        };
        json!({ "exchange": self.names.exchange(), "write": NOTHING, "read": format!("^{}$", escaped(&hears)) })
    }
}

#[cfg(test)]
mod tests {
    use mutirao_tls::{Believe, Trust};

    use super::*;

    fn management() -> Management {
        let url = "http://rabbit:15672";
        let trust = Trust::for_url(url, &Believe::default()).unwrap();
        Management::new("amqp://a:b@rabbit/lab", url, "mutirao.", &trust).unwrap()
    }

    #[test]
    fn permissions_name_one_queue_exactly() {
        let duty = Duty::Tasks("a".parse().unwrap());
        let may = management().permissions(&duty);
        assert_eq!(may["read"], r"^(mutirao\.ear\.[0-9a-f]{16}|mutirao\.fanout|mutirao\.tasks\.a)$");
        assert_eq!(may["write"], r"^(mutirao\.ear\.[0-9a-f]{16}|mutirao\.results)$");
        assert_eq!(management().topics(&duty)["read"], r"^control\.a$");
    }

    #[test]
    fn a_checker_takes_checks_of_its_kinds_and_tells_of_nothing_but_checks() {
        let duty = Duty::Checks("tcp,http".parse().unwrap());
        let may = management().permissions(&duty);
        let read = r"^(mutirao\.ear\.[0-9a-f]{16}|mutirao\.fanout|mutirao\.checks\.(http|tcp)(\.[0-9a-f]{16})?)$";
        assert_eq!(may["read"], read);
        assert_eq!(may["write"], r"^(mutirao\.ear\.[0-9a-f]{16}|mutirao\.outcomes)$");
        assert_eq!(management().topics(&duty)["read"], r"^places\.checks$");
    }

    #[test]
    fn a_host_of_streams_has_their_logs_and_topics_and_nothing_else() {
        let may = management().permissions(&Duty::Streams);
        let logs = r"mutirao\.streams\.[A-Za-z0-9_.-]+\.log";
        assert_eq!(may["configure"], format!(r"^(mutirao\.ear\.[0-9a-f]{{16}}|{logs})$"));
        let uses = format!(r"^(mutirao\.ear\.[0-9a-f]{{16}}|mutirao\.fanout|mutirao\.streams|{logs})$");
        assert_eq!((&may["write"], &may["read"]), (&json!(uses), &json!(uses)));
        let topics = management().topics(&Duty::Streams);
        assert_eq!((&topics["write"], &topics["read"]), (&topics["read"], &json!(r"^streams\.[A-Za-z0-9_.-]+$")));
    }
}
