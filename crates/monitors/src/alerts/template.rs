//! Messages in people's own words: `{{name}}` is replaced by what it names, escaped so that it can stand within quotes in
//! JSON; `{{{name}}}` by the bare text. Nothing else: no loops, no conditions, nothing that could fail while something is down.

/// What a template may name, besides `labels.…`.
pub const NAMES: [&str; 10] =
    ["text", "id", "event", "monitor", "namespace", "detail", "since", "at", "until", "reminder"];
pub const TEMPLATE_CHARS_MAX: usize = 16_384;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    #[error("it is longer than {TEMPLATE_CHARS_MAX} characters")]
    TooLong,
    #[error("{0} has no end")]
    Open(String),
    #[error("there is no {0}; there are {names} and labels.NAME", names = NAMES.join(", "))]
    Unknown(String),
}

#[derive(Debug, PartialEq)]
enum Piece<'a> {
    Text(&'a str),
    Escaped(&'a str),
    Bare(&'a str),
}

pub fn check(template: &str) -> Result<(), TemplateError> {
    if template.chars().count() > TEMPLATE_CHARS_MAX {
        return Err(TemplateError::TooLong);
    }
    for piece in pieces(template)? {
        if let Piece::Escaped(name) | Piece::Bare(name) = piece
            && !NAMES.contains(&name)
            && name.strip_prefix("labels.").is_none_or(str::is_empty)
        {
            return Err(TemplateError::Unknown(shortened(name)));
        }
    }
    Ok(())
}

/// What is not known is left empty: templates are checked when they are taken in.
pub fn render(template: &str, value: impl Fn(&str) -> Option<String>) -> Result<String, TemplateError> {
    let mut text = String::with_capacity(template.len() * 2);
    for piece in pieces(template)? {
        match piece {
            Piece::Text(plain) => text.push_str(plain),
            Piece::Bare(name) => text.push_str(&value(name).unwrap_or_default()),
            Piece::Escaped(name) => text.push_str(&escaped(&value(name).unwrap_or_default())),
        }
    }
    Ok(text)
}

fn pieces(template: &str) -> Result<Vec<Piece<'_>>, TemplateError> {
    let (mut pieces, mut rest) = (Vec::new(), template);
    while let Some((plain, after)) = rest.split_once("{{") {
        let open = || TemplateError::Open(format!("{{{{{}", shortened(after)));
        pieces.push(Piece::Text(plain));
        let (piece, tail) = match after.strip_prefix('{') {
            Some(after) => after.split_once("}}}").map(|(name, tail)| (Piece::Bare(name.trim()), tail)),
            None => after.split_once("}}").map(|(name, tail)| (Piece::Escaped(name.trim()), tail)),
        }
        .ok_or_else(open)?;
        pieces.push(piece);
        rest = tail;
    }
    pieces.push(Piece::Text(rest));
    Ok(pieces)
}

/// As JSON writes it, without the quotes around.
fn escaped(text: &str) -> String {
    let quoted = serde_json::Value::from(text).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

fn shortened(text: &str) -> String {
    text.chars().take(30).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn value(name: &str) -> Option<String> {
        (name == "detail").then(|| "a \"b\"\n\\c".into())
    }

    #[test]
    fn names_are_replaced_and_what_does_not_exist_is_refused() {
        assert_eq!(render(r#"{"x": "{{ detail }}"}"#, value).unwrap(), r#"{"x": "a \"b\"\n\\c"}"#);
        assert_eq!(render("{{{detail}}}.{{text}}", value).unwrap(), "a \"b\"\n\\c.");
        assert!(check("{{monitor}} {{labels.team}} }} {").is_ok());
        assert_eq!(check("{{montior}}"), Err(TemplateError::Unknown("montior".into())));
        assert_eq!(check("{{labels.}}"), Err(TemplateError::Unknown("labels.".into())));
        assert!(matches!(check("x {{monitor"), Err(TemplateError::Open(_))));
        assert!(matches!(check("x {{{monitor}}"), Err(TemplateError::Open(_))));
        assert_eq!(check(&"x".repeat(TEMPLATE_CHARS_MAX + 1)), Err(TemplateError::TooLong));
    }

    proptest! {
        #[test]
        fn within_quotes_anything_stays_json(detail in ".*") {
            let text = render(r#"{"detail": "{{detail}}"}"#, |_| Some(detail.clone())).unwrap();
            let read: serde_json::Value = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(read["detail"].as_str(), Some(detail.as_str()));
        }

        #[test]
        fn no_template_breaks_it(template in ".*") {
            let _ = (check(&template), render(&template, value));
        }
    }
}
