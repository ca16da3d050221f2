"""What the guard costs, as ratios against plain Celery in the same run: ``python -m benchmarks``.

Every figure runs plain and guarded in turn, several rounds of both, and its ratio is the median over the rounds. Beside the ratio of
the clock stands that of CPU seconds, which other work on the machine disturbs far less. Absolute numbers are kept in the JSON for
whoever wants to see where a ratio comes from; they say nothing about another machine.

=================  ==============================================================================
``__main__``       the command
``figures``        the list of what is measured, with its floor
``throughput``     ... ``enqueue``, ``publish``, ``pickup``, ``memory``, ``trips``, ``imports``: how each is measured
``lab``            brokers, stores, worker processes; and their filling with jobs
``cost``           seconds on the clock and on the CPU
``app``            the app, plain or guarded, and its no-op job
``inside``         what runs in a process of its own and says what it has cost
``report``         the JSON, the plot and the tables of the documentation
=================  ==============================================================================
"""
