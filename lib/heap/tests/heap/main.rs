//! The heap over frames that are numbers only.

mod common;
mod frames;
mod frees;
mod model;
mod random;
