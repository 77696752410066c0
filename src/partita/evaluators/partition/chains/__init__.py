"""log Z from chains that exist already."""
