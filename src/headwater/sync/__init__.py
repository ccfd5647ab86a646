"""The destination: discover, plan, transfer, verify, apply, position, audit."""
