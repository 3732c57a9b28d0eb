//! A graph as a whole, in one place and without logs between its stages: what goes in at a source comes out at the sinks. For
//! trying a definition out, for comparing it with the reference, and for streams that need no more than one place.

use super::{Chain, Operator, Outlet, Piece, Stage, Union, windowed};
use crate::graph::{Does, Graph, Port};
use crate::window::{Refused, WindowError};

pub struct Whole {
    stages: Vec<Running>,
    /// By sink.
    sinks: Vec<Port>,
}

/// A stage with its operators, filters and maps beside each other as one.
struct Running {
    inputs: Vec<Port>,
    operators: Vec<Box<dyn Operator>>,
    output: Port,
    /// Where late events come out of it.
    late: Option<Port>,
}

/// What comes out at a sink, and which.
pub type Sunk = (usize, Piece);

impl Whole {
    pub fn of(graph: &Graph) -> Result<Self, WindowError> {
        let mut stages = Vec::new();
        for stage in &graph.stages {
            let mut running = Running {
                inputs: stage.inputs.clone(),
                operators: Vec::new(),
                output: Port::Operator(stage.operators.last().copied().unwrap_or_default()),
                late: None,
            };
            let mut chain = Vec::new();
            for n in &stage.operators {
                let operator = &graph.operators[*n];
                match &operator.does {
                    Does::Filter(test) => chain.push(Stage::Filter(test.clone())),
                    Does::Map(fields) => {
                        chain.push(Stage::Map { output: operator.output.clone(), fields: fields.clone() });
                    }
                    // All keys are in this place.
                    Does::KeyBy(_) => {}
                    Does::Union => running.operators.push(Box::new(Union::of(operator.inputs.len()))),
                    Does::Window(grouping) => {
                        running.operators.push(windowed(grouping, &operator.input, operator.inputs.len())?);
                        running.late = Some(Port::Late(*n));
                    }
                }
            }
            if !chain.is_empty() {
                running.operators.push(Box::new(Chain::of(chain)));
            }
            stages.push(running);
        }
        Ok(Self { stages, sinks: graph.sinks.iter().map(|sink| sink.input).collect() })
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
        let Running { operators, output, late, .. } = &mut self.stages[stage];
        let (output, late) = (*output, *late);
        let (mut pieces, mut too_late) = (vec![piece], Vec::new());
        for (n, operator) in operators.iter_mut().enumerate() {
            let mut next = Outlet::new();
            for piece in pieces {
                let input = if n == 0 { input } else { 0 };
                match piece {
                    Piece::Watermark(time) => operator.watermark(input, time, &mut next)?,
                    // Late events of a stage before this one, or of its own window, which stands first in it.
                    Piece::Rows(super::Port::Late, batch) if n > 0 => too_late.push(batch),
                    Piece::Rows(_, batch) => operator.push(input, batch, &mut next)?,
                }
            }
            pieces = next;
        }
        for piece in pieces {
            match piece {
                Piece::Rows(super::Port::Late, batch) => too_late.push(batch),
                piece => self.say(output, piece, out)?,
            }
        }
        for batch in too_late {
            if let Some(late) = late {
                self.say(late, Piece::Rows(super::Port::Main, batch), out)?;
            }
        }
        Ok(())
    }
}
