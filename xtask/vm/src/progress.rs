//! Shows long steps on standard error: a spinner on a terminal, one line each elsewhere.

use indicatif::{ProgressBar, ProgressStyle};
use std::{
    io::{self, IsTerminal},
    time::Duration,
};

/// A step in progress. Dropping it removes its spinner.
#[derive(Debug)]
pub struct Step(Option<ProgressBar>);

impl Step {
    /// Begins a step, and shows its name.
    pub fn begin(what: &str) -> Self {
        if !io::stderr().is_terminal() {
            eprintln!("softroce: {what}");
            return Step(None);
        }
        let bar = ProgressBar::new_spinner();
        if let Ok(style) = ProgressStyle::with_template("{spinner} softroce: {wide_msg} {elapsed}") {
            bar.set_style(style);
        }
        bar.set_message(what.to_owned());
        bar.enable_steady_tick(Duration::from_millis(100));
        Step(Some(bar))
    }

    /// Shows details of the step, if there is a spinner.
    pub fn detail(&self, what: &str) {
        if let Some(bar) = &self.0 {
            bar.set_message(what.to_owned());
        }
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}
