//! What was written, as a tree. Weakest first: `or`, `and`, `not`, comparisons and `in`, `+ -`, `* / %`, `-`.

use super::Flaw;
use super::lexer::{Token, Word, words};
use crate::batch::Value;
use crate::schema::RESERVED;

/// How deep brackets may stand in each other.
pub const DEPTH_MAX: usize = 50;

#[derive(Clone, Debug, PartialEq)]
pub struct Expr {
    /// At which byte: of an operator, its sign.
    pub at: usize,
    pub what: What,
}

#[derive(Clone, Debug, PartialEq)]
pub enum What {
    Literal(Value),
    Name(String),
    /// An operator or a function; which, its name says.
    Call(String, Vec<Expr>),
    /// Whether the first is one of the others.
    In(Box<Expr>, Vec<Expr>),
}

pub fn parse(text: &str) -> Result<Expr, Flaw> {
    let mut parser = Parser { words: words(text)?, next: 0, depth: 0 };
    if parser.peek() == &Word::End {
        return Err(Flaw::new(0, "there is nothing here").hint("write an expression like volts * amps"));
    }
    let whole = parser.expr()?;
    match parser.peek() {
        Word::End => Ok(whole),
        Word::Sign(")") => Err(Flaw::new(parser.at(), "there is one \")\" too many")),
        other => Err(Flaw::new(parser.at(), format!("{} is not expected here", other.shown()))
            .hint("an operator like + or and is missing before it")),
    }
}

struct Parser {
    words: Vec<Token>,
    next: usize,
    depth: usize,
}

impl Parser {
    fn peek(&self) -> &Word {
        &self.words[self.next].word
    }

    fn at(&self) -> usize {
        self.words[self.next].at
    }

    fn take(&mut self) -> Word {
        let word = self.words[self.next].word.clone();
        // The end stays where it is.
        self.next = (self.next + 1).min(self.words.len() - 1);
        word
    }

    /// The operator among these that stands here, by its plain name, and where.
    fn operator(&mut self, known: &[(&str, &'static str)]) -> Option<(&'static str, usize)> {
        let at = self.at();
        let written = match self.peek() {
            Word::Sign(sign) => *sign,
            Word::Name(name) => name.as_str(),
            _ => return None,
        };
        let (_, name) = known.iter().find(|(sign, _)| *sign == written)?;
        self.take();
        Some((*name, at))
    }

    fn expect(&mut self, sign: &'static str, why: &str) -> Result<(), Flaw> {
        if self.peek() == &Word::Sign(sign) {
            self.take();
            return Ok(());
        }
        Err(Flaw::new(self.at(), format!("{} stands where \"{sign}\" is expected, {why}", self.peek().shown())))
    }

    fn expr(&mut self) -> Result<Expr, Flaw> {
        if self.depth == DEPTH_MAX {
            return Err(Flaw::new(self.at(), format!("more than {DEPTH_MAX} brackets stand in each other")));
        }
        self.depth += 1;
        let or = self
            .chain(&[("or", "or"), ("||", "or")], |parser| parser.chain(&[("and", "and"), ("&&", "and")], Self::not));
        self.depth -= 1;
        or
    }

    /// Operators of one strength, from the left.
    fn chain(
        &mut self,
        operators: &[(&str, &'static str)],
        inner: impl Fn(&mut Self) -> Result<Expr, Flaw>,
    ) -> Result<Expr, Flaw> {
        let mut left = inner(self)?;
        while let Some((name, at)) = self.operator(operators) {
            let right = inner(self)?;
            left = call(at, name, vec![left, right]);
        }
        Ok(left)
    }

    fn not(&mut self) -> Result<Expr, Flaw> {
        let mut places = Vec::new();
        while let Some((_, at)) = self.operator(&[("not", "not"), ("!", "not")]) {
            places.push(at);
        }
        let inner = self.comparison()?;
        Ok(places.into_iter().rev().fold(inner, |inner, at| call(at, "not", vec![inner])))
    }

    fn comparison(&mut self) -> Result<Expr, Flaw> {
        const SIGNS: [(&str, &str); 6] =
            [("==", "=="), ("!=", "!="), ("<=", "<="), (">=", ">="), ("<", "<"), (">", ">")];
        let left = self.sum()?;
        if let Some((_, at)) = self.operator(&[("in", "in")]) {
            return self.list(left, at);
        }
        let Some((name, at)) = self.operator(&SIGNS) else { return Ok(left) };
        let right = self.sum()?;
        let twice = self.at();
        if self.operator(&SIGNS).is_some() {
            return Err(Flaw::new(twice, "comparisons do not follow each other").hint("write a < b and b < c"));
        }
        Ok(call(at, name, vec![left, right]))
    }

    fn list(&mut self, one: Expr, at: usize) -> Result<Expr, Flaw> {
        self.expect("[", "as in x in [1, 2]")?;
        let of = self.items("]")?;
        if of.is_empty() {
            return Err(Flaw::new(at, "nothing is in an empty list"));
        }
        Ok(Expr { at, what: What::In(Box::new(one), of) })
    }

    fn sum(&mut self) -> Result<Expr, Flaw> {
        self.chain(&[("+", "+"), ("-", "-")], |parser| parser.chain(&[("*", "*"), ("/", "/"), ("%", "%")], Self::sign))
    }

    fn sign(&mut self) -> Result<Expr, Flaw> {
        let mut places = Vec::new();
        while let Some((_, at)) = self.operator(&[("-", "-")]) {
            places.push(at);
        }
        let inner = self.primary()?;
        Ok(places.into_iter().rev().fold(inner, |inner, at| call(at, "-", vec![inner])))
    }

    fn primary(&mut self) -> Result<Expr, Flaw> {
        let at = self.at();
        let literal = |value| Ok(Expr { at, what: What::Literal(value) });
        match self.take() {
            Word::Int(value) => literal(Value::Int(value)),
            Word::Float(value) => literal(Value::Float(value)),
            Word::Text(text) => literal(Value::Text(text)),
            Word::Name(name) if name == "true" => literal(Value::Bool(true)),
            Word::Name(name) if name == "false" => literal(Value::Bool(false)),
            Word::Name(name) if self.peek() == &Word::Sign("(") && !RESERVED.contains(&name.as_str()) => {
                self.take();
                Ok(Expr { at, what: What::Call(name, self.items(")")?) })
            }
            Word::Name(name) if !RESERVED.contains(&name.as_str()) => Ok(Expr { at, what: What::Name(name) }),
            Word::Sign("(") => {
                let inner = self.expr()?;
                self.expect(")", "to close a bracket")?;
                Ok(inner)
            }
            Word::End => Err(Flaw::new(at, "it ends where a value is expected")),
            other => Err(Flaw::new(at, format!("{} stands where a value is expected", other.shown()))),
        }
    }

    /// What stands between commas, up to the sign that ends it.
    fn items(&mut self, end: &'static str) -> Result<Vec<Expr>, Flaw> {
        let mut items = Vec::new();
        if self.peek() == &Word::Sign(end) {
            self.take();
            return Ok(items);
        }
        loop {
            items.push(self.expr()?);
            if self.peek() != &Word::Sign(",") {
                break;
            }
            self.take();
        }
        self.expect(end, "or \",\" and more")?;
        Ok(items)
    }
}

fn call(at: usize, name: &str, of: Vec<Expr>) -> Expr {
    Expr { at, what: What::Call(name.to_owned(), of) }
}
