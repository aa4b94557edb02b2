//! placeholder until the page is drawn
use crate::{analysis::Analysis, document::Document};
/// One page.
pub fn page(_: &Document, _: &Analysis) -> String {
    String::new()
}
