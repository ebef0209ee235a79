//! The plots, as SVG.

use anyhow::{Result, anyhow, ensure};
use plotters::coord::Shift;
use plotters::coord::ranged1d::{AsRangedCoord, Ranged, ValueFormatter};
use plotters::prelude::*;

use super::core_tables::grouped;
use crate::counting::LEVELS;
use crate::results::{Line, OfCore, Plot};
use crate::verdict::Verdict;

const SIZE: (u32, u32) = (960, 480);

/// The cases in the plot by the number of ids: one for each kind of row, from the most expensive to the cheapest.
const DRAWN: [&str; 6] = ["active_life", "fire", "arm_first", "event", "request", "nothing_to_do"];

/// Distinguishable on white.
const COLORS: [RGBColor; 8] = [
    RGBColor(31, 119, 180),
    RGBColor(214, 39, 40),
    RGBColor(44, 160, 44),
    RGBColor(148, 103, 189),
    RGBColor(255, 127, 14),
    RGBColor(23, 150, 170),
    RGBColor(140, 86, 75),
    RGBColor(90, 90, 90),
];

/// The plots of the core.
pub(super) fn of_core(core: &OfCore) -> Result<Vec<Plot>> {
    let verdicts = Verdict::all(&core.instructions)?;
    Ok(LEVELS.into_iter().enumerate().map(|(level, name)| by_ids(&verdicts, level, name)).collect())
}

fn by_ids(verdicts: &[Verdict], level: usize, name: &str) -> Plot {
    let of = |case| verdicts.iter().find(|verdict| verdict.level == level && verdict.row.case == case);
    let lines = DRAWN.into_iter().filter_map(of).map(|verdict| Line {
        name: format!("{}: {}", verdict.row.what, grouped(verdict.worst())),
        points: verdict.counts.iter().map(|(&x, &y)| (x as f64, y as f64)).collect(),
    });
    Plot {
        file: format!("instructions-{name}.svg"),
        title: format!("Instructions by the number of ids: {name}"),
        x: "ids".to_owned(),
        y: "instructions".to_owned(),
        log: [true, true],
        lines: lines.collect(),
    }
}

/// A plot as the text of an SVG file.
pub(super) fn draw(plot: &Plot) -> Result<String> {
    let mut svg = String::new();
    let points = || plot.lines.iter().flat_map(|line| &line.points);
    ensure!(points().next().is_some(), "{}: no points", plot.file);
    ensure!(points().all(|(x, y)| x.is_finite() && y.is_finite()), "{}: points that are nowhere", plot.file);
    let range = |of: fn(&(f64, f64)) -> f64| {
        points().map(of).fold((f64::MAX, f64::MIN), |(low, high), value| (low.min(value), high.max(value)))
    };
    let (x, y) = (range(|point| point.0), range(|point| point.1));
    {
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        let log_x = (x.0.max(1e-9)..x.1).log_scale();
        let log_y = (y.0.max(1.0) / 1.5..y.1 * 1.5).log_scale();
        let (flat_x, flat_y) = (x.0..x.1, 0.0..y.1 * 1.1);
        let drawn = match plot.log {
            [true, true] => lines(&area, plot, log_x, log_y),
            [true, false] => lines(&area, plot, log_x, flat_y),
            [false, true] => lines(&area, plot, flat_x, log_y),
            [false, false] => lines(&area, plot, flat_x, flat_y),
        };
        drawn.map_err(|error| anyhow!("{}: {error}", plot.file))?;
        area.present().map_err(|error| anyhow!("{}: {error}", plot.file))?;
    }
    Ok(svg)
}

fn lines<X, Y>(
    area: &DrawingArea<SVGBackend<'_>, Shift>,
    plot: &Plot,
    x: impl AsRangedCoord<CoordDescType = X, Value = f64>,
    y: impl AsRangedCoord<CoordDescType = Y, Value = f64>,
) -> Result<(), Box<dyn std::error::Error>>
where
    X: Ranged<ValueType = f64> + ValueFormatter<f64>,
    Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    area.fill(&WHITE)?;
    // The names stand beside the plot, in the order of the lines: at most seven points wide for each letter.
    let longest = plot.lines.iter().map(|line| line.name.chars().count()).max().unwrap_or_default();
    let legend = 48 + 7 * longest.min(70) as u32;
    let mut chart = ChartBuilder::on(area)
        .caption(&plot.title, ("sans-serif", 20))
        .margin(12)
        .margin_right(legend)
        .x_label_area_size(36)
        .y_label_area_size(72)
        .build_cartesian_2d(x, y)?;
    let label =
        |value: &f64| if *value < 1.0 && *value > 0.0 { format!("{value}") } else { grouped(value.round() as u64) };
    let mut mesh = chart.configure_mesh();
    mesh.x_desc(&plot.x).y_desc(&plot.y).light_line_style(WHITE);
    mesh.x_label_formatter(&label).y_label_formatter(&label).draw()?;
    for (number, line) in plot.lines.iter().enumerate() {
        let color = COLORS[number % COLORS.len()].to_rgba();
        let points = || line.points.iter().copied();
        chart.draw_series(LineSeries::new(points(), color.stroke_width(2)))?;
        chart.draw_series(points().map(|point| Circle::new(point, 3, color.filled())))?;
        let (left, height) = ((SIZE.0 - legend) as i32 + 8, 40 + 24 * number as i32);
        area.draw(&PathElement::new([(left, height + 6), (left + 16, height + 6)], color.stroke_width(3)))?;
        area.draw_text(&line.name, &("sans-serif", 13).into_text_style(area), (left + 24, height))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(points: &[(f64, f64)]) -> Plot {
        let [file, title, x, y] = ["p.svg", "title", "x", "y"].map(str::to_owned);
        let lines = vec![Line { name: "line".to_owned(), points: points.to_vec() }];
        Plot { file, title, x, y, log: [true, false], lines }
    }

    #[test]
    fn a_plot_has_points() {
        assert!(draw(&plot(&[(1.0, 2.0), (4.0, 3.0)])).unwrap().contains("<circle"));
        for points in [&[][..], &[(1.0, f64::NAN)], &[(1.0, 2.0), (f64::INFINITY, 2.0)]] {
            let error = draw(&plot(points)).unwrap_err();
            assert!(error.to_string().starts_with("p.svg: "), "{error}");
        }
    }
}
