//! Several fields as one key.

use crate::batch::Column;

/// So that bytes are in the order of values: ints with the sign turned and the highest byte first; texts end with two noughts,
/// and a nought within is followed by 255.
pub fn pack(column: &Column, row: usize, to: &mut Vec<u8>) {
    match column {
        Column::Int(all) | Column::Time(all) => to.extend((all[row] ^ i64::MIN).to_be_bytes()),
        Column::Bool(all) => to.push(u8::from(all[row])),
        Column::Text(all) => {
            for byte in all.bytes_of(row) {
                to.push(*byte);
                if *byte == 0 {
                    to.push(255);
                }
            }
            to.extend([0, 0]);
        }
        column => unreachable!("keys of {}", column.kind()),
    }
}

pub fn unpack(from: &mut &[u8], to: &mut Column) {
    match to {
        Column::Int(to) | Column::Time(to) => {
            let Some((value, rest)) = from.split_first_chunk() else { return to.push(0) };
            to.push(i64::from_be_bytes(*value) ^ i64::MIN);
            *from = rest;
        }
        Column::Bool(to) => {
            let Some((value, rest)) = from.split_first() else { return to.push(false) };
            to.push(*value != 0);
            *from = rest;
        }
        Column::Text(to) => {
            let mut text = Vec::new();
            while let [byte, rest @ ..] = *from {
                *from = rest;
                if *byte == 0 {
                    let ends = rest.first() != Some(&255);
                    *from = rest.get(1..).unwrap_or_default();
                    if ends {
                        break;
                    }
                }
                text.push(*byte);
            }
            to.push(&String::from_utf8_lossy(&text));
        }
        column => unreachable!("keys of {}", column.kind()),
    }
}
