//! A bar for each row that shares the first row's unit.

use std::path::Path;

use plotters::prelude::*;

use crate::report::{Report, number};

const BAR_PX: i32 = 34;
const LABEL_PX: i32 = 330;
const WIDTH_PX: i32 = 960;

pub fn bars(file: &Path, report: &Report) -> anyhow::Result<()> {
    let Some(unit) = report.rows.first().map(|row| row.unit) else { return Ok(()) };
    let rows: Vec<_> = report.rows.iter().filter(|row| row.unit == unit).collect();
    let highest = rows.iter().map(|row| row.figure).fold(f64::MIN_POSITIVE, f64::max);
    let height = BAR_PX * (rows.len() as i32 + 1) + 16;
    let area = SVGBackend::new(file, (WIDTH_PX as u32, height as u32)).into_drawing_area();
    area.fill(&WHITE)?;
    let style = ("sans-serif", 15).into_font().color(&BLACK);
    area.draw(&Text::new(format!("{} ({unit})", report.experiment), (8, 10), style.clone()))?;
    for (i, row) in rows.iter().enumerate() {
        let top = BAR_PX * (i as i32 + 1) + 4;
        let length = (row.figure / highest * f64::from(WIDTH_PX - LABEL_PX - 110)) as i32;
        let bar = [(LABEL_PX, top), (LABEL_PX + length.max(1), top + BAR_PX - 12)];
        area.draw(&Rectangle::new(bar, RGBColor(46, 110, 106).filled()))?;
        area.draw(&Text::new(row.what.clone(), (8, top + 4), style.clone()))?;
        area.draw(&Text::new(number(row.figure), (LABEL_PX + length + 8, top + 4), style.clone()))?;
    }
    area.present()?;
    Ok(())
}
