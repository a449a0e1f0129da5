"""The one step that draws noise: from a summary to a release or answers."""
