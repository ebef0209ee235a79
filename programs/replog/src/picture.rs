//! The picture of `replog bench`: groups of bars around the ratio 1.

use anyhow::{Result, anyhow, ensure};
use plotters::coord::Shift;
use plotters::prelude::*;

/// The height, the width beside the groups, and the width of a group.
const HEIGHT: u32 = 360;
const BESIDE: u32 = 230;
const GROUP: u32 = 190;

/// Distinguishable on white.
const COLORS: [RGBColor; 3] = [RGBColor(31, 119, 180), RGBColor(214, 39, 40), RGBColor(44, 160, 44)];

/// Bars that stand side by side.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub(crate) name: String,
    /// Ratios, above 0.
    pub(crate) bars: [f64; 3],
}

/// Returns the picture as SVG. Each name is that of one bar in every group.
pub(crate) fn draw(title: &str, names: [&str; 3], groups: &[Group]) -> Result<String> {
    let all = || groups.iter().flat_map(|group| group.bars);
    ensure!(!groups.is_empty() && all().all(|bar| bar.is_finite() && bar > 0.0), "nothing to draw: {groups:?}");
    let mut svg = String::new();
    let area = SVGBackend::with_string(&mut svg, (BESIDE + GROUP * groups.len() as u32, HEIGHT)).into_drawing_area();
    let drawn = draw_on(&area, title, names, groups, all().fold(1.0, f64::max));
    drawn.map_err(|error| anyhow!("{error}"))?;
    drop(area);
    Ok(svg)
}

fn draw_on(
    area: &DrawingArea<SVGBackend<'_>, Shift>,
    title: &str,
    names: [&str; 3],
    groups: &[Group],
    most: f64,
) -> Result<(), Box<dyn std::error::Error>> {
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 18))
        .margin(12)
        .margin_right(170)
        .x_label_area_size(30)
        .y_label_area_size(50)
        .build_cartesian_2d(0.0..groups.len() as f64, 0.0..most * 1.15)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_labels(0)
        .light_line_style(WHITE)
        .y_desc("RDMA / TCP")
        .y_label_formatter(&|value: &f64| format!("{value:.1}"))
        .draw()?;
    for (at, group) in groups.iter().enumerate() {
        for (number, (bar, color)) in group.bars.iter().zip(COLORS).enumerate() {
            let left = at as f64 + 0.14 + 0.25 * number as f64;
            chart.draw_series([Rectangle::new([(left, 0.0), (left + 0.22, *bar)], color.filled())])?;
            let label = Text::new(format!("{bar:.2}"), (left + 0.02, bar + most * 0.06), ("sans-serif", 13));
            chart.draw_series([label])?;
        }
        let name = ("sans-serif", 14).into_font().into_text_style(area);
        let (x, y) = chart.backend_coord(&(at as f64 + 0.14, 0.0));
        area.draw_text(&group.name, &name, (x, y + 8))?;
    }
    chart.draw_series(LineSeries::new([(0.0, 1.0), (groups.len() as f64, 1.0)], BLACK))?;
    for (number, (name, color)) in names.iter().zip(COLORS).enumerate() {
        let (x, y) = (area.dim_in_pixel().0 as i32 - 160, 60 + 24 * number as i32);
        area.draw(&Rectangle::new([(x, y - 5), (x + 10, y + 5)], color.filled()))?;
        area.draw(&Text::new(*name, (x + 16, y - 7), ("sans-serif", 13)))?;
    }
    area.present()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_ratio_has_a_bar() {
        let groups = [Group { name: "1 client".to_owned(), bars: [1.5, 0.75, 2.25] }];
        let svg = draw("title", ["a", "b", "c"], &groups).expect("a picture");
        for text in ["title", "1 client", "1.50", "0.75", "2.25"] {
            assert!(svg.contains(text), "{text}: {svg}");
        }
        assert!(draw("title", ["a", "b", "c"], &[]).is_err());
    }
}
