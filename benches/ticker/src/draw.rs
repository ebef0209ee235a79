//! Draws the times: the share of orders that arrive within a time.

use anyhow::{Result, anyhow, ensure};
use plotters::prelude::*;

use crate::results::Results;

const SIZE: (u32, u32) = (800, 420);

/// Distinguishable on white.
const COLORS: [RGBColor; 3] = [RGBColor(31, 119, 180), RGBColor(214, 39, 40), RGBColor(44, 160, 44)];

/// Returns the picture as SVG. Times are relative to the median of the first trader.
pub(crate) fn draw(results: &Results) -> Result<String> {
    let unit = results.times.first().map_or(0, |times| times.quantile(0.5)) as f64;
    ensure!(unit > 0.0, "no times are recorded");
    let mut svg = String::new();
    let drawn = draw_on(&SVGBackend::with_string(&mut svg, SIZE).into_drawing_area(), results, unit);
    drawn.map_err(|error| anyhow!("{error}"))?;
    Ok(svg)
}

fn draw_on(
    area: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
    results: &Results,
    unit: f64,
) -> Result<(), Box<dyn std::error::Error>> {
    area.fill(&WHITE)?;
    let points = |number: usize| {
        let quantiles = results.times.get(number).map(|times| times.quantiles.as_slice()).unwrap_or_default();
        // The last one is the maximum, which would have no place.
        let drawn = quantiles.iter().filter(|(share, value)| *share < 1.0 && *value > 0);
        drawn.map(|(share, value)| (1.0 / (1.0 - share), *value as f64 / unit)).collect::<Vec<_>>()
    };
    let all: Vec<_> = (0..results.times.len()).flat_map(points).map(|(_, value)| value).collect();
    let (least, most) = all.iter().fold((f64::MAX, 0.0_f64), |(least, most), it| (least.min(*it), most.max(*it)));
    let mut chart = ChartBuilder::on(area)
        .caption("From tick to order, relative to the median of polling", ("sans-serif", 18))
        .margin(12)
        .margin_right(190)
        .x_label_area_size(40)
        .y_label_area_size(60)
        .build_cartesian_2d((1.0..1000.0).log_scale(), (least / 1.3..most * 1.3).log_scale())?;
    let label = |value: &f64| match value {
        value if *value < 1.5 => "all".to_owned(),
        value => format!("slowest 1 in {value:.0}"),
    };
    chart
        .configure_mesh()
        .x_desc("orders")
        .y_desc("time")
        .light_line_style(WHITE)
        .x_label_formatter(&label)
        .x_labels(4)
        .y_label_formatter(&|value: &f64| format!("{value:.1}"))
        .draw()?;
    for (number, times) in results.times.iter().enumerate() {
        let color = COLORS.get(number % COLORS.len()).copied().unwrap_or(BLACK);
        chart.draw_series(LineSeries::new(points(number), color.stroke_width(2)))?;
        chart.draw_series(points(number).into_iter().map(|point| Circle::new(point, 3, color.filled())))?;
        let at = ((SIZE.0 - 180) as i32, 60 + 24 * number as i32);
        area.draw(&Circle::new(at, 4, color.filled()))?;
        area.draw(&Text::new(times.trader.clone(), (at.0 + 10, at.1 - 7), ("sans-serif", 13)))?;
    }
    area.present()?;
    Ok(())
}
