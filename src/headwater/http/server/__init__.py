"""The server process: uvicorn within limits, its request parser, further processes."""
