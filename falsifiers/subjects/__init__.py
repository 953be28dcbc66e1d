"""Other people's distillation losses in the place of the KD contract's subject: one module for each library."""
