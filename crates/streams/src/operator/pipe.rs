//! The operators of one stage, one behind the other.

use super::{Chain, Operator, Outlet, Piece, Port, Stage, Union, windowed};
use crate::graph::{self, Does, Graph};
use crate::window::watermark::END;
use crate::window::{Refused, WindowError};

/// A stage: filters and maps beside each other are one operator.
pub struct Pipe {
    operators: Vec<Box<dyn Operator>>,
    output: graph::Port,
    /// Where late events come out of it.
    late: Option<graph::Port>,
    /// All that it hears ends, and it has not said that of what is late.
    ends: bool,
}

/// What came out, and where.
pub type Said = Vec<(graph::Port, Piece)>;

impl Pipe {
    pub fn of(graph: &Graph, stage: usize) -> Result<Self, WindowError> {
        let stage = &graph.stages[stage];
        let output = graph::Port::Operator(stage.operators.last().copied().unwrap_or_default());
        let mut pipe = Self { operators: Vec::new(), output, late: None, ends: false };
        let mut chain = Vec::new();
        for n in &stage.operators {
            let operator = &graph.operators[*n];
            match &operator.does {
                Does::Filter(test) => chain.push(Stage::Filter(test.clone())),
                Does::Map(fields) => chain.push(Stage::Map { output: operator.output.clone(), fields: fields.clone() }),
                // All keys are in this place.
                Does::KeyBy(_) => {}
                Does::Union => pipe.operators.push(Box::new(Union::of(operator.inputs.len()))),
                Does::Window(grouping) => {
                    pipe.operators.push(windowed(grouping, &operator.input, operator.inputs.len())?);
                    pipe.late = Some(graph::Port::Late(*n));
                }
            }
        }
        if !chain.is_empty() {
            pipe.operators.push(Box::new(Chain::of(chain)));
        }
        Ok(pipe)
    }

    /// Something comes in at an input, and all that it leads to is said.
    pub fn hear(&mut self, input: usize, piece: Piece, out: &mut Said) -> Result<(), Refused> {
        self.begin(input, piece, usize::MAX, out).map(drop)
    }

    /// As [`hear`](Self::hear), and of what a window has to say then no more than about so many rows: the rest is for
    /// [`go_on`](Self::go_on), before anything else comes in. Whether there is a rest.
    pub fn begin(&mut self, input: usize, piece: Piece, rows: usize, out: &mut Said) -> Result<bool, Refused> {
        self.ends |= piece == Piece::Watermark(END);
        let (Piece::Watermark(time), Some(first)) = (&piece, self.operators.first_mut()) else {
            self.pass(0, input, vec![piece], out)?;
            return self.went_on(false, out);
        };
        let mut pieces = Outlet::new();
        let more = first.begin_watermark(input, *time, rows, &mut pieces)?;
        self.pass(1, 0, pieces, out)?;
        self.went_on(more, out)
    }

    /// Says about so many rows more. Whether there is a rest still.
    pub fn go_on(&mut self, rows: usize, out: &mut Said) -> Result<bool, Refused> {
        let Some(first) = self.operators.first_mut() else { return self.went_on(false, out) };
        let mut pieces = Outlet::new();
        let more = first.go_on(rows, &mut pieces)?;
        self.pass(1, 0, pieces, out)?;
        self.went_on(more, out)
    }

    fn went_on(&mut self, more: bool, out: &mut Said) -> Result<bool, Refused> {
        // Of what is late nobody knows the time, but for the end of it.
        if !more && std::mem::take(&mut self.ends) {
            out.extend(self.late.map(|late| (late, Piece::Watermark(END))));
        }
        Ok(more)
    }

    fn pass(&mut self, from: usize, input: usize, mut pieces: Outlet, out: &mut Said) -> Result<(), Refused> {
        for (n, operator) in self.operators.iter_mut().enumerate().skip(from) {
            let mut next = Outlet::new();
            let input = if n == 0 { input } else { 0 };
            for piece in pieces {
                match piece {
                    Piece::Watermark(time) => operator.watermark(input, time, &mut next)?,
                    Piece::Rows(Port::Late, batch) if n > 0 => {
                        out.extend(self.late.map(|late| (late, Piece::Rows(Port::Main, batch))));
                    }
                    Piece::Rows(_, batch) => operator.push(input, batch, &mut next)?,
                }
            }
            pieces = next;
        }
        for piece in pieces {
            match piece {
                Piece::Rows(Port::Late, batch) => {
                    out.extend(self.late.map(|late| (late, Piece::Rows(Port::Main, batch))));
                }
                piece => out.push((self.output, piece)),
            }
        }
        Ok(())
    }

    pub fn begin_snapshot(&mut self) {
        self.operators.iter_mut().for_each(|operator| operator.begin_snapshot());
    }

    /// The operators, the first first.
    pub fn operators(&mut self) -> &mut [Box<dyn Operator>] {
        &mut self.operators
    }
}
