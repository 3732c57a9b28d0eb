//! Many monitors at once, as a file declares them: all of it is made so in one transaction, or nothing is.

use std::collections::{BTreeSet, HashMap};

use mutirao_core::Problem;
use mutirao_core::auth::Principal;
use mutirao_core::declared::{Became, Wrong};
use mutirao_core::shard::shard_of;
use mutirao_surface::UpTo;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::definitions::new_uuid;
use super::{MonitorView, Monitors, refused};
use crate::SHARDS;
use crate::spec::MonitorSpec;
use crate::store::{Expected, MonitorRow, Newcomer, Put};

/// Monitors declared at once.
pub const DECLARED_MAX: usize = 10_000;

/// What a monitor is to be.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Declared {
    pub definition: MonitorSpec,
    #[serde(default)]
    pub pause: Pause,
}

/// Monitors that somebody means to declare.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Draft {
    pub monitors: UpTo<DECLARED_MAX, Declared>,
    /// Channels that will be there by then.
    #[serde(default)]
    pub channels: BTreeSet<String>,
}

/// What a declaration says about a monitor being paused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pause {
    #[default]
    Said,
    /// Then whoever paused it by hand is not undone.
    NotSaid,
}

/// What became of one of them.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Declaration {
    pub became: Became,
    pub monitor: MonitorView,
}

impl Monitors {
    /// In the order in which they were declared.
    pub async fn declare(&self, caller: &Principal, all: Vec<Declared>) -> Result<Vec<Declaration>, Problem> {
        if all.len() > DECLARED_MAX {
            let detail = format!("{} monitors are more than are taken at once, {DECLARED_MAX}", all.len());
            return Err(Problem::invalid("monitors", detail).remedy("declare them in several files"));
        }
        let mut all = self.sound(caller, all).await?;
        let names = all.iter().map(|one| one.definition.name.clone()).collect();
        let there = self.0.store.named(caller.namespace.clone(), names).await.map_err(refused)?;
        let there: HashMap<String, MonitorRow> = there.into_iter().map(|row| (row.spec.name.clone(), row)).collect();
        let mut changes = Vec::new();
        for Declared { definition, pause } in &mut all {
            let row = there.get(&definition.name);
            if let (Some(row), Pause::NotSaid) = (row, *pause) {
                definition.paused = row.spec.paused;
            }
            if row.is_some_and(|row| row.spec == *definition) {
                continue;
            }
            let uuid = new_uuid();
            let newcomer = Newcomer { shard: shard_of(&uuid, SHARDS), uuid, spec: definition.clone() };
            changes.push((newcomer, row.map_or(Expected::Absent, |row| Expected::Revision(row.revision))));
        }
        let written = self.0.store.put_all(changes, self.by(caller)).await.map_err(refused)?;
        let mut changed: HashMap<String, (MonitorRow, Became)> = HashMap::with_capacity(written.len());
        for put in written {
            let (row, became) = match put {
                Put::Created(row) => (row, Became::Made),
                Put::Changed(row) => (row, Became::Changed),
                Put::Unexpected(_) => {
                    return Err(Problem::conflict(
                        "somebody changed one of these monitors in the meantime; nothing was written",
                    )
                    .remedy("try again"));
                }
            };
            changed.insert(row.spec.name.clone(), (row, became));
        }
        let mut tokens = HashMap::new();
        for (row, _) in changed.values() {
            tokens.extend(self.token_for(row).await?.map(|token| (row.key, token)));
        }
        for shard in changed.values().map(|(row, _)| row.shard).collect::<BTreeSet<_>>() {
            self.notice(shard).await;
        }
        let now = |Declared { definition, .. }: Declared| {
            changed.remove(&definition.name).or_else(|| Some((there.get(&definition.name)?.clone(), Became::Unchanged)))
        };
        let (rows, became): (Vec<MonitorRow>, Vec<Became>) = all.into_iter().filter_map(now).unzip();
        let views = self.views(rows).await?;
        let told = views.into_iter().zip(became).map(|((key, view), became)| {
            let push_token = tokens.remove(&key);
            Declaration { became, monitor: MonitorView { push_token, ..view } }
        });
        Ok(told.collect())
    }

    /// Those that would be refused, and why. Nothing is written.
    pub async fn wrong_monitors(&self, caller: &Principal, draft: Draft) -> Result<Vec<Wrong>, Problem> {
        let Draft { monitors: UpTo(all), channels } = draft;
        Ok(self.judged(caller, all, channels).await?.1)
    }

    /// Those that can work; or what is wrong with each that cannot.
    async fn sound(&self, caller: &Principal, all: Vec<Declared>) -> Result<Vec<Declared>, Problem> {
        let (all, wrong) = self.judged(caller, all, BTreeSet::new()).await?;
        if wrong.is_empty() {
            return Ok(all);
        }
        let named =
            |Wrong { at, problem }: &Wrong| Some(format!("{}: {}", all.get(*at)?.definition.name, problem.line()));
        Err(Problem::invalid("monitors", wrong.iter().filter_map(named).collect::<Vec<_>>().join("\n")))
    }

    /// What is wrong with each, in their order; these channels count as there, beside those that are.
    async fn judged(
        &self,
        caller: &Principal,
        all: Vec<Declared>,
        mut channels: BTreeSet<String>,
    ) -> Result<(Vec<Declared>, Vec<Wrong>), Problem> {
        // Conditions are compiled on a thread of their own, which is waited for.
        let check = move || {
            let checked = all.iter().map(|one| one.definition.check().err()).collect::<Vec<_>>();
            (all, checked)
        };
        let (all, checked) = tokio::task::spawn_blocking(check).await.map_err(|_| Problem::internal())?;
        channels.extend(self.channels_there(caller).await?.into_iter().map(|row| row.spec.name));
        let (mut wrong, mut names) = (Vec::new(), BTreeSet::new());
        for (at, (Declared { definition, .. }, problem)) in all.iter().zip(checked).enumerate() {
            let told = [problem, self.allow(definition).err(), Self::unknown_channel(&channels, &definition.alerts)];
            wrong.extend(told.into_iter().flatten().map(|problem| Wrong { at, problem }));
            if !names.insert(&definition.name) {
                wrong.push(Wrong::twice(at));
            }
        }
        Ok((all, wrong))
    }
}
