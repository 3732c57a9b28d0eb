//! Sums of floats without rounding: every finite float is a whole number times a power of two, so a wide enough integer holds
//! any sum of them. It is rounded when it is read. So the order of addition cannot matter, nor how events were cut into
//! batches, and what is added and taken away again leaves nothing behind.
//!
//! The integer is limbs of 32 bits in 64, from the least power of two that was needed to the greatest. The spare bits take
//! the carries of half a milliard additions before anything has to be carried on. Figures of one kind (volts, prices) take
//! four or five limbs; the widest possible sum takes 66.

use crate::state::{Reader, Stored, Unreadable, Writer};

const LIMB: i32 = 32;
const MASK: i64 = 0xffff_ffff;
/// Each addition changes a limb by less than 2^32; this many leave it below 2^62.
const ADDS_MAX: u32 = 1 << 29;
/// Of squares: from (2^-1074)² to (2^1024)², and the carries of 2^64 of them.
const LIMBS_MAX: usize = 140;

#[derive(Clone, Debug, Default)]
pub struct Exact {
    /// The first limb counts 2^(32·low).
    low: i32,
    limbs: Vec<i64>,
    /// Since carries were last passed on.
    adds: u32,
    odd: Option<Box<Odd>>,
}

/// What is no finite number, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Odd {
    nan: u64,
    up: u64,
    down: u64,
}

/// A sum with its carries passed on: digits of 32 bits, the lowest first, none in vain at either end.
#[derive(Debug, PartialEq, Eq)]
struct Digits {
    negative: bool,
    low: i32,
    digits: Vec<u32>,
}

impl Exact {
    pub fn add(&mut self, value: f64) {
        match split(value) {
            Some((negative, magnitude, exponent)) => self.put(negative, magnitude, exponent),
            None => *odd_of(self.odd.get_or_insert_default(), value) += 1,
        }
    }

    /// Undoes an [`add`](Self::add) of the same value.
    pub fn remove(&mut self, value: f64) {
        match split(value) {
            Some((negative, magnitude, exponent)) => self.put(!negative, magnitude, exponent),
            None => {
                let odd = self.odd.get_or_insert_default();
                let count = odd_of(odd, value);
                *count = count.saturating_sub(1);
                if **odd == Odd::default() {
                    self.odd = None;
                }
            }
        }
    }

    fn put_square(&mut self, remove: bool, magnitude: u64, exponent: i32) {
        let square = u128::from(magnitude) * u128::from(magnitude);
        self.put(remove, square as u64, 2 * exponent);
        self.put(remove, (square >> 64) as u64, 2 * exponent + 64);
    }

    #[inline]
    fn put(&mut self, negative: bool, magnitude: u64, exponent: i32) {
        if magnitude == 0 {
            return;
        }
        let at = self.place(exponent >> 5);
        let wide = u128::from(magnitude) << (exponent & 31);
        let parts = [i64::from(wide as u32), i64::from((wide >> 32) as u32), (wide >> 64) as i64];
        let limbs = &mut self.limbs[at..at + 3];
        if negative {
            limbs.iter_mut().zip(parts).for_each(|(limb, part)| *limb -= part);
        } else {
            limbs.iter_mut().zip(parts).for_each(|(limb, part)| *limb += part);
        }
        self.adds += 1;
        if self.adds == ADDS_MAX {
            self.carry();
        }
    }

    /// Makes room for three limbs from this one on, and says where it is.
    #[inline]
    fn place(&mut self, index: i32) -> usize {
        if self.limbs.is_empty() {
            self.low = index;
        }
        if index < self.low {
            let more = (self.low - index) as usize;
            self.limbs.splice(0..0, std::iter::repeat_n(0, more));
            self.low = index;
        }
        let at = (index - self.low) as usize;
        if at + 3 > self.limbs.len() {
            self.limbs.resize(at + 3, 0);
        }
        at
    }

    /// Passes carries on: afterwards each limb but the last is from 0 to 2^32, and the last has the sign.
    fn carry(&mut self) {
        self.adds = 0;
        let Some(last) = self.limbs.len().checked_sub(1) else { return };
        let mut carry = 0;
        for limb in &mut self.limbs[..last] {
            let sum = *limb + carry;
            *limb = sum & MASK;
            carry = sum >> LIMB;
        }
        self.limbs[last] += carry;
        let mut last = last;
        while !(-MASK..=MASK).contains(&self.limbs[last]) {
            let above = self.limbs[last] >> LIMB;
            self.limbs[last] &= MASK;
            self.limbs.push(above);
            last += 1;
        }
    }

    fn digits(&self) -> Digits {
        let mut limbs = self.limbs.clone();
        limbs.extend([0, 0]);
        let negative = settle(&mut limbs);
        let mut digits: Vec<u32> = limbs.into_iter().map(|limb| limb as u32).collect();
        while digits.last() == Some(&0) {
            digits.pop();
        }
        let zeros = digits.iter().take_while(|digit| **digit == 0).count();
        digits.drain(..zeros);
        let low = if digits.is_empty() { 0 } else { self.low + zeros as i32 };
        Digits { negative, low, digits }
    }

    /// As a whole number of at most 2^53, signed, and a power of two: to the nearest, to even between two.
    fn rounded(&self) -> (f64, i32) {
        // Read at each event of a sliding window, so what most sums need is on the stack.
        const FEW: usize = 14;
        if self.limbs.len() > FEW {
            let mut limbs = self.limbs.clone();
            limbs.extend([0, 0]);
            let negative = settle(&mut limbs);
            return rounded(negative, self.low, &limbs);
        }
        let mut limbs = [0; FEW + 2];
        limbs[..self.limbs.len()].copy_from_slice(&self.limbs);
        let limbs = &mut limbs[..self.limbs.len() + 2];
        let negative = settle(limbs);
        rounded(negative, self.low, limbs)
    }

    fn add_digits(&mut self, negative: bool, digits: &Digits, times: u64) {
        for (n, digit) in (digits.low..).zip(&digits.digits) {
            let product = u128::from(*digit) * u128::from(times);
            self.put(negative, product as u64, n * LIMB);
            self.put(negative, (product >> 64) as u64, n * LIMB + 64);
        }
    }

    /// The sum, rounded to the nearest float.
    pub fn value(&self) -> f64 {
        if let Some(odd) = self.odd_value() {
            return odd;
        }
        let (mantissa, exponent) = self.rounded();
        scaled(mantissa, exponent)
    }

    /// The sum divided by how many it is of, without going beyond what a float holds on the way.
    pub fn mean(&self, count: u64) -> f64 {
        if let Some(odd) = self.odd_value() {
            return odd;
        }
        let (mantissa, exponent) = self.rounded();
        scaled(mantissa / count as f64, exponent)
    }

    fn odd_value(&self) -> Option<f64> {
        let odd = self.odd.as_ref()?;
        Some(match (odd.nan, odd.up, odd.down) {
            (0, _, 0) => f64::INFINITY,
            (0, 0, _) => f64::NEG_INFINITY,
            _ => f64::NAN,
        })
    }
}

impl Stored for Exact {
    /// The same bytes for the same sum, however it came about.
    fn store(&self, to: &mut Writer) {
        let Digits { negative, low, digits } = self.digits();
        to.u8(u8::from(negative) | u8::from(self.odd.is_some()) << 1);
        to.i64(i64::from(low));
        to.count(digits.len());
        digits.iter().for_each(|digit| to.u32(*digit));
        if let Some(odd) = &self.odd {
            [odd.nan, odd.up, odd.down].into_iter().for_each(|count| to.u64(count));
        }
    }

    fn load(from: &mut Reader<'_>) -> Result<Self, Unreadable> {
        let flags = from.u8()?;
        let low =
            i32::try_from(from.i64()?).ok().filter(|low| low.unsigned_abs() < 1 << 10).ok_or(Unreadable::Value)?;
        let count = from.count_up_to(LIMBS_MAX)?;
        let limbs = (0..count).map(|_| from.u32().map(i64::from)).collect::<Result<Vec<_>, _>>()?;
        let mut sum = Exact { low, limbs, ..Exact::default() };
        if flags & 1 == 1 {
            sum.limbs.iter_mut().for_each(|limb| *limb = -*limb);
        }
        if flags & 2 == 2 {
            sum.odd = Some(Box::new(Odd { nan: from.u64()?, up: from.u64()?, down: from.u64()? }));
        }
        Ok(sum)
    }
}

/// Passes all carries on, into two limbs at the top that were nought, and gives the magnitude; whether it was below nought.
fn settle(limbs: &mut [i64]) -> bool {
    let pass = |limbs: &mut [i64]| {
        let mut carry = 0;
        for limb in &mut *limbs {
            let sum = *limb + carry;
            *limb = sum & MASK;
            carry = sum >> LIMB;
        }
        carry
    };
    let negative = pass(limbs) < 0;
    if negative {
        // What was taken for 2^(32·n) more than it is, n being the number of limbs, is taken from that again.
        limbs.iter_mut().for_each(|limb| *limb = -*limb);
        pass(limbs);
    }
    negative
}

/// Of limbs from 0 to 2^32.
fn rounded(negative: bool, low: i32, limbs: &[i64]) -> (f64, i32) {
    let Some(top) = limbs.iter().rposition(|limb| *limb != 0) else { return (0.0, 0) };
    let digit = |below: usize| top.checked_sub(below).map_or(0, |at| limbs[at] as u128);
    let three = digit(0) << 64 | digit(1) << 32 | digit(2);
    let below = limbs[..top.saturating_sub(2)].iter().any(|limb| *limb != 0);
    // 64 bits from the highest that is set, and whether anything is below them.
    let zeros = (limbs[top] as u32).leading_zeros();
    let bits = three << zeros;
    let (head, sticky) = ((bits >> 32) as u64, below || bits as u32 != 0);
    let (kept, rest) = (head >> 11, head & 0x7ff);
    let up = rest > 0x400 || (rest == 0x400 && (sticky || kept & 1 == 1));
    let whole = (kept + u64::from(up)) as f64;
    let exponent = LIMB * (low + top as i32 + 1) - zeros as i32 - 53;
    (if negative { -whole } else { whole }, exponent)
}

/// A finite float as sign, whole number and power of two.
#[inline]
fn split(value: f64) -> Option<(bool, u64, i32)> {
    let bits = value.to_bits();
    let (exponent, fraction) = ((bits >> 52 & 0x7ff) as i32, bits & ((1 << 52) - 1));
    let magnitude = if exponent == 0 { fraction } else { fraction | 1 << 52 };
    (exponent != 0x7ff).then(|| (bits >> 63 == 1, magnitude, exponent.max(1) - 1075))
}

fn odd_of(odd: &mut Odd, value: f64) -> &mut u64 {
    if value.is_nan() {
        &mut odd.nan
    } else if value > 0.0 {
        &mut odd.up
    } else {
        &mut odd.down
    }
}

/// Times a power of two. Only the last step can leave what a float holds exactly.
fn scaled(mut value: f64, mut exponent: i32) -> f64 {
    const STEP: i32 = 1000;
    while exponent < -STEP {
        value *= two_to(-STEP);
        exponent += STEP;
    }
    while exponent > STEP {
        value *= two_to(STEP);
        exponent -= STEP;
    }
    value * two_to(exponent)
}

fn two_to(exponent: i32) -> f64 {
    f64::from_bits(((exponent + 1023) as u64) << 52)
}

/// What a variance is made of: the sum, and the sum of squares.
#[derive(Clone, Debug, Default)]
pub struct Moments {
    sum: Exact,
    squares: Exact,
}

impl Moments {
    pub fn add(&mut self, value: f64) {
        self.sum.add(value);
        self.square(value, false);
    }

    pub fn remove(&mut self, value: f64) {
        self.sum.remove(value);
        self.square(value, true);
    }

    fn square(&mut self, value: f64, remove: bool) {
        if let Some((_, magnitude, exponent)) = split(value) {
            self.squares.put_square(remove, magnitude, exponent);
        }
    }

    pub fn add_int(&mut self, value: i64) {
        self.sum.put(value < 0, value.unsigned_abs(), 0);
        self.squares.put_square(false, value.unsigned_abs(), 0);
    }

    pub fn remove_int(&mut self, value: i64) {
        self.sum.put(value > 0, value.unsigned_abs(), 0);
        self.squares.put_square(true, value.unsigned_abs(), 0);
    }

    /// n·Σx² − (Σx)², exactly, then divided by n².
    pub fn variance(&self, count: u64) -> f64 {
        if self.sum.odd.is_some() {
            return f64::NAN;
        }
        let mut spread = Exact::default();
        spread.add_digits(false, &self.squares.digits(), count);
        let sum = self.sum.digits();
        for (n, digit) in (sum.low..).zip(&sum.digits) {
            let shifted = Digits { low: sum.low + n, digits: sum.digits.clone(), negative: false };
            spread.add_digits(true, &shifted, u64::from(*digit));
        }
        let (mantissa, exponent) = spread.rounded();
        scaled(mantissa / count as f64 / count as f64, exponent)
    }
}

impl Stored for Moments {
    fn store(&self, to: &mut Writer) {
        self.sum.store(to);
        self.squares.store(to);
    }

    fn load(from: &mut Reader<'_>) -> Result<Self, Unreadable> {
        Ok(Self { sum: Exact::load(from)?, squares: Exact::load(from)? })
    }
}

#[cfg(test)]
mod tests;
