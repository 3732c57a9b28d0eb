//! What the operator does with an event.

use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::time::Duration;

use crate::experiments::esp::load::draw;
use crate::span::Since;

/// Positions of the structure that are looked at for one event.
pub const ACCESSES: u64 = 100;
const SPIN: Duration = Duration::from_millis(1);
const COPIED: usize = 2 << 20;
const WRITTEN: usize = 256 << 10;

#[derive(Clone, Copy)]
pub enum Load {
    /// A busy wait of a millisecond.
    Cpu,
    /// Random positions of a structure of this size.
    Memory { mb: usize },
    /// A copy of two megabytes.
    Bandwidth,
    /// Nothing: it is the way there that is narrow.
    Network,
    /// 256 KB read and written, and synced.
    Disk,
}

/// What it needs for that, of one operator.
pub enum Operator {
    Cpu,
    Memory { structure: Vec<u64>, drawn: u64 },
    Bandwidth { from: Vec<u8>, to: Vec<u8> },
    Network,
    Disk { file: std::fs::File, piece: Vec<u8> },
}

impl Operator {
    pub fn of(load: Load, file: &Path) -> anyhow::Result<Self> {
        Ok(match load {
            Load::Cpu => Operator::Cpu,
            // Written once, or no page of it would be there.
            Load::Memory { mb } => Operator::Memory { structure: (0..(mb as u64) << 17).collect(), drawn: 0 },
            Load::Bandwidth => Operator::Bandwidth { from: vec![7; COPIED], to: vec![0; COPIED] },
            Load::Network => Operator::Network,
            Load::Disk => {
                let mut file =
                    std::fs::File::options().create(true).truncate(true).read(true).write(true).open(file)?;
                file.write_all(&vec![7; WRITTEN])?;
                Operator::Disk { file, piece: vec![0; WRITTEN] }
            }
        })
    }

    /// One event.
    pub fn work(&mut self) -> anyhow::Result<()> {
        match self {
            Operator::Network => {}
            Operator::Cpu => {
                let begun = Since::now();
                while begun.elapsed() < SPIN {
                    std::hint::spin_loop();
                }
            }
            Operator::Memory { structure, drawn } => {
                let mut sum = 0u64;
                for _ in 0..ACCESSES {
                    *drawn += 1;
                    let at = draw(*drawn) as usize % structure.len();
                    sum = sum.wrapping_add(structure[at]);
                    structure[at] = sum;
                }
                std::hint::black_box(sum);
            }
            Operator::Bandwidth { from, to } => {
                to.copy_from_slice(from);
                std::mem::swap(from, to);
                std::hint::black_box(&to);
            }
            Operator::Disk { file, piece } => {
                file.seek(SeekFrom::Start(0))?;
                file.read_exact(piece)?;
                file.seek(SeekFrom::Start(0))?;
                file.write_all(piece)?;
                file.sync_data()?;
            }
        }
        Ok(())
    }
}
