"""Offices that sell seats in one group, a network partition, and the job that finds which passengers to rebook."""
