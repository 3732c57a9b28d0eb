//! `mutirao config …`: what can be set, and what is.

use clap::{Args, Subcommand};
use serde::Serialize;

use super::out::Out;
use super::{Globals, show};
use crate::config::{Config, Origin, Secrecy, Setting, TABLE};
use crate::failure::Failure;

#[derive(Debug, Args)]
pub struct ConfigArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Show each setting's value and where it came from; secrets are masked
    Show,
    /// Show every setting with its default and what it is for
    List,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
struct Shown {
    key: &'static str,
    value: String,
    origin: String,
}

#[derive(Debug, Serialize)]
struct Listed {
    key: &'static str,
    kind: &'static str,
    default: &'static str,
    env: String,
    help: &'static str,
}

const MASK: &str = "********";

fn shown(config: &Config) -> Vec<Shown> {
    let one = |setting: &Setting| {
        let value = config.values.get(setting);
        let hidden = setting.secrecy == Secrecy::Masked && value.origin != Origin::Default;
        let text = if hidden { MASK.into() } else { value.text.clone() };
        Shown { key: setting.key, value: text, origin: value.origin.to_string() }
    };
    TABLE.iter().map(one).collect()
}

fn listed(setting: &Setting) -> Listed {
    Listed { key: setting.key, kind: setting.kind, default: setting.default, env: setting.env(), help: setting.help() }
}

pub fn run(globals: &Globals, args: ConfigArgs) -> Result<(), Failure> {
    let out = Out::new(globals.shape());
    match args.verb {
        Verb::Show => {
            let config = globals.config(vec![])?;
            out.answer(&shown(&config), |all| {
                show::table(
                    ["KEY", "VALUE", "FROM"],
                    all.iter().map(|s| [s.key.into(), s.value.clone(), s.origin.clone()]),
                )
            })?;
            for name in &config.strange_env {
                out.note(format!("warning: {name} is in the environment and is no setting; is it misspelt?"));
            }
            Ok(())
        }
        Verb::List => {
            let all: Vec<Listed> = TABLE.iter().map(listed).collect();
            out.answer(&all, |all| {
                let blocks: Vec<String> = all
                    .iter()
                    .map(|s| format!("{} = {}  ({}; {})\n    {}", s.key, s.default, s.kind, s.env, s.help))
                    .collect();
                blocks.join("\n")
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::FromFlags;

    #[test]
    fn a_secret_is_masked_and_its_origin_is_not() {
        let env = [("MUTIRAO_TOKEN".to_owned(), "mut_a_verysecret".to_owned())];
        let all = shown(&Config::load(&FromFlags::default(), env).unwrap());
        let token = all.iter().find(|shown| shown.key == "token").unwrap();
        assert_eq!((token.value.as_str(), token.origin.as_str()), (MASK, "MUTIRAO_TOKEN"));
        assert!(all.iter().any(|shown| shown.key == "listen" && shown.value == "127.0.0.1:7070"));
    }
}
