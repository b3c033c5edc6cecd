"""Attacks that are run by hand: what they need, or take, is too much for every run of the tests."""
