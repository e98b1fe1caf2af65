"""Judges: who labels the steps of a response."""
