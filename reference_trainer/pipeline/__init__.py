"""A distillation from settings to files.

distill        the whole run; `parts` are its six replaceable parts, `custom_class` chooses their class
defaults       settings that the user left out
teachers       teachers that are loaded, trained or stored; `served_teacher`: on a server; `precompute`: stores outputs
loss           the loss from the settings
checkpointing  what is saved, and what a resumed run must share; `run_files` manages the output directory
evaluations    evaluations during a run
planning       memory, steps and time, predicted by `--dry-run`
report         the result of a run; notes, such as on settings that need more steps than the run has
smoke          the lines and checks of a smoke run
checkpoint_list, saved_models   the commands `checkpoints` and `evaluate`
plot, figure   the command `plot`
"""
