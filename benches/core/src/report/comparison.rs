//! The table of a comparison.

use std::fmt::Write as _;

use anyhow::{Result, ensure};

use crate::results::{Row, Section, Target};

/// Renders a comparison as Markdown, without its targets.
///
/// # Errors
/// Something was not measured.
pub fn render(section: &Section) -> Result<String> {
    let mut page = format!("\n## {}\n\n{}", section.title, section.about.trim_end());
    if let Some(kernel) = &section.kernel {
        write!(page, " Linux {kernel}.")?;
    }
    let (compared, alone): (Vec<_>, Vec<_>) = section.rows.iter().partition(|row| row.figures.is_empty());
    for rows in of_one_unit(&compared) {
        write!(page, "\n\n| what, in {} | cmid | C | ratio (quartiles) |\n| --- | ---: | ---: | ---: |", rows[0].unit)?;
        for row in rows {
            let side = |side: usize| quartiles(row.pairs.iter().map(|pair| pair[side]).collect(), &row.what);
            let [ours, theirs] = [short(side(0)?[1]), short(side(1)?[1])];
            let what = row.what.strip_prefix(&format!("{}: ", row.unit)).unwrap_or(&row.what);
            write!(page, "\n| {what} | {ours} | {theirs} | {} |", ratio(row)?.0)?;
        }
    }
    for rows in of_one_unit(&alone) {
        figures(&mut page, &rows)?;
    }
    page.push('\n');
    Ok(page)
}

/// The rows of each unit, in the order of the first ones.
fn of_one_unit<'a>(rows: &[&'a Row]) -> Vec<Vec<&'a Row>> {
    let mut tables: Vec<Vec<&Row>> = Vec::new();
    for &row in rows {
        match tables.iter_mut().find(|table| table[0].unit == row.unit) {
            Some(table) => table.push(row),
            None => tables.push(vec![row]),
        }
    }
    tables
}

/// A table of figures. Where several programs did several jobs ("job: program"), it has a column for each job.
fn figures(page: &mut String, rows: &[&Row]) -> Result<()> {
    let named: Vec<_> = rows.iter().map(|row| row.what.rsplit_once(": ").unwrap_or((&row.what, ""))).collect();
    let [mut jobs, mut programs]: [Vec<&str>; 2] = Default::default();
    for &(job, program) in &named {
        if !jobs.contains(&job) {
            jobs.push(job);
        }
        if !programs.contains(&program) {
            programs.push(program);
        }
    }
    let shown =
        |row: &Row| -> Result<String> { Ok(spread(&row.figures, quartiles(row.figures.clone(), &row.what)?, short)) };
    let unit = &rows[0].unit;
    if jobs.len() < 2 || programs.len() < 2 {
        write!(page, "\n\n| what, in {unit} | figure (quartiles) |\n| --- | ---: |")?;
        for row in rows {
            write!(page, "\n| {} | {} |", row.what, shown(row)?)?;
        }
        return Ok(());
    }
    write!(page, "\n\n| {unit} | {} |\n| --- |{}", jobs.join(" | "), " ---: |".repeat(jobs.len()))?;
    for program in programs {
        write!(page, "\n| {program} |")?;
        for job in &jobs {
            let row = named.iter().position(|&name| name == (*job, program));
            let cell = row.map_or(Ok("–".to_owned()), |at| shown(rows[at]))?;
            write!(page, " {cell} |")?;
        }
    }
    Ok(())
}

/// The ratio of cmid's figures to those of the other program, as shown, and its quartiles.
fn ratio(row: &Row) -> Result<(String, [f64; 3])> {
    let each: Vec<f64> = row.pairs.iter().map(|[ours, theirs]| ours / theirs).collect();
    let ratios = quartiles(each.clone(), &row.what)?;
    Ok((spread(&each, ratios, |ratio| format!("{ratio:.2}")), ratios))
}

/// Renders the rows of comparisons that have a target as Markdown.
///
/// # Errors
/// Something was not measured.
pub(super) fn targets(sections: &[Section]) -> Result<String> {
    let mut page = "\n| what | ratio (quartiles) | target | |\n| --- | ---: | ---: | ---: |\n".to_owned();
    let rows = sections.iter().flat_map(|section| &section.rows);
    for row in rows.filter(|row| row.target.is_some() && row.figures.is_empty()) {
        let (shown, ratios) = ratio(row)?;
        let [target, verdict] = verdict(row, ratios);
        writeln!(page, "| {} | {shown} | {target} | {verdict} |", row.what)?;
    }
    Ok(page)
}

/// The target in words, and whether it is met. It is met or missed if all three quartiles are on the same side of it;
/// otherwise it is not shown. For exact figures, only the median counts.
fn verdict(row: &Row, [low, median, high]: [f64; 3]) -> [String; 2] {
    let (low, high) = if row.exact { (median, median) } else { (low, high) };
    let (target, met, missed) = match row.target {
        None => return [String::new(), String::new()],
        Some(Target::AtMost(most)) => (format!("≤ {most}"), high <= most, low > most),
        Some(Target::AtLeast(least)) => (format!("≥ {least}"), low >= least, high < least),
    };
    let verdict = match (met, missed) {
        (true, _) => "met",
        (false, true) => "missed",
        (false, false) => "not shown",
    };
    [target, verdict.to_owned()]
}

/// The median, and the other quartiles if the figures differ.
fn spread(each: &[f64], [low, median, high]: [f64; 3], shown: impl Fn(f64) -> String) -> String {
    match each {
        [first, rest @ ..] if rest.iter().any(|other| other != first) => {
            format!("{} ({}–{})", shown(median), shown(low), shown(high))
        }
        _ => shown(median),
    }
}

/// Lower quartile, median and upper quartile, with linear interpolation.
///
/// # Errors
/// There are no figures, or one is no number.
pub fn quartiles(mut figures: Vec<f64>, what: &str) -> Result<[f64; 3]> {
    ensure!(
        !figures.is_empty() && figures.iter().all(|figure| figure.is_finite()),
        "{what}: no figures, or no numbers"
    );
    figures.sort_by(f64::total_cmp);
    let at = |share: f64| {
        let place = share * (figures.len() - 1) as f64;
        let (below, part) = (place.floor() as usize, place.fract());
        let above = (below + 1).min(figures.len() - 1);
        figures[below] + (figures[above] - figures[below]) * part
    };
    Ok([at(0.25), at(0.5), at(0.75)])
}

/// Three significant digits, or whole numbers.
fn short(figure: f64) -> String {
    match figure.abs() {
        size if size >= 100.0 || figure.fract() == 0.0 => super::core_tables::grouped(figure.round().abs() as u64),
        size if size >= 10.0 => format!("{figure:.1}"),
        _ => format!("{figure:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_quartiles() {
        assert_eq!(quartiles(vec![4.0, 1.0, 3.0, 2.0, 5.0], "").unwrap(), [2.0, 3.0, 4.0]);
        assert_eq!(quartiles(vec![1.0, 2.0], "").unwrap(), [1.25, 1.5, 1.75]);
        assert!(quartiles(vec![], "").is_err());
        assert!(quartiles(vec![f64::NAN], "").is_err());
    }

    fn row(target: Target, exact: bool) -> Row {
        Row { target: Some(target), exact, ..Row::default() }
    }

    #[test]
    fn a_target_is_met_or_missed_on_its_own_side() {
        let verdict = |target, quartiles| verdict(&row(target, false), quartiles)[1].clone();
        assert_eq!(verdict(Target::AtMost(1.02), [1.03, 1.04, 1.05]), "missed");
        assert_eq!(verdict(Target::AtMost(1.02), [0.9, 1.0, 1.02]), "met");
        assert_eq!(verdict(Target::AtLeast(1.0), [0.8, 0.9, 0.99]), "missed");
        assert_eq!(verdict(Target::AtLeast(1.0), [1.0, 1.5, 1.6]), "met");
    }

    #[test]
    fn quartiles_on_both_sides_of_a_target_show_nothing() {
        let verdict = |target, exact, quartiles| verdict(&row(target, exact), quartiles)[1].clone();
        assert_eq!(verdict(Target::AtMost(1.0), false, [0.8, 0.9, 1.1]), "not shown");
        assert_eq!(verdict(Target::AtMost(1.0), false, [0.9, 1.1, 1.2]), "not shown");
        assert_eq!(verdict(Target::AtLeast(1.0), false, [0.8, 1.1, 1.2]), "not shown");
        assert_eq!(verdict(Target::AtLeast(1.0), false, [0.8, 0.9, 1.0]), "not shown");
        assert_eq!(verdict(Target::AtMost(1.0), true, [0.8, 0.9, 1.1]), "met");
        assert_eq!(verdict(Target::AtLeast(1.0), true, [0.8, 0.9, 1.1]), "missed");
    }

    #[test]
    fn what_differs_is_shown() {
        let shown = |figure: f64| format!("{figure:.1}");
        assert_eq!(spread(&[2.0, 2.0], [2.0; 3], shown), "2.0");
        assert_eq!(spread(&[2.0, 2.0, 2.0, 2.0, 4.0], [2.0; 3], shown), "2.0 (2.0–2.0)");
    }

    #[test]
    fn a_section_renders_both_tables_and_its_targets() {
        let text = r#"{"title": "T", "about": "How.", "kernel": "6.12", "rows": [
            {"what": "a", "unit": "µs", "target": {"at_most": 1.02}, "exact": false,
             "pairs": [[1, 2], [3, 3], [2, 1]]},
            {"what": "b", "unit": "n", "target": null, "exact": true, "figures": [0]}]}"#;
        let section: Section = serde_json::from_str(text).unwrap();
        let page = render(&section).unwrap();
        let table = "| what, in µs | cmid | C | ratio (quartiles) |\n| --- | ---: | ---: | ---: |\n\
                     | a | 2 | 2 | 1.00 (0.75–1.50) |\n";
        assert!(page.contains(table), "{page}");
        assert!(page.contains("| what, in n | figure (quartiles) |\n| --- | ---: |\n| b | 0 |"), "{page}");
        let page = targets(&[section]).unwrap();
        assert!(page.contains("| a | 1.00 (0.75–1.50) | ≤ 1.02 | not shown |\n") && !page.contains("| b |"), "{page}");
    }

    #[test]
    fn jobs_of_several_programs_are_columns() {
        let row =
            |what: &str| format!(r#"{{"what": "{what}", "unit": "n", "target": null, "exact": true, "figures": [7]}}"#);
        let rows = ["one, twice: x", "one, twice: y", "other: x"].map(row).join(", ");
        let section: Section =
            serde_json::from_str(&format!(r#"{{"title": "T", "about": "", "rows": [{rows}]}}"#)).unwrap();
        let page = render(&section).unwrap();
        assert!(
            page.ends_with("| n | one, twice | other |\n| --- | ---: | ---: |\n| x | 7 | 7 |\n| y | 7 | – |\n"),
            "{page}"
        );
    }
}
