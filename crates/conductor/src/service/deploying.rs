//! Definitions are taken in, and streams paused, resumed and deleted.

use mutirao_core::auth::Principal;
use mutirao_core::declared::{Became, Wrong};
use mutirao_core::{Problem, dice};
use mutirao_shards::shard_of;
use mutirao_store::refused;
use mutirao_streams::Graph;
use mutirao_streams::definition::yaml::{self, Content, Node};
use mutirao_streams::definition::{self, BYTES_MAX};
use mutirao_streams::wire::StreamId;
use sha2::{Digest, Sha256};

use super::{Streams, missing};
use crate::SHARDS;
use crate::store::{Deployed, NewStream, Over, STREAMS_MAX, Sameness, StreamState};
use crate::view::StreamDeployed;

pub const DEFINITION_BYTES_MAX: usize = BYTES_MAX;
/// Faults of a definition that are told at once.
const FAULTS_SHOWN: usize = 20;
/// Under these hosts speak to `/v1/streams/…`.
const RESERVED: [&str; 2] = ["beat", "deliver"];
/// Parts of one stream.
const PARTS_MAX: usize = 1_000;

impl Streams {
    /// Durable when answered. The same again changes nothing.
    pub async fn deploy(&self, caller: &Principal, text: &str, over: Over) -> Result<StreamDeployed, Problem> {
        let text = text.to_owned();
        let checked = tokio::task::spawn_blocking(move || read(&text).map(|(graph, same)| (text, graph, same)));
        let (definition, graph, sameness) = checked.await.map_err(|_| Problem::internal())??;
        let by = self.by(caller);
        let name = graph.name;
        // No namespace has a slash in its name. By the name and not by the id: who takes another's place is looked after by
        // whoever stops that one.
        let shard = shard_of(&format!("{}/{name}", by.namespace), SHARDS);
        let new = NewStream { id: random_id(), by, name: name.clone(), shard, definition, sameness, over };
        let deployed = self.0.store.deploy(new).await.map_err(refused)?;
        let (id, became) = match deployed {
            Deployed::Made(id) => (id, Became::Made),
            Deployed::Unchanged(id) => (id, Became::Unchanged),
            Deployed::Replaced { is, .. } => (is, Became::Changed),
            Deployed::Differs(id) => {
                return Err(Problem::conflict(format!("there is a stream {name} ({id}), and it says something else"))
                    .remedy("replace it (--replace, ?replace=true), which begins anew and forgets what it kept"));
            }
            Deployed::Full => {
                return Err(Problem::conflict(format!("there are {STREAMS_MAX} streams already, the most"))
                    .remedy("delete one that is not needed any more"));
            }
        };
        self.0.bench.bell.notify_one();
        Ok(StreamDeployed { name, id, became })
    }

    /// What would be refused of these, by their place in the list; nothing is written.
    pub async fn wrong(&self, caller: &Principal, texts: Vec<String>, over: Over) -> Result<Vec<Wrong>, Problem> {
        let mut wrong = Vec::new();
        for (place, text) in texts.into_iter().enumerate() {
            let checked = tokio::task::spawn_blocking(move || read(&text)).await.map_err(|_| Problem::internal())?;
            match checked {
                Err(problem) => wrong.push(Wrong { at: place, problem }),
                Ok((graph, _)) if over == Over::Replace => drop(graph),
                Ok((graph, sameness)) => {
                    let there = self.0.store.stream(caller.namespace.clone(), graph.name).await.map_err(refused)?;
                    let differs = there.filter(|row| read(&row.definition).map(|(_, same)| same) != Ok(sameness));
                    if let Some(row) = differs {
                        let problem =
                            Problem::conflict(format!("there is a stream {} that says something else", row.name))
                                .remedy(
                                    "mutirao stream deploy --replace puts another in its place; or delete it first",
                                );
                        wrong.push(Wrong { at: place, problem });
                    }
                }
            }
        }
        Ok(wrong)
    }

    /// Sources take nothing more until it is resumed; what is under way goes on to its end.
    pub async fn pause(&self, caller: &Principal, name: &str) -> Result<(), Problem> {
        self.set(caller, name, StreamState::Paused).await
    }

    pub async fn resume(&self, caller: &Principal, name: &str) -> Result<(), Problem> {
        self.set(caller, name, StreamState::Running).await
    }

    /// From now on nobody finds it. Its owner takes it down once its hosts have stopped.
    pub async fn delete(&self, caller: &Principal, name: &str) -> Result<(), Problem> {
        self.set(caller, name, StreamState::Deleted).await
    }

    async fn set(&self, caller: &Principal, name: &str, to: StreamState) -> Result<(), Problem> {
        let was = self.0.store.set_state(self.by(caller), name.into(), to).await.map_err(refused)?;
        let was = was.ok_or_else(|| missing(name))?;
        self.0.pushers.forget(&was.id);
        self.0.bench.bell.notify_one();
        Ok(())
    }
}

/// The one stream of a text, or all that is wrong with it.
fn read(text: &str) -> Result<(Graph, Sameness), Problem> {
    let mut graphs = definition::check(text).map_err(|faults| {
        let shown: Vec<String> = faults.iter().take(FAULTS_SHOWN).map(ToString::to_string).collect();
        let more = faults.len().saturating_sub(FAULTS_SHOWN);
        let more = if more > 0 { format!("\nand {more} more") } else { String::new() };
        Problem::new(422, "invalid", "the stream cannot work").detail(format!("{}{more}", shown.join("\n")))
    })?;
    let documents = yaml::read(text).map_err(|fault| Problem::malformed(fault.to_string()))?;
    let [document] = &documents[..] else {
        return Err(Problem::malformed(format!(
            "there are {} documents, and one stream is deployed at a time",
            documents.len()
        ))
        .remedy("send each by itself"));
    };
    let graph = graphs.remove(0);
    if RESERVED.contains(&graph.name.as_str()) {
        return Err(Problem::invalid("name", format!("{} is what the API calls something else", graph.name))
            .remedy("choose another name"));
    }
    let parts = crate::needs::parts(&StreamId(String::new()), &graph).len();
    if parts > PARTS_MAX {
        return Err(Problem::new(422, "invalid", "the stream is too large")
            .detail(format!("it has {parts} parts with all replicas, the most is {PARTS_MAX}")));
    }
    let mut digest = Sha256::new();
    say(document, &mut digest);
    Ok((graph, digest.finalize().into()))
}

/// What a definition says, whatever the order of its fields, its comments and its layout.
fn say(node: &Node, to: &mut Sha256) {
    let mut piece = |kind: u8, text: &str| {
        to.update([kind]);
        to.update((text.len() as u64).to_be_bytes());
        to.update(text);
    };
    match &node.what {
        Content::Nothing => piece(0, ""),
        Content::Word(word) => piece(1, &word.text),
        Content::List(all) => {
            piece(2, &all.len().to_string());
            all.iter().for_each(|one| say(one, to));
        }
        Content::Fields(fields) => {
            piece(3, &fields.len().to_string());
            // The order of a schema, and of what a map makes, is that of what comes out.
            for (name, value) in fields {
                to.update((name.text.len() as u64).to_be_bytes());
                to.update(&name.text);
                say(value, to);
            }
        }
    }
}

/// `s7f3k9q2m1x0` : nobody guesses it, and no two are the same.
fn random_id() -> StreamId {
    const LETTERS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
    let mut bytes = [0; 12];
    dice::os_random(&mut bytes);
    let letter = |byte: &u8| char::from(LETTERS[usize::from(byte & 31)]);
    StreamId(std::iter::once('s').chain(bytes.iter().map(letter)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &str = "\
kind: Stream
name: s
schema: { k: int, at: time }
sources:
  - { name: one, http: {} }
sinks:
  - { name: out, from: one, stdout: {} }
";

    #[test]
    fn a_definition_is_the_same_however_it_is_written_and_another_when_it_says_something_else() {
        let same = |text: &str| read(text).unwrap().1;
        let rewritten =
            format!("# a comment\n{}", STREAM.replace("{ name: one, http: {} }", "name: \"one\"\n    http: {}"));
        assert_eq!(same(STREAM), same(&rewritten));
        let json = r#"{"kind": "Stream", "name": "s", "schema": {"k": "int", "at": "time"},
            "sources": [{"name": "one", "http": {}}], "sinks": [{"name": "out", "from": "one", "stdout": {}}]}"#;
        assert_eq!(same(STREAM), same(json));
        for other in [STREAM.replace("k: int, at: time", "at: time, k: int"), STREAM.replace("k: int", "k: text")] {
            assert_ne!(same(STREAM), same(&other));
        }
    }

    #[test]
    fn what_cannot_work_is_refused_with_its_place_and_two_at_once_are_too_many() {
        let problem = read(&STREAM.replace("from: one", "from: two")).unwrap_err();
        assert!(problem.status == 422 && problem.line().contains("7:24: "), "{problem}");
        let problem = read(&format!("{STREAM}---\nkind: Queue\nname: q\n")).unwrap_err();
        assert!(problem.line().contains("2 documents"), "{problem}");
        assert_eq!(read("nothing: [").unwrap_err().status, 422);
    }

    #[test]
    fn ids_are_short_and_no_two_are_the_same() {
        let ids: std::collections::BTreeSet<String> = (0..1_000).map(|_| random_id().0).collect();
        assert_eq!(ids.len(), 1_000);
        assert!(ids.iter().all(|id| id.len() == 13 && mutirao_core::blobs::check_key(id).is_ok()));
    }
}
