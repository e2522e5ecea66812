//! When a trigger fires: the text people write, the times it means in a zone, and what becomes of each of them.
//!
//! Everything here is a pure function; a store calls it inside the transaction that moves a trigger on. The rules:
//!
//! - A *fixed* time (no star among minutes and hours) fires at the first instant at which the clock on the wall shows it or
//!   a later one: so a time that does not exist fires right after the gap, and a time that comes twice fires once, the first.
//! - With a star among minutes or hours it follows real time: a time that does not exist is left out, one that comes twice
//!   fires twice.
//! - Day of month and day of week join by OR when neither holds a star.
//! - Fire times strictly increase, in every zone.
//!
//! Never here: a clock, a search without an end, the zone rules of the machine. The zones (feature `schedule`) come with the
//! binary, so that every replica finds the same times; the worker is built without them. (Control design, *Triggers*.)

mod backfill;
mod calendar;
mod change;
mod due;
mod expression;
mod fire;
mod ledger;
mod overlap;
mod progress;
mod spread;
mod times;
#[cfg(feature = "schedule")]
mod zone;

pub use backfill::{Backfill, BackfillError, backfill};
pub use change::{Change, edit, end, leave, pause, restore, resume};
pub use due::{Blocking, Rules, Settled, settle};
pub use expression::{Expression, ExpressionError, Mistake, Unit};
pub use fire::{Offsets, Span, Timetable, Utc};
pub use ledger::{Gap, GapReason, Happened, InTheWay, Line, kept_from};
pub use overlap::stands_in_the_way;
pub use progress::{Backlog, Progress};
pub use spread::Spread;
pub use times::Times;
#[cfg(feature = "schedule")]
pub use zone::{UnknownZone, Zone};
