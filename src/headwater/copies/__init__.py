"""The state of a copy in DEST/.headwater/state.sqlite: its tables, which a destination writes and a source may read."""
