"""Other people's tools with our strategies inside. Each module needs the extra of the same name."""
