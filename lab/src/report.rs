//! What an experiment found: rows of name, figure, unit, and what it was to be.

use std::path::Path;

use anyhow::Context;
use serde::Serialize;

use crate::machine::Machine;
use crate::plot::{self, Line};

#[derive(Serialize)]
pub struct Report {
    pub experiment: &'static str,
    pub command: String,
    pub machine: Machine,
    pub rows: Vec<Row>,
    pub notes: Vec<String>,
    /// What happened over time, drawn one below the other instead of bars.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub panels: Vec<Vec<Line>>,
}

#[derive(Serialize)]
pub struct Row {
    pub what: String,
    pub figure: f64,
    pub unit: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub goal: Option<Goal>,
}

#[derive(Serialize, Clone, Copy)]
#[serde(rename_all = "snake_case")]
pub enum Goal {
    AtLeast(f64),
    AtMost(f64),
}

impl Goal {
    /// A multiple of nothing meets no goal: the peer did not run.
    fn is_met(self, figure: f64) -> bool {
        match self {
            Goal::AtLeast(least) => figure >= least && figure.is_finite(),
            Goal::AtMost(most) => figure <= most,
        }
    }
}

impl Report {
    pub fn new(experiment: &'static str) -> Self {
        let args: Vec<String> = std::env::args().skip(1).collect();
        let command = format!("cargo run --release -p lab -- {}", args.join(" "));
        Self { experiment, command, machine: Machine::this(), rows: Vec::new(), notes: Vec::new(), panels: Vec::new() }
    }

    pub fn row(&mut self, what: impl Into<String>, figure: f64, unit: &'static str) {
        self.rows.push(Row { what: what.into(), figure, unit, goal: None });
    }

    pub fn goal(&mut self, what: impl Into<String>, figure: f64, unit: &'static str, goal: Goal) {
        self.rows.push(Row { what: what.into(), figure, unit, goal: Some(goal) });
    }

    pub fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    pub fn is_met(&self) -> bool {
        self.rows.iter().all(|row| row.goal.is_none_or(|goal| goal.is_met(row.figure)))
    }

    /// Prints the table and writes the files.
    pub fn publish(&self, out: &Path) -> anyhow::Result<()> {
        let mut table = comfy_table::Table::new();
        table.load_style(comfy_table::presets::NOTHING).set_header(["what", "figure", "unit", "goal", ""]);
        for row in &self.rows {
            let (goal, met) = match row.goal {
                None => (String::new(), ""),
                Some(goal @ Goal::AtLeast(least)) => (format!("≥ {}", number(least)), verdict(goal, row.figure)),
                Some(goal @ Goal::AtMost(most)) => (format!("≤ {}", number(most)), verdict(goal, row.figure)),
            };
            table.add_row([row.what.as_str(), &number(row.figure), row.unit, &goal, met]);
        }
        let Machine { cpu, cores, memory_gib, kernel } = &self.machine;
        println!("{table}\n{cores} cores ({cpu}), {memory_gib} GiB, Linux {kernel}\n{}", self.command);
        for note in &self.notes {
            println!("- {note}");
        }
        std::fs::create_dir_all(out).with_context(|| format!("cannot make {}", out.display()))?;
        let file = |kind: &str| out.join(format!("{}.{kind}", self.experiment));
        std::fs::write(file("json"), serde_json::to_vec_pretty(self)?)?;
        match self.panels.is_empty() {
            true => plot::bars(&file("svg"), self)?,
            false => plot::over_time(&file("svg"), self)?,
        }
        println!("written to {} and {}", file("json").display(), file("svg").display());
        Ok(())
    }
}

fn verdict(goal: Goal, figure: f64) -> &'static str {
    if goal.is_met(figure) { "met" } else { "MISSED" }
}

/// Three digits that matter, thousands apart.
pub fn number(figure: f64) -> String {
    if figure.abs() < 100.0 {
        return format!("{figure:.2}");
    }
    let digits = format!("{}", figure.round() as i64);
    let mut spaced = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            spaced.push(',');
        }
        spaced.push(digit);
    }
    spaced
}
