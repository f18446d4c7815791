"""The test suite; see the modules of `tests.support` for the tools it shares."""
