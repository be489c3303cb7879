//! The few colours of the output. Printed through `anstream`, which leaves them out where nobody could see them: when the
//! output is no terminal, and when NO_COLOR asks for it.

use anstyle::{AnsiColor, Style};

/// What is as it should be.
pub const GOOD: Style = AnsiColor::Green.on_default();
/// What is not.
pub const BAD: Style = AnsiColor::Red.on_default().bold();
/// What deserves a second look.
pub const NOTABLE: Style = AnsiColor::Yellow.on_default();
/// What can be passed over.
pub const MUTED: Style = Style::new().dimmed();
