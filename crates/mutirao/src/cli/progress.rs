//! What is shown while a job runs: done of total, what runs, what was not ok, rate, time left. A bar on a terminal, a plain
//! line now and then elsewhere, nothing for programs.

mod pace;

use std::fmt::Write;
use std::io::IsTerminal;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use mutirao_core::job::{Counts, JobView};
use mutirao_core::{Clock, Mono, SystemClock};

use super::out::{Out, Shape};
use super::show;
use pace::{Going, Pace};

const REDRAWS_PER_S_MAX: u8 = 10;
/// Between two lines where there is no terminal: a log of an hour stays readable.
const LINE_EVERY: Duration = Duration::from_secs(5);

pub enum Progress {
    Bar(ProgressBar, Arc<Mutex<Pace>>),
    Lines(Mutex<Lines>),
    Nothing,
}

/// What was said, and when.
pub struct Lines {
    out: Out,
    pace: Pace,
    said_at: Mono,
}

impl Progress {
    /// Begins where the job stands, so that the rate is of what is seen from here on.
    pub fn of(job: &JobView, out: Out) -> Self {
        if out.shape == Shape::Json {
            return Self::Nothing;
        }
        let now = SystemClock.monotonic();
        let pace = Pace::new(job.counts.ended(), now);
        if !std::io::stderr().is_terminal() {
            return Self::Lines(Mutex::new(Lines { out, pace, said_at: now }));
        }
        let pace = Arc::new(Mutex::new(pace));
        let bar = ProgressBar::with_draw_target(Some(job.tasks), ProgressDrawTarget::stderr_with_hz(REDRAWS_PER_S_MAX));
        let style = "{spinner} {bar:32} {pos}/{len} {msg}{going}";
        let style = ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar());
        let seen = pace.clone();
        let going = move |state: &ProgressState, out: &mut dyn Write| {
            let left = state.len().unwrap_or(0).saturating_sub(state.pos());
            let going = seen.lock().unwrap_or_else(PoisonError::into_inner).going(left, SystemClock.monotonic());
            // A bar that cannot be drawn is drawn again in a moment.
            let _ = write!(out, "{}", told(going));
        };
        bar.set_style(style.with_key("going", going));
        bar.set_position(job.counts.ended());
        bar.enable_steady_tick(Duration::from_millis(250));
        Self::Bar(bar, pace)
    }

    pub fn show(&self, job: &JobView) {
        match self {
            Self::Bar(bar, pace) => {
                let mut pace = pace.lock().unwrap_or_else(PoisonError::into_inner);
                pace.see(job.counts.ended(), SystemClock.monotonic());
                // The bar asks for it when it is drawn.
                drop(pace);
                let beside = beside(&job.counts);
                bar.set_message(if beside.is_empty() { beside } else { format!("({beside}) ") });
                bar.set_position(job.counts.ended());
            }
            Self::Lines(lines) => {
                if let Ok(mut lines) = lines.lock() {
                    lines.show(job, SystemClock.monotonic());
                }
            }
            Self::Nothing => {}
        }
    }

    /// Says something beside it.
    pub fn note(&self, text: String, out: Out) {
        match self {
            Self::Bar(bar, _) => bar.suspend(|| out.note(text)),
            Self::Lines(_) | Self::Nothing => out.note(text),
        }
    }

    /// Takes the bar away, so that what is said next stands on a clean line.
    pub fn clear(&self) {
        if let Self::Bar(bar, _) = self {
            bar.finish_and_clear();
        }
    }
}

impl Lines {
    /// The end is told by whoever waits for it.
    fn show(&mut self, job: &JobView, now: Mono) {
        self.pace.see(job.counts.ended(), now);
        if job.state.is_final() || now.since(self.said_at) < LINE_EVERY {
            return;
        }
        self.said_at = now;
        self.out.note(line(job, &self.pace, now));
    }
}

/// `1200/5000 done (4 running, 3 not ok), 240.0/s, about 15s left`
fn line(job: &JobView, pace: &Pace, now: Mono) -> String {
    let ended = job.counts.ended();
    let mut line = format!("{ended}/{} done", job.tasks);
    let beside = beside(&job.counts);
    if !beside.is_empty() {
        let _ = write!(line, " ({beside})");
    }
    let told = told(pace.going(job.tasks.saturating_sub(ended), now));
    if !told.is_empty() {
        let _ = write!(line, ", {told}");
    }
    line
}

/// `240.0/s, about 15s left`
fn told(going: Going) -> String {
    match going {
        Going::Unknown => String::new(),
        // Slower than that, how many in a second says nothing.
        Going::At { per_s, left } if per_s < 0.1 => {
            format!("{:.1}/min, about {} left", per_s * 60.0, show::rough(left))
        }
        Going::At { per_s, left } => format!("{per_s:.1}/s, about {} left", show::rough(left)),
        Going::Still(span) => format!("nothing ended for {}", show::rough(span)),
    }
}

/// What a count of those that are done does not say.
fn beside(counts: &Counts) -> String {
    let not_ok = counts.ended() - counts.ok;
    let some = [(counts.running, "running"), (not_ok, "not ok")].into_iter().filter(|(n, _)| *n > 0);
    some.map(|(n, what)| format!("{n} {what}")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use mutirao_core::JobKey;

    use super::*;

    fn job(counts: Counts) -> JobView {
        let view = serde_json::json!({
            "id": JobKey(7), "queue": "default", "owner": "t1", "state": counts.state(), "tasks": counts.total(),
            "counts": counts, "created_at": 1_000, "trace": "ab",
        });
        serde_json::from_value(view).unwrap()
    }

    #[test]
    fn a_line_has_counts_rate_and_remaining_time() {
        let half = job(Counts { ready: 46, running: 4, ok: 47, failed: 3, ..Counts::default() });
        let at = |s: u64| Mono(Duration::from_secs(s));
        let mut pace = Pace::new(10, at(0));
        pace.see(50, at(8));
        assert_eq!(line(&half, &pace, at(8)), "50/100 done (4 running, 3 not ok), 5.0/s, about 10s left");
        let told = line(&half, &pace, at(608));
        assert_eq!(told, "50/100 done (4 running, 3 not ok), nothing ended for 10m", "nothing is foretold of a pause");
        let fresh = job(Counts { ready: 100, ..Counts::default() });
        assert_eq!(line(&fresh, &Pace::new(0, at(0)), at(8)), "0/100 done", "nothing is foretold from nothing");
    }
}
