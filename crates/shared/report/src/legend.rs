//! Legend: the meaning of colours and dashes, as rows of signs with names.

use crate::axis::{block, line};
use crate::markup::{Element, el};

use crate::place::{clipped, flow, width};

/// The sign of an item.
pub enum Sign {
    /// A line of this class.
    Line(String),
    /// A block of this class.
    Block(String),
    /// A circle of this class.
    Dot(String),
}

const SIZE: f64 = 12.0;
const ROW: f64 = 20.0;
const SIGN: f64 = 26.0;
const GAP: f64 = 20.0;

/// Draws items in rows, starting at `(x, y)`, `space` wide; returns the elements and their height.
pub fn draw(items: &[(Sign, String)], (left, y): (f64, f64), space: f64) -> (Vec<Element>, f64) {
    let names: Vec<String> = items.iter().map(|(_, name)| clipped(name, 260.0, SIZE)).collect();
    let widths: Vec<f64> = names.iter().map(|name| SIGN + width(name, SIZE) + GAP).collect();
    let (places, rows) = flow(&widths, space);
    let mut drawn = Vec::new();
    for (((sign, _), name), (x, row)) in items.iter().zip(&names).zip(places) {
        let (x, y) = (left + x, y + row as f64 * ROW + ROW / 2.0);
        drawn.push(match sign {
            Sign::Line(class) => line(x, y, x + SIGN - 6.0, y).class(class),
            Sign::Block(class) => block(x + 4.0, y - 6.0, 12, 12).class(class),
            Sign::Dot(class) => {
                let at = el("circle").with("cx", x + SIGN / 2.0 - 3.0).with("cy", y);
                at.with("r", 3.5).class(class)
            }
        });
        drawn.push(el("text").with("x", x + SIGN).with("y", y + 4.0).class("label").text(name));
    }
    (drawn, rows as f64 * ROW)
}
