//! The commands of `elastic.hooks`: whether the list hook of each set says what there is. Nothing is created.

use futures_util::future::join_all;
use mutirao_core::SystemClock;
use mutirao_resource::hooks::look as list;

use super::Finding;
use crate::config::Settings;
use crate::failure::Failure;
use crate::role::elastic;

const WHAT: &str = "hooks";

pub async fn look(settings: &Settings) -> Vec<Finding> {
    let sets = match elastic::doctored(settings) {
        Ok(sets) => sets,
        Err(failure) => {
            let said = match failure {
                Failure::Said { line, .. } => line,
                other => format!("{other:?}"),
            };
            return vec![Finding::fail(WHAT, said, "docs/hooks.md shows such a file")];
        }
    };
    let program = std::env::current_exe().map(|program| program.display().to_string()).unwrap_or_default();
    let asked = sets.iter().map(|(set, mark)| list(set, mark, "", program.clone(), SystemClock::shared()));
    let finding = |((set, _), found): (&(mutirao_resource::hooks::HooksSpec, String), Result<Vec<_>, String>)| {
        let name = &set.name;
        match found {
            Ok(all) => {
                let kinds: Vec<&str> = set.kinds.iter().map(|kind| kind.name.as_str()).collect();
                let many = match all.len() {
                    1 => "1 machine of ours".to_owned(),
                    n => format!("{n} machines of ours"),
                };
                Finding::ok(WHAT, format!("{name} lists {many}; kinds {}", kinds.join(", ")))
            }
            Err(why) => {
                let remedy =
                    format!("run it by hand in {}; docs/hooks.md says what it is to print", set.beside.display());
                Finding::fail(WHAT, format!("{name}: {why}"), remedy)
            }
        }
    };
    let found = join_all(asked).await;
    sets.iter().zip(found).map(finding).collect()
}
