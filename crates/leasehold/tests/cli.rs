//! The command line as text: every help page, and every refusal that needs no control plane.
//!
//! After a change on purpose, `TRYCMD=overwrite cargo test -p leasehold --test cli` writes the files anew; read the
//! difference before it is committed.

#[test]
fn help_and_refusals_are_as_written() {
    trycmd::TestCases::new().case("tests/cmd/*.trycmd").env("NO_COLOR", "1");
}
