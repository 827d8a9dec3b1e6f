"""Components on a tree of geounits: two passes of messages."""
