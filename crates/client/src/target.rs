//! The path and query of a request. Every byte outside RFC 3986's unreserved set is escaped here, once, so that what is
//! signed, what is sent and what the server sees are the same text.

/// A path under construction: `/v1/jobs/j7f3k9q2/tasks?state=failed`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    text: String,
    has_query: bool,
}

impl Target {
    /// `path` is literal and already fit for a URL.
    pub fn new(path: &str) -> Self {
        Self { text: path.into(), has_query: false }
    }

    /// One more part of the path, escaped.
    pub fn part(mut self, part: impl std::fmt::Display) -> Self {
        self.text.push('/');
        escape(&part.to_string(), &mut self.text);
        self
    }

    /// One argument of the query, escaped; an absent value leaves it out.
    pub fn arg(mut self, name: &str, value: Option<impl std::fmt::Display>) -> Self {
        if let Some(value) = value {
            self.text.push(if self.has_query { '&' } else { '?' });
            self.has_query = true;
            self.text.push_str(name);
            self.text.push('=');
            escape(&value.to_string(), &mut self.text);
        }
        self
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }
}

fn escape(text: &str, into: &mut String) {
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => into.push(byte as char),
            _ => into.push_str(&format!("%{byte:02X}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_and_arguments_are_escaped_and_absent_ones_left_out() {
        let target =
            Target::new("/v1/tokens").part("a/b c").arg("x", None::<u8>).arg("y", Some("é&=")).arg("z", Some(1));
        assert_eq!(target.as_str(), "/v1/tokens/a%2Fb%20c?y=%C3%A9%26%3D&z=1");
    }

    #[test]
    fn a_url_parser_changes_nothing_of_it() {
        let target = Target::new("/v1/blobs/logs/j1/2/3-1/stdout").part("..~'\"<>^`{}").arg("offset", Some("a+b'|\\"));
        let url = reqwest::Url::parse("http://127.0.0.1:7070").unwrap().join(target.as_str()).unwrap();
        assert_eq!(format!("{}?{}", url.path(), url.query().unwrap()), target.as_str());
    }
}
