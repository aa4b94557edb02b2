//! Users and groups by name, from the files. A name that only a directory service knows is given
//! as a number: asking it would need the C library inside a program that may run at boot.

use crate::Root;
use crate::pool::PoolError;

/// A user's id; a number stands for itself.
pub fn user_id(root: &Root, name: &str) -> Result<u32, PoolError> {
    look_up(root, name, "user", "/etc/passwd")
}

/// A group's id; a number stands for itself.
pub fn group_id(root: &Root, name: &str) -> Result<u32, PoolError> {
    look_up(root, name, "group", "/etc/group")
}

fn look_up(
    root: &Root,
    name: &str,
    kind: &'static str,
    file: &'static str,
) -> Result<u32, PoolError> {
    if !name.is_empty() && name.bytes().all(|b| b.is_ascii_digit()) {
        let unknown = |_| PoolError::NoSuchName { kind, name: name.to_string(), file };
        return name.parse().map_err(unknown);
    }
    let text = root.read(file)?;
    let id = text.lines().find_map(|line| {
        let mut words = line.split(':');
        (words.next() == Some(name)).then(|| words.nth(1)?.parse().ok())?
    });
    id.ok_or_else(|| PoolError::NoSuchName { kind, name: name.chars().take(80).collect(), file })
}
