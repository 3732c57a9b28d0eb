//! A graph as a whole, in one place and without logs between its stages: what goes in at a source comes out at the sinks. For
//! trying a definition out, for comparing it with the reference, and for streams that need no more than one place. Where two ways
//! of the same events come together again, their order is that of the batches: each goes as far as it gets before the next. Parts
//! that read logs have the log's order there.

use super::pipe::Pipe;
use super::{Piece, Port as Out};
use crate::graph::{Graph, Port};
use crate::window::{Refused, WindowError};

pub struct Whole {
    stages: Vec<Running>,
    /// By sink.
    sinks: Vec<Port>,
}

struct Running {
    inputs: Vec<Port>,
    pipe: Pipe,
}

/// What comes out at a sink, and which.
pub type Sunk = (usize, Piece);

impl Whole {
    pub fn of(graph: &Graph) -> Result<Self, WindowError> {
        let stages = graph.stages.iter().enumerate();
        let stages = stages.map(|(n, stage)| Ok(Running { inputs: stage.inputs.clone(), pipe: Pipe::of(graph, n)? }));
        Ok(Self {
            stages: stages.collect::<Result<_, WindowError>>()?,
            sinks: graph.sinks.iter().map(|sink| sink.input).collect(),
        })
    }

    /// Something comes out at a port: goes on to whoever reads it, each piece as far as it gets before the next.
    pub fn say(&mut self, port: Port, piece: Piece, out: &mut Vec<Sunk>) -> Result<(), Refused> {
        let sinks = self.sinks.iter().enumerate().filter(|(_, input)| **input == port);
        out.extend(sinks.map(|(sink, _)| (sink, piece.clone())));
        for stage in 0..self.stages.len() {
            for input in 0..self.stages[stage].inputs.len() {
                if self.stages[stage].inputs[input] == port {
                    self.hear(stage, input, piece.clone(), out)?;
                }
            }
        }
        Ok(())
    }

    fn hear(&mut self, stage: usize, input: usize, piece: Piece, out: &mut Vec<Sunk>) -> Result<(), Refused> {
        let mut said = Vec::new();
        self.stages[stage].pipe.hear(input, piece, &mut said)?;
        for (port, piece) in said {
            match piece {
                Piece::Rows(_, batch) => self.say(port, Piece::Rows(Out::Main, batch), out)?,
                piece => self.say(port, piece, out)?,
            }
        }
        Ok(())
    }
}
