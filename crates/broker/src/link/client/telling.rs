//! What the log hears of a server that cannot be reached: at once, then rarely, and when it is back. Whoever starts a worker
//! with a wrong address would otherwise wait for nothing.

use std::time::Duration;

use mutirao_core::Mono;

/// Between two lines about the same absence.
const AGAIN: Duration = Duration::from_secs(300);

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Word {
    Nothing,
    Away,
    StillAway(Duration),
    Back(Duration),
}

#[derive(Default)]
pub(super) struct Telling {
    absence: Option<Absence>,
}

struct Absence {
    since: Mono,
    told_at: Mono,
}

impl Telling {
    /// It cannot be reached, or not any more.
    pub fn away(&mut self, now: Mono) -> Word {
        match &mut self.absence {
            None => {
                self.absence = Some(Absence { since: now, told_at: now });
                Word::Away
            }
            Some(absence) if now.since(absence.told_at) >= AGAIN => {
                absence.told_at = now;
                Word::StillAway(now.since(absence.since))
            }
            Some(_) => Word::Nothing,
        }
    }

    /// It answers.
    pub fn up(&mut self, now: Mono) -> Word {
        self.absence.take().map_or(Word::Nothing, |absence| Word::Back(now.since(absence.since)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Mono {
        Mono(Duration::from_secs(seconds))
    }

    #[test]
    fn an_absence_is_told_at_once_then_rarely_and_when_it_is_over() {
        let mut telling = Telling::default();
        assert_eq!(telling.up(at(1)), Word::Nothing);
        assert_eq!(telling.away(at(2)), Word::Away);
        let later: Vec<Word> = (3..700).map(|second| telling.away(at(second))).collect();
        let said: Vec<&Word> = later.iter().filter(|word| **word != Word::Nothing).collect();
        assert_eq!(said, [&Word::StillAway(AGAIN), &Word::StillAway(2 * AGAIN)]);
        assert_eq!(telling.up(at(702)), Word::Back(Duration::from_secs(700)));
        assert_eq!((telling.up(at(703)), telling.away(at(704))), (Word::Nothing, Word::Away), "the next is another");
    }
}
