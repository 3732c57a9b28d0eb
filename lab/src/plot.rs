//! A bar for each row that shares the first row's unit; or lines over time, for what has a course.

use std::path::Path;

use plotters::prelude::*;
use serde::Serialize;

use crate::report::{Report, number};

/// One course over time.
#[derive(Serialize)]
pub struct Line {
    pub name: String,
    /// Seconds since the beginning, and the figure then.
    pub points: Vec<(f64, f64)>,
}

const COLOURS: [RGBColor; 3] = [RGBColor(46, 110, 106), RGBColor(196, 98, 45), RGBColor(110, 110, 110)];
const PANEL_PX: u32 = 220;
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

/// The panels of a report, one below the other over the same time.
pub fn over_time(file: &Path, report: &Report) -> anyhow::Result<()> {
    let height = PANEL_PX * report.panels.len() as u32 + 24;
    let area = SVGBackend::new(file, (WIDTH_PX as u32, height)).into_drawing_area();
    area.fill(&WHITE)?;
    let area = area.titled(report.experiment, ("sans-serif", 16))?;
    let all = || report.panels.iter().flatten().flat_map(|line| &line.points);
    let end = all().map(|(at, _)| *at).fold(1.0, f64::max);
    for (panel, place) in report.panels.iter().zip(area.split_evenly((report.panels.len(), 1))) {
        let highest = panel.iter().flat_map(|line| &line.points).map(|(_, figure)| *figure).fold(1.0, f64::max);
        let mut chart = ChartBuilder::on(&place)
            .margin(8)
            .x_label_area_size(24)
            .y_label_area_size(56)
            .build_cartesian_2d(0.0..end, 0.0..highest * 1.1)?;
        chart.configure_mesh().disable_x_mesh().x_desc("seconds").draw()?;
        for (line, colour) in panel.iter().zip(COLOURS) {
            let drawn = chart.draw_series(LineSeries::new(line.points.iter().copied(), colour.stroke_width(2)))?;
            drawn
                .label(&line.name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
        }
        chart.configure_series_labels().background_style(WHITE.mix(0.8)).border_style(BLACK.mix(0.2)).draw()?;
    }
    area.present()?;
    Ok(())
}
