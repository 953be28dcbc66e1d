"""The decoder, its device and its dtype.

decoder    a small decoder-only transformer
loading    reads a model shard by shard; skeletons without memory
placement  the device, the CPU threads and the dtype with which a model computes
"""
