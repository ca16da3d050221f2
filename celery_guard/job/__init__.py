"""A job and its life: values and pure rules. Nothing here reads a clock, a database or a broker."""
