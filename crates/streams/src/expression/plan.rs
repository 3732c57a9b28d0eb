//! What an expression becomes: steps that know the kinds of what they are given.

use crate::batch::Value;
use crate::schema::Kind;

#[derive(Clone, Debug, PartialEq)]
pub enum Node {
    /// The same for all rows.
    One(Value),
    /// A column of the batch.
    Field(usize),
    Step {
        op: Op,
        /// Of what it gives.
        kind: Kind,
        of: Vec<Node>,
    },
}

impl Node {
    pub fn fields(&self, into: &mut Vec<usize>) {
        match self {
            Node::One(_) => {}
            Node::Field(field) => into.push(*field),
            Node::Step { of, .. } => of.iter().for_each(|node| node.fields(into)),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compare {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// One step over columns. Ints and times are the same to those that say `Int`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    IntNegate,
    IntAdd,
    IntSubtract,
    IntMultiply,
    IntDivide,
    IntRemainder,
    IntAbsolute,
    IntLeast,
    IntGreatest,
    IntCompare(Compare),

    FloatNegate,
    FloatAdd,
    FloatSubtract,
    FloatMultiply,
    FloatDivide,
    FloatAbsolute,
    FloatLeast,
    FloatGreatest,
    FloatCompare(Compare),
    Floor,
    Ceil,
    Round,
    Truncate,
    Root,
    Exp,
    Ln,
    Log10,
    Power,
    Sine,
    Cosine,
    Arctangent2,
    IsNan,

    And,
    Or,
    Not,
    BoolCompare(Compare),
    If,
    /// Whether the first is equal to one of the others, each by the kinds of both.
    In,

    TextCompare(Compare),
    Concat,
    Length,
    Lower,
    Upper,
    Trim,
    Contains,
    StartsWith,
    EndsWith,
    Replace,
    Part,
    Split,

    Year,
    Month,
    Day,
    Hour,
    Minute,
    Second,
    Weekday,
    TimeTruncate,

    /// The same 64 bits under another kind.
    Relabel,
    IntToFloat,
    FloatToInt,
    BoolToInt,
    IntToText,
    FloatToText,
    BoolToText,
    TimeToText,
    TextToInt,
    TextToFloat,
    TextToTime,
}
