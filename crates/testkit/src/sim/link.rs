//! A process's end of its connection to the broker: connected or not, and trying again.

use std::time::Duration;

use mutirao_core::Mono;

use super::ground::Ground;
use super::wire::{ConnId, FromBroker, Pid, ToBroker};

const CONNECT_MAX: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(300);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Down { until: Mono },
    Connecting { since: Mono },
    Up,
}

/// What a letter of the broker means for the one who is connected.
pub enum News {
    Up,
    Down,
    Letter(FromBroker),
    /// Of a connection that is no more.
    Old,
}

pub struct Link {
    conn: ConnId,
    state: State,
    numbers: u64,
}

impl Link {
    pub fn new(pid: Pid) -> Self {
        Self { conn: ConnId { pid, epoch: 0 }, state: State::Down { until: Mono::default() }, numbers: 0 }
    }

    pub fn conn(&self) -> ConnId {
        self.conn
    }

    pub fn is_up(&self) -> bool {
        self.state == State::Up
    }

    /// A number that this connection has not used.
    pub fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    pub fn send(&self, letter: ToBroker, ground: &mut Ground) {
        if self.is_up() {
            ground.tell_broker(self.conn, letter);
        }
    }

    pub fn tick(&mut self, now: Mono, ground: &mut Ground) {
        match self.state {
            State::Down { until } if now >= until => {
                self.conn.epoch += 1;
                self.state = State::Connecting { since: now };
                ground.tell_broker(self.conn, ToBroker::Connect);
            }
            State::Connecting { since } if now.since(since) > CONNECT_MAX => {
                self.state = State::Down { until: now.plus(PAUSE) };
            }
            _ => {}
        }
    }

    pub fn hear(&mut self, conn: ConnId, letter: FromBroker, now: Mono) -> News {
        if conn != self.conn || matches!(self.state, State::Down { .. }) {
            return News::Old;
        }
        match letter {
            FromBroker::Connected => {
                self.state = State::Up;
                News::Up
            }
            FromBroker::Lost => {
                self.state = State::Down { until: now.plus(PAUSE) };
                News::Down
            }
            letter => News::Letter(letter),
        }
    }
}
