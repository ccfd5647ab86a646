"""Follows many sources with one service: schedules, runs in processes, one journal of events, sinks, one status."""
