"""What a destination remembers in DEST/.headwater/state.sqlite."""
