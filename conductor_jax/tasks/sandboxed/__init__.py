"""What runs inside a sandbox: scripts of the standard library alone, started by their paths."""
