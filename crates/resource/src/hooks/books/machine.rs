//! One machine: how far it has come, whether it is to go, and what becomes of it when the list has it or does not.

use std::time::Duration;

use mutirao_core::Mono;

use super::super::words::Place;
use super::kinds::Kinds;

/// What was made and is not listed after this long is given up. Clouds take a while to list what they made.
pub const APPEARS_WITHIN: Duration = Duration::from_secs(120);
/// A creation that failed and shows nothing after this long made nothing.
pub const DOUBTED_FOR: Duration = Duration::from_secs(45);
/// A machine that is not in so many listings in a row is not there.
const MISSED_MAX: u32 = 2;
/// One that took work and has been silent for this long is not waited for any more.
pub const LOST_AFTER: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Wanted,
    Creating,
    Made { at: Mono },
    Doubtful { at: Mono },
    Listed { missed: u32 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Nobody is on it.
    Unneeded,
    /// It never took work.
    Useless,
    /// It has been silent for long.
    Lost,
    /// Of a kind that is not known any more: whoever is on it finishes first.
    Former,
}

#[derive(Clone, Debug)]
pub struct Going {
    pub why: Why,
    pub(super) since: Mono,
    /// Its agent has gone, or there never was one.
    pub(super) empty: bool,
    pub(super) running: bool,
    pub(super) tries: u32,
    pub(super) not_before: Option<Mono>,
    /// The destroy hook said yes.
    pub(super) done_at: Option<Mono>,
    pub(super) trouble: Option<String>,
}

#[derive(Clone, Debug)]
pub struct Machine {
    pub kind: Option<String>,
    pub place: Option<Place>,
    pub leaving: Option<String>,
    pub(super) stage: Stage,
    /// The list has it, though its creation has not ended.
    pub(super) seen: bool,
    pub(super) coming_since: Mono,
    pub(super) answered: bool,
    pub(super) silent_since: Option<Mono>,
    pub(super) note: Option<String>,
    pub(super) going: Option<Going>,
    /// Another resource manager has taken it over, and this one goes.
    pub(super) ceded: bool,
}

/// What a machine is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    Coming,
    Work,
    /// Silent for a moment.
    Silent,
    /// Silent for longer, or about to be destroyed.
    Lost,
    /// Told to go; its workers finish.
    Going,
}

impl Machine {
    pub(super) fn new(stage: Stage, kind: Option<String>, now: Mono) -> Self {
        Self {
            kind,
            place: None,
            leaving: None,
            stage,
            seen: false,
            coming_since: now,
            answered: false,
            silent_since: None,
            note: None,
            going: None,
            ceded: false,
        }
    }

    /// Its agent may be asked.
    pub fn is_listed(&self) -> bool {
        matches!(self.stage, Stage::Listed { .. })
    }

    /// It has been left to another resource manager.
    pub fn is_ceded(&self) -> bool {
        self.ceded
    }

    /// The destroy hook said yes, or it is somebody else's.
    pub fn is_done_with(&self) -> bool {
        self.ceded || self.going.as_ref().is_some_and(|going| going.done_at.is_some())
    }

    pub fn going(&self) -> Option<Why> {
        self.going.as_ref().map(|going| going.why)
    }

    pub fn at(&self, now: Mono) -> At {
        let silent_for = self.silent_since.map(|since| now.since(since));
        match (&self.going, self.answered, silent_for) {
            (Some(going), _, _) if going.empty => At::Lost,
            (Some(_), _, _) => At::Going,
            (None, false, _) => At::Coming,
            (None, true, None) => At::Work,
            (None, true, Some(span)) if span < LOST_AFTER => At::Silent,
            (None, true, Some(_)) => At::Lost,
        }
    }

    /// For people.
    pub fn note(&self) -> Option<String> {
        let own = self.note.as_deref();
        let with = |what: &str, why: Option<&str>| Some(why.map_or(what.to_owned(), |why| format!("{what}: {why}")));
        if let Some(going) = &self.going {
            let why = match (going.why, going.done_at, own) {
                (_, Some(_), _) => "destroyed, and still listed".to_owned(),
                (Why::Unneeded, ..) => "not needed any more".to_owned(),
                (Why::Former, ..) => "of a kind that is not in the settings any more".to_owned(),
                (Why::Useless, _, own) => {
                    format!("never took work{}", own.map(|own| format!(" ({own})")).unwrap_or_default())
                }
                (Why::Lost, _, own) => format!("lost{}", own.map(|own| format!(" ({own})")).unwrap_or_default()),
            };
            return with(&format!("being destroyed: {why}"), going.trouble.as_deref());
        }
        match (self.stage, self.answered) {
            (Stage::Wanted | Stage::Creating, _) => Some("being created".into()),
            (Stage::Made { .. }, _) => Some("created, not listed yet".into()),
            (Stage::Doubtful { .. }, _) => with("its creation failed", own),
            (Stage::Listed { .. }, false) => with("booting", own),
            (Stage::Listed { .. }, true) => match (&self.leaving, self.silent_since) {
                (_, Some(_)) => with("lost", own),
                (Some(when), None) => Some(format!("taken back {when}: its workers finish and are replaced")),
                (None, None) => None,
            },
        }
    }

    pub(super) fn go(&mut self, why: Why, now: Mono) {
        // Nobody was ever spoken to there, so nobody has to leave.
        let empty = !self.answered || why == Why::Lost;
        self.going.get_or_insert(Going {
            why,
            since: now,
            empty,
            running: false,
            tries: 0,
            not_before: None,
            done_at: None,
            trouble: None,
        });
    }

    pub(super) fn is_to_be_destroyed(&self, now: Mono) -> bool {
        // A destruction that overtakes its creation destroys nothing.
        self.stage != Stage::Creating
            && self
                .going
                .as_ref()
                .is_some_and(|going| going.empty && !going.running && going.not_before.is_none_or(|at| at <= now))
    }

    /// The list has it.
    pub(super) fn is_there(&mut self, kind: Option<String>, now: Mono) {
        match self.stage {
            Stage::Creating => return,
            Stage::Listed { .. } => {}
            Stage::Wanted | Stage::Made { .. } | Stage::Doubtful { .. } => self.coming_since = now,
        }
        self.stage = Stage::Listed { missed: 0 };
        self.kind = kind;
        if self.kind.is_none() && self.going.is_none() {
            self.go(Why::Former, now);
            // Whoever is on it is not known yet.
            self.going.iter_mut().for_each(|going| going.empty = false);
        }
    }

    /// The list, asked at this moment, does not have it.
    pub(super) fn outlives_absence(&mut self, began: Mono, now: Mono, kinds: &mut Kinds) -> bool {
        let destroyed = self.going.as_ref().is_some_and(|going| going.done_at.is_some_and(|at| began >= at));
        match &mut self.stage {
            Stage::Wanted | Stage::Creating => true,
            _ if destroyed => false,
            Stage::Doubtful { at } => began < at.plus(DOUBTED_FOR),
            Stage::Made { at } => {
                if began >= at.plus(APPEARS_WITHIN) && self.going.is_none() {
                    let why = "the create hook said yes, and the list hook does not have it";
                    kinds.fails(self.kind.as_deref(), why, now);
                    self.note = Some(why.into());
                    self.go(Why::Useless, now);
                }
                // One that cannot even be destroyed is not there either.
                self.going.as_ref().is_none_or(|going| going.tries <= MISSED_MAX)
            }
            Stage::Listed { missed } => {
                *missed += 1;
                *missed < MISSED_MAX
            }
        }
    }
}
