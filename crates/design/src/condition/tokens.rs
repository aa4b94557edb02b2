//! The words and signs of a condition.

/// A word or a sign, as it is written.
pub(super) type Token<'a> = &'a str;

/// Signs, the longer ones first.
const SIGNS: [&str; 16] =
    ["<=", ">=", "==", "!=", "<", ">", "+", "-", "*", "/", "(", ")", ",", "=", "!", "."];

/// All of them, in order.
pub(super) fn tokens(text: &str) -> Result<Vec<Token<'_>>, String> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let length = match SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
            Some(sign) => sign.len(),
            None if is_word(first) => rest.find(|c| !is_word(c)).unwrap_or(rest.len()),
            None => return Err(format!("`{first}` means nothing here")),
        };
        let (token, after) = rest.split_at(length);
        match token {
            "=" => return Err("`=` is no operator: write `==`".to_string()),
            "!" => return Err("`!` is no operator: write `not`, or `!=`".to_string()),
            "." => return Err("numbers are whole: `.` means nothing here".to_string()),
            _ => tokens.push(token),
        }
        rest = after.trim_start();
    }
    Ok(tokens)
}
