//! What there is in a world.

use super::load::Load;

#[derive(Clone, Debug)]
pub struct Setup {
    pub hosts: Vec<HostSetup>,
    pub operators: Vec<OperatorSetup>,
    pub seconds: u32,
    pub moving: Moving,
    pub noise: Noise,
    /// From one that sends to one that receives.
    pub network_s: f64,
    pub event_bytes: f64,
    pub goal_ms: Option<f64>,
}

#[derive(Clone, Debug)]
pub struct HostSetup {
    pub cores: u32,
    pub memory_bytes: f64,
    /// From when how many times as long everything takes there.
    pub slow: Option<(f64, f64)>,
    /// When it is gone. What was there begins elsewhere once that was noticed.
    pub lost_s: Option<f64>,
}

#[derive(Clone, Debug)]
pub struct OperatorSetup {
    pub load: Load,
    /// The host of each replica.
    pub hosts: Vec<usize>,
    /// Of one core, an event.
    pub service_s: f64,
    /// Events that a replica works on at once.
    pub threads: u32,
    pub state_bytes: f64,
}

/// How a replica gets to another host.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Moving {
    /// As in the document: an empty copy at the target, input to both; once the source has done all that came before, it stops, its
    /// state is copied, the target goes on.
    StopAndCopy {
        set_up_s: f64,
        bytes_per_s: f64,
        /// While the input is sent to both its source says nothing; nor afterwards what it would have said.
        upstream_pause_s: f64,
        /// From when the replica stops until it goes on at the target, beside what its state takes. Its events wait meanwhile.
        pause_s: f64,
    },
    /// The last snapshot and a replay at the target while the source goes on; it takes over when it has caught up.
    Live { set_up_s: f64, bytes_per_s: f64, snapshot_s: u32, pause_s: f64 },
}

impl Moving {
    pub fn stop_and_copy() -> Self {
        Self::StopAndCopy { set_up_s: 1.0, bytes_per_s: 100e6, upstream_pause_s: 3.0, pause_s: 8.0 }
    }

    pub fn live() -> Self {
        Self::Live { set_up_s: 0.5, bytes_per_s: 100e6, snapshot_s: 10, pause_s: 0.02 }
    }
}

/// What is not as it should be.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Noise {
    /// Service times are uniform, this share above and below the mean.
    pub service: f64,
    /// Measured use is off by up to this share.
    pub measures: f64,
    /// How likely a replica stops for a moment, each second, and for how long.
    pub hiccups: f64,
    pub hiccup_s: f64,
    /// The share of messages that is lost; as many come three seconds late, and as many twice.
    pub messages: f64,
}
