//! What is shown while a job runs: done of total, what runs, what was not ok, rate, time left. A bar on a terminal, a plain
//! line now and then elsewhere, nothing for programs.

use std::fmt::Write;
use std::io::IsTerminal;
use std::sync::Mutex;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use mutirao_core::job::{Counts, JobView};
use mutirao_core::{Clock, Mono, SystemClock};

use super::out::{Out, Shape};
use super::show;

const REDRAWS_PER_S_MAX: u8 = 10;
/// Between two lines where there is no terminal: a log of an hour stays readable.
const LINE_EVERY: Duration = Duration::from_secs(5);

pub enum Progress {
    Bar(ProgressBar),
    Lines(Mutex<Lines>),
    Nothing,
}

/// What was said, and when.
pub struct Lines {
    out: Out,
    began: Mono,
    /// Tasks that had ended when we began to look.
    from: u64,
    said_at: Mono,
}

impl Progress {
    /// Begins where the job stands, so that the rate is of what is seen from here on.
    pub fn of(job: &JobView, out: Out) -> Self {
        if out.shape == Shape::Json {
            return Self::Nothing;
        }
        if !std::io::stderr().is_terminal() {
            let now = SystemClock.monotonic();
            return Self::Lines(Mutex::new(Lines { out, began: now, from: job.counts.ended(), said_at: now }));
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
        Self::Bar(bar)
    }

    pub fn show(&self, job: &JobView) {
        match self {
            Self::Bar(bar) => {
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
            Self::Bar(bar) => bar.suspend(|| out.note(text)),
            Self::Lines(_) | Self::Nothing => out.note(text),
        }
    }

    /// Takes the bar away, so that what is said next stands on a clean line.
    pub fn clear(&self) {
        if let Self::Bar(bar) = self {
            bar.finish_and_clear();
        }
    }
}

impl Lines {
    /// The end is told by whoever waits for it.
    fn show(&mut self, job: &JobView, now: Mono) {
        if job.state.is_final() || now.since(self.said_at) < LINE_EVERY {
            return;
        }
        self.said_at = now;
        self.out.note(line(job, self.from, now.since(self.began)));
    }
}

/// `1200/5000 done (4 running, 3 not ok), 240.0/s, about 15s left`
fn line(job: &JobView, from: u64, watched: Duration) -> String {
    let ended = job.counts.ended();
    let mut line = format!("{ended}/{} done", job.tasks);
    let beside = beside(&job.counts);
    if !beside.is_empty() {
        let _ = write!(line, " ({beside})");
    }
    let rate = ended.saturating_sub(from) as f64 / watched.as_secs_f64().max(0.001);
    if rate > 0.0 {
        let left = Duration::from_secs_f64(((job.tasks - ended) as f64 / rate).min(f64::from(u32::MAX)));
        let _ = write!(line, ", {rate:.1}/s, about {} left", show::rough(left));
    }
    line
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
        let told = line(&half, 10, Duration::from_secs(8));
        assert_eq!(told, "50/100 done (4 running, 3 not ok), 5.0/s, about 10s left");
        let fresh = job(Counts { ready: 100, ..Counts::default() });
        assert_eq!(line(&fresh, 0, Duration::from_secs(8)), "0/100 done", "nothing is foretold from nothing");
    }
}
