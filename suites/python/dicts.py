"""Dictionaries and lists of small objects, read in another order than they were made in."""
import random

random.seed(1)
words = {str(number): [number, number * 2] for number in range(200_000)}
keys = list(words)
random.shuffle(keys)
print(sum(words[key][1] for key in keys))
