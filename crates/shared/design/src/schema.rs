//! The keys of a design file. Reading ([`crate::read`]) and writing ([`crate::write`]) both walk over these keys, so
//! both accept the same keys. The rules declare their own keys ([`policy::rules`]).

use policy::table::{Keys, Slot, Table};

use crate::Design;

/// Name, summary, and rules.
pub(crate) fn design(keys: &mut dyn Keys, design: &mut Design) {
    keys.about("Name of the design, on the command line and in documents.");
    keys.key("name", None, Slot::Text(&mut design.name));
    keys.about("What the design does, in one line.");
    keys.key("summary", None, Slot::Text(&mut design.summary));
    design.rules.keys(keys);
}
