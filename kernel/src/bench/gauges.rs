//! Gauges: numbers that are read once, when all rows are done.

use super::gauge;
use crate::{frame, vm};

gauge!(page_table_pages);
fn page_table_pages() -> u64 {
    vm::table_pages() as u64
}

gauge!(free_frames);
fn free_frames() -> u64 {
    frame::statistics().free as u64
}
