"""Files of a run: atomic writes, exclusive directories, checkpoints, stored outputs and the exported model.

files             atomic writes, digests, the lock of a directory
checkpoints       directories of checkpoints; `snapshot` copies tensors, `background` writes while the run goes on
retention         which checkpoints are kept, and which is resumed
export            the exported model; `whole_weights` joins the shards of several ranks
teacher_outputs   stored outputs of a teacher; `produce_once` is the cache of such directories
"""
