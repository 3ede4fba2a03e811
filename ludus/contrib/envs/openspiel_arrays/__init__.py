"""OpenSpiel's larger games as arrays: compiled vectors, equal to OpenSpiel's states episode by episode."""
