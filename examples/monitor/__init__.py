"""A small shop that is watched, and a picture of what Grafana shows of it."""
