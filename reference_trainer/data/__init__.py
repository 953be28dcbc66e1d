"""Text as batches of tokens.

text        sequences of bytes, in batches whose order depends on seed and epoch alone
documents   padded and packed rows
mixtures    the order of several sources
streams     documents that can only be read in order
workers     processes that tokenise
"""
