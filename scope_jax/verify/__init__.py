"""Checks answers on the host, where the device cannot tell."""
