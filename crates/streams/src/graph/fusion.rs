//! Which operators run as one. Between two stages events go through a log; inside one they do not.
//!
//! An operator joins the stage of the one that it reads when it keeps nothing, nobody else reads that one, and both have as
//! many replicas. A `key_by` is the last of its stage: behind it, events go to where their key is kept. One that would be a stage
//! by itself goes with the one that reads it, if that is one. A window begins a stage, and so does a union. What is late leaves a
//! stage by itself, so who reads that begins one too.

use super::{Does, Operator, Port, Sink};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stage {
    /// In the order in which events pass them.
    pub operators: Vec<usize>,
    /// What its first operator reads.
    pub inputs: Vec<Port>,
    pub replicas: u32,
}

/// The stages of operators of which each stands after those that it reads.
pub fn stages(operators: &[Operator], sinks: &[Sink]) -> Vec<Stage> {
    let readers = |port: Port| {
        let operators = operators.iter().flat_map(|operator| &operator.inputs).filter(|input| **input == port).count();
        operators + sinks.iter().filter(|sink| sink.input == port).count()
    };
    let mut stages: Vec<Stage> = Vec::new();
    let mut stage_of = vec![0; operators.len()];
    for (n, operator) in operators.iter().enumerate() {
        let joins = match (&operator.does, operator.inputs.as_slice()) {
            (Does::Filter(_) | Does::Map(_) | Does::KeyBy(_), [Port::Operator(before)]) => Some(*before),
            _ => None,
        };
        let joins = joins.filter(|before| {
            let earlier = &operators[*before];
            !matches!(earlier.does, Does::KeyBy(_))
                && earlier.replicas == operator.replicas
                && readers(Port::Operator(*before)) == 1
        });
        let keyed = match operator.inputs.as_slice() {
            [Port::Operator(before)] => {
                let alone = stages[stage_of[*before]].operators == [*before];
                let keys = matches!(operators[*before].does, Does::KeyBy(_));
                (keys && alone && readers(Port::Operator(*before)) == 1).then_some(*before)
            }
            _ => None,
        };
        if let Some(before) = keyed {
            let stage = &mut stages[stage_of[before]];
            stage.operators.push(n);
            stage.replicas = operator.replicas;
            stage_of[n] = stage_of[before];
            continue;
        }
        stage_of[n] = match joins {
            Some(before) => {
                stages[stage_of[before]].operators.push(n);
                stage_of[before]
            }
            None => {
                let (inputs, replicas) = (operator.inputs.clone(), operator.replicas);
                stages.push(Stage { operators: vec![n], inputs, replicas });
                stages.len() - 1
            }
        };
    }
    stages
}
