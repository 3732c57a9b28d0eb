//! What ought to come out: the same stream in one place, one event after the other, without logs.

use mutirao_streams::batch::json;
use mutirao_streams::graph::{Graph, Port};
use mutirao_streams::mark::Origin;
use mutirao_streams::operator::{self, Piece, Whole};
use mutirao_streams::part::SourceCore;
use mutirao_streams::record::{self, Record};
use mutirao_streams::window::watermark::{Step, interleave};

/// The lines at each sink, of a stream whose one source is a generator that ends, or is given these lines.
pub fn lines(graph: &Graph, given: Option<&[String]>) -> Vec<Vec<u8>> {
    let mut source = SourceCore::of(graph, 0, Origin::Fixed);
    let mut records = Vec::new();
    match given {
        Some(lines) => {
            for line in lines {
                source.lines([line.as_bytes()], 0);
                records.extend(source.cut(0));
            }
        }
        None => {
            source.begin(0);
            while !source.has_ended() {
                source.generate(i64::MAX / 2);
                records.extend(source.cut(0));
            }
        }
    }
    let mut whole = Whole::of(graph).unwrap();
    let mut sunk = Vec::new();
    for said in records {
        let Ok(Record::Rows(rows)) = record::read(&said.bytes) else { panic!("no rows") };
        let batch = rows.events(&graph.flows(said.port)).unwrap();
        let first = rows.header.first;
        let marks: Vec<(usize, i64)> =
            rows.header.watermarks.iter().map(|(before, time)| ((before - first) as usize, *time)).collect();
        let mut say = |piece| whole.say(said.port, piece, &mut sunk).unwrap();
        interleave(&batch, &marks, |step| {
            match step {
                Step::Events(events) => say(Piece::Rows(operator::Port::Main, events.clone())),
                Step::Watermark(time) => say(Piece::Watermark(time)),
            }
            Ok::<(), ()>(())
        })
        .unwrap();
    }
    let mut out = vec![Vec::new(); graph.sinks.len()];
    for (sink, piece) in sunk {
        if let Piece::Rows(_, batch) = piece {
            json::write(&batch, &mut out[sink]);
        }
    }
    debug_assert!(matches!(graph.sinks[0].input, Port::Operator(_) | Port::Source(_) | Port::Late(_) | Port::Unfit(_)));
    out
}

/// Says where they differ, and not all of both.
pub fn same(found: &[u8], wanted: &[u8]) -> Result<(), String> {
    if found == wanted {
        return Ok(());
    }
    let (found, wanted): (Vec<_>, Vec<_>) = (lines_of(found), lines_of(wanted));
    let at = found.iter().zip(&wanted).position(|(one, other)| one != other);
    let at = at.unwrap_or(found.len().min(wanted.len()));
    let shown =
        |lines: &[String]| lines[at.min(lines.len())..].iter().take(3).cloned().collect::<Vec<_>>().join("\n  ");
    Err(format!(
        "{} lines instead of {}; they differ from line {at} on:\n  {}\ninstead of\n  {}",
        found.len(),
        wanted.len(),
        shown(&found),
        shown(&wanted)
    ))
}

fn lines_of(bytes: &[u8]) -> Vec<String> {
    String::from_utf8_lossy(bytes).lines().map(str::to_owned).collect()
}
