//! Every bound of the listener. Each is meant to be a setting; the defaults suit a small machine with a thousand devices.

use std::time::Duration;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Open connections; one more is closed at once.
    pub connections_max: usize,
    /// Open connections of one address: half of all, so that nobody alone keeps the others out.
    pub connections_per_address_max: usize,
    /// Connections of one address that were not let in yet.
    pub strangers_per_address_max: usize,
    /// Bytes of a CONNECT: whoever was not let in yet is not listened to for longer.
    pub connect_bytes_max: usize,
    /// Sessions, those of clients that are away included.
    pub sessions_max: usize,
    /// Bytes of one packet after its fixed header. A longer one ends the connection before it is read.
    pub packet_bytes_max: usize,
    /// From the first byte of a connection to its CONNECT and the gate's answer, TLS included.
    pub connect_wait_max: Duration,
    /// What a client that reads nothing may keep a write waiting.
    pub write_wait_max: Duration,
    /// Subscriptions of one session.
    pub subscriptions_max: usize,
    /// Messages sent to one client and not yet acknowledged.
    pub in_flight_max: usize,
    /// Messages taken from one client that the program has not accepted yet; then nothing more is read from it.
    pub unaccepted_max: usize,
    /// Messages that wait for one client, sent and unacknowledged ones included.
    pub queue_messages_max: usize,
    /// Their bytes.
    pub queue_bytes_max: usize,
    /// How long one waits before nobody wants it any more.
    pub queue_age_max: Duration,
    /// Bytes that wait for all clients together.
    pub held_bytes_max: usize,
    /// Of them, bytes that wait for clients that are away: they must not take the room of those who are there.
    pub held_away_bytes_max: usize,
    /// How long the session of a client that is away is kept.
    pub session_away_max: Duration,
    /// Retained messages, and their bytes.
    pub retained_messages_max: usize,
    pub retained_bytes_max: usize,
    /// Levels of topics that are looked at for what is retained, for all filters of one SUBSCRIBE together.
    pub retained_steps_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections_max: 4_096,
            connections_per_address_max: 2_048,
            strangers_per_address_max: 256,
            connect_bytes_max: 4 << 10,
            sessions_max: 8_192,
            packet_bytes_max: 256 << 10,
            connect_wait_max: Duration::from_secs(10),
            write_wait_max: Duration::from_secs(20),
            subscriptions_max: 64,
            in_flight_max: 16,
            unaccepted_max: 64,
            queue_messages_max: 1_000,
            queue_bytes_max: 1 << 20,
            queue_age_max: Duration::from_secs(24 * 3600),
            held_bytes_max: 128 << 20,
            held_away_bytes_max: 64 << 20,
            session_away_max: Duration::from_secs(7 * 24 * 3600),
            retained_messages_max: 10_000,
            retained_bytes_max: 16 << 20,
            retained_steps_max: 20_000,
        }
    }
}
