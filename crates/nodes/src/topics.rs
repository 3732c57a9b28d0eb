//! Topics of a device's own: what a sensor tells streams, and what is told to it. Those of every node are the wire's, and
//! nobody is let near them by this.

use mutirao_mqtt::TopicFilter;

/// Filters of a device, each way.
pub const TOPICS_MAX: usize = 16;
const TOPIC_BYTES_MAX: usize = 200;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnTopics {
    pub publish: Vec<String>,
    pub subscribe: Vec<String>,
}

/// Which field says what cannot be, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadTopics {
    pub field: &'static str,
    pub why: String,
}

impl OwnTopics {
    /// Held against what a filter may be, and against the namespace of the wire.
    pub fn checked(publish: Vec<String>, subscribe: Vec<String>, namespace: &str) -> Result<Self, BadTopics> {
        for (field, topics) in [("publish", &publish), ("subscribe", &subscribe)] {
            let bad = |why: String| BadTopics { field, why };
            if topics.len() > TOPICS_MAX {
                return Err(bad(format!("there are {} topics, the most is {TOPICS_MAX}", topics.len())));
            }
            for topic in topics {
                check(topic, namespace).map_err(bad)?;
            }
        }
        Ok(Self { publish, subscribe })
    }

    /// As it is kept.
    pub fn publish_text(&self) -> String {
        text(&self.publish)
    }

    pub fn subscribe_text(&self) -> String {
        text(&self.subscribe)
    }

    /// What cannot be read permits nothing.
    pub fn read(publish: &str, subscribe: &str) -> Self {
        let list = |text: &str| serde_json::from_str(text).unwrap_or_default();
        Self { publish: list(publish), subscribe: list(subscribe) }
    }
}

fn text(topics: &[String]) -> String {
    serde_json::Value::from(topics).to_string()
}

fn check(topic: &str, namespace: &str) -> Result<(), String> {
    let shown: String = topic.chars().take(60).collect();
    if topic.len() > TOPIC_BYTES_MAX {
        return Err(format!("\"{shown}…\" is longer than {TOPIC_BYTES_MAX} bytes"));
    }
    TopicFilter::new(topic).map_err(|why| format!("\"{shown}\" is no topic: {why}"))?;
    let first = topic.split('/').next().unwrap_or_default();
    if first.is_empty() || first.contains(['+', '#']) || first.starts_with('$') {
        return Err(format!("\"{shown}\" must begin with a word of its own, like grid/meter-1/#"));
    }
    // The wire's names with slashes have the namespace as their first level, those with dots begin with it.
    if first == namespace || first.strip_prefix(namespace).is_some_and(|rest| rest.starts_with('.')) {
        return Err(format!("\"{shown}\" is among the topics of nodes, which begin with {namespace}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn publish(topic: &str) -> Result<OwnTopics, BadTopics> {
        OwnTopics::checked(vec![topic.into()], vec![], "mutirao")
    }

    #[test]
    fn topics_of_its_own_are_words_and_wildcards_behind_a_word() {
        for topic in ["grid/meter-1/reading", "grid/+/reading", "grid/#", "mutirao-lab/x", "a"] {
            assert!(publish(topic).is_ok(), "{topic}");
        }
    }

    #[test]
    fn nobody_is_let_near_the_topics_of_nodes() {
        for topic in
            ["mutirao/node/other/in", "mutirao.nodes.register", "mutirao/#", "#", "+/node/x/in", "$SYS/#", "/x"]
        {
            assert!(publish(topic).is_err(), "{topic}");
        }
        assert!(OwnTopics::checked(vec!["x".into(); 17], vec![], "mutirao").is_err());
        let bad = OwnTopics::checked(vec![], vec!["a/#/b".into()], "mutirao").unwrap_err();
        assert!(bad.field == "subscribe" && bad.why.contains("a/#/b"), "{bad:?}");
    }
}
