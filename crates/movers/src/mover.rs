//! Hears messages and makes rounds. The same messages and scenes make the same rounds.

use std::collections::BTreeMap;

use mutirao_streams::wire::Part;

use crate::adaptive::{self, Asked};
use crate::memory::Memory;
use crate::message::Message;
use crate::mutirao::Past;
use crate::round::{Round, Verdict};
use crate::scene::{Board, Scene};
use crate::settings::{Settings, Strategy};
use crate::{mutirao, random};

#[derive(Clone, Debug)]
pub struct Mover {
    settings: Settings,
    memory: Memory,
    last_moved: BTreeMap<Part, u64>,
    past: Past,
    number: u64,
    /// The first round is a window after the first scene.
    due_ms: Option<u64>,
}

impl Mover {
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            memory: Memory::default(),
            last_moved: BTreeMap::new(),
            past: Past::default(),
            number: 0,
            due_ms: None,
        }
    }

    /// Each message as it comes. Twice, late or in another order does no harm.
    pub fn hear(&mut self, now_ms: u64, message: Message) {
        self.memory.hear(now_ms, message);
    }

    /// A round if one is due. While a move is under way one that is due finds nothing but that.
    pub fn round(&mut self, scene: &Scene) -> Option<Round> {
        let due = *self.due_ms.get_or_insert(scene.now_ms + self.settings.every_ms);
        if scene.now_ms < due {
            return None;
        }
        // Rounds that were missed are not made up for.
        let missed = (scene.now_ms - due) / self.settings.every_ms.max(1);
        self.due_ms = Some(due + (missed + 1) * self.settings.every_ms.max(1));
        self.number += 1;
        let mut round = Round {
            number: self.number,
            at_ms: scene.now_ms,
            strategy: self.settings.strategy.name().into(),
            waits_for: scene.moving.iter().cloned().collect(),
            considered: Vec::new(),
            asks_for_host: None,
        };
        if round.waits_for.is_empty() {
            self.look(scene, &mut round);
        }
        Some(round)
    }

    fn look(&mut self, scene: &Scene, round: &mut Round) {
        self.memory.tidy(scene);
        self.last_moved.retain(|part, _| scene.parts.iter().any(|seated| seated.part == *part));
        let mut board = Board::new(scene);
        let asked = Asked {
            memory: &self.memory,
            window_ms: self.settings.every_ms,
            moves_max: self.settings.moves_max,
            last_moved: &self.last_moved,
        };
        match self.settings.strategy {
            Strategy::None => {}
            Strategy::Random { seed } => round.considered = random::round(&asked, &mut board, seed, self.number),
            Strategy::Adaptive { sensitivity } => {
                round.considered = adaptive::round(&asked, &mut board, sensitivity);
            }
            Strategy::Mutirao(terms) => mutirao::round(&asked, &mut board, &terms, &mut self.past, round),
        }
        for one in &round.considered {
            if matches!(one.verdict, Verdict::Moves { .. }) {
                self.last_moved.insert(one.part.clone(), scene.now_ms);
            }
        }
    }
}
