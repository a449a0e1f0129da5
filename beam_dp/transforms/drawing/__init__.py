"""The one step that draws noise and turns a summary into a release or answers."""
