"""The distillation loss, its gradient, the step, and the teachers and students it works on.

step          both forwards, the loss and the backward of one micro-batch
losses        the loss and its gradient in closed form; `divergences` of rows, `fused` as a Triton kernel
heads         the loss of large vocabularies, in chunks
vocabulary, universal   vocabularies of different sizes; different tokenizers
features      hidden states
objective     the arguments of the loss
protocols, providers    teachers, students and batches
metrics       sums divided by counts
packed_rows, gradcheck  documents in a row; the gradient compared with automatic differentiation
"""
