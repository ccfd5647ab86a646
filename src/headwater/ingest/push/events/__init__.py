"""Events as lines of JSON: read, judged, taken into a set, counted, and sent to another server."""
