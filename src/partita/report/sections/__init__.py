"""The sections of a page about a run, one file each: functions that yield blocks, or none where
they have nothing to say.
"""
