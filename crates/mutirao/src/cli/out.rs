//! What is written where. Answers go to stdout, in the shape that was asked for; everything said beside them goes to
//! stderr. A reader that goes away ends the command quietly.

use std::fmt::Display;
use std::io::{IsTerminal, Write};

use serde::Serialize;

use crate::failure::Failure;

/// Who reads the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    People,
    Json,
}

#[derive(Clone, Copy, Debug)]
pub struct Out {
    pub shape: Shape,
}

impl Out {
    pub fn new(shape: Shape) -> Self {
        Self { shape }
    }

    /// The answer: as it is for programs, rendered for people.
    pub fn answer<T: Serialize + ?Sized>(&self, value: &T, people: impl FnOnce(&T) -> String) -> Result<(), Failure> {
        match self.shape {
            Shape::Json => {
                let text = serde_json::to_string_pretty(value).map_err(|e| Failure::failed(e.to_string()))?;
                self.line(text)
            }
            Shape::People => self.line(people(value)),
        }
    }

    pub fn line(&self, text: impl Display) -> Result<(), Failure> {
        let mut out = std::io::stdout().lock();
        writeln!(out, "{text}")?;
        Ok(out.flush()?)
    }

    /// Bytes as they are: a task's own output.
    pub fn bytes(&self, bytes: &[u8]) -> Result<(), Failure> {
        let mut out = std::io::stdout().lock();
        out.write_all(bytes)?;
        Ok(out.flush()?)
    }

    /// Something to know beside the answer. Programs are spared it.
    pub fn note(&self, text: impl Display) {
        if self.shape == Shape::People {
            // There is nobody to tell when stderr is closed.
            let _ = writeln!(std::io::stderr().lock(), "{text}");
        }
    }
}

/// Colours, where there is a terminal to show them and nobody said `NO_COLOR`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paint {
    Plain,
    Coloured,
}

impl Paint {
    pub fn for_stdout() -> Self {
        let wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        if wanted && std::io::stdout().is_terminal() { Self::Coloured } else { Self::Plain }
    }

    pub fn green(self, text: &str) -> String {
        self.wrap("32", text)
    }

    pub fn yellow(self, text: &str) -> String {
        self.wrap("33", text)
    }

    pub fn red(self, text: &str) -> String {
        self.wrap("31", text)
    }

    fn wrap(self, code: &str, text: &str) -> String {
        match self {
            Paint::Plain => text.into(),
            Paint::Coloured => format!("\x1b[{code}m{text}\x1b[0m"),
        }
    }
}
