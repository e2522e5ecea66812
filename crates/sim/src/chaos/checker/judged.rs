//! The twelve invariants of the proof: what a chaos run sees of each, and what it cannot see, with the reason.

/// The number of an invariant, what is judged here, and what is not.
pub(crate) const JUDGED: &[(u8, &str, &str)] = &[
    (1, "one start per attempt, on the worker that has it; fence numbers grow", ""),
    (
        2,
        "no two attempts of a run live at once, nothing lives once it was seen to be over, no second start that nobody \
         called safe; with the exceptions that these faults can cause",
        "stopped clocks, suspended hosts, agent and launcher frozen together, `on_lease_loss = \"finish\"`: never drawn",
    ),
    (
        3,
        "every run is terminal, or lost and held with its evidence; none is forgotten, doubled or made up; a person's word \
         stands in its story and closes what it may close",
        "that the explanation of a pending run is true: none is left pending here, explanations have tests of their own",
    ),
    (
        4,
        "every outcome is what the job wrote down; every evidence has a cause; what was left is told until it is gone; time \
         limits are kept",
        "the signal that a job was stopped with: it cannot write that down",
    ),
    (5, "every log, byte for byte", "artifacts: not built yet"),
    (
        6,
        "nothing moves an attempt or a run after its end; no event is missing; the database does not contradict itself",
        "each single call of a fenced session: the contract suite",
    ),
    (
        7,
        "no token that a worker ever held is in the control plane's files or in a log",
        "secrets of tasks: not built yet",
    ),
    (8, "", "one fire time, one run: nothing is scheduled here, schedules have tests of their own"),
    (9, "no record, attempt, process, control group or lease is left; nobody gave up", ""),
    (10, "no refusal as a copied credential, for there is no copy", "that a copy is refused: tests of its own"),
    (
        11,
        "the slots of a worker; a worker that a person drained starts nothing that it did not hold; the limits of tasks and \
         projects, where jobs have them",
        "limits while leases are lost: jobs of `--postgres` alone have limits",
    ),
    (12, "no start after a cancel of a claimed attempt", ""),
];
