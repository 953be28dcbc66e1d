"""Results of earlier validations, reused while nothing that they depend on has changed."""
