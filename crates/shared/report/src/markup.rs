//! `Element`: HTML and SVG that is well formed and escaped by construction. Only this module writes `<`.

use std::borrow::Cow;
use std::fmt::Display;

/// An element, rendered while it is built.
#[derive(Debug)]
pub struct Element {
    name: &'static str,
    attributes: String,
    content: String,
}

/// Starts an element.
pub fn el(name: &'static str) -> Element {
    Element { name, attributes: String::new(), content: String::new() }
}

impl Element {
    /// Sets an attribute. `name` must be trusted; `value` is escaped.
    pub fn with(mut self, name: &str, value: impl Display) -> Self {
        self.attributes += &format!(" {name}=\"{}\"", escape(&value.to_string()));
        self
    }

    /// Sets the class.
    pub fn class(self, class: impl Display) -> Self {
        self.with("class", class)
    }

    /// Adds text.
    pub fn text(mut self, text: impl Display) -> Self {
        self.content += &escape(&text.to_string());
        self
    }

    /// Adds a child.
    #[expect(clippy::should_implement_trait, reason = "nothing is summed")]
    pub fn add(mut self, child: Element) -> Self {
        child.write(&mut self.content);
        self
    }

    /// Adds children.
    pub fn all(self, children: impl IntoIterator<Item = Element>) -> Self {
        children.into_iter().fold(self, Self::add)
    }

    /// Adds a style sheet or script without escaping. `&'static` excludes untrusted text.
    pub fn sheet(mut self, css: &'static str) -> Self {
        self.content += css;
        self
    }

    /// The finished markup.
    pub fn finish(self) -> String {
        let mut text = String::new();
        self.write(&mut text);
        text
    }

    fn write(&self, out: &mut String) {
        let Self { name, attributes, content } = self;
        *out += &format!("<{name}{attributes}>");
        // HTML's void elements have no end tag; pages use only these two.
        if !["meta", "br"].contains(name) {
            *out += &format!("{content}</{name}>");
        }
        if BLOCKS.contains(name) {
            out.push('\n');
        }
    }
}

/// Elements after which white space has no effect. A line break after each makes the source
/// readable.
const BLOCKS: [&str; 16] = [
    "meta", "head", "body", "header", "section", "h2", "h3", "p", "li", "tr", "table", "details",
    "figure", "svg", "use", "dd",
];

/// Escapes text and attributes. Spells out control characters, which HTML does not allow, and bidirectional controls,
/// which could make one command line look like another.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            '\'' => escaped += "&#39;",
            '\n' => escaped.push('\n'),
            c if c.is_control() || is_invisible(c) => escaped += &c.escape_unicode().to_string(),
            c => escaped.push(c),
        }
    }
    escaped
}

/// Makes text safe for a terminal: escapes, in JSON notation, characters that reorder or hide the rest of a line, and
/// DEL and the control characters after it, which JSON does not escape and which would be removed with styles. Other
/// control characters stay: styles and line breaks are made of them.
pub fn visible(text: &str) -> Cow<'_, str> {
    let is_escaped = |char: char| matches!(char, '\u{7f}'..='\u{9f}') || is_invisible(char);
    if !text.contains(is_escaped) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 8);
    for char in text.chars() {
        match is_escaped(char) {
            true => escaped += &format!("\\u{:04x}", u32::from(char)),
            false => escaped.push(char),
        }
    }
    Cow::Owned(escaped)
}

pub(crate) fn is_invisible(char: char) -> bool {
    matches!(char, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_shows_what_is_written() {
        assert_eq!(visible("a\u{202e}b\u{200f}\n"), "a\\u202eb\\u200f\n");
        assert_eq!(visible("a\u{7f}b\u{9b}2J"), "a\\u007fb\\u009b2J");
        assert!(matches!(visible("\u{1b}[1mä\t"), Cow::Borrowed(_)));
    }

    #[test]
    fn escapes_what_could_be_markup_or_a_trick() {
        let element = el("p").with("title", "a\"'b").text("<x> & \u{202e}\0 y\tz");
        assert_eq!(
            element.finish(),
            "<p title=\"a&quot;&#39;b\">&lt;x&gt; &amp; \\u{202e}\\u{0} y\\u{9}z</p>\n"
        );
    }
}
