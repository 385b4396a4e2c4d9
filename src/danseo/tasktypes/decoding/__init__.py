"""Answers from the numbers of a model: Viterbi, trees, thresholds; and the npz files that hold these numbers."""
