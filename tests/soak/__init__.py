"""A long run: a changing simulated fleet, three real workers and a real store, with random faults.

`make soak MINUTES=60` measures memory, open files, tasks, queues, the store and the latency of lookups all the while,
and says with a confidence interval whether any of them grows. Brokers that stay healthy, the steady fleet, must be in
every answer. `docs/soak.md` has the result of the run that is kept.
"""
