//! Windows by count: they need no time, and say what they have to say at the event that makes them full.

use std::sync::Arc;

use super::slides::Slides;
use super::table::{Layout, Table, flush};
use super::watermark::Watermarks;
use super::{Grouping, Refused, Window, WindowError, definition_of};
use crate::aggregate::slide::{EVENT_BYTES, Plan, cell_bytes};
use crate::batch::{Batch, Column};
use crate::operator::{Operator, Outlet, Piece};
use crate::schema::Schema;
use crate::state::{self, Frame, Reader, Unreadable, Writer};

pub struct Counted {
    layout: Layout,
    definition: u32,
    watermarks: Watermarks,
    windows: Windows,
    /// Of a snapshot that is under way: what comes before the keys.
    head: Option<Vec<u8>>,
    frame: Option<Frame>,
    scratch: Vec<u32>,
}

enum Windows {
    Jumping { table: Table, size: u64 },
    Sliding { slides: Slides, size: u64, every: u64, held: usize, bytes: usize },
}

impl Counted {
    pub fn of(grouping: &Grouping, input: &Schema, inputs: usize) -> Result<Self, WindowError> {
        let layout = Layout::of(grouping, input, Arc::new(grouping.output(input)?));
        let (size, every) = match grouping.window {
            Window::Count { size, every } => (size, every),
            Window::Time { .. } => return Err(WindowError::Zero),
        };
        let windows = if size == every {
            Windows::Jumping { table: Table::of(&layout), size }
        } else {
            let slides = Slides::of(&layout, Plan::of(&grouping.aggregates, input));
            Windows::Sliding { slides, size, every, held: 0, bytes: 0 }
        };
        let definition = definition_of(grouping, input);
        let watermarks = Watermarks::of(inputs);
        Ok(Self { layout, definition, watermarks, windows, head: None, frame: None, scratch: Vec::new() })
    }
}

impl Operator for Counted {
    fn push(&mut self, _: usize, batch: Batch, out: &mut Outlet) -> Result<(), Refused> {
        let Self { layout, windows, scratch, .. } = self;
        // No event says more than one thing, so one batch holds all that a batch says.
        let mut columns = layout.columns();
        match windows {
            Windows::Jumping { table, size } => {
                table.add_by_count(layout, &batch, *size, &mut columns, scratch)?;
                layout.check_bytes(table.bytes())?;
            }
            Windows::Sliding { slides, size, every, held, bytes } => {
                slides.number(layout, &batch, scratch)?;
                let Slides { keys, groups, plan, .. } = slides;
                let fields: Vec<&Column> = plan.fields().iter().map(|field| batch.column(*field)).collect();
                let (of_key, of_window) = columns.split_at_mut(layout.grouping.keys.len());
                for (row, key) in scratch.iter().enumerate() {
                    let slide = &mut groups[*key as usize].slide;
                    slide.push(plan, &fields, row);
                    *bytes += EVENT_BYTES + fields.iter().map(|field| cell_bytes(field, row)).sum::<usize>();
                    if slide.count() > *size {
                        *bytes -= slide.first_bytes();
                        slide.pop(plan);
                    } else {
                        *held += 1;
                    }
                    if slide.seen().is_multiple_of(*every) {
                        keys.read(*key, of_key);
                        slide.read(plan, of_window);
                    }
                }
                if *held > layout.grouping.limits.events_max {
                    return Err(Refused::Events(layout.grouping.limits.events_max));
                }
                layout.check_bytes(*bytes + keys.bytes_held())?;
            }
        }
        flush(layout, &mut columns, out);
        Ok(())
    }

    fn watermark(&mut self, input: usize, time: i64, out: &mut Outlet) -> Result<(), Refused> {
        out.extend(self.watermarks.tell(input, time).map(Piece::Watermark));
        Ok(())
    }

    fn begin_snapshot(&mut self) {
        let mut head = Writer::default();
        self.watermarks.store(&mut head);
        match &mut self.windows {
            Windows::Jumping { table, .. } => table.begin(),
            Windows::Sliding { slides, held, .. } => {
                head.u64(*held as u64);
                slides.begin();
            }
        }
        (self.head, self.frame) = (Some(head.into_bytes()), None);
    }

    fn advance_snapshot(&mut self, keys: usize) -> Option<Vec<u8>> {
        if self.head.is_some() {
            let written = match &mut self.windows {
                Windows::Jumping { table, .. } => table.advance(keys).then(|| table.finish())?,
                Windows::Sliding { slides, .. } => slides.advance(keys)?,
            };
            let pieces = std::iter::once(self.head.take()?).chain(written).collect();
            self.frame = Some(Frame::of(self.definition, pieces));
        }
        Frame::go_on(&mut self.frame, keys)
    }

    fn restore(&mut self, snapshot: &[u8]) -> Result<(), Unreadable> {
        let mut from = Reader::new(state::open(self.definition, snapshot)?);
        let mut watermarks = self.watermarks.clone();
        watermarks.load(&mut from)?;
        let windows = match &self.windows {
            Windows::Jumping { size, .. } => {
                Windows::Jumping { table: Table::load(&self.layout, &mut from)?, size: *size }
            }
            Windows::Sliding { slides, size, every, .. } => {
                let held = usize::try_from(from.u64()?).map_err(|_| Unreadable::Value)?;
                let slides = Slides::load(&self.layout, slides.plan.clone(), &mut from)?;
                let bytes = slides.bytes();
                Windows::Sliding { slides, size: *size, every: *every, held, bytes }
            }
        };
        from.end()?;
        (self.watermarks, self.windows, self.head, self.frame) = (watermarks, windows, None, None);
        Ok(())
    }
}
