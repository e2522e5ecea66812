//! Control groups, version 2: where this machine lets the worker make them, and one for each attempt.
//!
//! Two sides use it. The agent finds its *home* once at its start ([`Home::find`]): a directory below one that it may
//! write, named after the worker, with the controllers that were handed down to it. Each launcher makes one group per
//! attempt in it ([`JobGroup`]), named after the attempt. A group holds a job's processes whatever sessions or parents
//! they take: so it kills them all at once, limits them as one, and says when they are gone.
//!
//! Nothing outside of the home is ever changed but the list of controllers that its parent hands down. Without a home
//! everything still works: descendants are found by a walk, limits are somebody else's (`best_effort`) or refused.
//! (Worker design, *Launcher*; `docs/guide.md`, *Limits of a job*.)

mod home;
mod job;

pub use home::{AGENT, Home, HomeError, Machine};
pub use job::{JobGroup, MemoryLimit};
