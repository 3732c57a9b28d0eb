//! Server-sent events, as much of them as we are sent: `event:`, `data:` and `id:` lines, blank line, next. Pure: bytes in,
//! events out.

/// Bytes of one event. A job's view is a few hundred; the largest value of kv, each of its bytes escaped (`\u0001`), is 6 MiB.
const EVENT_BYTES_MAX: usize = 8 << 20;

#[derive(Debug, Default, PartialEq, Eq, Clone)]
pub(crate) struct Event {
    pub name: String,
    pub data: String,
    /// From where the stream can be taken up again.
    pub id: Option<String>,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("an event of more than {EVENT_BYTES_MAX} bytes")]
pub(crate) struct TooLong;

/// Collects bytes until they make events.
#[derive(Default)]
pub(crate) struct Parser {
    line: Vec<u8>,
    event: Event,
}

impl Parser {
    pub fn push(&mut self, bytes: &[u8]) -> Result<Vec<Event>, TooLong> {
        let mut events = Vec::new();
        for &byte in bytes {
            if byte == b'\n' {
                let line = std::mem::take(&mut self.line);
                let text = String::from_utf8_lossy(&line);
                events.extend(self.take_line(text.trim_end_matches('\r')));
            } else {
                self.line.push(byte);
                if self.line.len() + self.event.data.len() > EVENT_BYTES_MAX {
                    return Err(TooLong);
                }
            }
        }
        Ok(events)
    }

    fn take_line(&mut self, line: &str) -> Option<Event> {
        if line.is_empty() {
            let event = std::mem::take(&mut self.event);
            return (!event.data.is_empty()).then_some(event);
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => self.event.name = value.into(),
            "data" => {
                if !self.event.data.is_empty() {
                    self.event.data.push('\n');
                }
                self.event.data.push_str(value);
            }
            "id" => self.event.id = Some(value.into()),
            // A comment (the keep-alive) has an empty field; retries are not used.
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_found_however_the_bytes_are_cut() {
        let text = b": keep-alive\n\nevent: job\ndata: {\"a\":\ndata: 1}\nid: 7\n\nevent: job\r\ndata: last\r\n\r\n";
        for cut in 1..text.len() {
            let mut parser = Parser::default();
            let events: Vec<Event> = text.chunks(cut).flat_map(|chunk| parser.push(chunk).unwrap()).collect();
            let job = |data: &str, id: Option<&str>| Event {
                name: "job".into(),
                data: data.into(),
                id: id.map(str::to_owned),
            };
            assert_eq!(events, [job("{\"a\":\n1}", Some("7")), job("last", None)], "cut every {cut} bytes");
        }
    }

    #[test]
    fn an_event_without_end_is_refused() {
        let mut parser = Parser::default();
        let endless = vec![b'x'; EVENT_BYTES_MAX + 1];
        assert_eq!(parser.push(&endless), Err(TooLong));
    }
}
