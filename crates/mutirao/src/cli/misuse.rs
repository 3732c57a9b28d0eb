//! A command line that is none: what is wrong with it and where help is, in one line.

use std::ffi::OsString;

use clap::CommandFactory;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::{Cli, Shape};
use crate::failure::Failure;

/// What is to be said about arguments that cannot be read, and to whom.
pub fn misuse(error: &clap::Error, args: impl Iterator<Item = OsString>) -> (Failure, Shape) {
    // Everything after `--` is somebody else's.
    let args: Vec<String> =
        args.map(|arg| arg.to_string_lossy().into_owned()).take_while(|arg| arg != "--").skip(1).collect();
    let shape = if args.iter().any(|arg| arg == "--json") { Shape::Json } else { Shape::People };
    let what = match error.kind() {
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => "there is more to say".into(),
        _ => one_line(&error.render().to_string()),
    };
    let command = command(&args);
    let hint = if is_a_bare_command(error, &command, &args) { BARE_COMMAND } else { "" };
    (Failure::usage(format!("{what}{hint}; see `{command} --help`")), shape)
}

const BARE_COMMAND: &str = "; the command to run comes after --, as in `mutirao submit -- echo hello`";

/// A program and its arguments, given to `submit` as they are.
fn is_a_bare_command(error: &clap::Error, command: &str, args: &[String]) -> bool {
    let unknown = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(arg)) if error.kind() == ErrorKind::UnknownArgument => arg,
        _ => return false,
    };
    command.ends_with(" submit") && args.contains(unknown) && !unknown.starts_with('-')
}

/// What clap says, without the usage and the advice below it, which a person asks for when it is wanted.
fn one_line(rendered: &str) -> String {
    let mut line = String::new();
    let said = rendered.lines().map(str::trim).take_while(|part| !part.starts_with("Usage:"));
    for part in said.filter(|part| !part.is_empty() && !part.starts_with("For more information")) {
        let (part, tip) = match part.strip_prefix("tip: ") {
            Some(tip) => (tip, true),
            None => (part.strip_prefix("error: ").unwrap_or(part), false),
        };
        line += match (line.is_empty(), tip) {
            (true, _) => "",
            (false, true) => "; ",
            (false, false) => " ",
        };
        line += part;
    }
    line
}

/// The command that was meant, as far as it can be told: `mutirao job list`.
fn command(args: &[String]) -> String {
    let mut known = Cli::command();
    let mut said = known.get_name().to_owned();
    for arg in args {
        if let Some(verb) = known.find_subcommand(arg) {
            said = format!("{said} {}", verb.get_name());
            known = verb.clone();
        }
    }
    said
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    fn said(args: &[&str]) -> (String, Shape) {
        let args = ["mutirao"].iter().chain(args).copied();
        let error = Cli::try_parse_from(args.clone()).unwrap_err();
        match misuse(&error, args.map(OsString::from)) {
            (Failure::Said { code: 2, line }, shape) => (line, shape),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn each_slip_is_one_line_that_leads_to_the_help_of_its_command() {
        for (args, what, help) in [
            (&["frobnicate"][..], "unrecognized subcommand 'frobnicate'", "`mutirao --help`"),
            (&["submit", "echo", "hi"], "`mutirao submit -- echo hello`", "`mutirao submit --help`"),
            (&["submit"], "<CMD>", "`mutirao submit --help`"),
            (
                &["submit", "--arry", "1-2", "--", "x"],
                "a similar argument exists: '--array'",
                "`mutirao submit --help`",
            ),
            (&["submit", "--retries", "5000", "--", "x"], "5000 is not in 0..=1000", "`mutirao submit --help`"),
            (&["job", "list", "--state", "lost"], "[possible values: waiting, running", "`mutirao job list --help`"),
            (&["job", "show", "x"], "'x'", "`mutirao job show --help`"),
        ] {
            let (line, shape) = said(args);
            assert!(line.contains(what) && line.contains(help), "{args:?} gave {line}");
            assert!(!line.contains('\n') && !line.contains("Usage") && !line.starts_with("error"), "{line}");
            assert_eq!(shape, Shape::People);
        }
    }

    #[test]
    fn programs_are_told_as_programs_and_a_tasks_own_flags_are_not_ours() {
        assert_eq!(said(&["submit", "--json"]).1, Shape::Json);
        assert_eq!(said(&["submit", "--nope", "--", "x", "--json"]).1, Shape::People);
    }
}
