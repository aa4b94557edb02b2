"""numpy: 4 million random reads of an array of 192 MiB."""
import numpy

random = numpy.random.default_rng(1)
array = numpy.arange(24 << 20, dtype=numpy.int64)
print(int(array[random.integers(0, len(array), 4_000_000)].sum()))
