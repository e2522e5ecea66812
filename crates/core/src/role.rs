//! What the holder of an API token may do. Each role includes the one before it.

names! {
    /// A role.
    pub enum Role as "role" {
        /// Reads.
        Viewer = "viewer",
        /// Reads, submits and cancels.
        Operator = "operator",
        /// Everything, workers and tokens included.
        Admin = "admin",
    }
}

impl Role {
    /// Whether this role may do what `needed` may.
    pub fn includes(self, needed: Self) -> bool {
        self >= needed
    }
}
