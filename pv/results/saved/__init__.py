"""Read, write and merge reports as JSON, and compare a report with its base.

report   converts reports to JSON and back, and refuses files that are damaged or of another version
merge    joins reports of one commit about different contracts, claims or devices
changes  the differences from a base, worst first: failures, weaker requirements, fewer measurements; waivers
"""
