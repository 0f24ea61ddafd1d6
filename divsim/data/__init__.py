"""Tables that ship with divsim: recorded tokens of a language model, and numbers of an earlier prototype."""
