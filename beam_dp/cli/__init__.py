"""The command `beam-dp`: what a person types, and what is shown to them."""
