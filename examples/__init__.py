"""Programs that use the package as anybody would."""
