"""The command line. ``main`` has both ways in; every other module is one word of it, imported when it is typed."""
