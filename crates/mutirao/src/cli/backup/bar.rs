//! The bar that is shown while a backup is made or read: bytes of about how many, rate, time left. On a terminal only.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use mutirao_store::backup::Onlooker;

use super::super::out::Shape;

const REDRAWS_PER_S_MAX: u8 = 10;

pub struct Bar(ProgressBar);

impl Bar {
    pub fn new(shape: Shape) -> Self {
        if shape == Shape::Json || !std::io::stderr().is_terminal() {
            return Self(ProgressBar::hidden());
        }
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(REDRAWS_PER_S_MAX));
        let style = "{spinner} {msg} {bar:32} {bytes}/{total_bytes} {bytes_per_sec} eta {eta}";
        bar.set_style(ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.enable_steady_tick(Duration::from_millis(250));
        Self(bar)
    }

    /// Takes the bar away, so that what is said next stands on a clean line.
    pub fn clear(&self) {
        self.0.finish_and_clear();
    }
}

impl Onlooker for Bar {
    fn begins(&self, what: &'static str, bytes: u64) {
        self.0.set_message(what);
        self.0.set_length(bytes);
        self.0.set_position(0);
        self.0.reset_eta();
    }

    fn passed(&self, bytes: u64) {
        self.0.inc(bytes);
    }
}
