"""The main job: ``examples/airports/`` imports a real file with real workers, while everything around it is made to fail.

======= =======================================================================================================
plan    what will go wrong, drawn from a seed: which rows, which kills
faults  loaded into the workers and the loader: makes rows fail, delivers messages twice
steps   what the demo does in processes of its own: load a file, roll one back, count what is in the database
nodes   worker processes, started, killed by number, started again
runs    one import from its first to its last row; ``guarded`` and ``plain`` are its kinds
tally   what became of the rows, and whether it is what was promised
show    progress and the table
======= =======================================================================================================

The example knows nothing of this. It is found in the source tree, or inside the wheel.
"""
