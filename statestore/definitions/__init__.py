"""Definitions of applications and stores."""
