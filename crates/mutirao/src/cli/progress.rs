//! The bar that is shown while a job runs: done of total, not ok, rate, time left. On a terminal only.

use std::fmt::Write;
use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use mutirao_core::job::JobView;

use super::out::Shape;

const REDRAWS_PER_S_MAX: u8 = 10;

pub struct Progress(ProgressBar);

impl Progress {
    /// Begins where the job stands, so that the rate is of what is seen from here on.
    pub fn of(job: &JobView, shape: Shape) -> Self {
        if shape == Shape::Json || !std::io::stderr().is_terminal() {
            return Self(ProgressBar::hidden());
        }
        let bar = ProgressBar::with_draw_target(Some(job.tasks), ProgressDrawTarget::stderr_with_hz(REDRAWS_PER_S_MAX));
        let style = "{spinner} {bar:32} {pos}/{len} {msg}{rate} eta {eta}";
        let style = ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar());
        let rate = |state: &ProgressState, out: &mut dyn Write| {
            // A bar that cannot be drawn is drawn again in a moment.
            let _ = write!(out, "{:.1}/s", state.per_sec());
        };
        bar.set_style(style.with_key("rate", rate));
        bar.set_position(job.counts.ended());
        bar.reset_eta();
        bar.enable_steady_tick(Duration::from_millis(250));
        Self(bar)
    }

    pub fn show(&self, job: &JobView) {
        let not_ok = job.counts.ended() - job.counts.ok;
        self.0.set_message(if not_ok > 0 { format!("({not_ok} not ok) ") } else { String::new() });
        self.0.set_position(job.counts.ended());
    }

    /// Takes the bar away, so that what is said next stands on a clean line.
    pub fn clear(&self) {
        self.0.finish_and_clear();
    }
}
