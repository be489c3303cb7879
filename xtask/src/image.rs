//! TODO: owner's sentence.
