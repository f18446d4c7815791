"""Tests of the benchmarks: that what they count is what was sent."""
