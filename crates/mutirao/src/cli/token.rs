//! `mutirao token …`

use clap::{Args, Subcommand};
use mutirao_client::PageArgs;
use mutirao_core::auth::{Role, TokenSpec};
use mutirao_core::quantity::Span;
use mutirao_core::{Clock, SystemClock};

use super::out::Out;
use super::{Globals, reach, show};
use crate::failure::Failure;

#[derive(Debug, Args)]
pub struct TokenArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Make a token and print it, once
    Create {
        /// viewer (may look), operator (may submit and cancel) or admin
        #[arg(long)]
        role: Role,
        /// Whose it is, or what for
        #[arg(long)]
        name: String,
        /// How long it is good for, such as 30days; without it, until it is revoked
        #[arg(long, value_name = "SPAN")]
        expires_in: Option<Span>,
    },
    /// Show tokens, the oldest first, without their secrets
    List {
        /// How many
        #[arg(long, default_value_t = 100)]
        limit: u32,
        /// Go on where a former page ended
        #[arg(long)]
        cursor: Option<String>,
    },
    /// Make a token worthless, at once
    Revoke { id: String },
}

pub async fn run(globals: &Globals, args: TokenArgs) -> Result<(), Failure> {
    let out = Out::new(globals.shape());
    let client = reach::client(&globals.config(vec![])?)?;
    match args.verb {
        Verb::Create { role, name, expires_in } => {
            let created = client.create_token(&TokenSpec { name, role, expires_in }).await?;
            out.answer(&created, |created| created.secret.clone())?;
            out.note(format!("this is the only time it is shown; its id is {}", created.token.id));
            Ok(())
        }
        Verb::List { limit, cursor } => {
            let now = SystemClock.now();
            let tokens = client.tokens(PageArgs { limit: Some(limit), cursor }).await?;
            out.answer(&tokens, |tokens| show::tokens(&tokens.items, now))?;
            if let Some(cursor) = &tokens.next {
                out.note(format!("there are more: add --cursor {cursor}"));
            }
            Ok(())
        }
        Verb::Revoke { id } => {
            client.revoke_token(&id).await?;
            out.note(format!("the token {id} is worthless now"));
            Ok(())
        }
    }
}
