"""Offices that sell seats in one group, a network that parts them, and the job that finds who is rebooked."""
