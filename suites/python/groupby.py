"""pandas: groups of a frame of 2 million rows, and a merge."""
import numpy
import pandas

random = numpy.random.default_rng(1)
rows = 2_000_000
frame = pandas.DataFrame({"key": random.integers(0, 300_000, rows), "value": random.random(rows)})
sums = frame.groupby("key").value.sum()
print(len(frame.merge(sums.rename("sum"), left_on="key", right_index=True)))
